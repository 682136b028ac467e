"""ONNX's backend interface: models and single nodes on numpy values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from onnx import TensorProto, helper
from textmodel import message, model

import torch_ort_session as tos
from torch_ort_session.compat import backend
from torch_ort_session.compat.backend import Backend, PreparedModel, as_numpy
from torch_ort_session.ir.types import ElementType, OptionalType, SequenceType, TensorType

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def two_outputs() -> onnx.ModelProto:
    proto = model(
        "g (float[2, 3] x, float[3] w) => (float[2, 3] y, float[2, 3] z) { y = Add(x, w) z = Sub(x, w) }"
    )
    proto.graph.output[1].name = proto.graph.node[1].output[0] = "1/z"
    return proto


def test_prepare_and_run() -> None:
    prepared = Backend.prepare(two_outputs())
    assert isinstance(prepared, PreparedModel)
    w = np.ones(3, np.float32)
    for inputs in ([X, w], (X, w), {"x": X, "w": w}):
        results = prepared.run(inputs)
        assert len(results) == 2
        assert all(isinstance(item, np.ndarray) for item in results)
        np.testing.assert_array_equal(results[0], X + 1)
        np.testing.assert_array_equal(results["1/z"], X - 1)
        np.testing.assert_array_equal(results.y, X + 1)


def test_one_input_may_come_bare() -> None:
    prepared = backend.prepare(model("g (float[2, 3] x) => (float[2, 3] y) { y = Neg(x) }"), "CPU")
    np.testing.assert_array_equal(prepared.run(X)[0], -X)
    np.testing.assert_array_equal(prepared.run([X])[0], -X)


def test_run_model_and_options() -> None:
    proto = two_outputs()
    w = np.ones(3, np.float32)
    np.testing.assert_array_equal(backend.run_model(proto, [X, w]).y, X + 1)
    options = tos.Options(num_threads=1)
    np.testing.assert_array_equal(backend.run_model(proto, [X, w], "CPU", options=options, other=1).y, X + 1)


def test_wrong_inputs() -> None:
    prepared = Backend.prepare(two_outputs())
    assert_expected_inline(
        message(ValueError, lambda: prepared.run([X, X, X])), """3 inputs were given, the model takes 2"""
    )
    assert_expected_inline(
        message(tos.InputError, lambda: prepared.run([X])),
        """required input(s) 'w' are missing; 'x' was fed""",
    )


def test_devices() -> None:
    assert Backend.supports_device("CPU")
    assert backend.supports_device("CPU")
    assert not backend.supports_device("TPU")
    assert not backend.supports_device("cpu2")
    assert backend.supports_device("CUDA") == torch.cuda.is_available()
    assert not backend.supports_device("CUDA:99")
    assert_expected_inline(
        message(tos.InputError, lambda: Backend.prepare(two_outputs(), "TPU")),
        """device 'TPU' is not supported; use 'CPU', 'CUDA' or 'CUDA:n'""",
    )


def test_is_compatible() -> None:
    assert backend.is_compatible(two_outputs())
    assert not backend.is_compatible(model("g (float[2] x) => (float[2] y) { y = tests.Unknown(x) }"))
    if not torch.cuda.is_available():
        assert not backend.is_compatible(two_outputs(), "CUDA")


def node(op: str, inputs: list[str], outputs: list[str] | None = None, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs or ["y"], **attributes)


def test_run_node() -> None:
    add = node("Add", ["a", "b"])
    (y,) = backend.run_node(add, [X, X])
    np.testing.assert_array_equal(y, X + X)
    sub = node("Sub", ["a", "b"])
    np.testing.assert_array_equal(backend.run_node(sub, {"b": X, "a": 3 * X})[0], 2 * X)
    np.testing.assert_array_equal(backend.run_node(node("Add", ["a", "a"]), [X])[0], X + X)
    clip = node("Clip", ["x", "", "high"])
    np.testing.assert_array_equal(backend.run_node(clip, [X, np.float32(2)])[0], np.minimum(X, 2))
    top = node("TopK", ["x", "k"], ["values", "places"])
    results = backend.run_node(top, [X, np.array([1])])
    assert results.places.tolist() == [[2], [2]]
    hard = node("HardSigmoid", ["x"], alpha=0.5)
    np.testing.assert_allclose(backend.run_node(hard, [X], opset_version=6)[0], np.clip(0.5 * X + 0.5, 0, 1))
    gelu = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    assert backend.run_node(gelu, [X])[0].shape == X.shape


def test_the_one_input_of_a_node_may_come_bare() -> None:
    given = np.array([[-1.0, 2.0]], np.float32)
    (made,) = Backend.run_node(helper.make_node("Relu", ["x"], ["y"]), given)
    np.testing.assert_array_equal(made, [[0.0, 2.0]])


def test_a_node_of_another_domain_is_of_its_newest_revision() -> None:
    more = {"domain": "ai.onnx.ml", "keys_int64s": [1, 2], "values_int64s": [30, 40]}
    node = helper.make_node("LabelEncoder", ["x"], ["y"], **more)
    assert Backend.run_node(node, [np.array([2, 1])])[0].tolist() == [40, 30]
    with pytest.raises(tos.ModelError, match="revision 1"):
        Backend.run_node(node, [np.array([2, 1])], domain_version=1)


@pytest.mark.parametrize("device", ["CUDA:99999999999999999999", "CUDA:-7", "CUDA:x", ""])
def test_what_is_no_device_is_not_supported(device: str) -> None:
    assert not Backend.supports_device(device)
    with pytest.raises(tos.InputError, match="is not supported"):
        Backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [np.ones(1, np.float32)], device)


def test_run_node_on_other_values() -> None:
    words = np.array(["b", "a"])
    joined = backend.run_node(node("Concat", ["a", "b"], axis=0), [words, words.astype(object)])[0]
    assert joined.tolist() == ["b", "a", "b", "a"]
    parts = backend.run_node(node("ConcatFromSequence", ["s"], axis=0), [[X, X]])[0]
    np.testing.assert_array_equal(parts, np.concatenate([X, X]))
    made = backend.run_node(node("SequenceConstruct", ["a", "b"]), [X, X])[0]
    assert isinstance(made, list)
    np.testing.assert_array_equal(made[1], X)
    has = node("OptionalHasElement", ["o"])
    assert backend.run_node(has, [None])[0].item() is False
    half = X.astype(ml_dtypes.bfloat16)
    result = backend.run_node(node("Add", ["a", "b"]), [half, half])[0]
    assert result.dtype == half.dtype
    np.testing.assert_array_equal(result.astype(np.float32), 2 * X)


def test_types_of_less_than_a_byte() -> None:
    scale, zero = np.float32(1), np.array(0, ml_dtypes.int4)
    y = backend.run_node(node("QuantizeLinear", ["x", "s", "z"]), [X, scale, zero], opset_version=21)[0]
    assert y.dtype == ml_dtypes.int4
    assert y.astype(int).tolist() == [[0, 1, 2], [3, 4, 5]]
    info = [(np.dtype(ml_dtypes.uint4), (2, 3))]
    cast = node("Cast", ["x"], to=TensorProto.UINT4)
    y = backend.run_node(cast, [X], outputs_info=info, opset_version=21)[0]
    assert y.dtype == ml_dtypes.uint4


def test_a_node_is_run_without_onnx_inferring_its_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends_the_process(*_: Any, **__: Any) -> None:
        raise AssertionError("infer_shapes was called")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", ends_the_process)
    zero = np.array(0, ml_dtypes.int4)
    made = backend.run_node(node("SequenceConstruct", ["a", "a"]), [zero.reshape(1)], opset_version=21)[0]
    assert [each.dtype for each in made] == [ml_dtypes.int4] * 2
    assert backend.run_node(node("Shape", ["x"]), [X])[0].tolist() == [2, 3]


def test_the_types_of_outputs_that_a_model_does_not_declare() -> None:
    nodes = [node("Cast", ["x"], to=TensorProto.UINT4), node("Identity", ["y"], ["z"])]
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(nodes, "g", [port], [helper.make_empty_tensor_value_info("z")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert backend.run_model(model, [X])[0].dtype == ml_dtypes.uint4


CONVERSIONS = [
    (ElementType.BFLOAT16, ml_dtypes.bfloat16),
    (ElementType.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    (ElementType.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
    (ElementType.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    (ElementType.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
    (ElementType.FLOAT4E2M1, ml_dtypes.float4_e2m1fn),
    (ElementType.INT4, ml_dtypes.int4),
    (ElementType.UINT4, ml_dtypes.uint4),
    (ElementType.INT2, ml_dtypes.int2),
    (ElementType.UINT2, ml_dtypes.uint2),
    (ElementType.INT64, np.int64),
    (ElementType.BOOL, np.bool_),
    (ElementType.COMPLEX64, np.complex64),
    (ElementType.FLOAT16, np.float16),
]


@pytest.mark.parametrize(("element", "dtype"), CONVERSIONS, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize("shape", [(), (0,), (2, 2), (2, 2, "strided")], ids=str)
def test_results_as_numpy(element: ElementType, dtype: Any, shape: tuple[Any, ...]) -> None:
    assert element.torch_dtype is not None
    values = torch.tensor([[0, 1], [1, 0]]).to(torch.float32).to(element.torch_dtype)
    tensor = {
        (): values[0, 1].clone(),
        (0,): values[0][:0].clone(),
        (2, 2): values,
        (2, 2, "strided"): values.t(),
    }[shape]
    array = as_numpy(tensor, TensorType(element, None))
    assert array.dtype == np.dtype(dtype)
    assert array.shape == tuple(tensor.shape)
    np.testing.assert_array_equal(array.astype(np.complex64), tensor.to(torch.complex64).numpy())


def test_other_results_as_numpy() -> None:
    item = TensorType(ElementType.INT4, None)
    carried = torch.tensor([1, -2], dtype=torch.int8)
    (first, second) = as_numpy((carried, carried), SequenceType(item))
    assert first.dtype == second.dtype == ml_dtypes.int4
    assert as_numpy(carried, OptionalType(item)).dtype == ml_dtypes.int4
    assert as_numpy(None, OptionalType(item)) is None
    assert as_numpy(carried).dtype == np.int8
    assert as_numpy((), SequenceType(item)) == []
    words = np.array(["a"], object)
    assert as_numpy(words) is words
    assert as_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]
