"""Cases of Softmax, LogSoftmax and Hardmax."""

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")


def softmax(x, axis=-1):
    wide = x.astype(np.float64)
    grown = np.exp(wide - wide.max(axis, keepdims=True, initial=-1e30))
    return grown / grown.sum(axis, keepdims=True)


def hardmax(x, axis=-1):
    index = np.expand_dims(np.argmax(x, axis), axis)
    result = np.zeros(x.shape)
    np.put_along_axis(result, index, 1, axis)
    return result


FUNCTIONS = {
    "Softmax": softmax,
    "LogSoftmax": lambda x, axis=-1: np.log(softmax(x, axis)),
    "Hardmax": hardmax,
}


def of_matrix(function):
    def oracle(x, axis=1):
        start = axis + x.ndim if axis < 0 else axis
        rows = int(np.prod(x.shape[:start]))
        columns = int(np.prod(x.shape[start:]))
        return function(x.reshape(rows, columns)).reshape(x.shape).astype(x.dtype)

    return oracle


def newest(function):
    return lambda x, axis=-1: function(x, axis).astype(x.dtype)


def cases():
    for op, function in FUNCTIONS.items():
        grad = op != "Hardmax"
        yield OpCase(op, [t(3, 4, low=-5, high=5)], dtypes=FLOATS, oracle=newest(function), grad=grad)
        for axis in (0, 1, -2):
            yield OpCase(op, [t(2, 3, 4, low=-5, high=5)], {"axis": axis}, oracle=newest(function), grad=grad)
            yield OpCase(
                op,
                [t(2, 3, 4, low=-5, high=5)],
                {"axis": axis},
                opsets=(11,) if axis < 0 else (1, 11),
                oracle=of_matrix(function),
                grad=grad,
                id=f"matrix_{axis}",
            )
        yield OpCase(
            op, [t(2, 3, 4)], opsets=(1, 11), dtypes=FLOATS[:3], oracle=of_matrix(function), id="matrix"
        )
        yield OpCase(
            op, [t(2, 3, 4)], {"axis": 2}, opsets=(1, 11), oracle=of_matrix(function), id="matrix_last"
        )
        yield OpCase(op, [t()], oracle=lambda x, o=op: np.array(0.0 if o == "LogSoftmax" else 1.0, x.dtype))
        for shape in ((0, 3), (2, 0), (0,)):
            yield OpCase(op, [t(*shape)], oracle=lambda x: x, id="empty_" + "x".join(map(str, shape)))
        yield OpCase(op, [t(0, 3, 2)], opset=11, oracle=lambda x: x, id="matrix_empty")


CASES: tuple[OpCase, ...] = (
    *cases(),
    OpCase(
        "Hardmax", [const([[3, 1, 3], [2, 2, 2]])], dtypes=FLOATS, oracle=newest(hardmax), id="first_of_ties"
    ),
    OpCase("Softmax", [const([[1e4, 1e4, -1e4]])], oracle=newest(softmax), id="large"),
)
