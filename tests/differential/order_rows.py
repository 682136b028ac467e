"""Generators of com.microsoft's ordered int8 matrices, and products with floats of few bits."""

from __future__ import annotations

from typing import Any

from cases import microsoft_ordered as ordered
from cases.microsoft_ordered import f, ms, s8
from opcase import OpCase, const, t

from differential.images_and_arranging import dims, one_of
from differential.single import Generator, Row


def orders(rng: Generator) -> OpCase:
    order = one_of(rng, 0, 1, 2)
    shape = (int(rng.integers(1, 4)), 32 * int(rng.integers(1, 3)) if order == 2 else int(rng.integers(1, 6)))
    if rng.random() < 0.5:
        attrs = {"order_input": 1, "order_output": order}
        inputs = [t(*shape, low=-4, high=4), f(float(rng.uniform(0.01, 0.1)))]
        return ms("QuantizeWithOrder", inputs, attrs, oracle=ordered.quantized)
    attrs = {"order_input": min(order, 1), "order_output": 1, "to": one_of(rng, 1, 10)}
    return ms("DequantizeWithOrder", [s8(*shape), f(0.03)], attrs, oracle=ordered.dequantized)


def product(rng: Generator) -> OpCase:
    batch, m, k, n = (int(n) for n in rng.integers([0, 1, 1, 1], [3, 4, 9, 6]))
    by_column = rng.random() < 0.5
    scale = t(n, low=0.01, high=0.03) if by_column else f(0.02)
    inputs: list[Any] = [s8(batch, m, k), f(0.03), s8(k, n), scale, f(0.05)]
    inputs.append(t(n) if rng.random() < 0.5 else None)
    inputs += [s8(*one_of(rng, (batch, m, n), (m, n))), f(0.07)] if rng.random() < 0.5 else []
    return ms("QOrderedMatMul", inputs, ordered.ORDERS, oracle=ordered.product)


def pointwise(rng: Generator) -> OpCase:
    shape = dims(rng, 2, 3)
    if rng.random() < 0.5:
        return ms("QOrderedGelu", [s8(*shape), f(0.03), f(0.02)], oracle=ordered.gelu)
    width = int(rng.integers(2, 9))
    bias = t(width) if rng.random() < 0.5 else None
    inputs = [s8(*shape, width), f(0.03), t(width), bias, f(0.02)]
    return ms("QOrderedLayerNormalization", inputs, oracle=ordered.normed)


def few_bits(rng: Generator) -> OpCase:
    *lead, n = dims(rng, 2, 3, empty=0)
    blocks, size = int(rng.integers(1, 3)), 2 * int(rng.integers(1, 5))
    k = blocks * size
    bias = t(n) if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        weight = t(n, k, low=-9, high=9, dtype="float8_e4m3fn")
        scale = f(0.02) if rng.random() < 0.5 else None
        inputs = [t(*lead, k), weight, t(n, blocks, low=0.1, dtype="float32"), scale, bias]
        return ms("MatMulBlockQuantizedFp8Weight", inputs, {"block_size": size}, oracle=ordered.fp8)
    scales = const(rng.integers(0x28, 0x48, (n, blocks)), "uint8")
    inputs = [t(*lead, k), t(n, k // 2, low=0, high=256, dtype="uint8"), scales, f(0.5), None, bias]
    return ms("MatMulBlockQuantizedFp4Weight", inputs, {"block_size": size}, oracle=ordered.fp4)


def gemm8(rng: Generator) -> OpCase:
    m, k, n = (int(n) for n in rng.integers(1, 6, 3))
    narrow, right = rng.random() < 0.5, int(rng.integers(2))
    kind = one_of(rng, "float8_e4m3fn", "float8_e5m2") if narrow else None
    inputs: list[Any] = [t(m, k, dtype=kind), t(*((n, k) if right else (k, n)), dtype=kind)]
    attrs = {"transB": right, "activation": one_of(rng, "NONE", "RELU"), "alpha": one_of(rng, 1.0, 0.5)}
    inputs.append(t(*one_of(rng, (m, n), (n,))) if rng.random() < 0.5 else None)
    inputs += [f(0.5), f(2.0), f(3.0)] if narrow else []
    return ms("GemmFloat8", inputs, {**attrs, "beta": 2.0}, oracle=ordered.gemm8)


def sparse(rng: Generator) -> OpCase:
    m, k, n = (int(n) for n in rng.integers(1, 6, 3))
    left, right = int(rng.integers(2)), int(rng.integers(2))
    attrs = {"transA": left, "transB": right, "alpha": one_of(rng, 1.0, 0.5)}
    inputs = [t(*((k, m) if left else (m, k))), t(*((n, k) if right else (k, n)))]
    return ms("SparseToDenseMatMul", inputs, attrs, oracle=ordered.sparse)


ROWS: dict[str, Row] = {
    "QuantizeWithOrder and DequantizeWithOrder": Row(orders, trials=20),
    "QOrderedMatMul": Row(product),
    "QOrderedGelu and QOrderedLayerNormalization": Row(pointwise, trials=20),
    "MatMulBlockQuantized": Row(few_bits, ("float16",), trials=20),
    "GemmFloat8": Row(gemm8, trials=20),
    "SparseToDenseMatMul": Row(sparse),
}
