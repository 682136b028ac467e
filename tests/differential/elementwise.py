"""Families of ops that work element by element, or reduce."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from differential.growth import Family, Growth, Value

_SMOOTH = {
    "Sigmoid": 7, "Tanh": 7, "Relu": 7, "Softplus": 7, "Softsign": 7, "Elu": 7, "Selu": 7, "LeakyRelu": 7,
    "HardSigmoid": 7, "Sin": 7, "Cos": 7, "Atan": 7, "Erf": 9, "Sinh": 9, "Asinh": 9, "Celu": 12,
    "HardSwish": 14, "Mish": 18, "Gelu": 20, "Identity": 7, "Swish": 24,
}  # fmt: skip
_EXACT = {"Abs": 7, "Neg": 7, "Relu": 7, "Identity": 7, "Sign": 9}
_JUMPS = {"Floor": 7, "Ceil": 7, "Round": 11}


def smooth(g: Growth) -> object:
    op = g.one_of(list(_SMOOTH))
    g.since(_SMOOTH[op])
    x = g.pick()
    # Elsewhere a last bit of the input is a digit of the result.
    g.need(op not in ("Sinh", "Sin", "Cos") or bool((np.abs(x.data) < 20).all()))
    attributes: dict[str, Any] = {}
    if op in ("Elu", "LeakyRelu", "Celu") and g.chance(0.5):
        attributes["alpha"] = g.one_of([0.25, 0.5, 2.0])
    if op == "Gelu" and g.chance(0.5):
        attributes["approximate"] = "tanh"
    return g.add(op, [x], exact=op in ("Relu", "Identity"), **attributes)


def positive(g: Growth) -> object:
    op = g.one_of(["Sqrt", "Log", "Reciprocal", "Exp"])
    x = g.pick()
    if op == "Exp":
        g.need(bool((np.abs(x.data) < 15).all()))
        return g.add("Exp", [x])
    one = g.weight(1.0, x.data.dtype)
    return g.add(op, [g.add("Add", [g.add("Abs", [x]), one])])


def exact_unary(g: Growth) -> object:
    op = g.one_of(list(_EXACT))
    g.since(_EXACT[op])
    return g.add(
        op, [g.pick("fi" if g.opset >= 13 or op not in ("Relu", "Sign") else "f", exact=True)], exact=True
    )


def jump(g: Growth) -> object:
    op = g.one_of(list(_JUMPS))
    g.since(_JUMPS[op])
    return g.add(op, [g.pick(exact=True)], exact=True)


def partner(g: Growth, x: Value, *, exact: bool = False) -> Value:
    """A value that broadcasts with another."""
    if g.chance(0.5):
        dtype, shape = x.data.dtype, x.shape
        for _ in range(6):
            other = g.pick(x.kind, exact=exact)
            if other.data.dtype == dtype:
                try:
                    np.broadcast_shapes(shape, other.shape)
                except ValueError:
                    continue
                return other
    shape = tuple(1 if g.chance(0.3) or i == 0 else d for i, d in enumerate(x.shape))
    return g.weight(g.draw(shape[g.number(0, len(shape)) :], x.data.dtype))


def swapped(g: Growth, x: Value, y: Value) -> list[Value]:
    return [y, x] if g.chance(0.3) else [x, y]


def binary(g: Growth) -> object:
    op = g.one_of(["Add", "Sub", "Mul", "Add", "Mul"])
    x = g.pick("fi")
    return g.add(op, swapped(g, x, partner(g, x)), exact=True)


def divide(g: Growth) -> object:
    x = g.pick()
    y = partner(g, x)
    return g.add("Div", [x, g.add("Add", [g.add("Abs", [y]), g.weight(0.5, y.data.dtype)])])


def whole_divide(g: Growth) -> object:
    x = g.pick("i")
    y = g.weight(g.one_of([1, 2, 3, -2, -3]), x.data.dtype)
    if g.opset >= 10 and g.chance(0.5):
        return g.add("Mod", [x, y], exact=True, fmod=g.number(0, 1))
    return g.add("Div", [x, y], exact=True)


def power(g: Growth) -> object:
    x = g.pick()
    g.need(bool((np.abs(x.data) < 30).all()))
    return g.add("Pow", [x, g.weight(g.one_of([2.0, 3.0, 1.0, 0.0]), x.data.dtype)])


def extreme(g: Growth) -> object:
    g.since(8)
    x = g.pick("fi" if g.opset >= 12 else "f", exact=g.chance(0.5))
    many = [x, partner(g, x), partner(g, x)][: g.number(1, 3)]
    return g.add(g.one_of(["Max", "Min"]), many, exact=True)


def total(g: Growth) -> object:
    g.since(8)
    x = g.pick()
    return g.add(g.one_of(["Sum", "Mean"]), [x, partner(g, x), partner(g, x)][: g.number(1, 3)])


def compare(g: Growth) -> object:
    op = g.one_of(["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    kinds = "fi" if g.opset >= 9 else "f"
    if op == "Equal":
        kinds = "fib" if g.opset >= 11 else "ib"
    g.need(not op.endswith("OrEqual") or g.opset >= 12)
    x = g.pick(kinds, exact=True)
    return g.add(op, swapped(g, x, partner(g, x, exact=True)), exact=True)


def logic(g: Growth) -> object:
    x = g.pick("b")
    if g.chance(0.3):
        return g.add("Not", [x], exact=True)
    return g.add(g.one_of(["And", "Or", "Xor"]), swapped(g, x, partner(g, x)), exact=True)


def bits(g: Growth) -> object:
    g.since(18)
    x = g.pick("i")
    if g.chance(0.2):
        return g.add("BitwiseNot", [x], exact=True)
    return g.add(
        g.one_of(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), swapped(g, x, partner(g, x)), exact=True
    )


def where(g: Growth) -> object:
    g.since(9)
    x = g.pick("fi")
    chosen = g.pick("b")
    return g.add("Where", [chosen, *swapped(g, x, partner(g, x))], exact=True)


def clip(g: Growth) -> object:
    x = g.pick("fi" if g.opset >= 12 else "f")
    low, high = g.number(-4, 1), g.number(2, 4)
    if g.opset < 11:
        return g.add("Clip", [x], exact=True, min=float(low), max=float(high))
    kind = x.data.dtype
    form = g.number(0, 3)
    if form == 0:
        return g.add("Clip", [x], exact=True)
    bounds = [g.weight(low, kind), g.weight(high, kind)]
    if form == 1:
        return g.add("Clip", [x, None, bounds[1]], exact=True)
    return g.add("Clip", [x, *bounds[: form - 1]], exact=True)


def cast(g: Growth) -> object:
    target = g.one_of(
        [np.float32, np.float64, np.int64, np.int32, np.bool_, np.float32, np.float16, np.uint8, np.int8]
    )
    x = g.pick("fibu", exact=np.dtype(target).kind != "f")
    if np.dtype(target).kind in "iu":
        g.need(bool(x.data.size == 0 or (x.data.min() >= 0 and x.data.max() < 100)))
        # Other data must stay in range, too: what a cast makes of the rest is not defined.
        g.need(x.kind != "f")
    code = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    keeps = np.dtype(target).itemsize >= 4 or np.dtype(target).kind == "b"
    if g.opset >= 15 and g.chance(0.2):
        return g.add("CastLike", [x, g.weight(0, target)], exact=keeps)
    return g.add("Cast", [x], exact=keeps, to=code)


def back_to_float(g: Growth) -> object:
    x = g.pick("fiub")
    g.need(x.data.dtype != np.float32)
    return g.add("Cast", [x], exact=True, to=onnx.TensorProto.FLOAT)


def reduce(g: Growth) -> object:
    op = g.one_of(
        ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
         "ReduceLogSumExp", "ReduceSumSquare"]
    )  # fmt: skip
    x = g.pick(exact=g.chance(0.4))
    g.need(x.data.size > 0 or op in ("ReduceSum", "ReduceProd", "ReduceL1"))
    axes = sorted(
        {g.number(-x.data.ndim, x.data.ndim - 1) % x.data.ndim for _ in range(g.number(1, 2))}
        if x.data.ndim
        else []
    )
    axes = [a - x.data.ndim if g.chance(0.3) else a for a in axes]
    keep = g.number(0, 1)
    exact = op in ("ReduceMax", "ReduceMin", "ReduceSum")
    if g.opset >= (13 if op == "ReduceSum" else 18):
        if not axes or g.chance(0.15):
            return g.add(op, [x], exact=exact, keepdims=keep, noop_with_empty_axes=g.number(0, 1))
        return g.add(op, [x, g.weight(axes, np.int64)], exact=exact, keepdims=keep)
    if not axes or g.chance(0.15):
        return g.add(op, [x], exact=exact, keepdims=keep)
    return g.add(op, [x], exact=exact, keepdims=keep, axes=axes)


def arg_extreme(g: Growth) -> object:
    x = g.pick("fi", exact=True, least=1)
    axis = g.number(-x.data.ndim, x.data.ndim - 1)
    more = {"select_last_index": 1} if g.opset >= 12 and g.chance(0.3) else {}
    return g.add(g.one_of(["ArgMax", "ArgMin"]), [x], exact=True, axis=axis, keepdims=g.number(0, 1), **more)


def cumulative(g: Growth) -> object:
    g.since(11)
    x = g.pick("fi", least=1)
    axis = g.weight(g.number(-x.data.ndim, x.data.ndim - 1), np.int64)
    return g.add("CumSum", [x, axis], exact=True, exclusive=g.number(0, 1), reverse=g.number(0, 1))


def soft(g: Growth) -> object:
    op = g.one_of(["Softmax", "LogSoftmax", "Hardmax"])
    x = g.pick(least=1, exact=op == "Hardmax")
    # Before opset 13 the axis flattens, and a negative one is newer than the op.
    axis = g.number(-x.data.ndim if g.opset >= 11 else 0, x.data.ndim - 1)
    return g.add(op, [x], exact=op == "Hardmax", axis=axis)


FAMILIES: tuple[Family, ...] = (
    smooth, smooth, positive, exact_unary, jump, binary, binary, binary, divide, whole_divide, power, extreme,
    total, compare, compare, logic, bits, where, clip, cast, back_to_float, reduce, reduce,
    arg_extreme, cumulative, soft,
)  # fmt: skip
