"""Cases of MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv."""

import numpy as np
from opcase import OpCase, const, t

ORT = "onnxruntime"


def u(*shape: int) -> object:
    return t(*shape, low=0, high=256, dtype="uint8")


def s(*shape: int) -> object:
    return t(*shape, low=-128, high=128, dtype="int8")


def zu(*value: int) -> object:
    return const(value[0] if len(value) == 1 else list(value), "uint8")


def zs(*value: int) -> object:
    return const(value[0] if len(value) == 1 else list(value), "int8")


def f(*value: float) -> object:
    return const(value[0] if len(value) == 1 else list(value), "float32")


def product(a, b, az=0, bz=0):  # type: ignore[no-untyped-def]
    az, bz = np.asarray(az, np.int64), np.asarray(bz, np.int64)
    az = az[:, None] if az.ndim == 1 else az
    return np.matmul(a.astype(np.int64) - az, b.astype(np.int64) - bz).astype(np.int32)


def qproduct(a, sa, za, b, sb, zb, sy, zy):  # type: ignore[no-untyped-def]
    rows = [v[:, None] if np.ndim(v) == 1 else v for v in (sa, sy, zy)]
    y = product(a, b, za, zb) * (rows[0] * sb / rows[1])
    info = np.iinfo(zy.dtype)
    return np.clip(np.rint(y) + rows[2], info.min, info.max).astype(zy.dtype)


