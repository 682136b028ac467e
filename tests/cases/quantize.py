"""Cases of QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

import numpy as np
from opcase import OpCase, const, numpy_dtype, t

ORT = "onnxruntime"
EIGHT = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")
TIES = [[-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 1e9, -1e9]]


def q(zero: str, *more: str) -> list[OpCase]:
    """Per tensor, by axis and in blocks, for zero points of some types."""
    kinds = (zero, *more)
    return [
        OpCase("QuantizeLinear", [t(3, 4, low=-20, high=20), const(0.5), const(1, kind)], id=f"to_{kind}")
        for kind in kinds
    ] + [
        OpCase(
            "QuantizeLinear",
            [t(2, 3, 4, low=-20, high=20), t(3, low=0.1, high=2), const([0, 1, 2], kind)],
            {"axis": -2},
            id=f"axis_{kind}",
        )
        for kind in kinds
    ]


def blocked(x, scale, zero=None, axis=1, block_size=0, **_):  # type: ignore[no-untyped-def]
    pick = np.arange(x.shape[axis]) // block_size
    s = scale.take(pick, axis)
    z = 0 if zero is None else zero.astype(np.float32).take(pick, axis)
    return np.clip(np.rint(x / s) + z, 0, 255).astype(np.uint8)


def dequantized(x, scale, zero, **_):  # type: ignore[no-untyped-def]
    return ((x.astype(np.float32) - zero.astype(np.float32)) * scale.astype(np.float32)).astype(scale.dtype)


def micro(x, scale, **_):  # type: ignore[no-untyped-def]
    return (x / scale.astype(np.float32).repeat(4, 1)).astype(numpy_dtype("float4e2m1"))


CASES: tuple[OpCase, ...] = (
    *q("uint8", "int8", "uint16", "int16", "int4", "uint4", "int2", "uint2"),
    OpCase("QuantizeLinear", [const(TIES), const(1.0), const(3, "uint8")], oracle=ORT, opset=21, id="ties"),
    OpCase(
        "QuantizeLinear", [const(TIES), const(1.0), const(-3, "int8")], oracle=ORT, opset=21, id="ties_int8"
    ),
    OpCase(
        "QuantizeLinear",
        [t(3, 4, low=-20, high=20), const(0.3)],
        opsets=(10, 13, 19, 21, 23, 24, 25),
        id="old",
    ),
    OpCase("QuantizeLinear", [t(3, 4, low=-20, high=20), const([0.3])], id="scale_of_one"),
    OpCase("QuantizeLinear", [t(low=-20, high=20), const(0.3), const(5, "int8")], id="scalar"),
    OpCase("QuantizeLinear", [t(0, 3), const(0.3), const(5, "int8")], id="empty"),
    OpCase(
        "QuantizeLinear",
        [t(5, dtype="int32", low=-90, high=90), const(0.3, "float32"), const(5, "int8")],
        id="from_int32",
    ),
    OpCase(
        "QuantizeLinear",
        [t(3, 4, low=-20, high=20), const(0.5), const(9, "uint8")],
        {},
        ("float16", "bfloat16"),
        id="from_half",
    ),
    OpCase(
        "QuantizeLinear",
        [const([60000.0, 3.0]), const(1.0), const(5000, "uint16")],
        {},
        ("float16",),
        id="half_uint16",
    ),
    OpCase(
        "QuantizeLinear",
        [t(3, 4, low=-20, high=20), const(0.3, "float16")],
        {"precision": 1},
        id="precision",
    ),
    *(
        OpCase(
            "QuantizeLinear", [const([0.1, -3, 500, 1e6, -1e6]), const(0.5), const(0, kind)], id=f"to_{kind}"
        )
        for kind in EIGHT
    ),
    *(
        OpCase(
            "QuantizeLinear",
            [const([0.1, -3.0, 300.0]), const(2.0)],
            {"output_dtype": code},
            id=f"dtype_{code}",
        )
        for code in (2, 3, 17, 21, 22, 23)
    ),
    OpCase(
        "QuantizeLinear",
        [const([1e6, -1e6]), const(1.0), const(0, "float8e5m2")],
        {"saturate": 0},
        id="infinite",
    ),
    OpCase(
        "QuantizeLinear",
        [const([0.2, 0.3, 0.8, 1.7, 2.5, 3.5, 5, -9]), const(1.0), const(0, "float4e2m1")],
        id="float4",
    ),
    OpCase(
        "QuantizeLinear",
        [t(3, 7, low=0, high=20), t(3, 3, low=0.1, high=2), t(3, 3, dtype="uint8")],
        {"block_size": 3},
        oracle=blocked,
        id="blocks",
    ),
    OpCase(
        "QuantizeLinear",
        [t(4, 2, low=0, high=20), t(2, 2, low=0.1, high=2)],
        {"block_size": 2, "axis": 0},
        oracle=blocked,
        id="blocks_axis0",
    ),
    OpCase(
        "QuantizeLinear",
        [t(2, 8, low=-20, high=20), const([[0.5, 2.0], [1.0, 4.0]], "float8e8m0")],
        {"block_size": 4, "output_dtype": 23, "axis": -1},
        oracle=micro,
        id="micro",
    ),
    OpCase(
        "DequantizeLinear",
        [t(2, 8, dtype="float4e2m1"), const([[0.5, 2.0], [1.0, 4.0]], "float8e8m0")],
        {"block_size": 4, "output_dtype": 1},
        oracle=lambda x, s, **_: x.astype(np.float32) * s.astype(np.float32).repeat(4, 1),
        id="micro",
    ),
    *(
        OpCase("DequantizeLinear", [t(3, 4, dtype=kind), const(0.5, "float32"), const(1, kind)], {}, id=kind)
        for kind in ("uint8", "int8", "uint16", "int16", "uint4", "int4", "uint2", "int2")
    ),
    *(
        OpCase("DequantizeLinear", [t(3, 4, dtype=kind), const(0.5)], {}, ("float32", "float16"), id=kind)
        for kind in (*EIGHT, "float4e2m1")
    ),
    OpCase("DequantizeLinear", [t(3, 4, dtype="int32"), const(0.5)], opsets=(19, 21, 23, 24, 25), id="int32"),
    OpCase("DequantizeLinear", [t(3, 4, dtype="int8"), const(0.5)], opsets=(10, 13), oracle=ORT, id="old"),
    OpCase(
        "DequantizeLinear",
        [t(3, 4, dtype="uint8"), t(3, low=0.1), const([1, 2, 3], "uint8")],
        {"axis": 0},
        ("float32",),
        id="axis",
    ),
    OpCase(
        "DequantizeLinear",
        [t(3, 4, dtype="uint8"), t(low=0.1), const(7, "uint8")],
        {},
        ("float16", "bfloat16"),
        oracle=dequantized,
        id="to_half",
    ),
    OpCase("DequantizeLinear", [t(3, 4, dtype="int8"), t(low=0.1)], {"output_dtype": 10}, id="output_dtype"),
    OpCase(
        "DequantizeLinear",
        [t(3, 7, dtype="int8"), t(3, 4, low=0.1), t(3, 4, dtype="int8")],
        {"block_size": 2},
        grad=True,
        id="blocks",
    ),
    OpCase("DequantizeLinear", [t(dtype="int8"), t(low=0.1), const(3, "int8")], grad=True, id="scalar"),
    OpCase("DynamicQuantizeLinear", [t(3, 4, low=-2, high=5)], outputs=3),
    OpCase("DynamicQuantizeLinear", [t(3, 4, low=1, high=5)], outputs=3, id="positive"),
    OpCase(
        "DynamicQuantizeLinear", [t(3, 4, low=-5, high=-1)], outputs=3, oracle=ORT, opset=11, id="negative"
    ),
    OpCase("DynamicQuantizeLinear", [const([[0.0, 0.0]])], outputs=3, id="zeros"),
    OpCase("DynamicQuantizeLinear", [t(2, 0)], outputs=3, oracle=ORT, opset=11, id="empty"),
)
