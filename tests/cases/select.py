"""Cases of NonZero, Compress, Unique."""

import numpy as np
from opcase import OpCase, const, t

UNIQUE = ("float32", "float16", "int64", "uint8", "bool", "uint16", "uint64", "complex64")
KINDS = ("float32", "float16", "int64", "bool", "uint8", "uint16", "uint64")
NAN = float("nan")
TEXT = const([["b", "", "c"], ["b", "a", ""]], "string")

CASES: tuple[OpCase, ...] = (
    OpCase("NonZero", [t(3, 4)], dtypes=KINDS, opsets=(9, 13)),
    OpCase("NonZero", [const([[0.0, -0.0, NAN], [1, 0, 2]])], id="zeros"),
    OpCase("NonZero", [t(0, 4)], id="empty"),
    OpCase("Compress", [t(3, 4), const([False, True, True], "bool")], {"axis": 0}, KINDS, grad=True),
    OpCase("Compress", [t(3, 4), const([True, False, True], "bool")], {"axis": -1}, id="short"),
    OpCase(
        "Compress", [t(3, 4), const([0, 1, 0, 0, 1], "bool")], opsets=(9, 11, 28), id="flat", dtypes=KINDS
    ),
    OpCase("Compress", [t(3, 4), const([0, 0, 0], "bool")], {"axis": 0}, id="nothing"),
    OpCase("Compress", [TEXT, const([0, 1, 1], "bool")], {"axis": 1}, id="strings"),
    OpCase("Unique", [t(3, 6)], outputs=4, dtypes=UNIQUE, id="flat"),
    OpCase(
        "Unique",
        [t(3, 6)],
        {"sorted": 0},
        outputs=4,
        dtypes=("int64", "float64"),
        oracle="onnxruntime",
        opset=13,
        id="first_seen",
    ),
    OpCase("Unique", [const([2.0, 1.0, NAN, -0.0, 0.0, NAN])], outputs=4, id="nan"),
    OpCase("Unique", [t(12, 2, low=0, high=2, dtype="int64")], {"axis": 0}, outputs=4, id="rows"),
    OpCase("Unique", [t(4, 2, 2)], {"axis": 1}, UNIQUE, outputs=4, id="slices"),
    OpCase(
        "Unique",
        [t(3, 0)],
        {"axis": 0},
        outputs=4,
        id="empty_rows",
        oracle=lambda x, axis: (x[:1], np.array([0]), np.array([0, 0, 0]), np.array([3])),
    ),
    OpCase("Unique", [t(2, 12, low=0, high=2, dtype="int8")], {"axis": -1}, outputs=4, id="columns"),
    OpCase("Unique", [t(3, 6)], outputs=(True, False, False, True), dtypes=("int64",), id="some_outputs"),
    OpCase("Unique", [t(0)], outputs=4, dtypes=("float32", "uint16", "complex64"), id="empty"),
    OpCase("Unique", [TEXT], outputs=4, oracle="onnxruntime", opset=13, id="strings"),
    OpCase(
        "Unique", [TEXT], {"sorted": 0}, outputs=4, oracle="onnxruntime", opset=13, id="strings_first_seen"
    ),
)
