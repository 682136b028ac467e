"""Cases of Slice."""

from opcase import OpCase, const, t

WIDE = ("float32", "float16", "bfloat16", "int64", "bool", "uint16", "uint64", "complex64", "float8e4m3fn")
TEXT = const([["a", "", "c"], ["d", "e", "f"]], "string")
FAR = 2**63 - 1


def ints(*values: int):
    return const(list(values), "int64")


CASES: tuple[OpCase, ...] = (
    OpCase("Slice", [t(5, 4), ints(1), ints(3)], dtypes=WIDE, grad=True, opsets=(10, 11, 13)),
    OpCase("Slice", [t(5, 4), ints(1), ints(-1), ints(1)], id="axis"),
    OpCase("Slice", [t(5, 4, 3), ints(1), ints(-1), ints(-2)], grad=True, id="negative_axis"),
    OpCase("Slice", [t(5, 4), ints(1, 0), ints(5, 3), ints(0, 1), ints(2, 1)], grad=True, id="several"),
    OpCase("Slice", [t(5, 4), ints(-3, 1), ints(FAR, 4), ints(1, 0)], id="to_the_end"),
    OpCase("Slice", [t(5, 4), ints(-99), ints(99), ints(0)], id="clamped"),
    OpCase("Slice", [t(5, 4), ints(-(1 << 63)), ints(FAR), ints(0)], id="the_least_start"),
    OpCase(
        "Slice", [t(5, 4), ints(-(1 << 63), 1), ints(FAR, -(1 << 63)), ints(0, 1)], id="the_least_of_several"
    ),
    OpCase("Slice", [t(5, 4), ints(3), ints(2)], id="nothing"),
    OpCase("Slice", [t(5, 4), ints(9), ints(12)], id="beyond"),
    OpCase("Slice", [t(5, 4), ints(-1), ints(-FAR), ints(0), ints(-1)], grad=True, dtypes=WIDE, id="reverse"),
    OpCase("Slice", [t(7, 4), ints(5, 3), ints(0, -9), ints(0, 1), ints(-2, -1)], id="backwards"),
    OpCase("Slice", [t(7), ints(99), ints(1), ints(0), ints(-3)], id="clamped_back"),
    OpCase("Slice", [t(7), ints(1), ints(5), ints(0), ints(-1)], id="nothing_back"),
    OpCase(
        "Slice",
        [t(5, 4), ints(-9), ints(-9), ints(0), ints(-2)],
        oracle="onnxruntime",
        opset=13,
        id="start_before_the_first",
    ),
    OpCase("Slice", [t(5, 4), ints(), ints()], id="no_axes"),
    OpCase(
        "Slice",
        [t(5, 4), const([1], "int32"), const([3], "int32"), const([1], "int32"), const([1], "int32")],
        id="int32",
    ),
    OpCase("Slice", [t(0, 4), ints(1), ints(3)], id="empty"),
    OpCase("Slice", [TEXT, ints(0), ints(2), ints(1)], id="strings"),
    OpCase("Slice", [TEXT, ints(2, 0), ints(-9, 1), ints(1, 0), ints(-1, 1)], id="strings_back"),
    OpCase("Slice", [t(5, 4)], {"starts": [1, 0], "ends": [9, -1], "axes": [1, 0]}, opset=1, id="attribute"),
    OpCase("Slice", [t(5, 4)], {"starts": [1, 0], "ends": [3, 1000]}, opset=1, id="attribute_all"),
)
