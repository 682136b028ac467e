"""Generators of com.microsoft's gated activations, complex products and integer arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import microsoft_gates
from cases.microsoft_gates import ms
from opcase import OpCase, const, t

from differential.images_and_arranging import dims, numbers, one_of
from differential.single import Generator, Row


def gated_add(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 4)
    return ms("GatedAdd", [t(*shape), t(*shape), t(*shape[:-1], 1)])


def scaled_silu(rng: Generator) -> OpCase:
    inputs = [t(*dims(rng, 0, 4), low=-6, high=6)]
    if rng.random() < 0.5:
        inputs.append(t())
    return ms("ScaledSiLU", inputs, {"alpha": one_of(rng, 1.0, 1.702, -0.5)})


def swiglu(rng: Generator) -> OpCase:
    *lead, half = dims(rng, 1, 3)
    whole = rng.random() < 0.5
    inputs = [t(*lead, 2 * half if whole else half, low=-4, high=4)]
    if not whole:
        inputs.append(t(*lead, half, low=-4, high=4))
    attrs = {
        "activation_alpha": one_of(rng, 1.0, 1.702),
        "activation_beta": one_of(rng, 0.0, 1.0),
        "limit": one_of(rng, 0.0, -1.0, 2.0),
    }
    return ms("SwiGLU", inputs, attrs, oracle=microsoft_gates.swiglu)


def bias_softmax(rng: Generator) -> OpCase:
    shape = dims(rng, 2, 4, empty=0)
    axis = int(rng.integers(1, len(shape)))
    inner, same = int(rng.integers(2)), int(rng.integers(axis + 1))
    lead = [*shape[:same], *[1] * (axis - same)] if inner else [*[1] * same, *shape[same:axis]]
    attrs = {"axis": axis, "is_inner_broadcast": inner}
    return ms("BiasSoftmax", [t(*shape), t(*lead, *shape[axis:])], attrs, oracle=microsoft_gates.bias_softmax)


def complex_mul(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 3)
    other = [one_of(rng, 1, d) for d in shape]
    conjugate = bool(rng.integers(2))
    op = "ComplexMulConj" if conjugate else "ComplexMul"
    return ms(op, [t(*shape, 2), t(*other, 2)], oracle=microsoft_gates.complex_product(conjugate))


def matmul_integer_16(rng: Generator) -> OpCase:
    (m, k, n), batch = numbers(rng, 1, 7, 3), dims(rng, 0, 2, empty=0)
    wide: dict[str, Any] = {"low": -32768, "high": 32768}
    return ms("MatMulInteger16", [t(*batch, m, k, **wide), t(k, n, **wide)])


def mul_integer(rng: Generator) -> OpCase:
    shape = dims(rng, 0, 3)
    other = [one_of(rng, 1, d) for d in shape]
    zeros = [const(int(rng.integers(0, 100))) if rng.random() < 0.5 else None for _ in range(2)]
    inputs = [t(*shape, low=-128, high=128), zeros[0], t(*other, low=-128, high=128), zeros[1]]
    return ms("MulInteger", inputs, oracle=microsoft_gates.mul_integer)


def reduce_sum_integer(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 4)
    count = int(rng.integers(1, len(shape) + 1))
    axes = [int(axis) for axis in rng.permutation(len(shape))[:count]]
    attrs = {"axes": axes, "keepdims": int(rng.integers(2))}
    return ms("ReduceSumInteger", [t(*shape, low=-128, high=128)], attrs, oracle=microsoft_gates.reduce_sum)


def nhwc_fused_conv(rng: Generator) -> OpCase:
    kernel, (channels, more) = numbers(rng, 1, 3, 2), numbers(rng, 1, 4, 2)
    size = [int(rng.integers(width, 7)) for width in kernel]
    attrs = {
        "activation": one_of(rng, "Relu", "Tanh"),
        "pads": numbers(rng, 0, 2, 4),
        "strides": numbers(rng, 1, 2, 2),
    }
    batch = int(rng.integers(3))
    bias = t(more) if rng.random() < 0.5 else None
    inputs: list[Any] = [t(batch, *size, channels), t(more, channels, *kernel), bias]
    if rng.random() < 0.5:
        ends = [
            (n + attrs["pads"][i] + attrs["pads"][i + 2] - kernel[i]) // attrs["strides"][i] + 1
            for i, n in enumerate(size)
        ]
        inputs.append(t(batch, *ends, more))
    return ms("NhwcFusedConv", inputs, attrs, oracle=microsoft_gates.nhwc_fused_conv)


def legacy(rng: Generator) -> OpCase:
    """Element by element, of the default domain as it once was."""
    op, names = one_of(
        rng,
        ("Affine", ("alpha", "beta")),
        ("Scale", ("scale",)),
        ("ParametricSoftplus", ("alpha", "beta")),
        ("ScaledTanh", ("alpha", "beta")),
    )
    attrs = {name: float(rng.uniform(-3, 3)) for name in names}
    # onnxruntime adds 1 to a small power before the logarithm, which loses its digits.
    oracle = softplus if op == "ParametricSoftplus" else "onnxruntime"
    return OpCase(op, [t(*dims(rng, 0, 4), low=-9, high=9)], attrs, opset=9, oracle=oracle)


def softplus(x: Any, *, alpha: float, beta: float) -> Any:
    return (alpha * np.logaddexp(0.0, beta * x.astype(np.float64))).astype(x.dtype)


def dynamic_slice(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 4)
    axes = [int(axis) for axis in rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)]]
    kind = one_of(rng, "int32", "int64")
    listed = [numbers(rng, -4, 4, len(axes)), numbers(rng, -3, 7, len(axes)), axes]
    inputs = [t(*shape), *(const(part, kind) for part in listed[: one_of(rng, 2, 3)])]
    return OpCase("DynamicSlice", inputs, opset=9, oracle="onnxruntime")


ROWS = {
    "Affine and its like": Row(legacy, trials=30),
    "DynamicSlice": Row(dynamic_slice, ("float32", "int64", "bool"), seam=True),
    "GatedAdd": Row(gated_add, ("float32", "float16")),
    "ScaledSiLU": Row(scaled_silu, ("float32", "float16")),
    "SwiGLU": Row(swiglu, ("float32", "float16")),
    "BiasSoftmax": Row(bias_softmax, trials=20),
    "ComplexMul": Row(complex_mul, trials=20),
    "MatMulInteger16": Row(matmul_integer_16, ("int16",)),
    "MulInteger": Row(mul_integer, ("int8", "uint8")),
    "ReduceSumInteger": Row(reduce_sum_integer, ("int8", "uint8")),
    "NhwcFusedConv": Row(nhwc_fused_conv),
}
