"""Cases of the logical and bitwise operators, shifts, and Where."""

import numpy as np
from opcase import OpCase, const, t

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FUNCTIONS = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
EVERY = (
    *("float32", "float64", "float16", "bfloat16", "bool", "complex64", "complex128"),
    *INTS,
)


def legacy(op):
    """The oracle of a revision that broadcasts by attributes."""

    def oracle(a, b, axis=None, broadcast=0):
        start = a.ndim - b.ndim if axis is None else axis
        return op(a, b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim)))

    return oracle


def shifted(x, y, direction):
    """Shifts on Python's integers: no count is too large for them."""
    bits = np.iinfo(x.dtype).bits
    results = []
    for value, count in np.broadcast(x, y):
        value, count = int(value), int(count)
        count = bits if count < 0 else min(count, bits)
        results.append((value << count) % (1 << bits) if direction == "LEFT" else value >> count)
    wrapped = [v - (1 << bits) if x.dtype.kind == "i" and v >= 1 << (bits - 1) else v for v in results]
    return np.array(wrapped, x.dtype).reshape(np.broadcast(x, y).shape)


def cases():
    for op, function in FUNCTIONS.items():
        yield OpCase(op, [t(20), t(20)], dtypes=("bool",))
        yield OpCase(op, [t(2, 1, 4), t(3, 1)], dtypes=("bool",), opset=7, id="broadcast")
        yield OpCase(op, [t(), t()], dtypes=("bool",), id="scalar")
        yield OpCase(op, [t(0, 3), t(3)], dtypes=("bool",), id="empty")
        for axis, shape in ((None, (4,)), (1, (3,)), (0, (2, 3)), (None, (2, 3, 4))):
            attrs = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
            yield OpCase(
                op,
                [t(2, 3, 4), t(*shape)],
                attrs,
                opset=1,
                dtypes=("bool",),
                oracle=legacy(function),
                id=f"legacy_{axis}_{len(shape)}",
            )
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield OpCase(op, [t(20, low=0, high=120), t(20, low=0, high=120)], dtypes=INTS)
        yield OpCase(op, [t(2, 1, 4), t(3, 1)], dtypes=("int32", "uint16"), id="broadcast")
        yield OpCase(op, [t(0), t(1)], dtypes=("int64", "uint64"), id="empty")
    for direction in ("LEFT", "RIGHT"):
        attrs = {"direction": direction}
        data = t(6, 1, low=0, high=120)
        yield OpCase("BitShift", [data, t(5, low=0, high=9)], attrs, dtypes=INTS, oracle=shifted)
        yield OpCase("BitShift", [data, t(5, low=0, high=9)], attrs, opset=11, dtypes=INTS[4:], id="older")
        counts = const([0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127])
        for kind in INTS:
            ends = np.iinfo(kind)
            values = const([[ends.max], [ends.max - 2], [1], [ends.min], [ends.min + 5]], kind)
            yield OpCase("BitShift", [values, counts], attrs, dtypes=(kind,), oracle=shifted, id="counts")
        yield OpCase(
            "BitShift",
            [const([[-9], [9]]), const([-1, -128])],
            attrs,
            dtypes=("int8", "int32", "int64"),
            oracle=shifted,
            id="negative_counts",
        )
        yield OpCase(
            "BitShift",
            [const([7]), const([2**63 + 1])],
            attrs,
            dtypes=("uint64",),
            oracle=shifted,
            id="huge_count",
        )


CONDITION = const([[True], [False]], "bool")

CASES: tuple[OpCase, ...] = (
    *cases(),
    OpCase("Not", [t(2, 3)], dtypes=("bool",)),
    OpCase("Not", [t()], dtypes=("bool",), id="scalar"),
    OpCase("Not", [t(0)], dtypes=("bool",), id="empty"),
    OpCase("BitwiseNot", [t(20)], dtypes=INTS),
    OpCase("BitwiseNot", [t()], dtypes=("int32", "uint64"), id="scalar"),
    OpCase("Where", [t(3, 4, dtype="bool"), t(3, 4), t(3, 4)], dtypes=EVERY),
    OpCase("Where", [CONDITION, t(3), t(2, 1)], opsets=(9, 16), grad=True, id="broadcast"),
    OpCase("Where", [t(dtype="bool"), t(), t()], id="scalar"),
    OpCase("Where", [t(0, dtype="bool"), t(1), t(0)], id="empty"),
    OpCase(
        "Where",
        [CONDITION, const(["a", "b"], "string"), const("c", "string")],
        oracle=lambda c, x, y: np.where(c, x, y),
        id="strings",
    ),
)
