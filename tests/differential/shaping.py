"""Families of ops that move, select and arrange elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from differential.growth import Family, Growth, Value

_ANY = "fib"


def reshape(g: Growth) -> object:
    x = g.pick(_ANY)
    size = x.data.size
    if g.chance(0.3) and x.data.ndim >= 2:
        return g.add("Reshape", [x, g.weight([0, -1], np.int64)], exact=True)
    if g.chance(0.3):
        return g.add("Reshape", [x, g.weight([-1], np.int64)], exact=True)
    first = g.one_of([d for d in (1, 2, 3, 4, 6) if size % d == 0])
    shape = [first, -1] if g.chance(0.5) else [-1, 1, first]
    return g.add("Reshape", [x, g.weight(shape, np.int64)], exact=True)


def reshape_by_shape(g: Growth) -> object:
    """As exporters write ``x.view(x.size(0), -1)``."""
    x = g.pick(_ANY, least=1)
    shape = g.add("Shape", [x], exact=True)
    if g.opset >= 13 or g.opset < 10:
        first = g.add("Gather", [shape, g.weight([0], np.int64)], exact=True)
    else:
        first = g.add("Slice", [shape, g.weight([0], np.int64), g.weight([1], np.int64)], exact=True)
    rest = g.weight([-1], np.int64)
    return g.add("Reshape", [x, g.add("Concat", [first, rest], exact=True, axis=0)], exact=True)


def transpose(g: Growth) -> object:
    x = g.pick(_ANY, least=1)
    if g.chance(0.2):
        return g.add("Transpose", [x], exact=True)
    return g.add("Transpose", [x], exact=True, perm=[int(i) for i in g.rng.permutation(x.data.ndim)])


def squeeze(g: Growth) -> object:
    x = g.pick(_ANY, least=1)
    axes = [i for i, d in enumerate(x.shape) if d == 1]
    g.need(bool(axes))
    axis = g.one_of(axes) - (x.data.ndim if g.opset >= 11 and g.chance(0.3) else 0)
    if g.opset >= 13:
        return g.add("Squeeze", [x, g.weight([axis], np.int64)], exact=True)
    return g.add("Squeeze", [x], exact=True, axes=[axis])


def unsqueeze(g: Growth) -> object:
    x = g.pick(_ANY)
    g.need(x.data.ndim < 5)
    axis = g.number(-x.data.ndim - 1 if g.opset >= 11 else 0, x.data.ndim)
    if g.opset >= 13:
        return g.add("Unsqueeze", [x, g.weight([axis], np.int64)], exact=True)
    return g.add("Unsqueeze", [x], exact=True, axes=[axis])


def flatten(g: Growth) -> object:
    x = g.pick(_ANY if g.opset >= 9 else "f")
    return g.add("Flatten", [x], exact=True, axis=g.number(0, x.data.ndim))


def concat(g: Growth) -> object:
    x = g.pick(_ANY, least=1)
    axis = g.number(0, x.data.ndim - 1)
    others = [v for v in g.values.values() if v.kind == x.kind and joins(x, v, axis)]
    parts = [x, *(g.one_of(others) for _ in range(g.number(0, 2)))]
    return g.add(
        "Concat", parts, exact=True, axis=axis - (x.data.ndim if g.opset >= 11 and g.chance(0.3) else 0)
    )


def joins(x: Value, y: Value, axis: int) -> bool:
    if x.data.dtype != y.data.dtype or x.data.ndim != y.data.ndim:
        return False
    return all(a == b for i, (a, b) in enumerate(zip(x.shape, y.shape, strict=True)) if i != axis)


def split(g: Growth) -> object:
    x = g.pick(_ANY, least=1)
    axis = g.number(0, x.data.ndim - 1)
    size = x.shape[axis]
    cut = g.number(0, size)
    if g.opset >= 18 and g.chance(0.4):
        g.need(size >= 2)
        return g.add("Split", [x], 2, exact=True, axis=axis, num_outputs=2)
    if g.opset >= 13:
        return g.add("Split", [x, g.weight([cut, size - cut], np.int64)], 2, exact=True, axis=axis)
    return g.add("Split", [x], 2, exact=True, axis=axis, split=[cut, size - cut])


def slice_(g: Growth) -> object:
    x = g.pick(_ANY, least=1)
    axis = g.number(0, x.data.ndim - 1)
    start, end = g.number(-4, 3), g.one_of([-3, -1, 0, 1, 2, 4, 1000, -1000])
    if g.opset < 10:
        return g.add("Slice", [x], exact=True, starts=[start], ends=[end], axes=[axis])
    kind = g.one_of([np.int64, np.int32])
    parts: list[Value | None] = [x, g.weight([start], kind), g.weight([end], kind)]
    step = g.one_of([1, 1, 2, -1, -2])
    form = g.number(0, 2)
    if form >= 1:
        parts.append(g.weight([axis], kind))
    if form == 2:
        # A start before the first element: the first one, by the spec; the reference takes numpy's way, none.
        g.need(step > 0 or start >= -min(x.shape[axis], 1))
        parts.append(g.weight([step], kind))
    return g.add("Slice", parts, exact=True)


def _index(g: Growth, size: int, shape: tuple[int, ...]) -> Value:
    g.need(size > 0)
    low = -size if g.opset >= 11 else 0
    return g.weight(g.rng.integers(low, size, shape), g.one_of([np.int64, np.int32]))


def gather(g: Growth) -> object:
    x = g.pick(_ANY, least=1)
    axis = g.number(0, x.data.ndim - 1)
    shape = g.one_of([(), (1,), (3,), (2, 2), (0,)])
    return g.add("Gather", [x, _index(g, x.shape[axis], shape)], exact=True, axis=axis)


def gather_elements(g: Growth) -> object:
    g.since(11)
    x = g.pick(_ANY, least=1)
    axis = g.number(0, x.data.ndim - 1)
    shape = tuple(g.number(1, 4) if i == axis else g.number(0, d) for i, d in enumerate(x.shape))
    return g.add("GatherElements", [x, _index(g, x.shape[axis], shape)], exact=True, axis=axis)


def gather_nd(g: Growth) -> object:
    g.since(11)
    x = g.pick(_ANY, least=1)
    g.need(min(x.shape) > 0)
    depth = g.number(1, x.data.ndim)
    rows = [g.rng.integers(-d, d, (3,)) for d in x.shape[:depth]]
    return g.add("GatherND", [x, g.weight(np.stack(rows, -1), np.int64)], exact=True)


def scatter_elements(g: Growth) -> object:
    g.since(11)
    x = g.pick("fi", least=1)
    axis = g.number(0, x.data.ndim - 1)
    g.need(min(x.shape) > 0)
    # Without a reduction each place is written once.
    count = g.number(1, x.shape[axis])
    chosen = g.rng.permutation(x.shape[axis])[:count]
    shape = tuple(count if i == axis else d for i, d in enumerate(x.shape))
    where = chosen.reshape([-1 if i == axis else 1 for i in range(x.data.ndim)])
    indices = g.weight(np.broadcast_to(where, shape).copy(), np.int64)
    more = {"reduction": g.one_of(["add", "mul"])} if g.opset >= 16 and g.chance(0.4) else {}
    updates = g.weight(g.draw(shape, x.data.dtype))
    return g.add("ScatterElements", [x, indices, updates], exact=True, axis=axis, **more)


def scatter_nd(g: Growth) -> object:
    g.since(11)
    x = g.pick("fi", least=1)
    g.need(min(x.shape) > 0)
    rows = g.rng.permutation(x.shape[0])[: g.number(1, x.shape[0])]
    updates = g.weight(g.draw((len(rows), *x.shape[1:]), x.data.dtype))
    return g.add("ScatterND", [x, g.weight(rows[:, None], np.int64), updates], exact=True)


def expand(g: Growth) -> object:
    g.since(8)
    x = g.pick(_ANY)
    shape = [g.one_of([1, d]) for d in x.shape]
    if g.chance(0.5):
        shape = [g.number(0, 3), *shape]
    return g.add("Expand", [x, g.weight(shape, np.int64)], exact=True)


def tile(g: Growth) -> object:
    x = g.pick(_ANY, least=1)
    return g.add(
        "Tile", [x, g.weight([g.number(0 if g.chance(0.1) else 1, 2) for _ in x.shape], np.int64)], exact=True
    )


def pad(g: Growth) -> object:
    x = g.pick("f", least=1)
    modes = ["constant", "reflect", "edge"] + (["wrap"] if g.opset >= 19 else [])
    mode = g.one_of(modes)
    g.need(mode == "constant" or min(x.shape) > 1)
    low = -1 if mode == "constant" and min(x.shape) > 2 else 0
    pads = [g.number(low, 1) for _ in range(2 * x.data.ndim)]
    value = g.one_of([0.0, 1.5])
    if g.opset < 11:
        return g.add("Pad", [x], exact=True, mode=mode, pads=pads, value=value)
    parts: list[Value | None] = [x, g.weight(pads, np.int64)]
    if mode == "constant" and g.chance(0.6):
        parts.append(g.weight(value, x.data.dtype))
    return g.add("Pad", parts, exact=True, mode=mode)


def shape_of(g: Growth) -> object:
    x = g.pick(_ANY)
    if g.chance(0.3):
        return g.add("Size", [x], exact=True)
    if g.opset >= 15 and g.chance(0.4):
        return g.add("Shape", [x], exact=True, start=g.number(-3, 2), end=g.number(-2, 4))
    return g.add("Shape", [x], exact=True)


def filled(g: Growth) -> object:
    g.since(9)
    shape = g.add("Shape", [g.pick(_ANY)], exact=True)
    value = g.one_of([np.float32(1.5), np.int64(2), np.bool_(True)])
    return g.add("ConstantOfShape", [shape], exact=True, value=numpy_helper.from_array(np.array([value])))


def range_(g: Growth) -> object:
    g.since(11)
    limit = g.add("Size", [g.pick(_ANY)], exact=True)
    return g.add("Range", [g.weight(0, np.int64), limit, g.weight(g.number(1, 3), np.int64)], exact=True)


def one_hot(g: Growth) -> object:
    g.since(9)
    x = g.pick("i")
    values = g.weight([0.0, 2.0], np.float32)
    return g.add("OneHot", [x, g.weight(4, np.int64), values], exact=True, axis=g.one_of([-1, 0]))


def triangle(g: Growth) -> object:
    g.since(14)
    x = g.pick("fi", least=2)
    parts: list[Value | None] = [x]
    if g.chance(0.6):
        parts.append(g.weight(g.number(-3, 3), np.int64))
    return g.add("Trilu", parts, exact=True, upper=g.number(0, 1))


def top(g: Growth) -> object:
    x = g.pick("f", least=1, exact=True)
    axis = g.number(0, x.data.ndim - 1)
    k = g.number(0 if g.chance(0.1) else 1, max(1, x.shape[axis]))
    g.need(x.shape[axis] >= k)
    if g.opset < 10:
        return g.add("TopK", [x], 2, exact=True, axis=axis, k=max(1, k))
    more = {"largest": g.number(0, 1)} if g.opset >= 11 else {}
    return g.add("TopK", [x, g.weight([k], np.int64)], 2, exact=True, axis=axis, **more)


def non_zero(g: Growth) -> object:
    g.since(9)
    return g.add("NonZero", [g.pick("bi", least=1)], exact=True)


def compress(g: Growth) -> object:
    g.since(9)
    x = g.pick("fi", least=1)
    flags = [v for v in g.values.values() if v.kind == "b" and v.data.ndim == 1]
    axis = g.number(0, x.data.ndim - 1)
    fitting = [v for v in flags if v.data.size <= x.shape[axis]]
    # One that is longer than the axis, which it may be for other sizes, is no condition by the spec.
    chosen = g.one_of(fitting) if fitting and g.chance(0.5) else g.weight(g.draw((1,), bool))
    return g.add("Compress", [x, chosen], exact=True, axis=axis)


def unique(g: Growth) -> object:
    g.since(11)
    x = g.pick("fi", exact=True, least=1)
    g.need(x.data.size > 0)
    return g.add("Unique", [x], 4, exact=True, sorted=1)


def blocks(g: Growth) -> object:
    x = g.pick("f", 4)
    if g.chance(0.5):
        g.need(x.shape[1] % 4 == 0)
        more = {"mode": g.one_of(["DCR", "CRD"])} if g.opset >= 11 else {}
        return g.add("DepthToSpace", [x], exact=True, blocksize=2, **more)
    g.need(x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0)
    return g.add("SpaceToDepth", [x], exact=True, blocksize=2)


def sequence(g: Growth) -> object:
    g.since(11)
    x = g.pick("f", least=1)
    form = g.number(0, 2)
    if form == 0:
        parts = g.add("SequenceConstruct", [x, x], exact=True)
        return g.add("SequenceAt", [parts, g.weight(g.number(-2, 1), np.int64)], exact=True)
    g.need(x.shape[0] > 0)
    parts = g.add("SplitToSequence", [x], exact=True, axis=0, keepdims=1)
    if form == 1:
        return g.add("SequenceLength", [parts], exact=True)
    return g.add("ConcatFromSequence", [parts], exact=True, axis=g.number(0, x.data.ndim - 1))


def dropped(g: Growth) -> object:
    x = g.pick("f")
    if g.opset >= 12:
        return g.add("Dropout", [x, g.weight(0.5, np.float32)], exact=True)
    return g.add("Dropout", [x], exact=True, ratio=0.5)


def constant(g: Growth) -> object:
    if g.opset >= 12 and g.chance(0.5):
        more: dict[str, Any] = g.one_of(
            [{"value_float": 1.5}, {"value_floats": [0.5, 2.0]}, {"value_int": 2}, {"value_ints": [1, 2, 3]}]
        )
        return g.add("Constant", [], exact=True, **more)
    shape = g.one_of([(), (1,), (2, 3), (0, 2)])
    data = g.draw(shape, g.one_of([np.float32, np.int64]))
    return g.add("Constant", [], exact=True, value=numpy_helper.from_array(data))


def eye(g: Growth) -> object:
    g.since(9)
    return g.add("EyeLike", [g.pick("fi", 2)], exact=True, dtype=onnx.TensorProto.FLOAT, k=g.number(-1, 1))


def reverse(g: Growth) -> object:
    g.since(10)
    x = g.pick("f", least=2)
    g.need(math.prod(x.shape) > 0)
    lengths = g.weight(g.rng.integers(1, x.shape[0] + 1, (x.shape[1],)), np.int64)
    return g.add("ReverseSequence", [x, lengths], exact=True, time_axis=0, batch_axis=1)


FAMILIES: tuple[Family, ...] = (
    reshape, reshape, reshape_by_shape, transpose, transpose, squeeze, unsqueeze, flatten, concat,
    concat, split, slice_, slice_, gather, gather, gather_elements, gather_nd, scatter_elements,
    scatter_nd, expand, tile, pad, shape_of, filled, range_, one_hot, triangle, top, non_zero, compress,
    unique, blocks, sequence, dropped, constant, eye, reverse,
)  # fmt: skip
