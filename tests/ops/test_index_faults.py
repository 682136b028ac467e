"""An index outside of its axis is an error, however far below the axis it lies: never another row."""

from __future__ import annotations

import pytest
import torch
from onnx import TensorProto, helper

import torch_ort_session

OUTSIDE = (-9, -5, 4, 7)
"""For an axis of 4; -5 and -9 would wrap twice, to a row that exists."""


def session(op: str, inputs: list[str], domain: str = "", outputs: int = 1, **attrs: object) -> object:
    kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "j": TensorProto.INT32}
    names = [f"{name}{i}" if name else "" for i, name in enumerate(inputs)]
    infos = [helper.make_tensor_value_info(name, kinds[name[0]], None) for name in names if name]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, domain=domain, name="n", **attrs)
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y0", 0, None)])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return torch_ort_session.load(helper.make_model(graph, opset_imports=opsets, ir_version=11))


def index(value: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.full(shape, value, dtype=dtype)


X = torch.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize("value", OUTSIDE)
@pytest.mark.parametrize(
    ("op", "kinds", "feeds", "attrs"),
    [
        ("Gather", ["f", "i"], lambda v: [X, index(v, 2)], {}),
        ("Gather", ["f", "i"], lambda v: [X, index(v)], {}),
        ("GatherElements", ["f", "i"], lambda v: [X, index(v, 2, 3)], {}),
        ("GatherND", ["f", "i"], lambda v: [X, index(v, 2, 1)], {}),
        ("ScatterElements", ["f", "i", "f"], lambda v: [X, index(v, 1, 3), torch.ones(1, 3)], {}),
        ("ScatterND", ["f", "i", "f"], lambda v: [X, index(v, 1, 1), torch.ones(1, 3)], {}),
        (
            "RotaryEmbedding",
            ["f", "f", "f", "i"],
            lambda v: [torch.ones(1, 1, 2, 4), torch.ones(4, 2), torch.ones(4, 2), index(v, 1, 2)],
            {},
        ),
        (
            "NegativeLogLikelihoodLoss",
            ["f", "i"],
            lambda v: [torch.ones(2, 4), index(v, 2)],
            {},
        ),
    ],
)
def test_an_index_outside_of_the_axis_is_an_error(
    op: str, kinds: list[str], feeds: object, attrs: dict[str, object], value: int
) -> None:
    with pytest.raises(torch_ort_session.DeviceIndexError) as caught:
        session(op, kinds, **attrs).run(None, dict(zip(_names(kinds), feeds(value), strict=True)))
    assert (caught.value.node, caught.value.value) == ("n", value)


@pytest.mark.parametrize("value", OUTSIDE)
def test_an_embedding_index_outside_of_the_table_is_an_error(value: int) -> None:
    kinds = ["j", "", "f", "f", "", "f", "f"]
    table = torch.ones(4, 3)
    made = session("EmbedLayerNormalization", kinds, "com.microsoft", 2)
    feed = [index(value, 1, 2, dtype=torch.int32), table, table, torch.ones(3), torch.ones(3)]
    with pytest.raises(torch_ort_session.DeviceIndexError) as caught:
        made.run(None, dict(zip(_names(kinds), feed, strict=True)))
    assert (caught.value.node, caught.value.value) == ("n", value)


def _names(kinds: list[str]) -> list[str]:
    return [f"{name}{i}" for i, name in enumerate(kinds) if name]
