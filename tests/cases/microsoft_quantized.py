"""Cases of com.microsoft's QLinearConv, QEmbedLayerNormalization, products by column, and alignment."""

from typing import Any

import numpy as np
from opcase import OpCase, const, ms, t


def u(*shape: int) -> Any:
    return t(*shape, low=0, high=256, dtype="uint8")


def s(*shape: int) -> Any:
    # Larger ones overflow in the pairs of products that onnxruntime adds in 16 bits on a CPU without VNNI.
    return t(*shape, low=-64, high=64, dtype="int8")


def f(value: Any) -> Any:
    return const(value, "float32")


def zu(value: int) -> Any:
    return const(value, "uint8")


def zs(value: int) -> Any:
    return const(value, "int8")


def by_column(a, b, a_scale, b_scale, a_zero, b_zero, bias):  # type: ignore[no-untyped-def]
    left = (a.astype(np.float64) - a_zero) * a_scale
    return (left @ ((b.astype(np.float64) - b_zero) * b_scale) + bias).astype(np.float32)


def windows(x, *, dim, size, step):  # type: ignore[no-untyped-def]
    return np.stack([x[:, i : i + size].swapaxes(1, -1) for i in range(0, x.shape[1] - size + 1, step)], 1)


CONV = [u(2, 6, 5, 4), f(0.03), zu(120), s(6, 2, 3, 3), t(6, low=0.01, high=0.05), const([0] * 6, "int8")]
TABLES = [u(9, 16), u(7, 16), u(2, 16), u(16), u(16)]
SCALES = [f(0.02), f(0.03), f(0.01), f(0.05), f(0.04)]
ZEROS = [zu(120), zu(100), zu(90), zu(60), zu(128)]
IDS = t(2, 5, low=0, high=9, dtype="int32")
SEGMENTS = t(2, 5, low=0, high=2, dtype="int32")

CASES: tuple[OpCase, ...] = (
    ms(
        "QLinearConv",
        [*CONV, f(0.4), zu(110), t(6, low=-900, high=900, dtype="int32")],
        {"channels_last": 1, "group": 2, "pads": [1, 1, 1, 0]},
        id="channels_last",
    ),
    ms(
        "QLinearConv",
        [s(1, 2, 7), f(0.03), zs(12), s(4, 2, 3), f(0.02), zs(0), f(0.4), zs(-11)],
        {"strides": [2], "auto_pad": "SAME_LOWER"},
        id="channels_first",
    ),
    ms("QEmbedLayerNormalization", [IDS, SEGMENTS, *TABLES, SEGMENTS, *SCALES, *ZEROS], outputs=2),
    ms(
        "QEmbedLayerNormalization",
        [
            IDS,
            None,
            *TABLES[:2],
            None,
            *TABLES[3:],
            None,
            *SCALES[:2],
            None,
            *SCALES[3:],
            *ZEROS[:2],
            None,
            *ZEROS[3:],
        ],
        {"epsilon": 1e-5},
        outputs=2,
        id="no_segments",
    ),
    ms(
        "MatMulIntegerToFloat",
        [
            u(3, 4),
            s(4, 5),
            t(4, low=0.01, high=0.1),
            t(5, low=0.01, high=0.1),
            const([99, 100, 101, 102], "uint8"),
            const([1, 2, 3, 4, 5], "int8"),
            t(5),
        ],
        # By the documentation; onnxruntime takes scalars only for the first input.
        oracle=by_column,
        id="by_column_of_both",
    ),
    ms(
        "MatMulIntegerToFloat",
        [u(2, 3, 40), s(2, 40, 5), f([0.1]), t(2, 1, 5, low=0.01), zu(9), t(2, 1, 5, dtype="int8")],
        id="by_matrix",
    ),
    ms(
        "DynamicQuantizeMatMul",
        [t(2, 3, 40), s(2, 40, 5), t(2, 1, 5, low=0.01), t(2, 1, 5, dtype="int8")],
        id="by_matrix",
    ),
    ms("DynamicQuantizeMatMul", [t(0, 40), s(40, 5), f(0.1), None, t(5)], id="empty"),
    ms("DynamicTimeWarping", [t(6, 9, low=0)]),
    ms("DynamicTimeWarping", [const(np.indices((7, 5)).sum(0) % 3)], id="ties"),
    ms("DynamicTimeWarping", [t(1, 4, 2)], id="batch"),
    ms("UnfoldTensor", [t(2, 7)], {"size": 3, "step": 2}, grad=True),
    ms(
        "UnfoldTensor",
        [t(2, 7, 3)],
        {"size": 3, "step": 2, "dim": -2},
        dtypes=("bfloat16", "bool", "uint16"),
        oracle=windows,
        id="middle",
    ),
    ms(
        "UnfoldTensor",
        [const(np.array([["a", "b", "", "d"]], dtype=object), "string")],
        {"size": 2, "dim": 1, "step": 1},
        oracle=windows,
        id="texts",
    ),
)
