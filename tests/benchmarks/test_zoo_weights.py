"""benchmarks/weights.py: models shipped without weights get some that make results depend on inputs."""

import numpy as np
import onnx
import pytest
import torch
import weights
from onnx import TensorProto, helper, numpy_helper

import torch_ort_session as tos


@pytest.fixture
def hollow(tmp_path):
    """A classifier all of whose weights are 0.02."""
    value = numpy_helper.from_array(np.array([0.02], np.float32))
    nodes = [
        helper.make_node("ConstantOfShape", ["filter_shape"], ["filter"], value=value),
        helper.make_node("ConstantOfShape", ["bias_shape"], ["bias"], value=value),
        helper.make_node("Conv", ["image", "filter", "bias"], ["map"]),
        helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"]),
    ]
    graph = helper.make_graph(
        nodes,
        "hollow",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 5])],
        [
            numpy_helper.from_array(np.array([5, 3, 3, 3]), "filter_shape"),
            numpy_helper.from_array(np.array([5]), "bias_shape"),
        ],
    )
    path = tmp_path / "hollow.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), path)
    return path


def test_results_depend_on_the_input(hollow):
    session, full = tos.load(hollow), tos.load(weights.filled(hollow))
    first, second = torch.randn(2, 1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(session(first), session(second))
    assert [port.name for port in full.outputs] == ["probabilities", "logits"]
    for one, other in zip(full(first), full(second), strict=True):
        assert not torch.allclose(one, other)


def test_weights_are_the_same_each_time_and_keep_their_shapes(hollow):
    assert weights.filled(hollow) == weights.filled(hollow)
    model = onnx.load_from_string(weights.filled(hollow))
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert (found["filter"].shape, found["bias"].shape) == ((5, 3, 3, 3), (5,))
    assert (found["bias"] > 0).all() and found["filter"].std() > 0.1
    assert "ConstantOfShape" not in {node.op_type for node in model.graph.node}
