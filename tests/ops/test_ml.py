"""Forests against a walk in plain Python, maps, and what is kept between runs."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common import prepared
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.ml.encoder import label_encoder, one_hot_encoder
from torch_ort_session.ops.ml.features import imputer, normalizer
from torch_ort_session.ops.ml.maps import cast_map, dict_vectorizer, zip_map
from torch_ort_session.ops.ml.trees.regressor_classifier import tree_ensemble_regressor
from torch_ort_session.ops.ml.trees.tree_ensemble import tree_ensemble


def context() -> KernelContext:
    node = Node(name="n", op="Op", domain="ai.onnx.ml", since=3, inputs=("x",), outputs=("y",))
    return KernelContext(node=node, device=torch.device("cpu"), wanted=(True,))


COLUMNS = (
    *(f"nodes_{name}" for name in ("treeids", "nodeids", "featureids", "values", "modes")),
    *("nodes_truenodeids", "nodes_falsenodeids"),
    *(f"target_{name}" for name in ("treeids", "nodeids", "ids", "weights")),
)


def forest(trees: int, depth: int, features: int, seed: int) -> dict[str, Any]:
    """Random trees of several depths, in the form of the attributes."""
    rng = random.Random(seed)
    made: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for tree in range(trees):
        todo, count = [(0, 0)], 1
        while todo:
            node, level = todo.pop()
            leaf = level == depth or (level and rng.random() < 0.2)
            made["nodes_treeids"].append(tree)
            made["nodes_nodeids"].append(node)
            made["nodes_featureids"].append(rng.randrange(features))
            made["nodes_values"].append(rng.choice([-0.5, 0.0, 0.25, 0.5]))
            made["nodes_modes"].append(
                "LEAF" if leaf else rng.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_EQ"])
            )
            made["nodes_truenodeids"].append(0 if leaf else count)
            made["nodes_falsenodeids"].append(0 if leaf else count + 1)
            if leaf:
                made["target_treeids"].append(tree)
                made["target_nodeids"].append(node)
                made["target_ids"].append(0)
                made["target_weights"].append(rng.random())
            else:
                todo += [(count, level + 1), (count + 1, level + 1)]
                count += 2
    return made


def walk(attrs: dict[str, Any], row: list[float]) -> float:
    compare = {
        "BRANCH_LEQ": float.__le__,
        "BRANCH_LT": float.__lt__,
        "BRANCH_GT": float.__gt__,
        "BRANCH_EQ": float.__eq__,
    }
    nodes = {key: i for i, key in enumerate(zip(attrs["nodes_treeids"], attrs["nodes_nodeids"], strict=True))}
    votes = dict(
        zip(
            zip(attrs["target_treeids"], attrs["target_nodeids"], strict=True),
            attrs["target_weights"],
            strict=True,
        )
    )
    total = 0.0
    for tree in sorted(set(attrs["nodes_treeids"])):
        key = (tree, 0)
        while attrs["nodes_modes"][nodes[key]] != "LEAF":
            i = nodes[key]
            holds = compare[attrs["nodes_modes"][i]](
                row[attrs["nodes_featureids"][i]], attrs["nodes_values"][i]
            )
            key = (tree, attrs["nodes_truenodeids" if holds else "nodes_falsenodeids"][i])
        total += votes[key]
    return total


def test_a_forest_walks_as_plain_python_does() -> None:
    attrs = forest(trees=20, depth=7, features=5, seed=3)
    x = torch.randint(-2, 3, (50, 5)) / 4
    got = tree_ensemble_regressor(x, **attrs, n_targets=1, ctx=context())
    wanted = [walk(attrs, row) for row in x.tolist()]
    torch.testing.assert_close(got[:, 0], torch.tensor(wanted))


def test_no_rows_give_no_scores() -> None:
    attrs = forest(trees=2, depth=3, features=2, seed=1)
    assert tree_ensemble_regressor(torch.zeros(0, 2), **attrs, n_targets=1, ctx=context()).shape == (0, 1)


def test_what_attributes_make_is_made_once_and_goes_with_its_step() -> None:
    ctx, calls = context(), []
    for _ in range(3):
        assert prepared.prepared(ctx, lambda: calls.append(1) or "made") == "made"
    assert prepared.prepared(ctx, lambda: "other", "apart") == "other"
    assert len(calls) == 1
    gone = weakref.ref(ctx)
    del ctx
    gc.collect()
    assert gone() is None


def message(**broken: Any) -> str:
    attrs = {**forest(trees=1, depth=1, features=1, seed=0), **broken}
    with pytest.raises(ValueError) as info:
        tree_ensemble_regressor(torch.zeros(1, 1), **attrs, n_targets=1, ctx=context())
    return str(info.value)


def newer(**broken: Any) -> str:
    attrs: dict[str, Any] = {
        "nodes_modes": torch.zeros(1, dtype=torch.uint8),
        "nodes_splits": torch.zeros(1),
        "leaf_weights": torch.ones(2),
        "leaf_targetids": [0, 0],
        "tree_roots": [0],
        **{f"nodes_{name}": [1] for name in ("falseleafs", "falsenodeids", "trueleafs")},
        **{f"nodes_{name}": [0] for name in ("truenodeids", "featureids")},
        "n_targets": 1,
    }
    with pytest.raises(ValueError) as info:
        tree_ensemble(torch.zeros(1, 1), **(attrs | broken), ctx=context())
    return str(info.value)


def test_what_users_read_of_trees_that_are_none() -> None:
    told = [
        message(nodes_truenodeids=[0, 0, 0]),
        message(nodes_truenodeids=[1, 0, 0], nodes_modes=["BRANCH_LT", "BRANCH_LT", "LEAF"]),
        message(nodes_falsenodeids=[7, 0, 0]),
        message(nodes_featureids=[-1, 0, 0]),
        message(nodes_featureids=[1 << 32, 0, 0]),
        message(target_nodeids=[1, 7]),
        message(nodes_modes=["BRANCH_MAYBE", "LEAF", "LEAF"]),
        message(nodes_nodeids=[0, 1, 1]),
        message(target_ids=[0, 1]),
        message(nodes_values=[0.5]),
        message(target_weights=[0.5]),
        newer(nodes_modes=torch.zeros(2, dtype=torch.uint8)),
        newer(leaf_targetids=[0, 9]),
        newer(tree_roots=[4]),
        newer(nodes_truenodeids=[5]),
        newer(nodes_featureids=[-1]),
        newer(aggregate_function=7),
        message(aggregate_function="MEDIAN"),
        message(post_transform="SIGMOID"),
    ]
    assert_expected_inline(
        "\n".join(told),
        """\
