"""Cases of Scatter, ScatterElements, ScatterND, TensorScatter."""

from opcase import OpCase, const, t

WIDE = ("float32", "float16", "bfloat16", "int64", "bool", "uint16", "uint32", "uint64", "complex64")
NUMBERS = ("float32", "float64", "float16", "int32", "int64", "uint8", "uint16", "uint64")
CACHE = ("float32", "float16", "bfloat16", "int64", "uint16", "float8e4m3fn")
TEXT = const([["a", "b", "c"], ["d", "e", "f"]], "string")
ROWS = const([[0, -1, 2, 1], [2, 0, 1, 0]], "int64")
SAME = const([[1, 1, 0, -1], [1, 0, 1, -1]], "int64")
PLACES = const([[0, 1], [-1, 2]], "int64")
TWICE = const([[1], [1], [-1]], "int64")

CASES: tuple[OpCase, ...] = (
    OpCase("ScatterElements", [t(3, 4), ROWS, t(2, 4)], dtypes=WIDE, grad=True),
    OpCase("ScatterElements", [t(3, 4), const([[0, -1]], "int32"), t(1, 2)], {"axis": 1}, id="int32"),
    OpCase("ScatterElements", [t(3, 4), ROWS, t(2, 4)], opsets=(11, 13, 16), id="opsets"),
    OpCase("ScatterElements", [t(3, 4), t(0, 4, dtype="int64"), t(0, 4)], id="nothing"),
    OpCase(
        "ScatterElements",
        [TEXT, const([[1, 0]], "int64"), const([["x", "y"]], "string")],
        {"axis": 1},
        id="strings",
    ),
    *(
        OpCase(
            "ScatterElements",
            [t(3, 4), SAME, t(2, 4)],
            {"reduction": name},
            NUMBERS,
            grad=name in ("add", "mul"),
            id=name,
        )
        for name in ("add", "mul", "max", "min")
    ),
    OpCase(
        "ScatterElements",
        [const([[2**63, 5]], "uint64"), const([[0, 0]], "int64"), const([[1, 2**63 + 1]], "uint64")],
        {"reduction": "max", "axis": 1},
        id="max_of_large",
    ),
    OpCase("Scatter", [t(3, 4), ROWS, t(2, 4)], opset=9, oracle="onnxruntime", grad=True),
    OpCase(
        "Scatter", [t(3, 4), const([[0, 2]], "int64"), t(1, 2)], {"axis": 1}, opset=10, oracle="onnxruntime"
    ),
    OpCase("ScatterND", [t(3, 4), PLACES, t(2)], dtypes=WIDE, grad=True, id="elements"),
    OpCase("ScatterND", [t(3, 4), const([[2], [-3]], "int64"), t(2, 4)], opsets=(11, 13, 16), id="rows"),
    OpCase("ScatterND", [t(3, 4, 2), const([[[0]], [[1]]], "int64"), t(2, 1, 4, 2)], grad=True, id="rank_3"),
    OpCase("ScatterND", [t(3, 4), t(0, 1, dtype="int64"), t(0, 4)], id="nothing"),
    OpCase("ScatterND", [TEXT, const([[1, 0]], "int64"), const(["x"], "string")], id="strings"),
    *(
        OpCase(
            "ScatterND", [t(3, 4), TWICE, t(3, 4)], {"reduction": name}, NUMBERS, grad=name == "add", id=name
        )
        for name in ("add", "mul", "max", "min")
    ),
    OpCase("ScatterND", [t(3, 4), PLACES, t(2)], {"reduction": "add"}, id="add_elements"),
    OpCase(
        "TensorScatter",
        [t(2, 3, 4, 5), t(2, 3, 2, 5), const([1, 2], "int64")],
        dtypes=CACHE,
        grad=True,
    ),
    OpCase(
        "TensorScatter",
        [t(2, 4, 5), t(2, 2, 5), const([3, 1], "int64")],
        {"mode": "circular"},
        id="circular",
    ),
    OpCase("TensorScatter", [t(2, 4, 5), t(2, 4, 2), None], {"axis": -1}, id="from_the_start"),
)
