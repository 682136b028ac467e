"""Cases of the linear models and support vector machines of ai.onnx.ml."""

from typing import Any

from opcase import OpCase, t

ML = "ai.onnx.ml"
X = t(7, 3)
MATRIX = [0.5, -1.0, 2.0, 1.5, 0.25, -0.5, -2.0, 1.0, 0.75]
ROW = [0.5, -1.0, 2.0]
VECTORS = [0.1, 0.5, -0.3, 0.9, -0.8, 0.2, -0.4, 0.6, 0.7, -0.9, -0.2, 0.3]
TWO = {
    "vectors_per_class": [2, 2],
    "support_vectors": VECTORS,
    "coefficients": [1.0, 0.5, -0.75, -1.25],
    "rho": [0.1],
}
THREE = {
    "vectors_per_class": [1, 2, 1],
    "support_vectors": VECTORS,
    "coefficients": [1.0, 0.5, -0.75, -1.25, 0.3, -0.6, 0.9, -0.2],
    "rho": [0.1, -0.2, 0.3],
}
PROBABLE = {"prob_a": [-1.5, -0.75, -2.0], "prob_b": [0.1, -0.2, 0.05]}
KERNELS: tuple[tuple[str, list[float]], ...] = (
    ("LINEAR", [0.0, 0.0, 0.0]),
    ("POLY", [0.5, 1.0, 2.0]),
    ("RBF", [0.7, 0.0, 0.0]),
    ("SIGMOID", [0.5, 0.25, 0.0]),
)
PLAIN = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
NUMBERS = ("float32", "int64")


def case(op: str, attrs: dict[str, Any], name: str, **rest: Any) -> OpCase:
    rest.setdefault("oracle", "onnxruntime")
    outputs = 2 if op.endswith("Classifier") else 1
    return OpCase(op, [X], attrs, domain=ML, opset=1, outputs=outputs, id=name, **rest)


CASES: tuple[OpCase, ...] = (
    case("LinearRegressor", {"coefficients": ROW, "intercepts": [0.5]}, "one"),
    case("LinearRegressor", {"coefficients": MATRIX, "intercepts": [0.5, 0.0, -1.0], "targets": 3}, "three"),
    case("LinearRegressor", {"coefficients": ROW}, "no_intercept"),
    *(
        case(
            "LinearClassifier",
            {
                "coefficients": MATRIX,
                "intercepts": [0.5, 0.0, -1.0],
                "classlabels_ints": [4, 5, 6],
                "post_transform": name,
            },
            name,
            dtypes=NUMBERS,
        )
        for name in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    ),
    case(
        "LinearClassifier",
        {"coefficients": MATRIX, "intercepts": [0.5, 0.0, -1.0], "classlabels_strings": ["a", "b", "c"]},
        "strings",
    ),
    case(
        "LinearClassifier",
        {"coefficients": ROW, "intercepts": [0.1], "classlabels_ints": [4, 5], "post_transform": "LOGISTIC"},
        "binary_logistic",
    ),
    case(
        "LinearClassifier",
        {"coefficients": ROW, "intercepts": [0.1], "classlabels_ints": [4, 5]},
        "binary",
        oracle="reference",
    ),
    *(
        case(
            "SVMRegressor",
            {
                "n_supports": 4,
                "support_vectors": VECTORS,
                "coefficients": [1.0, 0.5, -0.75, -1.25],
                "rho": [0.3],
                "kernel_type": name,
                "kernel_params": params,
            },
            name,
            dtypes=("float32",),
        )
        for name, params in KERNELS
    ),
    case("SVMRegressor", {**PLAIN, "coefficients": ROW, "rho": [0.3]}, "plain"),
    case("SVMRegressor", {**PLAIN, "coefficients": ROW, "rho": [0.3], "one_class": 1}, "one_class"),
    *(
        case(
            "SVMClassifier",
            {**THREE, "classlabels_ints": [4, 5, 6], "kernel_type": name, "kernel_params": params},
            name,
            dtypes=NUMBERS if name != "POLY" else ("float32",),
        )
        for name, params in KERNELS
    ),
    case(
        "SVMClassifier",
        {
            **THREE,
            **PROBABLE,
            "classlabels_strings": ["a", "b", "c"],
            "kernel_type": "RBF",
            "kernel_params": [0.7, 0, 0],
        },
        "probabilities",
    ),
    case(
        "SVMClassifier",
        {**TWO, "classlabels_ints": [0, 1], "kernel_type": "RBF", "kernel_params": [0.7, 0, 0]},
        "binary",
    ),
    case(
        "SVMClassifier",
        {
            **TWO,
            "prob_a": [-1.5],
            "prob_b": [0.1],
            "classlabels_ints": [3, 8],
            "kernel_type": "RBF",
            "kernel_params": [0.7, 0, 0],
        },
        "binary_probabilities",
    ),
    case(
        "SVMClassifier",
        {
            **PLAIN,
            "coefficients": MATRIX,
            "rho": [0.25],
            "classlabels_ints": [4, 5, 6],
            "post_transform": "SOFTMAX",
        },
        "plain",
    ),
)
