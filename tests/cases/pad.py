"""Cases of Pad."""

import numpy as np
from opcase import OpCase, const, t

WIDE = ("float32", "float16", "bfloat16", "int64", "bool", "uint16", "uint64", "complex64")
SOME = ("float32", "float64", "int32", "uint8", "bool", "uint16", "uint64")
TEXT = const([["a", "", "c"]], "string")


def ints(*values: int):
    return const(list(values), "int64")


CASES: tuple[OpCase, ...] = (
    OpCase("Pad", [t(2, 3), ints(0, 1, 2, 3)], dtypes=WIDE, grad=True),
    OpCase("Pad", [t(2, 3), ints(0, 1, 2, 3), const(1.5)], opsets=(11, 13, 18, 25), id="value"),
    OpCase("Pad", [t(2, 3), ints(0, 1, 2, 3), const(-7, "int64")], dtypes=("int64",), id="int_value"),
    OpCase("Pad", [t(2, 3, 4), ints(1, 2), const(2.0), const([-1], "int32")], id="axes"),
    OpCase("Pad", [t(2, 3, 4), ints(1, 2, 3, 4), None, ints(2, 0)], id="axes_in_disorder"),
    OpCase(
        "Pad",
        [t(3, 4), ints(-1, 1, 0, -2)],
        oracle="onnxruntime",
        opset=21,
        grad=True,
        id="cut",
    ),
    OpCase("Pad", [t(1, 3), ints(2, 1, -2, -4)], oracle="onnxruntime", opset=21, id="cut_beyond"),
    OpCase("Pad", [t(2, 3), ints(0, 0, 0, 0)], id="nothing"),
    OpCase("Pad", [t(0, 3), ints(1, 0, 1, 0), const(1.0)], id="empty"),
    OpCase("Pad", [t(2, 1, 2, 1, 2, 2), ints(*[1] * 12)], id="rank_6"),
    OpCase(
        "Pad",
        [TEXT, ints(1, 0, 0, 1)],
        oracle=lambda x, p: np.array([[""] * 4, ["a", "", "c", ""]], object),
        id="strings",
    ),
    OpCase(
        "Pad",
        [TEXT, ints(0, 0, 0, 1), const("z", "string")],
        oracle=lambda x, p, v: np.array([["a", "", "c", "z"]], object),
        id="strings_value",
    ),
    *(
        case
        for mode in ("reflect", "edge", "wrap")
        for case in (
            OpCase("Pad", [t(3, 4), ints(2, 1, 0, 3)], {"mode": mode}, SOME, grad=True, id=mode),
            OpCase("Pad", [t(2, 3, 4), ints(0, 0, 3, 0, 0, 2)], {"mode": mode}, grad=True, id=f"{mode}_last"),
            OpCase("Pad", [t(5), ints(4, 3)], {"mode": mode}, SOME, id=f"{mode}_vector"),
            OpCase("Pad", [t(2, 2, 3, 2, 2), ints(*[1] * 10)], {"mode": mode}, id=f"{mode}_rank_5"),
            OpCase("Pad", [t(2, 3), ints(0, 9, 0, 7)], {"mode": mode}, id=f"{mode}_far"),
        )
    ),
    OpCase("Pad", [t(3, 4), ints(0, 2, 1, 0)], {"mode": "reflect"}, opsets=(11, 13), id="reflect_old"),
    OpCase(
        "Pad",
        [t(1, 4), ints(2, 0, 2, 0)],
        {"mode": "edge"},
        opsets=(11, 13),
        id="edge_old",
    ),
    OpCase(
        "Pad",
        [t(3, 4)],
        {"pads": [0, 1, 2, -1], "value": 2.5},
        opset=2,
        oracle="onnxruntime",
        id="attribute",
    ),
    OpCase(
        "Pad",
        [t(3, 4)],
        {"pads": [0, 1, 2, 1], "mode": "reflect"},
        opset=2,
        oracle="onnxruntime",
        id="old_reflect",
    ),
)
