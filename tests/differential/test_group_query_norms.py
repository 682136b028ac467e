"""GroupQueryAttention with normalized heads, which onnxruntime's CPU has as two nodes in front of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from ortsession import ort_session

import torch_ort_session as tos
from differential.tallied import Compared

FLOATS = ("q", "k", "v", "past_k", "past_v", "cos", "sin", "q_norm", "k_norm")
FEEDS = (*FLOATS, "last", "total")


def model(heads: int, groups: int, size: int, epsilon: float, apart: bool, turned: int) -> onnx.ModelProto:
    """Normalized in the attention, or by nodes of its own."""
    given = ["q", "k", "v", "past_k", "past_v", "last", "total", "cos", "sin"]
    nodes, weights, more = [], [], {"qk_norm_epsilon": epsilon}
    if apart:
        more = {}
        for part, count in (("q", heads), ("k", groups)):
            for name, shape in (
                (f"{part}_apart", [0, 0, count, size]),
                (f"{part}_flat", [0, 0, count * size]),
            ):
                weights.append(onnx.numpy_helper.from_array(np.array(shape, np.int64), name))
            nodes += [
                helper.make_node("Reshape", [part, f"{part}_apart"], [f"{part}0"]),
                helper.make_node(
                    "SimplifiedLayerNormalization",
                    [f"{part}0", f"{part}_norm"],
                    [f"{part}1"],
                    epsilon=epsilon,
                ),
                helper.make_node("Reshape", [f"{part}1", f"{part}_flat"], [f"{part}2"]),
            ]
        given[:2] = ["q2", "k2"]
    else:
        given += [""] * 5 + ["q_norm", "k_norm"]
    nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            given,
            ["y", "present_k", "present_v"],
            domain="com.microsoft",
            num_heads=heads,
            kv_num_heads=groups,
            do_rotary=turned,
            **more,
        )
    )
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in FLOATS]
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT32, None) for name in ("last", "total")]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in nodes[-1].output]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds(rng: np.random.Generator, heads: int, groups: int, size: int, length: int) -> dict[str, Any]:
    """A prompt where there are several rows, else a token behind some."""
    batch, room = 2, 12
    before = np.zeros(batch, np.int64) if length > 1 else rng.integers(1, room, batch)
    shapes = {
        "q": (batch, length, heads * size),
        "k": (batch, length, groups * size),
        "v": (batch, length, groups * size),
        "past_k": (batch, groups, room, size),
        "past_v": (batch, groups, room, size),
        "q_norm": (size,),
        "k_norm": (size,),
    }
    made = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    angles = rng.uniform(0, 6, (room, size // 2)).astype(np.float32)
    after = (before + length).astype(np.int32)
    return made | {
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "last": after - 1,
        "total": np.array(after.max()),
    }


def test_normalized_heads_agree_with_nodes_in_front(compared: Compared) -> None:
    for seed in range(24):
        rng = np.random.default_rng(seed)
        groups, size, length = (
            int(rng.integers(1, 3)),
            16 * int(rng.integers(1, 4)),
            int(rng.choice([1, 1, 3])),
        )
        heads, epsilon, turned = groups * int(rng.integers(1, 4)), float(rng.choice([1e-6, 0.2])), seed % 2
        ours = tos.load(model(heads, groups, size, epsilon, False, turned))
        proto = model(heads, groups, size, epsilon, True, turned)
        theirs = ort_session(proto.SerializeToString())
        for _ in range(3):
            feed = feeds(rng, heads, groups, size, length)
            needed = {one.name for one in theirs.get_inputs()}
            wanted = theirs.run(None, {name: part for name, part in feed.items() if name in needed})
            got = [np.asarray(part) for part in ours.run(None, feed)]
            np.testing.assert_allclose(got[0], wanted[0], rtol=1e-4, atol=1e-4)
            for b, last in enumerate(feed["last"]):
                for mine, other in zip(got[1:], wanted[1:], strict=True):
                    np.testing.assert_allclose(
                        mine[b, :, : last + 1], other[b, :, : last + 1], rtol=1e-5, atol=1e-5
                    )
        compared.note(model(heads, groups, size, epsilon, False, turned))
