"""Cases of TopK."""

from opcase import OpCase, const, t

REAL = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "int8")
WIDE = ("float32", "float16", "bfloat16", "int32", "int16", "int8", "uint8", "int64", "float64")
NAN = float("nan")
K3 = const([3], "int64")

CASES: tuple[OpCase, ...] = (
    OpCase("TopK", [t(4, 6), K3], outputs=2, dtypes=REAL),
    OpCase("TopK", [t(4, 6), K3], outputs=2, dtypes=("float64",), grad=True, id="grad"),
    OpCase("TopK", [t(4, 6), K3], {"axis": 0, "largest": 0}, outputs=2, dtypes=REAL, id="smallest"),
    OpCase("TopK", [t(4, 6, 2), K3], {"axis": 1}, outputs=2, opsets=(10, 11, 24), id="middle"),
    OpCase("TopK", [t(4, 6), K3], {"sorted": 0}, outputs=2, id="any_order"),
    OpCase("TopK", [t(4, 6), const([0], "int64")], outputs=2, id="none"),
    OpCase("TopK", [t(0, 6), K3], outputs=2, id="empty"),
    OpCase("TopK", [const([[1, 3, 3, 1, 3, 1]]), const([4], "int64")], outputs=2, dtypes=REAL, id="ties"),
    OpCase(
        "TopK",
        [const([[1, 3, 3, 1, 3, 1]]), const([4], "int64")],
        {"largest": 0},
        outputs=2,
        id="ties_smallest",
    ),
    OpCase("TopK", [const([[1, NAN, 2, NAN]]), K3], outputs=2, id="nan"),
    OpCase("TopK", [const([[1, NAN, 2, NAN]]), K3], {"largest": 0}, outputs=2, id="nan_smallest"),
    OpCase("TopK", [t(3, 1100), K3], outputs=2, dtypes=WIDE, id="long"),
    OpCase("TopK", [t(1100, 2), K3], {"axis": 0, "largest": 0}, outputs=2, dtypes=WIDE, id="long_smallest"),
    OpCase(
        "TopK",
        [const([[0.0, -0.0, NAN, -1.0] * 300]), const([90], "int64")],
        outputs=2,
        opsets=(11, 24),
        id="long_zeros",
    ),
    OpCase(
        "TopK", [t(2, 2000), K3], {"axis": -1}, outputs=2, dtypes=("float64",), grad=False, id="long_double"
    ),
    OpCase("TopK", [t(4, 6)], {"k": 2, "axis": 0}, outputs=2, opset=1, id="attribute"),
    OpCase(
        "TopK",
        [const([[-(2**31), 2**31 - 1, -(2**31)] * 400], "int32"), const([140], "int64")],
        {"largest": 0},
        outputs=2,
        id="long_extremes",
    ),
    OpCase("TopK", [const([[-(2**31)] * 1100], "int32"), const([3], "int64")], outputs=2, id="long_lowest"),
)
