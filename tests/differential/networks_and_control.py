"""Families of what networks are made of, and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from differential.growth import Family, Growth, Value, info


def matmul(g: Growth) -> object:
    x = g.pick(least=1)
    inner = x.shape[-1]
    shape = g.one_of([(inner,), (inner, 3), (inner, 1)])
    if g.chance(0.3):
        fitting = [
            v
            for v in g.values.values()
            if v.data is not x.data and v.kind == "f" and v.data.dtype == x.data.dtype and v.data.ndim == 2
            and v.shape[0] == inner
        ]  # fmt: skip
        if fitting:
            return g.add("MatMul", [x, g.one_of(fitting)])
    return g.add("MatMul", [x, g.weight(g.draw(shape, x.data.dtype))])


def gemm(g: Growth) -> object:
    x = g.pick(ndim=2)
    left, right = g.number(0, 1), g.number(0, 1)
    inner = x.shape[1 - left]
    other = g.weight(g.draw((3, inner) if right else (inner, 3), x.data.dtype))
    parts: list[Value | None] = [x, other]
    if g.opset < 11 or g.chance(0.7):
        parts.append(
            g.weight(g.draw(g.one_of([(3,), (1, 3), (1,), ()]) if g.opset >= 7 else (3,), x.data.dtype))
        )
    return g.add(
        "Gemm", parts, transA=left, transB=right, alpha=g.one_of([1.0, 0.5]), beta=g.one_of([1.0, 2.0])
    )


def einsum(g: Growth) -> object:
    g.since(12)
    x = g.pick(ndim=2)
    equation = g.one_of(["ij->ji", "ij->i", "ij,ij->", "ij,kj->ik", "ij->"])
    return g.add("Einsum", [x] * (2 if "," in equation else 1), equation=equation)


def conv(g: Growth) -> object:
    x = g.pick("f", g.one_of([3, 4]))
    g.need(x.data.dtype == np.float32 and min(x.shape[1:]) > 0)
    rank, channels = x.data.ndim - 2, x.shape[1]
    group = channels if g.chance(0.3) else 1
    out = group * g.number(1, 2)
    kernel = [g.number(1, 3) for _ in range(rank)]
    common: dict[str, Any] = {"group": group, "strides": [g.number(1, 2)] * rank}
    if g.chance(0.6):
        common["pads"] = [g.number(0, 1) for _ in range(2 * rank)]
    elif g.chance(0.5):
        common["auto_pad"] = g.one_of(["SAME_UPPER", "SAME_LOWER", "VALID"])
    # What a kernel larger than its input gives is not defined.
    pads = common.get("pads", [0] * 2 * rank)
    sums = [x.shape[2 + i] + pads[i] + pads[rank + i] for i in range(rank)]
    g.need(all(k <= s for k, s in zip(kernel, sums, strict=True)))
    if g.chance(0.2):
        g.need(all(pads[i] + pads[rank + i] < kernel[i] for i in range(rank)))
        transposed = g.weight(g.draw((channels, out // group, *kernel)))
        return g.add("ConvTranspose", [x, transposed], **common)
    parts: list[Value | None] = [x, g.weight(g.draw((out, channels // group, *kernel)))]
    if g.chance(0.5):
        parts.append(g.weight(g.draw((out,))))
    return g.add("Conv", parts, **common)


def pool(g: Growth) -> object:
    x = g.pick("f", g.one_of([3, 4]))
    g.need(min(x.shape) > 0)
    # Graphs grow on what the reference makes of a node: where its shapes are wrong, nothing valid grows. Its
    # GlobalMaxPool drops a single spatial dim, its MaxPool mixes up the pads of different dims, and does not
    # round up as the formula says where there are pads.
    if g.chance(0.2):
        return g.add(g.one_of(["GlobalAveragePool", "GlobalMaxPool"][: x.data.ndim - 2]), [x])
    rank = x.data.ndim - 2
    common: dict[str, Any] = {"kernel_shape": [2] * rank, "strides": [g.number(1, 2)] * rank}
    g.need(min(x.shape[2:]) >= 2)
    if g.chance(0.5):
        common["pads"] = [g.number(0, 1)] * 2 * rank
    elif g.opset >= 10 and g.chance(0.5):
        common["ceil_mode"] = 1
    if g.chance(0.5):
        return g.add("MaxPool", [x], **common)
    return g.add("AveragePool", [x], count_include_pad=g.number(0, 1), **common)


def normalise(g: Growth) -> object:
    x = g.pick("f", least=2)
    g.need(x.data.dtype == np.float32 and x.data.size > 0)
    channels = x.shape[1]
    scale, shift = g.weight(g.draw((channels,))), g.weight(g.draw((channels,)))
    form = g.number(0, 3)
    if form == 0:
        mean, var = g.weight(g.draw((channels,))), g.weight(np.abs(g.draw((channels,))) + 0.5, np.float32)
        return g.add("BatchNormalization", [x, scale, shift, mean, var])
    g.need(x.data.ndim >= 3)
    if form == 1:
        return g.add("InstanceNormalization", [x, scale, shift], epsilon=0.1)
    if form == 2:
        g.need(x.data.ndim == 4)
        return g.add("LRN", [x], size=3)
    g.since(17)
    last = g.weight(g.draw((x.shape[-1],)))
    return g.add("LayerNormalization", [x, last], epsilon=0.1)


def resize(g: Growth) -> object:
    g.since(11)
    x = g.pick("f", 4)
    g.need(x.data.dtype == np.float32 and min(x.shape) > 0)
    mode = g.one_of(["nearest", "linear"])
    transform = g.one_of(["half_pixel", "asymmetric", "align_corners"])
    scales = g.weight([1.0, 1.0, 2.0, g.one_of([1.0, 2.0])], np.float32)
    empty = g.weight([], np.float32) if g.opset < 13 else None
    return g.add("Resize", [x, empty, scales], mode=mode, coordinate_transformation_mode=transform)


def upsample(g: Growth) -> object:
    g.need(7 <= g.opset <= 9)
    x = g.pick("f", 4)
    if g.opset == 9:
        return g.add("Upsample", [x, g.weight([1.0, 1.0, 2.0, 2.0], np.float32)], exact=True, mode="nearest")
    return g.add("Upsample", [x], exact=True, mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])


def quantise(g: Growth) -> object:
    g.since(10)
    x = g.pick("f", exact=True)
    g.need(x.data.dtype == np.float32)
    scale, zero = g.weight(0.25, np.float32), g.weight(g.number(0, 3), g.one_of([np.uint8, np.int8]))
    return g.add(
        "DequantizeLinear", [g.add("QuantizeLinear", [x, scale, zero], exact=True), scale, zero], exact=True
    )


def recurrent(g: Growth) -> object:
    x = g.pick("f", 3)
    g.need(x.data.dtype == np.float32 and min(x.shape) > 0)
    op, gates = g.one_of([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
    ways = g.one_of([1, 2])
    hidden = 2
    small = [
        g.rng.integers(-4, 5, s) / 8
        for s in ((ways, gates * hidden, x.shape[2]), (ways, gates * hidden, hidden))
    ]
    parts: list[Value | None] = [x, *(g.weight(w, np.float32) for w in small)]
    if g.chance(0.5):
        parts.append(g.weight(g.rng.integers(-4, 5, (ways, 2 * gates * hidden)) / 8, np.float32))
    return g.add(op, parts, 2, hidden_size=hidden, **({"direction": "bidirectional"} if ways == 2 else {}))


def predicate(g: Growth) -> Value:
    """A bool of no dims that hangs on data."""
    x = g.pick("f", exact=True)
    g.need(x.data.size > 0)
    axes = list(range(x.data.ndim))
    if not axes:
        low = x
    elif g.opset >= 18:
        low = g.add("ReduceMax", [x, g.weight(axes, np.int64)], exact=True, keepdims=0)
    else:
        low = g.add("ReduceMax", [x], exact=True, keepdims=0, axes=axes)
    bound = g.weight(g.one_of([0.5, 1.25, 1.75]), x.data.dtype)
    g.need(g.opset >= 9 or x.data.dtype == np.float32)
    return g.add("Greater", [low, bound], exact=True)


def _body(
    g: Growth, name: str, inside: Growth, inputs: list[onnx.ValueInfoProto], outputs: list[Value]
) -> Any:
    ranked = [info(v.name, v.data, [None] * v.data.ndim) for v in outputs]
    return helper.make_graph(inside.nodes, name, inputs, ranked)


def _inside(g: Growth) -> Growth:
    """A growth of a body, which sees the values outside of it."""
    return Growth(g.rng, g.opset, values=dict(g.values), prefix=f"{g.fresh()}b")


def branch(g: Growth) -> object:
    flag = predicate(g)
    x = g.pick("f")
    bodies = []
    for way in ("then", "else"):
        inside = _inside(g)
        inside.prefix += way
        y = x
        for _ in range(g.number(1, 3)):
            y = inside.add(g.one_of(["Neg", "Abs", "Sigmoid", "Identity"]), [y], exact=False)
        y = inside.add("Add", [y, inside.weight(1.0, x.data.dtype)])
        bodies.append(_body(g, way, inside, [], [y]))
    return g.add("If", [flag], then_branch=bodies[0], else_branch=bodies[1])


def loop(g: Growth) -> object:
    x = g.pick("f")
    inside = _inside(g)
    start = inside.prefix
    names = [f"{start}i", f"{start}go", f"{start}c"]
    carried = Value(names[2], x.data, False)
    going = Value(names[1], np.asarray(True), True)
    inside.values.update({names[2]: carried, names[1]: going})
    stepped = inside.add("Mul", [carried, inside.weight(0.5, x.data.dtype)])
    stepped = inside.add("Add", [stepped, x])
    again = inside.add("Identity", [going], exact=True)
    # The reference stacks what has one dim, and nothing else, as the spec says.
    seen = inside.add("Reshape", [stepped, inside.weight([-1], np.int64)])
    body = _body(
        g,
        "body",
        inside,
        [info(names[0], np.asarray(0), []), info(names[1], going.data, []), info(names[2], x.data)],
        [again, stepped, seen],
    )
    trips = g.weight(g.number(0 if g.chance(0.1) else 1, 3), np.int64)
    go = predicate(g) if g.chance(0.3) else None
    return g.add("Loop", [trips, go, x], 2, body=body)


def scan(g: Growth) -> object:
    g.since(9)
    x = g.pick("f", least=1)
    g.need(x.data.size > 0)
    inside = _inside(g)
    names = [f"{inside.prefix}s", f"{inside.prefix}e"]
    state, element = Value(names[0], x.data[0] * 0, False), Value(names[1], x.data[0], False)
    inside.values.update({names[0]: state, names[1]: element})
    added = inside.add("Add", [state, element])
    doubled = inside.add("Mul", [added, inside.weight(2.0, x.data.dtype)])
    body = _body(g, "body", inside, [info(v.name, v.data) for v in (state, element)], [added, doubled])
    first = g.weight(np.zeros(x.shape[1:], x.data.dtype))
    return g.add("Scan", [first, x], 2, body=body, num_scan_inputs=1)


FAMILIES: tuple[Family, ...] = (
    matmul, matmul, gemm, einsum, conv, conv, pool, normalise, normalise, resize, upsample, quantise,
    recurrent, branch, branch, loop, scan,
)  # fmt: skip
