"""Cases of Sum, Mean, Max and Min."""

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def in_float64(op):
    """The oracle for floats, whose result is rounded once."""

    def oracle(*xs, consumed_inputs=None):
        wide = np.stack(np.broadcast_arrays(*[x.astype(np.float64) for x in xs]))
        return {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min}[op](wide, axis=0).astype(
            xs[0].dtype
        )

    return oracle


def cases():
    for op in ("Sum", "Mean", "Max", "Min"):
        oracle = in_float64(op)
        for count in (1, 2, 3, 5):
            yield OpCase(
                op, [t(3, 4)] * count, dtypes=FLOATS, oracle=oracle, grad=count == 2, id=f"of_{count}"
            )
        yield OpCase(op, [t(3, 4), t(3, 4)], opsets=(6, 8, 13), oracle=oracle, id="older")
        yield OpCase(op, [t(3), t(3)], {"consumed_inputs": [0, 0]}, opset=1, oracle=oracle, id="v1")
        yield OpCase(op, [t(2, 1, 4), t(3, 1), t(4)], oracle=oracle, id="broadcast")
        yield OpCase(op, [t(), t(2)], oracle=oracle, id="scalar")
        yield OpCase(op, [t(0, 3), t(3), t(1)], oracle=oracle, id="empty")
        if op in ("Max", "Min"):
            for count in (1, 2, 3):
                yield OpCase(op, [t(3, 4)] * count, dtypes=INTS, opsets=(12, 13), id=f"integers_{count}")
            nan = const([np.nan, 1.0, 2.0])
            for inputs in ([nan, t(3)], [t(3), nan], [t(3), nan, t(3)]):
                yield OpCase(op, inputs, dtypes=FLOATS[:3], oracle=oracle, id=f"nan_{len(inputs)}")
            wide = [const([2**63, 2**64 - 1, 1]), const([7, 2**63, 2**63 + 1])]
            yield OpCase(op, wide, dtypes=("uint64",), id="wide")


CASES: tuple[OpCase, ...] = tuple(cases())
