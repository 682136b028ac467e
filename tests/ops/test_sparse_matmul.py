"""SparseToDenseMatMul of a matrix that the model stores sparsely, beside onnxruntime, which is fed it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from opcase import assert_matches
from ortsession import ort_session

import torch_ort_session as tos

VALUES, PLACES, SHAPE = np.array([2.0, -1.0, 0.5], np.float32), np.array([1, 4, 11]), [3, 4]


def model(inputs: list[onnx.ValueInfoProto], **more: Any) -> bytes:
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=0.5)
    b = helper.make_tensor_value_info("b", TensorProto.FLOAT, [4, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])
    graph = helper.make_graph([node], "g", [*inputs, b], [y], **more)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def test_a_sparse_initializer() -> None:
    b = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    fed = model([helper.make_sparse_tensor_value_info("a", TensorProto.FLOAT, SHAPE)])
    session = ort_session(fed)
    device = onnxruntime.OrtDevice.make("cpu", 0)
    pairs = np.stack(np.divmod(PLACES, SHAPE[1]), 1).reshape(-1)
    sparse = onnxruntime.SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, pairs, device)
    feeds = {
        "a": onnxruntime.OrtValue.ort_value_from_sparse_tensor(sparse),
        "b": onnxruntime.OrtValue.ortvalue_from_numpy(b),
    }
    theirs = session.run_with_ort_values(None, feeds)[0].numpy()
    assert np.count_nonzero(theirs) == 6
    values = helper.make_tensor("a", TensorProto.FLOAT, [3], VALUES.tolist())
    indices = helper.make_tensor("", TensorProto.INT64, [3], PLACES.tolist())
    held = model([], sparse_initializer=[helper.make_sparse_tensor(values, indices, SHAPE)])
    assert_matches(tos.load(held).run(None, {"b": b})[0], theirs)