nodes_truenodeids, nodes_falsenodeids: the branches of a tree lead back to a node above
nodes_truenodeids, nodes_falsenodeids: tree 0 has no root: its branches lead back to a node above
nodes_falsenodeids: a branch of a tree leads to node -1 of 3
nodes_featureids: a tree compares feature -1, which no row has
nodes_featureids: a tree compares feature 4294967296, which no row has
target_nodeids: a vote is of node 7 of tree 0, which is not there
nodes_modes: 'BRANCH_MAYBE' is unknown
nodes_nodeids: node 1 of tree 0 is there twice
target_ids: a leaf votes for column 1 of 1
nodes_values has 1 entries, and nodes_nodeids has 3
target_weights has 1 entries, and target_ids has 2
nodes_modes has 2 entries, and nodes_featureids has 1
leaf_targetids: a leaf votes for column 9 of 1
tree_roots: a tree begins with node 4 of 3
nodes_truenodeids: a branch of a tree leads to node 6 of 3
nodes_featureids: a tree compares feature -1, which no row has
aggregate_function 7 or post_transform 0 is unknown
aggregate_function 'MEDIAN' is none of 'SUM', 'AVERAGE', 'MIN' and 'MAX'
post_transform 'SIGMOID' is none of 'NONE', 'SOFTMAX', 'LOGISTIC', 'SOFTMAX_ZERO' and 'PROBIT'""",
    )


def test_maps() -> None:
    rows = zip_map(torch.tensor([[0.25, 0.75], [1.0, 0.0]]), classlabels_strings=["no", "yes"])
    assert rows == ({"no": 0.25, "yes": 0.75}, {"no": 1.0, "yes": 0.0})
    ctx = context()
    row = dict_vectorizer({"c": 2.5, "a": 1.0}, string_vocabulary=["a", "b", "c"], ctx=ctx)
    assert (row.tolist(), row.dtype) == ([[1.0, 0.0, 2.5]], torch.float32)
    assert dict_vectorizer({4: 7}, int64_vocabulary=[3, 4], ctx=ctx).tolist() == [[0, 7]]
    assert dict_vectorizer({4: "x"}, int64_vocabulary=[3, 4], ctx=ctx).tolist() == [["", "x"]]
    assert cast_map({5: 1.5, 2: 2.0}, ctx=ctx).tolist() == [[2.0, 1.5]]
    sparse = cast_map({0: "3", 2: "4"}, cast_to="TO_INT64", map_form="SPARSE", max_map=4, ctx=ctx)
    assert sparse.tolist() == [[3, 0, 4, 0]]
    assert cast_map({1: 2.0}, cast_to="TO_STRING", ctx=ctx).tolist() == [["2.0"]]
    with pytest.raises(ValueError, match="keys 0 to 9 do not fit into 4 places"):
        cast_map({0: 1.0, 9: 1.0}, map_form="SPARSE", max_map=4, ctx=ctx)
    with pytest.raises(ValueError, match="3 labels do not fit the 2 columns"):
        zip_map(torch.zeros(1, 2), classlabels_int64s=[1, 2, 3])


def test_what_users_read_of_features() -> None:
    told = []
    for call in (
        lambda: one_hot_encoder(torch.tensor([4]), cats_int64s=[1, 2], zeros=0, ctx=context()),
        lambda: label_encoder(torch.tensor([4]), keys_strings=["a"], values_int64s=[1], ctx=context()),
        lambda: label_encoder(torch.tensor([4]), keys_int64s=[1, 2], values_int64s=[1], ctx=context()),
        lambda: label_encoder(torch.tensor([4]), values_int64s=[1], ctx=context()),
        lambda: imputer(torch.tensor([4]), imputed_value_floats=[1.0], ctx=context()),
        lambda: normalizer(torch.zeros(1, 2), norm="L3"),
    ):
        with pytest.raises(ValueError) as info:
            call()
        told.append(str(info.value))
    assert_expected_inline(
        "\n".join(told),
        """\
the input holds a category that is not listed
1 keys and 1 values do not make a table for numbers
2 keys and 1 values do not make a table for numbers
a list of keys, values or categories is missing for this input
Imputer needs imputed_value_int64s for torch.int64
norm 'L3' is none of 'MAX', 'L1' and 'L2'""",
    )
