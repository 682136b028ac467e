"""Cases of CumSum and CumProd."""

import itertools

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int32", "int64", "uint32", "uint64")


def cumulated(function, start):
    def oracle(x, axis, exclusive=0, reverse=0):
        axis = int(np.reshape(axis, -1)[0])
        wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
        wide = np.flip(wide, axis) if reverse else wide
        result = function(wide, axis=axis, dtype=wide.dtype)
        if exclusive:
            result = np.roll(result, 1, axis)
            np.moveaxis(result, axis, 0)[0] = start
        return (np.flip(result, axis) if reverse else result).astype(x.dtype)

    return oracle


def cases():
    for op, function, start in (("CumSum", np.cumsum, 0), ("CumProd", np.cumprod, 1)):
        oracle = cumulated(function, start)
        opsets = (11, 14) if op == "CumSum" else (26,)
        for exclusive, reverse, axis in itertools.product((0, 1), (0, 1), (0, 1, -1)):
            yield OpCase(
                op,
                [t(3, 4, low=0.5, high=2), const(axis, "int64")],
                {"exclusive": exclusive, "reverse": reverse},
                opsets=opsets,
                oracle=oracle,
                grad=axis == 1,
                id=f"{exclusive}{reverse}_{axis}",
            )
        for attrs in ({}, {"exclusive": 1, "reverse": 1}):
            yield OpCase(
                op, [t(5, low=1, high=4), const(0, "int32")], attrs, dtypes=(*FLOATS, *INTS), oracle=oracle
            )
        yield OpCase(op, [t(3, 4), const([1], "int64")], oracle=oracle, id="axis_of_one_dim")
        for shape in ((0, 3), (2, 0)):
            yield OpCase(
                op,
                [t(*shape), const(1, "int64")],
                {"exclusive": 1, "reverse": 1},
                dtypes=("float32", "uint32"),
                oracle=lambda x, axis, exclusive, reverse: x,
                id=f"empty_{shape[0]}",
            )
        yield OpCase(
            op,
            [const([2**31 - 1, 3, 5]), const(0, "int64")],
            dtypes=("int32",),
            oracle=lambda x, axis, f=function: f(x.astype(np.int64)).astype(np.int32),
            id="wraps",
        )
    yield OpCase(
        "CumSum",
        [const([np.inf, 1.0, 2.0]), const(0, "int64")],
        {"exclusive": 1},
        oracle=lambda x, axis, exclusive: np.array([0, np.inf, np.inf], x.dtype),
        id="exclusive_infinity",
    )


CASES: tuple[OpCase, ...] = tuple(cases())
