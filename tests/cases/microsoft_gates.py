"""Cases of com.microsoft's gated activations, complex products and integer arithmetic."""

import numpy as np
import torch
from opcase import OpCase, const, ms, t

from cases.microsoft_spatial import exact


def swiglu(  # type: ignore[no-untyped-def]
    gate, up=None, *, activation_alpha=1.0, activation_beta=0.0, limit=0.0, round_activation=0
):
    g, u = np.split(gate, 2, -1) if up is None else (gate, up)
    g, u = g.astype(np.float64), u.astype(np.float64)
    if limit > 0:
        g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    active = g / (1 + np.exp(-activation_alpha * g))
    if round_activation:
        active = active.astype(gate.dtype).astype(np.float64)
    return (active * (u + activation_beta)).astype(gate.dtype)


def projected(x, y, gate, weight):  # type: ignore[no-untyped-def]
    return x + y / (1 + np.exp(-gate.astype(np.float64) @ weight)).astype(x.dtype)


def bias_softmax(data, bias, *, is_inner_broadcast, axis=1):  # type: ignore[no-untyped-def]
    """By numpy's broadcasting, for which the bias has as many dims as the data."""
    y = (exact(data) + exact(bias)).flatten(axis).softmax(-1)
    return y.reshape(data.shape).numpy().astype(data.dtype)


def complex_product(conjugate):  # type: ignore[no-untyped-def]
    def oracle(a, b):  # type: ignore[no-untyped-def]
        left, right = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
        y = left * (right.conj() if conjugate else right)
        return np.stack((y.real, y.imag), -1).astype(a.dtype)

    return oracle


def mul_integer(a, a_zero, b, b_zero=None):  # type: ignore[no-untyped-def]
    left, right = a.astype(np.int32), b.astype(np.int32)
    left = left if a_zero is None else left - a_zero.astype(np.int32)
    return left * (right if b_zero is None else right - b_zero.astype(np.int32))


def reduce_sum(data, *, axes, keepdims):  # type: ignore[no-untyped-def]
    return data.sum(tuple(axes), dtype=np.int32, keepdims=bool(keepdims))


def product_16(a, b):  # type: ignore[no-untyped-def]
    y = np.matmul(a.astype(np.int64), b.astype(np.int64))
    return y.astype(np.uint32 if a.dtype == b.dtype == np.uint16 else np.int32)


def nhwc_fused_conv(x, w, b=None, z=None, *, activation, pads, strides):  # type: ignore[no-untyped-def]
    planes = torch.nn.functional.pad(exact(x).permute(0, 3, 1, 2), (pads[1], pads[3], pads[0], pads[2]))
    y = torch.conv2d(planes, exact(w), None if b is None else exact(b), strides).permute(0, 2, 3, 1)
    y = y if z is None else y + exact(z)
    return (y.clamp(min=0) if activation == "Relu" else y.tanh()).numpy().astype(x.dtype)


X = t(2, 3, 8, low=-4, high=4)
WIDE = {"low": -30000, "high": 30000}
CONV = {"activation": "Relu", "pads": [1, 0, 1, 2], "strides": [1, 1]}

CASES: tuple[OpCase, ...] = (
    ms("GatedAdd", [X, t(2, 3, 8), t(2, 3, 1)], grad=True, dtypes=("float32", "float16")),
    ms("GatedAdd", [X, t(2, 3, 8), t(2, 3, 5), t(5, 1)], grad=True, oracle=projected, id="projected"),
    ms("ScaledSiLU", [X], {"alpha": 1.5}, grad=True, dtypes=("float32", "float16")),
    ms("ScaledSiLU", [X, t()], grad=True, id="scale"),
    ms("SwiGLU", [X, t(2, 3, 8)], grad=True, oracle=swiglu, dtypes=("float32", "float16")),
    ms(
        "SwiGLU",
        [X],
        {"activation_alpha": 1.702, "activation_beta": 1.0, "limit": 2.5},
        oracle=swiglu,
        id="halves",
    ),
    ms(
        "SwiGLU",
        [X],
        {"round_activation": 1, "limit": -1.0},
        dtypes=("float16",),
        oracle=swiglu,
        id="rounded",
    ),
    ms("BiasSoftmax", [X, t(1, 3, 8)], {"axis": 2, "is_inner_broadcast": 0}, grad=True, oracle=bias_softmax),
    ms("BiasSoftmax", [X, t(2, 1, 8)], {"axis": 2, "is_inner_broadcast": 1}, oracle=bias_softmax, id="inner"),
    ms("BiasSoftmax", [X, t(1, 3, 8)], {"is_inner_broadcast": 0}, oracle=bias_softmax, id="flat"),
    ms("ComplexMul", [t(2, 3, 2), t(3, 2)], grad=True, oracle=complex_product(False)),
    ms("ComplexMulConj", [t(2, 1, 2), t(2, 3, 2)], grad=True, oracle=complex_product(True)),
    ms("MatMulInteger16", [t(2, 3, 4, **WIDE), t(4, 5, **WIDE)], dtypes=("int16",)),
    ms(
        "MatMulInteger16",
        [t(3, 4, **WIDE), t(4, 2, **WIDE)],
        dtypes=("uint16",),
        oracle=product_16,
        id="unsigned",
    ),
    ms(
        "MulInteger",
        [
            t(2, 3, low=0, high=256, dtype="uint8"),
            const(128, "uint8"),
            t(3, low=-128, high=128, dtype="int8"),
        ],
        oracle=mul_integer,
    ),
    ms(
        "MulInteger",
        [t(2, 3, low=-128, high=128), None, t(2, 1, low=-128, high=128), const(-7)],
        dtypes=("int8",),
        oracle=mul_integer,
        id="second",
    ),
    ms(
        "ReduceSumInteger",
        [t(2, 30, 4, low=-128, high=256)],
        {"axes": [1, -1], "keepdims": 1},
        dtypes=("int8", "uint8"),
        oracle=reduce_sum,
    ),
    ms(
        "ReduceSumInteger",
        [t(2, 3, 4)],
        {"axes": [0], "keepdims": 0},
        dtypes=("int8",),
        oracle=reduce_sum,
        id="dropped",
    ),
    ms("NhwcFusedConv", [t(2, 6, 5, 4), t(6, 4, 3, 3), t(6)], CONV, grad=True, oracle=nhwc_fused_conv),
    ms(
        "NhwcFusedConv",
        [t(2, 6, 5, 4), t(6, 4, 3, 3), None, t(2, 6, 5, 6)],
        {**CONV, "activation": "Tanh"},
        oracle=nhwc_fused_conv,
        id="sum",
    ),
)
