"""Cases of Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Identity."""

from opcase import OpCase, const, seq, t

WIDE = ("float32", "float16", "bfloat16", "int64", "bool", "uint16", "uint64", "complex64", "float8e4m3fn")
SMALL = ("int4", "uint4", "int2", "uint2", "float4e2m1", "float8e8m0")
TEXT = const([["a", "", "c"]], "string")
BOTH_FORMS = (11, 12)

CASES: tuple[OpCase, ...] = (
    OpCase("Shape", [t(2, 3, 4)], opsets=(12, 13, 25), dtypes=("float32", "int8")),
    OpCase("Shape", [t()], id="scalar"),
    OpCase("Shape", [t(0, 3)], id="empty"),
    OpCase("Shape", [TEXT], id="strings"),
    OpCase("Shape", [t(2, 3, 4)], {"start": 1}, id="start"),
    OpCase("Shape", [t(2, 3, 4)], {"start": -2, "end": -1}, id="negative"),
    OpCase("Shape", [t(2, 3, 4)], {"start": -9, "end": 9}, id="clamped"),
    OpCase("Shape", [t(2, 3, 4)], {"start": 2, "end": 1}, id="nothing"),
    OpCase("Size", [t(2, 3, 4)], opsets=(1, 13, 25)),
    OpCase("Size", [t()], id="scalar"),
    OpCase("Size", [t(0, 3)], id="empty"),
    OpCase("Size", [TEXT], id="strings"),
    OpCase("Reshape", [t(2, 3, 4), const([4, 6], "int64")], dtypes=WIDE, grad=True),
    OpCase("Reshape", [t(2, 3, 4), const([4, 6], "int64")], dtypes=SMALL, id="small"),
    OpCase("Reshape", [t(2, 3, 4), const([0, -1], "int64")], opsets=(5, 13, 14, 25), id="copy_infer"),
    OpCase("Reshape", [t(0, 3), const([3, 0], "int64")], {"allowzero": 1}, id="allow_zero"),
    OpCase("Reshape", [t(1), const([], "int64")], id="to_scalar"),
    OpCase("Reshape", [t(), const([1, 1], "int64")], id="from_scalar"),
    OpCase("Reshape", [TEXT, const([3, -1], "int64")], id="strings"),
    OpCase(
        "Reshape",
        [t(2, 3, 4)],
        {"shape": [0, -1]},
        opset=1,
        oracle=lambda x, shape: x.reshape(2, 12),
        id="attribute",
    ),
    OpCase("Flatten", [t(2, 3, 4)], dtypes=WIDE, grad=True),
    OpCase("Flatten", [t(2, 3, 4)], {"axis": 0}, opsets=(1, 9, 25), id="row"),
    OpCase("Flatten", [t(2, 3, 4)], {"axis": 3}, id="column"),
    OpCase("Flatten", [t(2, 3, 4)], {"axis": -1}, opsets=(11, 25), id="negative"),
    OpCase("Flatten", [t(0, 3, 4)], {"axis": 2}, opset=13, oracle="onnxruntime", id="empty"),
    OpCase("Squeeze", [t(1, 3, 1), const([0, -1], "int64")], dtypes=WIDE, grad=True),
    OpCase("Squeeze", [t(1, 3, 1), const([-1], "int64")], id="one"),
    OpCase("Squeeze", [t(1, 3, 1)], opsets=(13, 25), id="all"),
    OpCase("Squeeze", [TEXT, const([0], "int64")], id="strings"),
    OpCase("Squeeze", [t(1, 3, 1)], {"axes": [0, 2]}, opsets=(1, 11), id="attribute"),
    OpCase("Unsqueeze", [t(2, 3), const([0], "int64")], dtypes=WIDE, grad=True),
    OpCase("Unsqueeze", [t(2, 3), const([3, 0, -1], "int64")], id="several"),
    OpCase("Unsqueeze", [t(), const([-1], "int64")], id="scalar"),
    OpCase("Unsqueeze", [TEXT, const([1, -1], "int64")], id="strings"),
    OpCase("Unsqueeze", [t(2, 3)], {"axes": [0, 3]}, opsets=BOTH_FORMS, id="attribute"),
    OpCase("Identity", [t(2, 3)], dtypes=WIDE, grad=True, opsets=(13, 25)),
    OpCase("Identity", [TEXT], id="strings"),
    OpCase("Identity", [seq(t(2), t(3))], oracle=lambda s: s, id="sequence"),
)
