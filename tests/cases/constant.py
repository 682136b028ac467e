"""Cases of Constant, ConstantOfShape, EyeLike, Range, OneHot."""

import numpy as np
from onnx import helper, numpy_helper
from opcase import OpCase, const, t


def tensor(value: object, dtype: str):
    return numpy_helper.from_array(np.array(value, dtype), "value")


SPARSE = helper.make_sparse_tensor(tensor([1.5, -2.0], "float32"), tensor([1, 5], "int64"), [2, 3])
NUMBERS = ("float32", "float64", "int64", "int32", "int16")
KINDS = ("float32", "float16", "int64", "bool", "uint8", "uint16", "uint64")
REALS = ("float32", "float16", "bfloat16", "float64", "int64", "uint8", "uint16", "uint64")


def number(value: float):
    return const(value)


CASES: tuple[OpCase, ...] = (
    OpCase("Constant", [], {"value": tensor([[1, 2], [3, 4]], "int32")}, opsets=(1, 9, 11, 12, 13, 25)),
    OpCase("Constant", [], {"value": tensor(2.5, "float64")}, id="scalar"),
    OpCase("Constant", [], {"value_float": 0.1}, opsets=(12, 25), id="float"),
    OpCase("Constant", [], {"value_floats": [0.1, 2.0]}, id="floats"),
    OpCase("Constant", [], {"value_int": -3}, id="int"),
    OpCase("Constant", [], {"value_ints": [1, 2**40]}, id="ints"),
    OpCase("Constant", [], {"value_string": "abc"}, oracle=lambda **_: np.array("abc", object), id="string"),
    OpCase(
        "Constant",
        [],
        {"value_strings": ["a", ""]},
        oracle=lambda **_: np.array(["a", ""], object),
        id="strings",
    ),
    OpCase(
        "Constant",
        [],
        {"sparse_value": SPARSE},
        opsets=(11, 13, 25),
        oracle=lambda **_: np.array([[0, 1.5, 0], [0, 0, -2.0]], "float32"),
        id="sparse",
    ),
    OpCase("ConstantOfShape", [const([2, 3], "int64")], opsets=(9, 20, 25)),
    OpCase("ConstantOfShape", [const([2, 3], "int64")], {"value": tensor([7], "int64")}, id="int"),
    OpCase("ConstantOfShape", [const([2, 0], "int64")], {"value": tensor([1], "uint16")}, id="empty"),
    OpCase("ConstantOfShape", [const([], "int64")], {"value": tensor([True], "bool")}, id="scalar"),
    OpCase("EyeLike", [t(3, 4)], dtypes=KINDS, opsets=(9, 22)),
    OpCase("EyeLike", [t(3, 4)], {"k": 2, "dtype": 11}, id="above"),
    OpCase("EyeLike", [t(4, 3)], {"k": -1, "dtype": 7}, id="below"),
    OpCase("EyeLike", [t(3, 0)], id="empty"),
    OpCase("Range", [number(1), number(10), number(3)], dtypes=NUMBERS, opsets=(11, 27)),
    OpCase("Range", [number(10), number(1), number(-4)], dtypes=NUMBERS, id="down"),
    OpCase("Range", [number(10), number(1), number(4)], dtypes=NUMBERS, id="nothing"),
    OpCase("Range", [number(0.5), number(2.1), number(0.3)], dtypes=("float32", "float64"), id="fraction"),
    OpCase("Range", [number(0), number(2**40 + 1), number(2**39)], dtypes=("int64",), id="large"),
    OpCase("OneHot", [t(2, 3, low=0, high=5, dtype="int64"), const(5, "int64"), const([0, 1])], dtypes=REALS),
    OpCase("OneHot", [const([-1, 0, -4, 9, 3], "int64"), const(4, "int64"), const([0, 5])], id="negative"),
    OpCase(
        "OneHot",
        [const([[1, 0]], "int64"), const([3], "int64"), const([2, 5], "int64")],
        {"axis": 0},
        opset=13,
        oracle="onnxruntime",
        id="first",
    ),
    OpCase(
        "OneHot",
        [const([[1.0, 2.0]], "float32"), const(3.0, "float32"), const([0, 1])],
        {"axis": 1},
        opsets=(9, 11, 28),
        id="float_index",
    ),
    OpCase("OneHot", [const(2, "int64"), const(3, "int64"), const([0, 1])], id="scalar"),
    OpCase(
        "OneHot",
        [const([1], "int64"), const(2, "int64"), const(["no", "yes"], "string")],
        oracle=lambda *_: np.array([["no", "yes"]], object),
        id="strings",
    ),
)
