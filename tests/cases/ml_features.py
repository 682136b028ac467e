"""Cases of the feature and encoding operators of ai.onnx.ml."""

from typing import Any

import numpy as np
from onnx import numpy_helper
from opcase import OpCase, const, t

ML = "ai.onnx.ml"
NAN = float("nan")
INF = float("inf")
NUMBERS = ("float32", "float64", "int32", "int64")


def text(data: object):
    return const(data, "string")


def texts(data: object) -> np.ndarray:
    return np.array(data, dtype=object)


def array(values: list[Any], dtype: str) -> Any:
    return numpy_helper.from_array(np.array(values, dtype), "values")


def case(op: str, inputs: list[Any], attrs: dict[str, Any], name: str, opset: int = 1, **rest: Any) -> OpCase:
    rest.setdefault("oracle", "onnxruntime")
    return OpCase(op, inputs, attrs, domain=ML, opset=opset, id=name, **rest)


FRUIT = ["apple", "pear", "plum"]

CASES: tuple[OpCase, ...] = (
    case("Scaler", [t(4, 3)], {"offset": [0.5, 1, -1], "scale": [2, 0.5, 3]}, "each", dtypes=NUMBERS),
    case("Scaler", [t(4, 3)], {"offset": [0.5], "scale": [2.0]}, "one"),
    *(case("Normalizer", [t(4, 3)], {"norm": name}, name, dtypes=NUMBERS) for name in ("L1", "L2")),
    case("Normalizer", [const([[3, -4, 0], [0, 0, 0]])], {"norm": "L2"}, "zero_row"),
    case("Normalizer", [t(4, 3, low=0.5, high=2)], {}, "max"),
    case("Normalizer", [t(5)], {"norm": "L1"}, "vector"),
    case("Binarizer", [t(4, 3)], {"threshold": 0.25}, "threshold"),
    case("Binarizer", [const([-1, 0, 1, 2])], {}, "default", dtypes=NUMBERS, oracle="reference"),
    case(
        "Imputer",
        [const([[1, NAN], [NAN, 2]])],
        {"imputed_value_floats": [7.0], "replaced_value_float": NAN},
        "nan",
    ),
    case(
        "Imputer",
        [const([[1, -1], [-1, 2]])],
        {"imputed_value_int64s": [7, 8], "replaced_value_int64": -1},
        "each",
        dtypes=("int64",),
    ),
    case("FeatureVectorizer", [t(2, 3), t(2, 2)], {"inputdimensions": [3, 2]}, "join", dtypes=NUMBERS),
    case(
        "FeatureVectorizer",
        [t(2, 3), t(2, 2)],
        {"inputdimensions": [2, 3]},
        "cut_and_fill",
        oracle=lambda a, b, **_: np.concatenate([a[:, :2], b, np.zeros((2, 1), a.dtype)], 1),
    ),
    case("ArrayFeatureExtractor", [t(4, 3), const([2, 0], "int64")], {}, "columns", dtypes=NUMBERS),
    case("ArrayFeatureExtractor", [t(5), const([[2, 0]], "int64")], {}, "vector"),
    case("ArrayFeatureExtractor", [text([["a", "b", "c"]]), const([1], "int64")], {}, "strings"),
    case(
        "LabelEncoder",
        [text(["pear", "?", "apple"])],
        {"keys_strings": FRUIT, "values_int64s": [5, 6, 7]},
        "to_int",
        opset=2,
    ),
    case(
        "LabelEncoder",
        [const([[6, 5], [9, 7]], "int64")],
        {"keys_int64s": [5, 6, 7], "values_strings": FRUIT, "default_string": "none"},
        "to_string",
        opset=2,
    ),
    case(
        "LabelEncoder",
        [const([6.5, NAN, 0, 7.0, INF, -INF])],
        {"keys_floats": [7.0, INF, NAN, 6.5], "values_floats": [1.0, 5.0, 2.0, 3.0], "default_float": -4.0},
        "floats",
        opset=4,
    ),
    case(
        "LabelEncoder",
        [const([1, 2, 3], "int64")],
        {"keys_int64s": [1, 2, 1], "values_floats": [1.0, 2.0, 3.0]},
        "last_of_equal_keys",
        opset=4,
        oracle=lambda x, **_: np.array([3, 2, -0.0], "float32"),
    ),
    case(
        "LabelEncoder",
        [const([1, 2, 3], "int16")],
        {
            "keys_tensor": array([3, 1], "int16"),
            "values_tensor": array([30.5, 10.5], "float64"),
            "default_tensor": array([-1.5], "float64"),
        },
        "tensors",
        opset=4,
        oracle=lambda x, **_: np.array([10.5, -1.5, 30.5]),
    ),
    case(
        "LabelEncoder",
        [text(["pear", "?"])],
        {"classes_strings": FRUIT},
        "places",
        oracle=lambda *_, **__: np.array([1, -1]),
    ),
    case(
        "LabelEncoder",
        [const([2, 5], "int64")],
        {"classes_strings": FRUIT},
        "names",
        oracle=lambda *_, **__: texts(["plum", "_Unused"]),
    ),
    case(
        "CategoryMapper",
        [text(["pear", "?"])],
        {"cats_strings": FRUIT, "cats_int64s": [5, 6, 7], "default_int64": 0},
        "to_int",
    ),
    case(
        "CategoryMapper",
        [const([7, 1], "int64")],
        {"cats_strings": FRUIT, "cats_int64s": [5, 6, 7], "default_string": "-"},
        "to_string",
    ),
    case(
        "OneHotEncoder",
        [const([[5, 6], [7, 9]])],
        {"cats_int64s": [5, 6, 7]},
        "ints",
        dtypes=("float32", "float64", "int64"),
    ),
    case("OneHotEncoder", [text(["pear", "?"])], {"cats_strings": FRUIT}, "strings"),
    case("OneHotEncoder", [const([5, 7], "int64")], {"cats_int64s": [5, 6, 7], "zeros": 0}, "strict"),
)
