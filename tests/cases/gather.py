"""Cases of Gather, GatherElements, GatherND."""

from opcase import OpCase, const, t

WIDE = ("float32", "float16", "bfloat16", "int64", "bool", "uint16", "uint64", "complex64", "float8e4m3fn")
ELEMENTS = ("float32", "float16", "int64", "bool", "uint16", "uint32", "uint64", "complex64")
TEXT = const([["a", "b", "c"], ["d", "e", "f"]], "string")


def ints(value: object, dtype: str = "int64"):
    return const(value, dtype)


CASES: tuple[OpCase, ...] = (
    OpCase("Gather", [t(5, 4), ints([0, -1, 3])], dtypes=WIDE, grad=True),
    OpCase("Gather", [t(5, 4), ints(2)], opsets=(1, 11, 13), grad=True, id="scalar"),
    OpCase("Gather", [t(5, 4, 3), ints(-2)], {"axis": -1}, grad=True, id="scalar_negative"),
    OpCase("Gather", [t(5, 4, 3), ints([[0, 1], [-1, 2]], "int32")], {"axis": 1}, grad=True, id="matrix"),
    OpCase("Gather", [t(5, 4, 3), ints([[0, 1], [-1, 2]])], {"axis": -1}, id="last_axis"),
    OpCase("Gather", [t(5, 4, 3), ints([[0, 1], [-1, 2]])], {"axis": -2}, id="middle_axis"),
    OpCase("Gather", [t(5), ints([[0, -5], [4, 2]])], dtypes=WIDE, grad=True, id="vector"),
    OpCase("Gather", [t(5), ints(-1)], id="number"),
    OpCase("Gather", [t(5), ints(1, "int32")], id="number_int32"),
    OpCase("Gather", [t(5, 4), t(0, dtype="int64")], id="nothing"),
    OpCase("Gather", [t(5, 0), ints([1, 2])], id="empty"),
    OpCase("Gather", [TEXT, ints([1, 0, -1])], {"axis": 1}, id="strings"),
    OpCase("Gather", [const(["a", "b"], "string"), ints(1)], id="string"),
    OpCase("GatherElements", [t(3, 4), ints([[0, -1, 2, 1]])], dtypes=ELEMENTS, grad=True),
    OpCase(
        "GatherElements", [t(3, 4), ints([[0, -1], [2, 1], [3, 3]])], {"axis": 1}, (*ELEMENTS,), id="axis"
    ),
    OpCase(
        "GatherElements",
        [t(3, 4), ints([[0], [2], [3]], "int32")],
        {"axis": -1},
        oracle="onnxruntime",
        opset=13,
        id="int32",
    ),
    OpCase("GatherElements", [t(3, 4), t(0, 4, dtype="int64")], opsets=(11, 13), id="nothing"),
    OpCase("GatherElements", [TEXT, ints([[0, 1, -1]])], id="strings"),
    OpCase("GatherND", [t(3, 4, 2), ints([[0, 1], [-1, -4]])], dtypes=WIDE, grad=True),
    OpCase("GatherND", [t(3, 4), ints([[0, 1], [2, 3]])], opsets=(11, 12, 13), id="elements"),
    OpCase("GatherND", [t(3, 4, 2), ints([[[1]], [[0]]])], id="rank_3"),
    OpCase("GatherND", [t(2, 3, 4), ints([[1], [-1]])], {"batch_dims": 1}, grad=True, id="batch"),
    OpCase("GatherND", [t(2, 2, 3), ints([[[1], [0]], [[2], [-1]]])], {"batch_dims": 2}, id="batch_2"),
    OpCase("GatherND", [t(2, 3, 4), ints([[[1, 1]], [[0, 2]]])], {"batch_dims": 1}, id="batch_elements"),
    OpCase("GatherND", [TEXT, ints([[1, 0], [0, -1]])], id="strings"),
)