CASES: tuple[OpCase, ...] = (
    OpCase("MatMulInteger", [u(3, 40), u(40, 5)], oracle=product),
    OpCase("MatMulInteger", [u(3, 40), s(40, 5), zu(100), zs(3)], oracle=product, id="mixed"),
    OpCase("MatMulInteger", [s(3, 40), u(40, 5), zs(-7), zu(200)], oracle=product, id="mixed_2"),
    OpCase(
        "MatMulInteger",
        [s(3, 400), s(400, 5), None, zs(9)],
        oracle=lambda a, b, _, z: product(a, b, 0, z),
        id="b_zero",
    ),
    OpCase(
        "MatMulInteger", [u(3, 4), s(4, 5), zu(1, 2, 250), zs(5, 6, 7, 8, -9)], oracle=product, id="by_row"
    ),
    OpCase("MatMulInteger", [u(2, 3, 4), s(4, 5), zu(99)], oracle=product, id="batch"),
    OpCase("MatMulInteger", [u(2, 3, 400), s(2, 400, 5), zu(99), zs(1)], oracle=product, id="batches"),
    OpCase("MatMulInteger", [u(7), s(7), zu(99)], oracle=product, id="dot"),
    OpCase("MatMulInteger", [u(0, 4), s(4, 5), zu(99), zs(5)], oracle=product, id="no_rows"),
    OpCase("MatMulInteger", [u(3, 0), s(0, 5), zu(99), zs(5)], oracle=product, id="no_terms"),
    OpCase(
        "MatMulInteger",
        [const(np.full((2, 999), 255), "uint8"), const(np.full((999, 2), 255), "uint8")],
        oracle=product,
        id="largest",
    ),
    OpCase("MatMulInteger", [u(9, 200), s(200, 40), zu(100), zs(3)], oracle=product, id="large"),
    OpCase("MatMulInteger", [s(2, 9, 400), u(400, 40), zs(-7), zu(200)], oracle=product, id="large_batch"),
    OpCase("MatMulInteger", [u(9, 400), s(400, 40)], oracle=product, id="large_plain"),
    OpCase("ConvInteger", [u(2, 3, 7, 6), u(4, 3, 3, 2)]),
    OpCase(
        "ConvInteger",
        [u(2, 3, 7, 6), u(4, 3, 3, 2), zu(120), zu(7)],
        {"pads": [1, 1, 0, 1]},
        oracle=ORT,
        id="pads",
    ),
    OpCase(
        "ConvInteger",
        [u(1, 3, 7, 6), s(4, 3, 3, 2), zu(120), zs(1, -2, 3, 4)],
        {"strides": [2, 1]},
        id="by_channel",
    ),
    OpCase(
        "ConvInteger",
        [s(1, 3, 7, 6), s(4, 3, 3, 2), zs(-20)],
        {"dilations": [2, 2], "pads": [2, 0, 2, 0]},
        id="signed",
    ),
    OpCase(
        "ConvInteger",
        [u(2, 4, 9, 9), s(6, 2, 3, 3), zu(120), zs(1)],
        {"group": 2, "auto_pad": "SAME_UPPER"},
        oracle=ORT,
        id="groups",
    ),
    OpCase("ConvInteger", [u(1, 40, 9), s(4, 40, 3), zu(120), zs(3)], {"pads": [1, 1]}, oracle=ORT, id="1d"),
    OpCase(
        "ConvInteger",
        [u(1, 1, 84), u(1, 1, 3), zu(3), zu(38)],
        {"strides": [2], "pads": [1, 1]},
        id="one_channel",
    ),
    OpCase("ConvInteger", [u(1, 2, 4, 5, 4), s(3, 2, 2, 2, 2), zu(9), zs(0)], oracle=ORT, id="3d"),
    OpCase(
        "QLinearMatMul",
        [u(3, 4), f(0.02), zu(110), u(4, 5), f(0.03), zu(128), f(0.1), zu(20)],
        oracle=ORT,
        opset=21,
    ),
    OpCase(
        "QLinearMatMul",
        [s(3, 4), f(0.02), zs(-5), s(4, 5), f(0.03), zs(1), f(0.1), zs(20)],
        opsets=(10, 21),
        oracle=ORT,
        id="signed",
    ),
    OpCase(
        "QLinearMatMul",
        [
            u(3, 4),
            f(0.1, 0.2, 0.3),
            zu(1, 2, 3),
            s(4, 2),
            f(0.3, 0.4),
            zs(1, 2),
            f(1.0, 2.0, 3.0),
            zs(4, 5, 6),
        ],
        oracle=qproduct,
        id="by_row",
    ),
    OpCase(
        "QLinearMatMul",
        [u(2, 3, 40), f(0.2), zu(99), s(2, 40, 5), f(0.13), zs(3), f(9.7), zu(7)],
        oracle=qproduct,
        id="batches",
    ),
    OpCase(
        "QLinearMatMul",
        [
            t(3, 4, dtype="float8e4m3fn"),
            f(0.5),
            const(0, "float8e4m3fn"),
            t(4, 5, dtype="float8e4m3fn"),
            f(2.0),
            const(0, "float8e4m3fn"),
            f(4.0),
            const(0, "float8e4m3fn"),
        ],
        oracle=lambda a, sa, za, b, sb, zb, sy, zy: (
            (a.astype(np.float32) @ b.astype(np.float32)) * np.float32(0.25)
        ).astype(zy.dtype),
        id="float8",
    ),
    OpCase(
        "QLinearConv",
        [u(1, 3, 7, 6), f(0.02), zu(110), u(4, 3, 3, 2), f(0.03), zu(128), f(0.3), zu(20)],
        {"pads": [1, 1, 1, 1]},
        oracle=ORT,
    ),
    OpCase(
        "QLinearConv",
        [
            s(2, 3, 7, 6),
            f(0.02),
            zs(11),
            s(4, 3, 3, 2),
            f(0.03, 0.1, 0.02, 0.01),
            zs(0, 0, 0, 0),
            f(0.3),
            zs(20),
            t(4, dtype="int32", low=-500, high=500),
        ],
        {"strides": [2, 1]},
        oracle=ORT,
        id="by_channel",
    ),
    OpCase(
        "QLinearConv",
        [u(1, 4, 7, 6), f(0.02), zu(110), s(4, 1, 3, 3), f(0.03), zs(0), f(0.3), zu(20)],
        {"group": 4, "auto_pad": "SAME_LOWER"},
        oracle=ORT,
        id="depthwise",
    ),
)
