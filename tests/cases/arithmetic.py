"""Cases of Add, Sub, Mul, Div, Pow and Mod."""

import numpy as np
from opcase import OpCase, const, t

NUMBERS = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64", "float16")
OPS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


def legacy(op):
    """The oracle of a revision that broadcasts by attributes: numpy on an operand with 1s behind it."""

    def oracle(a, b, axis=None, broadcast=0, consumed_inputs=None):
        start = a.ndim - b.ndim if axis is None else axis
        return op(a, b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim)))

    return oracle


def truncated(a, b):
    wide = [x.astype(object) for x in (a, b)]
    quotient = np.abs(wide[0]) // np.abs(wide[1])
    return np.where((wide[0] < 0) != (wide[1] < 0), -quotient, quotient).astype(a.dtype)


def exact_pow(a, b):
    """Integer power with the width of ``a``, element by element, on Python's own integers."""
    bits = np.iinfo(a.dtype).bits
    flat = [
        pow(int(x), int(y), 1 << bits) if y >= 0 else int(np.sign(x) ** -y) if abs(x) == 1 else 0
        for x, y in np.broadcast(a, b)
    ]
    wrapped = [v - (1 << bits) if v >= 1 << (bits - 1) else v for v in flat]
    return np.array(wrapped, a.dtype).reshape(np.broadcast(a, b).shape)


def cases():
    for op in OPS:
        positive = t(3, 4, low=1, high=9)
        yield OpCase(op, [t(3, 4, low=1, high=9), positive], dtypes=NUMBERS)
        yield OpCase(op, [t(2, 1, 4), t(3, 1, low=1, high=5)], grad=True, id="broadcast", opsets=(7, 13, 14))
        yield OpCase(op, [t(), t(low=1, high=5)], dtypes=("float32", "int64"), id="scalar")
        yield OpCase(op, [t(2, 0), t(1)], dtypes=("float32", "uint16"), id="empty")
        yield OpCase(op, [t(2, 3), t(low=1, high=2)], dtypes=("float16", "uint32"), id="scalar_operand")
        for axis, shape in ((None, (4, 5)), (1, (3, 4)), (0, (2,)), (0, (1, 1)), (3, (5,)), (None, ())):
            attrs = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
            yield OpCase(
                op,
                [t(2, 3, 4, 5), t(*shape, low=1, high=3)],
                attrs,
                opsets=(1, 6),
                oracle=legacy(OPS[op]),
                id=f"legacy_{axis}_{'x'.join(map(str, shape))}",
            )
        yield OpCase(
            op,
            [t(2, 3), t(2, 3, low=1, high=3)],
            {"consumed_inputs": [0, 0]},
            opset=1,
            oracle=legacy(OPS[op]),
            id="legacy_equal_shapes",
        )


CASES: tuple[OpCase, ...] = (
    *cases(),
    OpCase("Div", [t(50, low=-100, high=100), const([7])], dtypes=INTS, oracle=truncated, id="truncates"),
    OpCase("Div", [t(50, low=-100, high=100), const([-7])], dtypes=INTS[:4], oracle=truncated, id="negative"),
    OpCase(
        "Div",
        [const([2**64 - 1, 2**63, 2**63 - 1, 5, 2**64 - 1]), const([3, 2**63 + 1, 2**63, 2**64 - 1, 1])],
        dtypes=("uint64",),
        id="above_int64",
    ),
    OpCase("Pow", [t(3, 4, low=0.1, high=3), t(3, 4)], dtypes=(*FLOATS, "bfloat16"), grad=True),
    OpCase("Pow", [t(2, 1, 3), t(4, 1, low=0, high=5)], dtypes=("int32", "int64"), id="integers"),
    OpCase("Pow", [t(5, low=0.1, high=2), t(5, dtype="int64")], dtypes=FLOATS, id="float_int"),
    OpCase("Pow", [t(5, low=0.1, high=2), t(5, dtype="float64")], dtypes=FLOATS, id="wider_exponent"),
    OpCase("Pow", [t(5, low=1, high=9), const([0.5] * 5, "float32")], dtypes=("int32", "int64"), id="root"),
    OpCase("Pow", [t(5, low=0.1, high=2), t(5, dtype="uint8")], opsets=(12, 13, 15), id="float_uint8"),
    OpCase("Pow", [t(low=0.1, high=2), t()], {}, opset=7, id="scalar", oracle=lambda a, b: np.power(a, b)),
    OpCase("Pow", [t(0, 3), t(3)], id="empty"),
    OpCase(
        "Pow",
        [const([3, 7, -3, 2, -1, 1, 5, 0]), const([41, 30, 63, 64, -3, -9, -1, 0], "int64")],
        dtypes=("int32", "int64"),
        oracle=exact_pow,
        id="exact_and_wrapping",
    ),
    OpCase(
        "Pow",
        [const([3, 2, -5]), const([2**64 - 1, 3, 2**63 + 1], "uint64")],
        dtypes=("int64",),
        oracle=exact_pow,
        id="huge_exponents",
    ),
    *(
        OpCase(
            "Pow",
            [t(2, 3, 4, low=0.5, high=2), t(*shape)],
            {"broadcast": 1, "axis": axis},
            opset=1,
            oracle=legacy(np.power),
            id=f"legacy_{axis}",
        )
        for axis, shape in ((0, (2,)), (1, (3, 4)), (2, (4,)))
    ),
    OpCase("Mod", [t(40, low=-20, high=20), const([7])], dtypes=INTS, opsets=(10, 13, 28)),
    OpCase("Mod", [t(40, low=-20, high=20), const([-7])], dtypes=INTS[:4], id="negative_divisor"),
    OpCase("Mod", [t(40, low=-20, high=20), const([7])], {"fmod": 1}, dtypes=NUMBERS, id="fmod"),
    OpCase(
        "Mod", [t(40, low=-20, high=20), const([-7])], {"fmod": 1}, dtypes=("int32", "float32"), id="fmod_"
    ),
    OpCase("Mod", [t(40, low=-20, high=20), const([-3.5])], dtypes=FLOATS, id="float_floor"),
    OpCase("Mod", [const([2**64 - 1, 2**63, 9]), const([10, 3, 2**64 - 1])], dtypes=("uint64",), id="uint64"),
    OpCase("Mod", [t(0, 2), t(2, low=1, high=2)], dtypes=("int32", "uint32"), id="empty"),
)
