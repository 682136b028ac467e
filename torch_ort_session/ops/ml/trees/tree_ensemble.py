"""Trees of ai.onnx.ml 5: TreeEnsemble.

Source: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel
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

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_LEAF = MODES.index("LEAF")


@kernel("TreeEnsemble", domain="ai.onnx.ml", since=(5,), native=("forest_votes",))
def tree_ensemble(
    X: Tensor,
    *,
    leaf_targetids: list[int],
    leaf_weights: Tensor,
    nodes_falseleafs: list[int],
    nodes_falsenodeids: list[int],
    nodes_featureids: list[int],
    nodes_modes: Tensor,
    nodes_splits: Tensor,
    nodes_trueleafs: list[int],
    nodes_truenodeids: list[int],
    tree_roots: list[int],
    aggregate_function: int = 1,
    membership_values: Tensor | None = None,
    n_targets: int | None = None,
    nodes_hitrates: Tensor | None = None,
    nodes_missing_value_tracks_true: list[int] | None = None,
    post_transform: int = 0,
    ctx: KernelContext,
) -> Tensor:
    """What the leaves of all trees say of each row.

    Args:
        X: Features [n, f]: float16, float32 or float64.
        leaf_targetids: Column of each leaf.
        leaf_weights: Its weight.
        nodes_falseleafs: Whether the false branch is a leaf.
        nodes_falsenodeids: Place of the false branch among the nodes or the leaves.
        nodes_featureids: Feature compared.
        nodes_modes: uint8: 0 to 6 for <=, <, >=, >, ==, != and membership.
        nodes_splits: What it is compared with.
        nodes_trueleafs: Whether the true branch is a leaf.
        nodes_truenodeids: Place of the true branch among the nodes or the leaves.
        tree_roots: Place of each root among the nodes.
        aggregate_function: 0 to 3 for average, sum, minimum and maximum.
        membership_values: The sets of the membership nodes, each ended by a NaN.
        n_targets: Number of columns.
        nodes_hitrates: Of no account.
        nodes_missing_value_tracks_true: Whether NaN takes the true branch.
        post_transform: 0 to 4 for none, softmax, logistic, softmax_zero and probit.
        ctx: The step.

    Returns:
        [n, columns] in the dtype of ``X``.

    Raises:
        ValueError: The trees are malformed, or the aggregate or the transform is unknown.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html
    """
    if aggregate_function not in range(4) or post_transform not in range(5):
        raise ValueError(
            f"aggregate_function {aggregate_function} or post_transform {post_transform} is unknown"
        )

    def make() -> Forest:
        same_lengths(
            {
                "nodes_featureids": nodes_featureids,
                "nodes_modes": nodes_modes,
                "nodes_splits": nodes_splits,
                "nodes_truenodeids": nodes_truenodeids,
                "nodes_trueleafs": nodes_trueleafs,
                "nodes_falsenodeids": nodes_falsenodeids,
                "nodes_falseleafs": nodes_falseleafs,
                "nodes_missing_value_tracks_true": nodes_missing_value_tracks_true or None,
            }
        )
        same_lengths({"leaf_targetids": leaf_targetids, "leaf_weights": leaf_weights})
        # The leaves stand behind the nodes, in one list.
        inner, outer = len(nodes_featureids), len(leaf_targetids)
        ends = list(range(inner, inner + outer))
        nodes = Nodes(
            modes=torch.nn.functional.pad(nodes_modes.to(torch.int64), (0, outer), value=_LEAF),
            features=nodes_featureids + [0] * outer,
            thresholds=torch.nn.functional.pad(nodes_splits, (0, outer)),
            true=_branches(nodes_truenodeids, nodes_trueleafs) + ends,
            false=_branches(nodes_falsenodeids, nodes_falseleafs) + ends,
            missing_true=(nodes_missing_value_tracks_true or [0] * inner) + [0] * outer,
            members=membership_values,
        )
        columns = n_targets or max(leaf_targetids, default=0) + 1
        return plant(nodes, tree_roots, Votes(ends, leaf_targetids, leaf_weights, columns, "leaf_targetids"))

    forest = prepared(ctx, make)
    total, _ = votes_of(forest, X, _AGGREGATES[aggregate_function])
    return transform(total, _TRANSFORMS[post_transform]).to(X.dtype)


def _branches(places: list[int], are_leaves: list[int]) -> list[int]:
    inner = len(places)
    return [place + inner if is_leaf else place for place, is_leaf in zip(places, are_leaves, strict=True)]
