"""Cases of ArgMax and ArgMin."""

import numpy as np
from opcase import OpCase, const, t

NUMBERS = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
TIES = [[3, 1, 3, 1], [2, 2, 2, 2], [1, 3, 1, 3]]


def last_index(pick):
    def oracle(x, axis=0, keepdims=1, select_last_index=0):
        wide = np.flip(x.astype(np.float64), axis)
        index = x.shape[axis] - 1 - pick(wide, axis=axis)
        return np.expand_dims(index, axis) if keepdims else index

    return oracle


def cases():
    for op, pick in (("ArgMax", np.argmax), ("ArgMin", np.argmin)):
        yield OpCase(op, [t(3, 4, 5)], dtypes=(*NUMBERS, *UNSIGNED), opsets=(11, 13))
        for axis in (-1, 1, 0):
            for keep in (0, 1):
                yield OpCase(op, [t(3, 4, 5)], {"axis": axis, "keepdims": keep}, id=f"{axis}_{keep}")
        yield OpCase(op, [t(3, 4)], opset=1, id="v1", oracle=lambda x, f=pick: f(x, axis=0)[None])
        yield OpCase(
            op, [const(TIES)], {"axis": 1}, dtypes=("float32", "int32", "uint16"), id="first_of_ties"
        )
        for axis in (0, 1, -1):
            yield OpCase(
                op,
                [const(TIES)],
                {"axis": axis, "select_last_index": 1, "keepdims": axis != 0},
                dtypes=("float32", "int64", "uint64", "float16"),
                opsets=(12, 13),
                oracle=last_index(pick),
                id=f"last_of_ties_{axis}",
            )
        yield OpCase(op, [const([[1.0, np.nan, 2.0, np.nan]])], {"axis": 1}, id="nan")
        yield OpCase(
            op,
            [const([2**63, 1, 2**64 - 1])],
            dtypes=("uint64",),
            oracle=lambda x, f=pick: f(x)[None],
            id="wide",
        )
        yield OpCase(
            op, [t()], {"keepdims": 0}, id="scalar", oracle=lambda x, keepdims: np.array(0, np.int64)
        )
        yield OpCase(op, [t(0, 3)], {"axis": 1}, id="empty")


CASES: tuple[OpCase, ...] = tuple(cases())
