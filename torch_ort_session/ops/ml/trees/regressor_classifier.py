"""Trees before ai.onnx.ml 5: TreeEnsembleClassifier, TreeEnsembleRegressor.

Source: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleClassifier.html
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.ml.scores import labels, text_labels
from torch_ort_session.ops.ml.scores import post_transform as transform
from torch_ort_session.ops.ml.trees.forest import (
    MODES,
    Forest,
    Nodes,
    Votes,
    plant,
    same_lengths,
    votes_of,
)

_LEAF = MODES.index("LEAF")


@kernel("TreeEnsembleRegressor", domain="ai.onnx.ml", since=(1, 3, 5), native=("forest_votes",))
def tree_ensemble_regressor(
    X: Tensor,
    *,
    aggregate_function: str = "SUM",
    base_values: list[float] | None = None,
    base_values_as_tensor: Tensor | None = None,
    n_targets: int | None = None,
    nodes_falsenodeids: list[int] | None = None,
    nodes_featureids: list[int] | None = None,
    nodes_hitrates: list[float] | None = None,
    nodes_hitrates_as_tensor: Tensor | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str] | None = None,
    nodes_nodeids: list[int] | None = None,
    nodes_treeids: list[int] | None = None,
    nodes_truenodeids: list[int] | None = None,
    nodes_values: list[float] | None = None,
    nodes_values_as_tensor: Tensor | None = None,
    post_transform: str = "NONE",
    target_ids: list[int] | None = None,
    target_nodeids: list[int] | None = None,
    target_treeids: list[int] | None = None,
    target_weights: list[float] | None = None,
    target_weights_as_tensor: Tensor | None = None,
    ctx: KernelContext,
) -> Tensor:
    """What the leaves of all trees say of each row, as float32 [n, targets].

    Args:
        X: Features [n, f].
        aggregate_function: ``"SUM"``, ``"AVERAGE"``, ``"MIN"`` or ``"MAX"``.
        base_values: Added afterwards, one for each target.
        base_values_as_tensor: The same in float64, as for the other ``_as_tensor``.
        n_targets: Number of targets.
        nodes_falsenodeids: Id of the node that follows when the comparison does not hold.
        nodes_featureids: Feature compared.
        nodes_hitrates: Of no account.
        nodes_hitrates_as_tensor: Of no account.
        nodes_missing_value_tracks_true: Whether NaN takes the true branch.
        nodes_modes: ``"BRANCH_LEQ"`` and so on, or ``"LEAF"``.
        nodes_nodeids: Id of each node within its tree.
        nodes_treeids: Its tree.
        nodes_truenodeids: Id of the node that follows when the comparison holds.
        nodes_values: What the feature is compared with.
        nodes_values_as_tensor: The same in float64.
        post_transform: ``"NONE"``, ``"SOFTMAX"``, ``"LOGISTIC"``, ``"SOFTMAX_ZERO"`` or ``"PROBIT"``.
        target_ids: Target of each vote.
        target_nodeids: Its node.
        target_treeids: Its tree.
        target_weights: Its weight.
        target_weights_as_tensor: The same in float64.
        ctx: The step.

    Raises:
        ValueError: The trees are malformed.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html
    """

    def make() -> tuple[Forest, Tensor]:
        lists = _Lists(
            nodes_treeids or [],
            nodes_nodeids or [],
            nodes_modes or [],
            nodes_featureids or [],
            nodes_truenodeids or [],
            nodes_falsenodeids or [],
            nodes_missing_value_tracks_true or [],
        )
        votes = (target_treeids or [], target_nodeids or [], target_ids or [], "target")
        weights = _numbers(target_weights, target_weights_as_tensor, ctx)
        thresholds = _numbers(nodes_values, nodes_values_as_tensor, ctx)
        base = _numbers(base_values or [0.0], base_values_as_tensor, ctx)
        return _forest(ctx, lists, thresholds, votes, weights, n_targets or 1), base

    forest, base = prepared(ctx, make)
    total, _ = votes_of(forest, X, aggregate_function)
    total = total + base
    return transform(total, post_transform).to(torch.float32)


@kernel(
    "TreeEnsembleClassifier", domain="ai.onnx.ml", since=(1, 3, 5), seam=text_labels, native=("forest_votes",)
)
def tree_ensemble_classifier(
    X: Tensor,
    *,
    base_values: list[float] | None = None,
    base_values_as_tensor: Tensor | None = None,
    class_ids: list[int] | None = None,
    class_nodeids: list[int] | None = None,
    class_treeids: list[int] | None = None,
    class_weights: list[float] | None = None,
    class_weights_as_tensor: Tensor | None = None,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    nodes_falsenodeids: list[int] | None = None,
    nodes_featureids: list[int] | None = None,
    nodes_hitrates: list[float] | None = None,
    nodes_hitrates_as_tensor: Tensor | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_modes: list[str] | None = None,
    nodes_nodeids: list[int] | None = None,
    nodes_treeids: list[int] | None = None,
    nodes_truenodeids: list[int] | None = None,
    nodes_values: list[float] | None = None,
    nodes_values_as_tensor: Tensor | None = None,
    post_transform: str = "NONE",
    ctx: KernelContext,
) -> tuple[Tensor, Tensor]:
    """The class of each row, and what the leaves of all trees say of each class.

    Where there are two classes and all votes are for the first, the votes are the score of the second one
    (as converters of gradient boosting write it). The first then gets 1 - score if no transform applies and
    all weights are positive, as for probabilities, else -score.

    Args:
        X: Features [n, f].
        base_values: Added to the scores.
        base_values_as_tensor: The same in float64, as for the other ``_as_tensor``.
        class_ids: Class of each vote, a place among the labels.
        class_nodeids: Its node.
        class_treeids: Its tree.
        class_weights: Its weight.
        class_weights_as_tensor: The same in float64.
        classlabels_int64s: The labels.
        classlabels_strings: The same as strings.
        nodes_falsenodeids: Id of the node that follows when the comparison does not hold.
        nodes_featureids: Feature compared.
        nodes_hitrates: Of no account.
        nodes_hitrates_as_tensor: Of no account.
        nodes_missing_value_tracks_true: Whether NaN takes the true branch.
        nodes_modes: ``"BRANCH_LEQ"`` and so on, or ``"LEAF"``.
        nodes_nodeids: Id of each node within its tree.
        nodes_treeids: Its tree.
        nodes_truenodeids: Id of the node that follows when the comparison holds.
        nodes_values: What the feature is compared with.
        nodes_values_as_tensor: The same in float64.
        post_transform: ``"NONE"``, ``"SOFTMAX"``, ``"LOGISTIC"``, ``"SOFTMAX_ZERO"`` or ``"PROBIT"``.
        ctx: The step.

    Returns:
        Labels [n], int64 or strings, and scores float32 [n, classes].

    Raises:
        ValueError: The trees are malformed.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleClassifier.html
    """
    classes = len(classlabels_int64s or classlabels_strings or [0])

    def make() -> tuple[Forest, Tensor, Tensor]:
        lists = _Lists(
            nodes_treeids or [],
            nodes_nodeids or [],
            nodes_modes or [],
            nodes_featureids or [],
            nodes_truenodeids or [],
            nodes_falsenodeids or [],
            nodes_missing_value_tracks_true or [],
        )
        votes = (class_treeids or [], class_nodeids or [], class_ids or [], "class")
        weights = _numbers(class_weights, class_weights_as_tensor, ctx)
        thresholds = _numbers(nodes_values, nodes_values_as_tensor, ctx)
        base = _numbers(base_values or [0.0], base_values_as_tensor, ctx)
        margin = torch.where((weights >= 0).all(), 0.5, 0.0)
        return _forest(ctx, lists, thresholds, votes, weights, classes), base, margin

    forest, base, margin = prepared(ctx, make)
    scores, _ = votes_of(forest, X, "SUM")
    scores = scores + base
    if classes == 2 and len(set(class_ids or [])) == 1:
        if class_ids and class_ids[0] == 0:
            score = scores[:, :1]
            probable = post_transform == "PROBIT" or post_transform == "NONE"
            other = torch.where(margin > 0, 1 - score, -score) if probable else -score
            scores = torch.cat([other, score], 1)
        place = (scores[:, 1] > margin).to(torch.int64)
    elif classes == 1:
        place = (scores[:, 0] <= 0).to(torch.int64)
    else:
        place = scores.argmax(1)
    negative: int | str = "" if classlabels_strings else 0
    named = labels(place, classlabels_int64s, classlabels_strings, ctx, otherwise=negative)
    return named, transform(scores, post_transform).to(torch.float32)


@dataclass(frozen=True, slots=True)
class _Lists:
    """The nodes as the attributes list them."""

    trees: list[int]
    ids: list[int]
    modes: list[str]
    features: list[int]
    true: list[int]
    false: list[int]
    missing_true: list[int]


def _numbers(values: list[float] | None, as_tensor: Tensor | None, ctx: KernelContext) -> Tensor:
    if as_tensor is not None:
        return as_tensor.to(ctx.device)
    return torch.tensor(values or [], dtype=torch.float32, device=ctx.device)


def _forest(
    ctx: KernelContext,
    lists: _Lists,
    thresholds: Tensor,
    votes: tuple[list[int], list[int], list[int], str],
    weights: Tensor,
    columns: int,
) -> Forest:
    of_trees, of_nodes, targets, kind = votes
    same_lengths(
        {
            "nodes_nodeids": lists.ids,
            "nodes_treeids": lists.trees,
            "nodes_modes": lists.modes,
            "nodes_featureids": lists.features,
            "nodes_values": thresholds,
            "nodes_truenodeids": lists.true,
            "nodes_falsenodeids": lists.false,
            "nodes_missing_value_tracks_true": lists.missing_true or None,
        }
    )
    same_lengths(
        {
            f"{kind}_ids": targets,
            f"{kind}_treeids": of_trees,
            f"{kind}_nodeids": of_nodes,
            f"{kind}_weights": weights,
        }
    )
    keys = list(zip(lists.trees, lists.ids, strict=True))
    place = {key: i for i, key in enumerate(keys)}
    unknown = [mode for mode in lists.modes if mode not in MODES]
    if unknown:
        raise ValueError(f"nodes_modes: {unknown[0]!r} is unknown")
    if len(place) < len(keys):
        twice = next(key for number, key in enumerate(keys) if place[key] != number)
        raise ValueError("nodes_nodeids: node {1} of tree {0} is there twice".format(*twice))
    children: list[list[int]] = []
    for ids in (lists.true, lists.false):
        column = []
        for i, (tree, child) in enumerate(zip(lists.trees, ids, strict=True)):
            column.append(i if lists.modes[i] == "LEAF" else place.get((tree, child), -1))
        children.append(column)
    modes = torch.tensor([MODES.index(mode) for mode in lists.modes], dtype=torch.int64, device=ctx.device)
    inner = Nodes(
        modes, lists.features, thresholds, children[0], children[1], lists.missing_true or [0] * len(keys)
    )
    # A tree begins with its first node that no branch leads to.
    below = {child for i, pair in enumerate(zip(*children, strict=True)) for child in pair if child != i}
    roots: dict[int, int] = {}
    for i, tree in enumerate(lists.trees):
        if i not in below:
            roots.setdefault(tree, i)
    rootless = set(lists.trees) - roots.keys()
    if rootless:
        named = "nodes_truenodeids, nodes_falsenodeids"
        raise ValueError(f"{named}: tree {min(rootless)} has no root: its branches lead back to a node above")
    missing = [key for key in zip(of_trees, of_nodes, strict=True) if key not in place]
    if missing:
        tree, node = missing[0]
        raise ValueError(f"{kind}_nodeids: a vote is of node {node} of tree {tree}, which is not there")
    owners = [place[key] for key in zip(of_trees, of_nodes, strict=True)]
    return plant(inner, list(roots.values()), Votes(owners, targets, weights, columns, f"{kind}_ids"))
