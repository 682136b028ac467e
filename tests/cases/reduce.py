"""Cases of the reductions, with axes as an input and as an attribute."""

import itertools

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTS = ("int32", "int64", "uint32", "uint64")
REDUCTIONS = (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
LOGS = ("ReduceLogSum", "ReduceLogSumExp")


def in_float64(op):
    """The oracle for float types, whose result is rounded once."""
    functions = {
        "ReduceSum": np.sum,
        "ReduceMean": np.mean,
        "ReduceMax": np.max,
        "ReduceMin": np.min,
        "ReduceProd": np.prod,
        "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
        "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
        "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
        "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
        "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
    }

    def oracle(x, axes_input=None, axes=None, keepdims=1, noop_with_empty_axes=0):
        chosen = axes if axes_input is None else list(axes_input)
        if chosen is None or len(chosen) == 0:
            chosen = None
        axis = None if chosen is None else tuple(chosen)
        wide = x.astype(np.float64)
        if axis is None and noop_with_empty_axes:
            return functions[op](wide[..., None], axis=-1).astype(x.dtype)
        return np.asarray(functions[op](wide, axis=axis, keepdims=bool(keepdims))).astype(x.dtype)

    return oracle


def cases():
    for op in REDUCTIONS:
        data = t(2, 3, 4, low=0.5, high=1.8)
        oracle = in_float64(op)
        newest = 13 if op == "ReduceSum" else 18
        for axes, keep in itertools.product(([1], [-1, 0], [0, 1, 2]), (0, 1)):
            label = f"{'_'.join(map(str, axes))}_{keep}"
            yield OpCase(
                op,
                [data, const(axes, "int64")],
                {"keepdims": keep},
                dtypes=FLOATS[:3],
                oracle=oracle,
                id=label,
            )
            yield OpCase(
                op,
                [data],
                {"axes": axes, "keepdims": keep},
                opsets=(1, 11),
                oracle=oracle,
                id=f"attribute_{label}",
            )
        yield OpCase(op, [data, const([1], "int64")], dtypes=FLOATS, opset=newest, oracle=oracle, grad=True)
        yield OpCase(op, [data], dtypes=("float32", "float16"), oracle=oracle, id="all")
        yield OpCase(op, [data], opsets=(1, 11), oracle=oracle, id="attribute_all")
        yield OpCase(op, [data, const([], "int64")], oracle=oracle, id="no_axes")
        for inputs in ([data], [data, const([], "int64")]):
            yield OpCase(
                op,
                inputs,
                {"noop_with_empty_axes": 1, "keepdims": 0},
                dtypes=("float32", "float16"),
                oracle=oracle,
                id=f"noop_{len(inputs)}",
            )
        yield OpCase(op, [t(low=0.5, high=3)], oracle=oracle, id="scalar")
        yield OpCase(op, [t(0, 3), const([1], "int64")], oracle=oracle, id="empty_result")
        if op not in LOGS:
            ints = ("int32", "int64", "uint32", "uint64")
            whole = t(3, 4, low=1, high=9)
            yield OpCase(op, [whole, const([1], "int64")], dtypes=ints, oracle=oracle, id="integers")
        else:
            yield OpCase(
                op,
                [t(3, 4, low=1, high=9), const([1], "int64")],
                dtypes=INTS,
                opset=18,
                oracle=oracle,
                id="integers",
            )
        if op not in ("ReduceSum",):
            yield OpCase(
                op, [data], {"axes": [-2]}, opset=13, dtypes=FLOATS, oracle=oracle, id="attribute_13"
            )


WIDE = [2**63 + 5, 7, 2**64 - 1, 2**63]
EMPTY = {"ReduceSum": 0, "ReduceProd": 1, "ReduceL1": 0, "ReduceL2": 0, "ReduceSumSquare": 0}


def filled(value):
    def oracle(x, axes, keepdims=1):
        return np.full((2, 1, 3) if keepdims else (2, 3), value, x.dtype)

    return oracle


CASES: tuple[OpCase, ...] = (
    *cases(),
    *(
        OpCase(op, [t(2, 0, 3), const([1], "int64")], {"keepdims": keep}, dtypes=dtypes, oracle=filled(value))
        for op, value, dtypes in (
            *((op, value, ("float32", "float16", "int32", "uint64")) for op, value in EMPTY.items()),
            ("ReduceMax", -np.inf, ("float32", "bfloat16")),
            ("ReduceMin", np.inf, ("float32", "float64")),
            ("ReduceMax", -128, ("int8",)),
            ("ReduceMax", 0, ("uint32", "bool")),
            ("ReduceMin", 127, ("int8",)),
            ("ReduceMin", 2**64 - 1, ("uint64",)),
            ("ReduceMin", True, ("bool",)),
            ("ReduceMean", np.nan, ("float32",)),
            ("ReduceMean", 0, ("int32",)),
            ("ReduceLogSum", -np.inf, ("float32", "float16")),
            ("ReduceLogSumExp", -np.inf, ("float32", "float16")),
        )
        for keep in (0, 1)
    ),
    *(
        OpCase(op, [t(3, 4), const([1], "int64")], dtypes=("bool", "int8", "uint8"), id="narrow")
        for op in ("ReduceMax", "ReduceMin")
    ),
    *(
        OpCase(op, [const(WIDE), const([0], "int64")], dtypes=("uint64",))
        for op in ("ReduceMax", "ReduceMin")
    ),
    *(
        OpCase(op, [const([[1.0, np.nan], [2.0, 1.0]]), const([1], "int64")], dtypes=FLOATS[:3], id="nan")
        for op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean")
    ),
    OpCase(
        "ReduceMean",
        [const([2**60 + 1] * 3 + [2**60 - 2])],
        dtypes=("int64",),
        oracle=lambda x: np.array([2**60], x.dtype),
        id="exact",
    ),
    OpCase(
        "ReduceLogSumExp",
        [const([1e4, 1e4, -1e4])],
        oracle=lambda x: np.array([1e4 + np.log(2)], x.dtype),
        id="does_not_overflow",
    ),
    OpCase(
        "ReduceLogSum",
        [const([60000.0] * 8)],
        dtypes=("float16",),
        oracle=lambda x: np.array([np.log(480000.0)], x.dtype),
        id="half_does_not_overflow",
    ),
)
