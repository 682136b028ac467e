"""Dims of inputs that exporters write in their own ways."""

import pytest
import torch
from onnx import TensorProto, helper

import torch_ort_session as tos


@pytest.mark.parametrize("unknown", ["?", "", -1])
def test_a_size_that_is_not_known_names_nothing(unknown):
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [unknown, 3, unknown]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "dims", ports[:1], ports[1:])
    session = tos.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))
    assert session.inputs[0].shape == (None, 3, None)
    x = torch.rand(2, 3, 5)
    assert torch.equal(session(x), -x)
