"""Generators of com.microsoft's QLinear ops, QGemm, QAttention, quantizing, and the LSTM of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from opcase import OpCase, const, t

from differential.images_and_arranging import dims, numbers, one_of
from differential.quantized_tensors import BYTES, data, ms, scale, zero
from differential.single import Generator, Row


def chance(rng: Generator, share: float = 0.5) -> bool:
    return bool(rng.random() < share)


def binary(rng: Generator) -> OpCase:
    kind, shape = one_of(rng, *BYTES), dims(rng, 0, 3)
    other = [one_of(rng, 1, d) for d in shape]
    inputs = [
        data(kind, *shape),
        scale(rng),
        zero(rng, kind),
        data(kind, *other),
        scale(rng),
        zero(rng, kind),
    ]
    op = one_of(rng, "QLinearAdd", "QLinearMul")
    return ms(op, [*inputs, const(rng.uniform(0.1, 1.0), "float32"), zero(rng, kind)])


def unary(rng: Generator) -> OpCase:
    kind, op = one_of(rng, *BYTES), one_of(rng, "QLinearSigmoid", "QLinearLeakyRelu")
    attrs = {"alpha": float(rng.uniform(0.0, 0.9))} if op == "QLinearLeakyRelu" and chance(rng) else {}
    low = const(1 / 256, "float32") if op == "QLinearSigmoid" else scale(rng)
    return ms(op, [data(kind, *dims(rng, 0, 4)), scale(rng), zero(rng, kind), low, zero(rng, kind)], attrs)


def softmax(rng: Generator) -> OpCase:
    kind, shape = one_of(rng, *BYTES), dims(rng, 1, 3, empty=0)
    opset = one_of(rng, 11, 13)
    attrs = {"opset": opset, "axis": int(rng.integers(len(shape))) if opset == 11 else -1}
    low = const(0 if kind == "uint8" else -128, kind)
    return ms("QLinearSoftmax", [data(kind, *shape), scale(rng), zero(rng, kind), const(1 / 256), low], attrs)


def concat(rng: Generator) -> OpCase:
    kind, shape = one_of(rng, *BYTES), dims(rng, 1, 3, empty=0)
    axis = int(rng.integers(len(shape)))
    inputs = [scale(rng), zero(rng, kind)]
    for _ in range(int(rng.integers(1, 4))):
        shape[axis] = int(rng.integers(1, 4))
        inputs += [data(kind, *shape), scale(rng), zero(rng, kind)]
    return ms("QLinearConcat", inputs, {"axis": axis - one_of(rng, 0, len(shape))})


def pool(rng: Generator) -> OpCase:
    kind, last = one_of(rng, *BYTES), int(rng.integers(2))
    sizes, batch, channels = [int(n) for n in rng.integers(3, 8, 2)], *numbers(rng, 1, 3, 2)
    shape = (batch, *sizes, channels) if last else (batch, channels, *sizes)
    inputs = [data(kind, *shape), scale(rng), zero(rng, kind), scale(rng), zero(rng, kind)]
    if chance(rng):
        return ms("QLinearGlobalAveragePool", inputs, {"channels_last": last})
    kernel = numbers(rng, 1, 3, 2)
    pads = [int(rng.integers(width)) for width in kernel * 2]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "pads": pads, "strides": numbers(rng, 1, 2, 2)}
    attrs |= {"count_include_pad": int(rng.integers(2)), "channels_last": last}
    return ms("QLinearAveragePool", inputs, attrs)


def qgemm(rng: Generator) -> OpCase:
    kind, wkind = one_of(rng, ("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))
    m, k, n = int(rng.integers(1, 4)), one_of(rng, 1, 7, 40), int(rng.integers(1, 5))
    left, right = int(rng.integers(2)), int(rng.integers(2))
    by_column = (n,) if chance(rng) else ()
    inputs = [data(kind, *([k, m] if left else [m, k])), scale(rng), zero(rng, kind)]
    inputs += [
        data(wkind, *([n, k] if right else [k, n])),
        scale(rng, *by_column),
        zero(rng, wkind, *by_column),
    ]
    bias = t(n, low=-900, high=900, dtype="int32") if chance(rng) else None
    if chance(rng):
        inputs += [bias, const(rng.uniform(1, 4), "float32"), zero(rng, kind)]
    elif bias is not None:
        inputs += [bias]
    return ms("QGemm", inputs, {"transA": left, "transB": right, "alpha": one_of(rng, 1.0, 0.7)})


def qattention(rng: Generator) -> OpCase:
    heads, size, batch, length = (int(n) for n in rng.integers(1, [4, 5, 4, 6]))
    width, past = heads * size, int(rng.integers(1, 4)) if chance(rng, 0.3) else 0
    inputs: list[Any] = [data("uint8", batch, length, 6), data("int8", 6, 3 * width), t(3 * width)]
    inputs += [const(0.002), const(0.01)]
    lengths = const(rng.integers(1, length + 1, batch), "int32")
    inputs += [lengths if not past and chance(rng) else None, const(120, "uint8"), const(3, "int8")]
    inputs += [t(2, batch, heads, past, size)] if past else []
    attrs = {"num_heads": heads, "unidirectional": int(bool(past) or chance(rng))}
    return ms("QAttention", inputs, attrs, outputs=2 if past else 1)


def quantize(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 3)
    axis = int(rng.integers(len(shape)))
    by_axis = (shape[axis],) if chance(rng) else ()
    kind = one_of(rng, "int8", "uint8", "int16", "uint16")
    zeros = const(rng.integers(0, 100, by_axis), kind)
    attrs = {"axis": axis} if by_axis else {}
    x: Any = t(*shape, low=0, high=200, dtype=kind)
    op = one_of(rng, "QuantizeLinear", "DequantizeLinear")
    if op == "QuantizeLinear":
        x = t(*shape, low=-20, high=20)
    return ms(op, [x, scale(rng, *by_axis), zeros], attrs)


def lstm(rng: Generator) -> OpCase:
    length, batch, width, hidden = (int(n) for n in rng.integers(1, [6, 4, 9, 6]))
    direction = one_of(rng, "forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    weight: dict[str, Any] = {"dtype": "int8", "low": -64, "high": 64}
    per = (ways, 4 * hidden) if chance(rng) else (ways,)
    scales = [const(rng.uniform(0.005, 0.02, per), "float32"), const(np.zeros(per), "int8")]
    inputs: list[Any] = [t(length, batch, width), t(ways, width, 4 * hidden, **weight)]
    inputs += [t(ways, hidden, 4 * hidden, **weight), t(ways, 8 * hidden) if chance(rng) else None, None]
    inputs += [t(ways, batch, hidden)] * 2 if chance(rng) else [None, None]
    attrs = {"hidden_size": hidden, "direction": direction}
    return ms("DynamicQuantizeLSTM", [*inputs, None, *scales, *scales], attrs, outputs=3, tol=2e-2)


ROWS: dict[str, Row] = {
    "QLinearAdd and QLinearMul": Row(binary, trials=20),
    "QLinearSigmoid and QLinearLeakyRelu": Row(unary, trials=20),
    "QLinearSoftmax": Row(softmax),
    "QLinearConcat": Row(concat),
    "QLinear pools": Row(pool, trials=20),
    "QGemm": Row(qgemm, trials=20),
    "QAttention": Row(qattention),
    "QuantizeLinear and DequantizeLinear": Row(quantize, trials=20),
    "DynamicQuantizeLSTM": Row(lstm),
}
