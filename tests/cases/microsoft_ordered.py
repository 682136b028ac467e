"""Cases of com.microsoft's ordered int8 matrices, and products with floats of few bits."""

import math
from typing import Any

import ml_dtypes
import numpy as np
from opcase import OpCase, const, t


def ms(op: str, inputs: list[Any], attrs: dict[str, Any] | None = None, **more: Any) -> OpCase:
    return OpCase(op, inputs, attrs or {}, domain="com.microsoft", **more)


def tiles(x):  # type: ignore[no-untyped-def]
    """Rows in tiles of 32 columns, element by element."""
    rows, columns = x.shape
    flat = np.empty(x.size, x.dtype)
    for r in range(rows):
        for c in range(columns):
            flat[c // 32 * 32 * rows + r * 32 + c % 32] = x[r, c]
    return flat.reshape(x.shape)


def rounded(real, scale):  # type: ignore[no-untyped-def]
    return np.clip(np.rint(np.float32(real) / scale), -128, 127).astype(np.int8)


def quantized(x, scale, *, order_input, order_output):  # type: ignore[no-untyped-def]
    y = rounded(x.astype(np.float32), scale)
    return tiles(y) if order_output == 2 else y.T.reshape(y.shape) if order_output == 0 else y


def dequantized(x, scale, *, order_input, order_output, to):  # type: ignore[no-untyped-def]
    rows = x.reshape(x.shape[::-1]).T if order_input == 0 else x
    return (rows.astype(np.float32) * scale).astype(np.float32 if to == 1 else np.float16)


def product(a, sa, b, sb, sy, bias=None, c=None, sc=None, **_):  # type: ignore[no-untyped-def]
    real = (a.astype(np.int64) @ b.reshape(b.shape[::-1]).T.astype(np.int64)) * (sa * sb)
    real = real if bias is None else real + bias
    return rounded(real if c is None else real + c * sc, sy)


def gelu(x, sx, sy, **_):  # type: ignore[no-untyped-def]
    real = x.astype(np.float32) * sx
    return rounded(real * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(real / math.sqrt(2))), sy)


def normed(x, sx, scale, b, sy, **_):  # type: ignore[no-untyped-def]
    real = x.astype(np.float64) * sx
    y = (real - real.mean(-1, keepdims=True)) / np.sqrt(real.var(-1, keepdims=True) + 1e-5) * scale
    return rounded(y if b is None else y + b, sy)


def fp8(a, b, b_scale, a_scale=None, bias=None, *, block_size):  # type: ignore[no-untyped-def]
    wide = a.astype(np.float64)
    if a_scale is not None:
        wide = (wide / a_scale).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(
            np.float64
        ) * a_scale
    weight = b.astype(np.float64) * np.repeat(b_scale, block_size, 1)[:, : b.shape[1]]
    y = wide @ weight.T
    return (y if bias is None else y + bias).astype(a.dtype)


def fp4(a, b, scale, scale_2, _=None, bias=None, *, block_size):  # type: ignore[no-untyped-def]
    table = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    table = np.concatenate((table, -table))
    codes = np.stack((b & 15, b >> 4), -1).reshape(b.shape[0], -1)
    real = scale.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale_2
    weight = (table[codes] * np.repeat(real, block_size, 1)[:, : codes.shape[1]]).astype(a.dtype)
    y = a.astype(np.float64) @ weight.astype(np.float64).T
    return (y if bias is None else y + bias).astype(a.dtype)


def gemm8(a, b, c=None, sa=1.0, sb=1.0, sy=1.0, *, dtype=1, activation="", alpha=1.0, beta=0.0, transB=0):  # type: ignore[no-untyped-def]
    y = a.astype(np.float64) @ (b.astype(np.float64).T if transB else b.astype(np.float64)) * alpha * sa * sb
    y = y if c is None else y + beta * c
    y = np.maximum(y, 0) if activation == "RELU" else y
    return (y * sy).astype({1: np.float32, 10: np.float16}[dtype])


