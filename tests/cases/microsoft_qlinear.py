"""Cases of com.microsoft's operators on quantized tensors."""

from typing import Any

import numpy as np
from opcase import OpCase, const, ms, t


def u(*shape: int) -> Any:
    return t(*shape, low=0, high=256, dtype="uint8")


def s(*shape: int) -> Any:
    # Larger ones overflow in the pairs of products that onnxruntime adds in 16 bits on a CPU without VNNI.
    return t(*shape, low=-64, high=64, dtype="int8")


def f(value: float) -> Any:
    return const(value, "float32")


def zu(value: int) -> Any:
    return const(value, "uint8")


def zs(value: int) -> Any:
    return const(value, "int8")


CASES: tuple[OpCase, ...] = (
    ms("QLinearAdd", [u(3, 4), f(0.1), zu(100), u(4), f(0.07), zu(120), f(0.13), zu(128)]),
    ms("QLinearAdd", [s(3, 4), f(0.1), zs(10), s(3, 1), f(0.07), zs(-20), f(0.13), zs(5)], id="signed"),
    ms(
        "QLinearAdd",
        [u(3, 4), f(0.1), None, u(4), f(0.07), None, f(0.23)],
        oracle=lambda a, sa, _, b, sb, __, sc: np.clip(np.rint((a * sa + b * sb) / sc), 0, 255).astype(
            np.uint8
        ),
        id="no_zeros",
    ),
    ms("QLinearMul", [u(3, 4), f(0.1), zu(100), u(4), f(0.07), zu(120), f(0.73), zu(128)]),
    ms("QLinearMul", [s(3, 4), f(0.1), zs(10), s(3, 1), f(0.07), zs(-20), f(0.61), zs(5)], id="signed"),
    ms("QLinearSigmoid", [u(3, 40), f(0.05), zu(128), f(1 / 256), zu(0)]),
    ms("QLinearSigmoid", [s(3, 40), f(0.05), zs(3), f(1 / 256), zs(-128)], id="signed"),
    ms("QLinearLeakyRelu", [u(3, 40), f(0.053), zu(128), f(0.041), zu(20)], {"alpha": 0.13}),
    ms("QLinearLeakyRelu", [s(3, 40), f(0.053), zs(2), f(0.041), zs(20)], id="signed"),
    ms(
        "QLinearConcat",
        [f(0.11), zu(100), u(2, 3), f(0.07), zu(90), u(2, 4), f(0.11), zu(100), u(2, 1), f(0.19), zu(0)],
        {"axis": 1},
    ),
    ms(
        "QLinearConcat",
        [f(0.11), zs(10), s(2, 3), f(0.07), zs(9), s(1, 3), f(0.13), zs(1)],
        {"axis": -2},
        id="signed",
    ),
    ms(
        "QLinearAveragePool",
        [u(1, 2, 6, 5), f(0.1), zu(100), f(0.083), zu(110)],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 1]},
    ),
    ms(
        "QLinearAveragePool",
        [u(1, 6, 5, 2), f(0.1), zu(100), f(0.083), zu(110)],
        {"kernel_shape": [2, 3], "channels_last": 1},
        id="channels_last",
    ),
    ms("QLinearGlobalAveragePool", [u(1, 2, 6, 5), f(0.1), zu(100), f(0.017), zu(110)]),
    ms(
        "QLinearGlobalAveragePool",
        [u(1, 6, 5, 2), f(0.1), zu(100), f(0.017), zu(110)],
        {"channels_last": 1},
        id="channels_last",
    ),
    ms("DynamicQuantizeMatMul", [t(3, 40), s(40, 5), f(0.02)]),
    ms(
        "DynamicQuantizeMatMul",
        [t(2, 3, 40), u(40, 5), t(5, low=0.01, high=0.1), const([100, 120, 130, 140, 90], "uint8"), t(5)],
        id="by_column",
    ),
    ms("MatMulIntegerToFloat", [u(3, 40), s(40, 5), f(0.02), f(0.03), zu(120)]),
    ms(
        "MatMulIntegerToFloat",
        [
            u(2, 3, 40),
            u(40, 5),
            f(0.02),
            t(5, low=0.01, high=0.1),
            zu(99),
            const([100, 120, 130, 140, 90], "uint8"),
            t(5),
        ],
        id="by_column",
    ),
    ms("QLinearSoftmax", [u(3, 8), f(0.05), zu(128), f(1 / 256), zu(0)], {"opset": 13}),
    ms(
        "QLinearSoftmax",
        [s(3, 2, 4), f(0.05), zs(1), f(1 / 256), zs(-128)],
        {"opset": 11, "axis": 1},
        id="old",
    ),
    OpCase(
        "QLinearReduceMean",
        [u(3, 2, 4), f(0.05), zu(100), f(0.03), zu(7)],
        {"axes": [0, -1], "keepdims": 0},
        domain="com.microsoft",
        oracle=lambda x, sx, zx, sy, zy, **_: np.clip(
            np.rint((x.astype(np.float32) - zx).mean((0, 2)) * sx / sy) + zy, 0, 255
        ).astype(np.uint8),
    ),
    ms(
        "QLinearWhere",
        [t(3, 4, dtype="bool"), u(3, 4), f(0.05), zu(100), u(4), f(0.031), zu(9), f(0.07), zu(80)],
    ),
    ms("QuantizeLinear", [t(3, 4, low=-20, high=20), f(0.3), const(9, "uint16")]),
    ms(
        "QuantizeLinear",
        [t(3, 4, low=-20, high=20), t(3, low=0.1), const([1, 2, 3], "int8")],
        {"axis": 0},
        id="axis",
    ),
    ms("DequantizeLinear", [t(3, 4, dtype="int16", low=-900, high=900), f(0.3), const(9, "int16")]),
    ms("DequantizeLinear", [u(3, 4), t(4, low=0.1), const([1, 2, 3, 4], "uint8")], {"axis": 1}, id="axis"),
    ms("QGemm", [u(3, 40), f(0.02), zu(120), s(40, 5), f(0.03), zs(1), None, f(0.31), zu(9)], {"alpha": 0.7}),
    ms(
        "QGemm",
        [
            u(3, 40),
            f(0.02),
            zu(120),
            s(5, 40),
            t(5, low=0.01, high=0.1),
            const([1, 2, 3, 4, 5], "int8"),
            t(5, dtype="int32", low=-900, high=900),
        ],
        {"transB": 1},
        id="float",
    ),
)
