"""Loading limits reach the loader through the options of a session."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import torch_ort_session
from torch_ort_session import Limits, ModelError, Options


def test_a_model_over_a_limit_is_refused_and_a_higher_limit_lets_it_in() -> None:
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(5)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("v5", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    with pytest.raises(ModelError, match="more than 4 nodes"):
        torch_ort_session.load(model, options=Options(limits=Limits(nodes=4)))
    assert len(torch_ort_session.load(model, options=Options(limits=Limits(nodes=5))).graph.nodes) == 5
