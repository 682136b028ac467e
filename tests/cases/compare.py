"""Cases of the comparisons."""

import numpy as np
from opcase import OpCase, const, t

NUMBERS = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FUNCTIONS = {
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
}
OLDER = {
    "Equal": (11, 13),
    "Greater": (9, 13),
    "Less": (9, 13),
    "GreaterOrEqual": (12, 16),
    "LessOrEqual": (12, 16),
}


def legacy(op):
    """The oracle of a revision that broadcasts by attributes."""

    def oracle(a, b, axis=None, broadcast=0):
        start = a.ndim - b.ndim if axis is None else axis
        return op(a, b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim)))

    return oracle


def cases():
    for op, function in FUNCTIONS.items():
        yield OpCase(op, [t(40), t(40)], dtypes=(*NUMBERS, *UNSIGNED))
        yield OpCase(op, [t(40, low=0, high=3), t(40, low=0, high=3)], dtypes=("int32", "uint32"), id="ties")
        yield OpCase(
            op, [t(2, 1, 4), t(3, 1)], dtypes=("float32", "uint16"), opsets=OLDER[op], id="broadcast"
        )
        yield OpCase(op, [t(), t()], id="scalar", dtypes=("float32", "uint64"))
        yield OpCase(op, [t(0, 3), t(3)], id="empty", dtypes=("float32", "uint64"))
        special = [np.nan, np.inf, -np.inf, 0.0, 1.0]
        yield OpCase(op, [const(special), const([np.nan, np.inf, np.inf, -0.0, np.nan])], id="special")
        wide = [2**63, 2**64 - 1, 5, 2**63]
        yield OpCase(
            op, [const(wide), const([5, 2**64 - 1, 2**63, 2**63 + 1])], dtypes=("uint64",), id="wide"
        )
        if op in ("Equal", "Greater", "Less"):
            dtypes = ("int32", "int64", "bool") if op == "Equal" else ("float32", "float64")
            for axis, shape in ((None, (4,)), (1, (3, 4)), (0, (2,)), (None, ())):
                attrs = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
                yield OpCase(
                    op,
                    [t(2, 3, 4), t(*shape)],
                    attrs,
                    opset=1,
                    dtypes=dtypes,
                    oracle=legacy(function),
                    id=f"legacy_{axis}_{len(shape)}",
                )


CASES: tuple[OpCase, ...] = (
    *cases(),
    OpCase("Equal", [t(20), t(20)], dtypes=("bool",), opsets=(7, 11, 28), id="bools"),
    OpCase(
        "Equal",
        [const([["a", "b"], ["", "é"]], "string"), const(["a", "é"], "string")],
        oracle=lambda a, b: np.array([[True, False], [False, True]]),
        id="strings",
    ),
    OpCase(
        "Equal",
        [const("a", "string"), const("a", "string")],
        oracle=lambda a, b: np.array(True),
        id="scalar_strings",
    ),
)
