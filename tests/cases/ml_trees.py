"""Cases of the trees of ai.onnx.ml."""

from typing import Any

import numpy as np
from onnx import numpy_helper
from opcase import OpCase, const, t

ML = "ai.onnx.ml"
# Two trees of depth 2 and 1, with other comparisons in each.
NODES: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_featureids": [0, 2, 0, 0, 0, 1, 0, 0],
    "nodes_values": [0.1, -0.3, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 3, 0, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 4, 0, 0, 0, 2, 0, 0],
}
X = t(9, 3)
GAPS = const([[float("nan"), 0.5, -0.5], [0.1, float("nan"), float("nan")], [0.5, 0.1, -0.3]])
LEAVES = {"treeids": [0, 0, 0, 1, 1], "nodeids": [2, 3, 4, 1, 2]}


def votes(prefix: str, ids: list[int], weights: list[float]) -> dict[str, Any]:
    return {
        **{f"{prefix}_{name}": value for name, value in LEAVES.items()},
        f"{prefix}_ids": ids,
        f"{prefix}_weights": weights,
    }


REGRESSOR = {**NODES, **votes("target", [0, 1, 0, 1, 0], [0.5, -1.0, 2.0, 0.25, -0.75]), "n_targets": 2}
SINGLE = {**NODES, **votes("target", [0] * 5, [0.5, 1.0, 2.0, 0.25, 0.75]), "n_targets": 1}
THREE = {**NODES, **votes("class", [0, 1, 2, 1, 0], [0.5, 1.0, 2.0, 0.25, 0.75])}
PROBABLE = {**NODES, **votes("class", [0] * 5, [0.1, 0.3, 0.2, 0.5, 0.25])}
MARGIN = {**NODES, **votes("class", [0] * 5, [-0.5, 1.0, -0.2, 0.25, 0.75])}


def case(op: str, attrs: dict[str, Any], name: str, x: Any = X, opset: int = 3, **rest: Any) -> OpCase:
    outputs = 2 if op == "TreeEnsembleClassifier" else 1
    rest.setdefault("oracle", "onnxruntime")
    return OpCase(
        op,
        [x],
        attrs,
        domain=ML,
        opset=opset,
        outputs=outputs,
        id=name,
        **rest,
    )


def array(values: list[float], dtype: str = "float32") -> Any:
    return numpy_helper.from_array(np.array(values, dtype), "values")


# Tree 0: x0 <= 0.1 ? (x2 in {1, 2} ? leaf 0 : leaf 1) : leaf 2. Tree 1: one leaf twice.
MEMBERS = {
    "n_targets": 2,
    "tree_roots": [0, 2],
    "nodes_featureids": [0, 2, 0],
    "nodes_modes": array([0, 6, 0], "uint8"),
    "nodes_splits": array([0.1, 0, 0]),
    "nodes_truenodeids": [1, 0, 3],
    "nodes_trueleafs": [0, 1, 1],
    "nodes_falsenodeids": [2, 1, 3],
    "nodes_falseleafs": [1, 1, 1],
    "nodes_missing_value_tracks_true": [1, 0, 0],
    "membership_values": array([1.0, 2.0, float("nan")]),
    "leaf_targetids": [0, 1, 0, 1],
    "leaf_weights": array([1.0, 2.0, 4.0, 8.0]),
}


def members(x: np.ndarray, **_: Any) -> np.ndarray:
    first = np.where(np.isin(x[:, 2], [1, 2]), 1.0, 0.0)
    left = ~(x[:, 0] > 0.1)
    zero = np.where(left, first, 4.0)
    one = np.where(left & (first == 0), 10.0, 8.0)
    return np.stack([zero, one], 1).astype(x.dtype)


CASES: tuple[OpCase, ...] = (
    case("TreeEnsembleRegressor", REGRESSOR, "sum", dtypes=("float32", "float64")),
    case("TreeEnsembleRegressor", {**REGRESSOR, "aggregate_function": "AVERAGE"}, "average", opset=1),
    case("TreeEnsembleRegressor", {**SINGLE, "aggregate_function": "MIN"}, "min"),
    case("TreeEnsembleRegressor", {**SINGLE, "aggregate_function": "MAX"}, "max"),
    case("TreeEnsembleRegressor", {**REGRESSOR, "base_values": [0.5, -0.5]}, "base", oracle="reference"),
    case("TreeEnsembleRegressor", {**REGRESSOR, "post_transform": "SOFTMAX"}, "softmax"),
    case("TreeEnsembleRegressor", REGRESSOR, "nan", GAPS),
    case(
        "TreeEnsembleRegressor", {**REGRESSOR, "nodes_missing_value_tracks_true": [1] * 8}, "nan_true", GAPS
    ),
    *(
        case(
            "TreeEnsembleClassifier", {**THREE, "classlabels_int64s": [5, 7, 9], "post_transform": name}, name
        )
        for name in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    ),
    case(
        "TreeEnsembleClassifier",
        {**THREE, "classlabels_strings": ["a", "b", "c"], "base_values": [0.1, 0.2, -0.3]},
        "strings",
        dtypes=("float32", "float64", "int32"),
    ),
    case("TreeEnsembleClassifier", {**PROBABLE, "classlabels_int64s": [5, 7]}, "binary"),
    case("TreeEnsembleClassifier", {**MARGIN, "classlabels_int64s": [5, 7]}, "binary_margin", opset=1),
    case(
        "TreeEnsembleClassifier",
        {**MARGIN, "classlabels_strings": ["no", "yes"], "post_transform": "LOGISTIC", "base_values": [0.2]},
        "binary_logistic",
    ),
    case("TreeEnsembleClassifier", {**MARGIN, "classlabels_int64s": [1]}, "one_class"),
    OpCase("TreeEnsemble", [t(6, 3, low=0, high=4)], MEMBERS, ("float32", "float64"), ML, oracle=members),
    OpCase(
        "TreeEnsemble",
        [const([[float("nan"), 0, 1], [0, 0, float("nan")], [0.1, 0, 2], [0.2, 0, 2]])],
        MEMBERS,
        domain=ML,
        oracle=members,
        id="nan",
    ),
)
