"""Cases of CenterCropPad and Col2Im."""

from opcase import OpCase, const, t

KINDS = ("float32", "float16", "int64", "bool", "uint16")


def ints(*values: int):
    return const(list(values), "int64")


CASES: tuple[OpCase, ...] = (
    OpCase("CenterCropPad", [t(5, 4), ints(3, 7)], dtypes=KINDS, grad=True),
    OpCase("CenterCropPad", [t(4, 5), ints(7, 2)], id="other_parity"),
    OpCase("CenterCropPad", [t(5, 4, 3), const([2, 6], "int32")], {"axes": [-1, 0]}, id="axes"),
    OpCase("Col2Im", [t(1, 5, 5), ints(5, 5), ints(1, 5)], dtypes=("float32", "float64", "float16")),
    OpCase("Col2Im", [t(2, 8, 4), ints(3, 3), ints(2, 2)], dtypes=("float32", "int64", "uint16"), grad=True),
    OpCase("Col2Im", [t(1, 4, 5), ints(6, 6), ints(2, 2)], {"dilations": [1, 5]}, id="dilations"),
    OpCase("Col2Im", [t(1, 9, 4), ints(5, 5), ints(3, 3)], {"strides": [2, 2]}, id="strides"),
    OpCase("Col2Im", [t(1, 5, 15), ints(5, 5), ints(1, 5)], {"pads": [0, 1, 0, 1]}, id="pads"),
    OpCase("Col2Im", [t(1, 6, 8), ints(4, 4), ints(2, 3)], {"pads": [1, 0, 0, 0]}, id="pads_one_side"),
    OpCase("Col2Im", [t(1, 10, 12), ints(3, 4, 5), ints(1, 1, 5)], id="volume"),
    OpCase("Col2Im", [t(2, 6, 4), ints(6), ints(3)], id="line"),
)
