"""Cases of Concat and Split."""

from opcase import OpCase, const, t

WIDE = ("float32", "float16", "bfloat16", "int64", "bool", "uint16", "uint64", "complex64", "float8e4m3fn")
TEXT = const([["a", "", "c"]], "string")

CASES: tuple[OpCase, ...] = (
    OpCase("Concat", [t(2, 3), t(2, 1)], {"axis": 1}, dtypes=WIDE, grad=True),
    OpCase("Concat", [t(2, 3), t(0, 3), t(1, 3)], {"axis": -2}, opsets=(11, 13), id="empty_part"),
    OpCase("Concat", [t(2, 3)], {"axis": 0}, opsets=(4, 13), id="single"),
    OpCase("Concat", [TEXT, TEXT], {"axis": 1}, id="strings"),
    OpCase("Concat", [t(2, 3), t(2, 1)], {"axis": 1}, opset=1, id="old"),
    OpCase("Split", [t(6, 2), const([1, 2, 3], "int64")], outputs=3, dtypes=WIDE, grad=True),
    OpCase("Split", [t(2, 7)], {"axis": 1, "num_outputs": 3}, outputs=3, id="uneven"),
    OpCase("Split", [t(2, 6)], {"axis": -1, "num_outputs": 2}, outputs=2, grad=True, id="even"),
    OpCase("Split", [t(2, 6), const([6, 0], "int64")], {"axis": 1}, outputs=2, id="zero"),
    OpCase("Split", [t(0, 6)], {"axis": 1, "num_outputs": 2}, outputs=2, id="empty"),
    OpCase("Split", [TEXT, const([1, 2], "int64")], {"axis": 1}, outputs=2, id="strings"),
    OpCase("Split", [t(6, 2)], outputs=(True, False, True), opset=13, id="one_not_wanted"),
    OpCase("Split", [t(6, 2), const([2, 4], "int64")], outputs=2, opset=13, id="sizes"),
    OpCase("Split", [t(2, 6)], {"axis": 1, "split": [2, 4]}, outputs=2, opsets=(2, 11), id="attribute"),
    OpCase("Split", [t(2, 6)], {"axis": 1}, outputs=3, opsets=(2, 11), id="parts"),
    OpCase(
        "Split",
        [t(2, 6)],
        {"axis": 1, "split": [2, 4]},
        outputs=2,
        opset=1,
        oracle=lambda x, axis, split: (x[:, :2], x[:, 2:]),
        id="old",
    ),
    OpCase(
        "Split",
        [t(2, 6), const([2, 4], "float32")],
        {"axis": 1},
        outputs=2,
        opset=1,
        oracle=lambda x, sizes, axis: (x[:, :2], x[:, 2:]),
        id="old_input",
    ),
)
