"""Names of nodes and weights never decide which weight a body reads."""

from __future__ import annotations

import pytest
import torch
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

import torch_ort_session


def branch(value: float) -> GraphProto:
    weight = numpy_helper.from_array(torch.full((2,), value).numpy(), "w")
    node = helper.make_node("Identity", ["w"], ["out"], name="copy")
    return helper.make_graph([node], "b", [], [helper.make_tensor_value_info("out", 1, [2])], [weight])


def model(names: list[str], extra: str = "") -> ModelProto:
    nodes = [
        helper.make_node(
            "If", ["c"], [f"y{i}"], name=name, then_branch=branch(i + 1.0), else_branch=branch(-i - 1.0)
        )
        for i, name in enumerate(names)
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [2]) for i in range(len(names))]
    weights = []
    if extra:
        weights.append(numpy_helper.from_array(torch.full((2,), 9.0).numpy(), extra))
        nodes.append(helper.make_node("Identity", [extra], ["z"], name="last"))
        outputs.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [2]))
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("trainable", [None, False, True])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(
    ("names", "extra"),
    [
        (["same", "same"], ""),
        (["", ""], ""),
        (["If_1", ""], ""),
        (["a"], "a/then_branch/w"),
        (["a"], "a/else_branch/w"),
    ],
)
def test_a_body_reads_its_own_weights(
    names: list[str], extra: str, flag: bool, trainable: bool | None
) -> None:
    session = torch_ort_session.load(model(names, extra))
    call = session if trainable is None else session.module(trainable=trainable)
    expected = [(i + 1.0) if flag else (-i - 1.0) for i in range(len(names))] + ([9.0] if extra else [])
    for _ in range(5):
        results = call(torch.tensor(flag))
        got = [float(item.detach()[0]) for item in (results if isinstance(results, tuple) else (results,))]
        assert got == expected
