"""Cases of the elementwise functions of one tensor."""

import math

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOAT8 = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")

# Operator, range of the data, oldest revision, and whether it has a gradient worth a check.
SIMPLE = (
    ("Abs", 0.2, 3, 1, True),
    ("Neg", -3, 3, 1, True),
    ("Ceil", -5, 5, 1, False),
    ("Floor", -5, 5, 1, False),
    ("Round", -5, 5, 11, False),
    ("Sqrt", 0.1, 9, 1, True),
    ("Exp", -3, 3, 1, True),
    ("Log", 0.1, 9, 1, True),
    ("Reciprocal", 0.3, 3, 1, True),
    ("Sin", -9, 9, 7, True),
    ("Cos", -9, 9, 7, True),
    ("Tan", -1.2, 1.2, 7, True),
    ("Asin", -0.9, 0.9, 7, True),
    ("Acos", -0.9, 0.9, 7, True),
    ("Atan", -5, 5, 7, True),
    ("Sinh", -3, 3, 9, True),
    ("Cosh", -3, 3, 9, True),
    ("Asinh", -5, 5, 9, True),
    ("Acosh", 1.2, 9, 9, True),
    ("Atanh", -0.9, 0.9, 9, True),
    ("Erf", -3, 3, 9, True),
)


def exact_erf(x):
    """The reference computes in float32 alone."""
    return np.array([math.erf(v) for v in x.astype(np.float64).reshape(-1)]).reshape(x.shape).astype(x.dtype)


SPECIAL = const([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5])


def cases():
    for op, low, high, oldest, grad in SIMPLE:
        oracle = exact_erf if op == "Erf" else "reference"
        yield OpCase(op, [t(3, 4, low=low, high=high)], dtypes=FLOATS, grad=grad, oracle=oracle)
        yield OpCase(op, [t(low=low, high=high)], id="scalar")
        yield OpCase(op, [t(2, 0, low=low, high=high)], id="empty")
        if oldest == 1:
            function = np.negative if op == "Neg" else getattr(np, op.lower())
            yield OpCase(
                op,
                [t(3, low=low, high=high)],
                {"consumed_inputs": [0]},
                opset=1,
                oracle=lambda x, consumed_inputs, function=function: function(x),
                id="v1",
            )
        yield OpCase(op, [t(3, low=low, high=high)], opsets=(6,) if oldest == 1 else (oldest, 22), id="older")


CASES: tuple[OpCase, ...] = (
    *cases(),
    OpCase("Abs", [t(3, 4)], dtypes=(*INTS, *UNSIGNED), id="integers"),
    OpCase("Neg", [t(3, 4)], dtypes=INTS, id="integers"),
    OpCase(
        "Round", [const([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.1, -0.9])], dtypes=FLOATS, id="halves_to_even"
    ),
    OpCase("Abs", [SPECIAL], id="special"),
    OpCase("Sqrt", [SPECIAL], id="special"),
    OpCase("Log", [const([1.0, np.inf, np.nan])], id="special"),
    OpCase("Erf", [const([0, 1, 2, 5])], dtypes=(*INTS, *UNSIGNED), opset=9, id="integers"),
    OpCase("Sign", [t(3, 4)], dtypes=(*FLOATS, *INTS, *UNSIGNED), opsets=(9, 28)),
    OpCase("Sign", [SPECIAL], id="special"),
    OpCase("Sign", [t()], id="scalar"),
    OpCase("IsNaN", [SPECIAL], dtypes=(*FLOATS, *FLOAT8)),
    OpCase("IsNaN", [SPECIAL], dtypes=("float32", "float16"), opsets=(9, 13), id="older"),
    OpCase("IsNaN", [t(0, 2)], id="empty"),
    *(
        OpCase(
            "IsInf", [SPECIAL], {"detect_negative": n, "detect_positive": p}, dtypes=(*FLOATS, "float8e5m2")
        )
        for n in (0, 1)
        for p in (0, 1)
    ),
    OpCase("IsInf", [SPECIAL], dtypes=FLOAT8[:2], id="types_without_infinity"),
    OpCase("IsInf", [SPECIAL], dtypes=("float32", "float64"), opset=10, id="older"),
    OpCase("IsInf", [t()], id="scalar"),
)