def sparse(a, b, *, alpha=1.0, transA=0, transB=0):  # type: ignore[no-untyped-def]
    return ((a.T if transA else a) @ (b.T if transB else b) * np.float32(alpha)).astype(a.dtype)


def s8(*shape: int) -> Any:
    return t(*shape, low=-128, high=128, dtype="int8")


def f(value: Any) -> Any:
    return const(value, "float32")


SCALE8 = const(np.full((5, 2), 0x38), "uint8")
MM = [s8(2, 3, 8), f(0.03), s8(8, 5)]
ORDERS = {"order_A": 1, "order_B": 0, "order_Y": 1}

CASES: tuple[OpCase, ...] = (
    ms(
        "QuantizeWithOrder",
        [t(3, 64, low=-4, high=4), f(0.03)],
        {"order_input": 1, "order_output": 2},
        dtypes=("float32", "float16"),
        oracle=quantized,
    ),
    ms(
        "QuantizeWithOrder",
        [t(3, 5), f(0.01)],
        {"order_input": 1, "order_output": 0},
        oracle=quantized,
        id="columns",
    ),
    ms(
        "DequantizeWithOrder",
        [s8(3, 5), f(0.03)],
        {"order_input": 0, "order_output": 1, "to": 10},
        oracle=dequantized,
    ),
    ms("QOrderedMatMul", [*MM, f(0.02), f(0.05), t(5)], ORDERS, oracle=product),
    ms(
        "QOrderedMatMul",
        [*MM, t(5, low=0.01, high=0.03), f(0.05), None, s8(2, 3, 5), f(0.07)],
        ORDERS,
        oracle=product,
        id="by_column_and_sum",
    ),
    ms("QOrderedGelu", [s8(3, 4), f(0.03), f(0.02)], oracle=gelu),
    ms("QOrderedLayerNormalization", [s8(3, 8), f(0.03), t(8), t(8), f(0.02)], oracle=normed),
    ms("QOrderedLayerNormalization", [s8(3, 8), f(0.03), t(8), None, f(0.02)], oracle=normed, id="no_bias"),
    ms(
        "MatMulBlockQuantizedFp8Weight",
        [t(2, 3, 12), t(5, 12, low=-9, high=9, dtype="float8_e4m3fn"), t(5, 2, low=0.1, dtype="float32")],
        {"block_size": 8},
        dtypes=("float16",),
        oracle=fp8,
    ),
    ms(
        "MatMulBlockQuantizedFp8Weight",
        [
            t(3, 16),
            t(5, 16, low=-9, high=9, dtype="float8_e4m3fn"),
            t(5, 2, low=0.1, dtype="float32"),
            f(0.02),
            t(5),
        ],
        {"block_size": 8},
        dtypes=("float16",),
        oracle=fp8,
        id="both",
    ),
    ms(
        "MatMulBlockQuantizedFp4Weight",
        [t(3, 32), t(5, 16, low=0, high=256, dtype="uint8"), SCALE8, f(0.5), None, t(5)],
        {"block_size": 16},
        dtypes=("float16",),
        oracle=fp4,
    ),
    ms(
        "GemmFloat8",
        [
            t(3, 8, low=-9, high=9, dtype="float8_e4m3fn"),
            t(5, 8, dtype="float8_e5m2"),
            None,
            f(0.5),
            f(2),
            f(3),
        ],
        {"transB": 1, "dtype": 10},
        oracle=gemm8,
    ),
    ms(
        "GemmFloat8",
        [t(3, 8), t(8, 5), t(3, 5)],
        {"activation": "RELU", "beta": 0.5, "alpha": 2.0},
        oracle=gemm8,
        id="floats",
    ),
    ms("SparseToDenseMatMul", [t(3, 4), t(4, 5)], grad=True, oracle=sparse),
    ms(
        "SparseToDenseMatMul",
        [t(4, 3), t(5, 4)],
        {"transA": 1, "transB": 1, "alpha": 0.5},
        oracle=sparse,
        id="turned",
    ),
)
