"""Decision trees, all walked at once: by compiled code, or one step down every tree for every row at a time.

Source: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.ml.scores import wide_enough

MODES = (
    "BRANCH_LEQ",
    "BRANCH_LT",
    "BRANCH_GTE",
    "BRANCH_GT",
    "BRANCH_EQ",
    "BRANCH_NEQ",
    "BRANCH_MEMBER",
    "LEAF",
)
_NOT_EQUAL, _MEMBER = 5, 6
# What compiled code holds of the number of a feature.
_LAST_FEATURE = (1 << 31) - 1
_COMPILED = {"SUM": 0, "AVERAGE": 0, "MIN": 1, "MAX": 2}
_FOLLOW = "nodes_truenodeids, nodes_falsenodeids"
# For each mode: whether it holds where the feature lies below, at or above the threshold (for the last
# two: is no member, is one).
_HOLDS = (
    (True, True, False),
    (True, False, False),
    (False, True, True),
    (False, False, True),
    (False, True, False),
    (True, False, True),
    (False, True, False),
    (False, False, False),
)


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """The nodes of all trees, by place.

    Attributes:
        modes: int64 [nodes], numbers in ``MODES``.
        features: Column compared.
        thresholds: Float tensor [nodes], what it is compared with.
        true: Place of the node that follows when the comparison holds; a leaf's own place.
        false: Place of the node that follows when it does not; a leaf's own place.
        missing_true: Whether NaN takes the true branch, 0 or 1.
        members: NaN-ended sets of the membership nodes, or None.
    """

    modes: Tensor
    features: Sequence[int]
    thresholds: Tensor
    true: Sequence[int]
    false: Sequence[int]
    missing_true: Sequence[int]
    members: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Votes:
    """What the leaves vote for.

    Attributes:
        nodes: Place of the leaf that each vote belongs to.
        targets: Column each vote counts for.
        weights: Float tensor [votes].
        columns: Number of columns.
        named: The attribute that lists the targets.
    """

    nodes: Sequence[int]
    targets: Sequence[int]
    weights: Tensor
    columns: int
    named: str


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Trees as tensors.

    Attributes:
        roots: int64 [trees].
        features: int64 [nodes].
        thresholds: Float [nodes].
        following: int64 [nodes * 4], the next node where the feature lies below, at or above the
            threshold, or is NaN; a leaf follows itself.
        depth: Steps from the roots to the deepest leaf.
        vote_targets: int64 [nodes, votes], the column each vote of a leaf counts for; behind the last
            column where there are fewer votes.
        vote_weights: float64 [nodes, votes].
        columns: Number of columns.
        members: None, or: the set of each node (int64 [nodes], -1 for none), the values of all sets, and
            the set of each value.
        table: int32 [nodes, 5], the feature compared, -1 for a leaf, and what follows: for compiled code.
    """

    roots: Tensor
    features: Tensor
    thresholds: Tensor
    following: Tensor
    depth: int
    vote_targets: Tensor
    vote_weights: Tensor
    columns: int
    members: tuple[Tensor, Tensor, Tensor] | None
    table: Tensor


def plant(nodes: Nodes, roots: Sequence[int], votes: Votes) -> Forest:
    """Make a forest, on the device of the thresholds.

    Raises:
        ValueError: The nodes make no trees, or a leaf votes for a column or a branch compares a feature that
            is not there.
    """
    device = nodes.thresholds.device

    def ints(values: object) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    bad = [target for target in votes.targets if not 0 <= target < votes.columns]
    if bad:
        raise ValueError(f"{votes.named}: a leaf votes for column {bad[0]} of {votes.columns}")
    branches = zip(nodes.features, nodes.true, nodes.false, strict=False)
    for place, (feature, *follow) in enumerate(branches):
        if not 0 <= feature <= _LAST_FEATURE and follow != [place, place]:
            raise ValueError(f"nodes_featureids: a tree compares feature {feature}, which no row has")
    depth = _depth(nodes, roots)
    modes = nodes.modes.to(device)
    holds = torch.tensor(_HOLDS, device=device)[modes]
    missing = (ints(nodes.missing_true) != 0) | (modes == _NOT_EQUAL)
    holds = torch.cat([holds, missing.unsqueeze(1)], 1)
    following = torch.where(holds, ints(nodes.true).unsqueeze(1), ints(nodes.false).unsqueeze(1))
    ballots: list[list[int]] = [[] for _ in nodes.true]
    for vote, place in enumerate(votes.nodes):
        ballots[place].append(vote)
    most = max(map(len, ballots), default=0) or 1
    features = ints(nodes.features)
    is_leaf = (following == torch.arange(following.shape[0], device=device).unsqueeze(1)).all(1)
    compared = torch.where(is_leaf, -1, features).unsqueeze(1)
    # One more vote, of no weight and for no column, fills the rows up to one length.
    blank = len(votes.targets)
    table = ints([row + [blank] * (most - len(row)) for row in ballots])
    weights = votes.weights.to(device, torch.float64)
    return Forest(
        roots=ints(roots),
        features=features,
        thresholds=nodes.thresholds,
        following=following.reshape(-1),
        depth=depth,
        vote_targets=ints([*votes.targets, votes.columns])[table],
        vote_weights=torch.cat([weights, weights.new_zeros(1)])[table],
        columns=votes.columns,
        members=_members(modes, nodes.members),
        table=torch.cat([compared, following], 1).to(torch.int32),
    )


def _depth(nodes: Nodes, roots: Sequence[int]) -> int:
    count = len(nodes.true)
    depth, level = 0, set(roots)
    outside = [root for root in roots if not 0 <= root < count]
    if outside:
        raise ValueError(f"tree_roots: a tree begins with node {outside[0]} of {count}")
    while True:
        branches = [place for place in level if not nodes.true[place] == nodes.false[place] == place]
        for name, follow in (("nodes_truenodeids", nodes.true), ("nodes_falsenodeids", nodes.false)):
            lost = [follow[place] for place in branches if not 0 <= follow[place] < count]
            if lost:
                raise ValueError(f"{name}: a branch of a tree leads to node {lost[0]} of {count}")
        level = {child for place in branches for child in (nodes.true[place], nodes.false[place])}
        if not level:
            return depth
        depth += 1
        if depth > count:
            raise ValueError(f"{_FOLLOW}: the branches of a tree lead back to a node above")


def same_lengths(lists: Mapping[str, Sequence[object] | Tensor | None]) -> None:
    """Raise a ValueError where attributes that say something of the same nodes have not the same length."""
    sizes = {name: len(values) for name, values in lists.items() if values is not None}
    first = next(iter(sizes))
    for name, size in sizes.items():
        if size != sizes[first]:
            raise ValueError(f"{name} has {size} entries, and {first} has {sizes[first]}")


def _members(modes: Tensor, members: Tensor | None) -> tuple[Tensor, Tensor, Tensor] | None:
    if members is None:
        return None
    is_member = modes == _MEMBER
    set_of_node = torch.where(is_member, is_member.cumsum(0) - 1, -1)
    # The NaN that ends a set counts for the sets behind it, and equals nothing itself.
    ends = members.isnan()
    return set_of_node, members, ends.cumsum(0) - ends.to(torch.int64)


def votes_of(forest: Forest, x: Tensor, aggregate: str) -> tuple[Tensor, Tensor]:
    """The votes of the leaves that rows of features [n, f] end in, put together; see :func:`tally`."""
    x = wide_enough(x)
    count = native.cpu_op("forest_votes", x, forest.table)
    how = _COMPILED.get(aggregate)
    if count is None or how is None or forest.members is not None:
        return tally(forest, leaves(forest, x), aggregate)
    votes: tuple[Tensor, Tensor] = count(
        x.detach(),
        forest.roots,
        forest.thresholds.to(x.dtype),
        forest.table,
        forest.depth,
        forest.vote_targets,
        forest.vote_weights,
        forest.columns,
        how,
    )
    total, voted = votes
    return (total / forest.roots.shape[0] if aggregate == "AVERAGE" else total), voted


def leaves(forest: Forest, x: Tensor) -> Tensor:
    """The leaf each row ends in: int64 [n, trees] for features [n, f].

    Features in float64 are compared in float64, all others in float32.
    """
    x = wide_enough(x)
    thresholds = forest.thresholds.to(x.dtype)
    place = forest.roots.expand(x.shape[0], -1)
    for _ in range(forest.depth):
        value = torch.gather(x, 1, forest.features[place])
        threshold = thresholds[place]
        outcome = (value >= threshold).to(torch.int64) + (value > threshold)
        if forest.members is not None:
            set_of_node, members, set_of_member = forest.members
            number = set_of_node[place].unsqueeze(-1)
            is_member = (value.unsqueeze(-1) == members.to(x.dtype)) & (number == set_of_member)
            outcome = torch.where(number.squeeze(-1) >= 0, is_member.any(-1).to(torch.int64), outcome)
        place = forest.following[place * 4 + torch.where(value.isnan(), 3, outcome)]
    return place


def tally(forest: Forest, leaf: Tensor, aggregate: str) -> tuple[Tensor, Tensor]:
    """The votes of the leaves [n, trees] put together.

    Args:
        forest: The trees.
        leaf: Where each row ended.
        aggregate: ``"SUM"``, ``"AVERAGE"`` (over the trees), ``"MIN"`` or ``"MAX"``.

    Returns:
        float64 [n, columns], 0 where nothing voted; and bool, whether anything did.

    Raises:
        ValueError: The aggregate is another.
    """
    rows = leaf.shape[0]
    target = forest.vote_targets[leaf].flatten(1)
    weight = forest.vote_weights[leaf].flatten(1)
    total = weight.new_zeros(rows, forest.columns + 1)
    voted = total.to(torch.bool).scatter(1, target, True)[:, :-1]
    if aggregate in ("SUM", "AVERAGE"):
        total = total.scatter_add(1, target, weight)
        if aggregate == "AVERAGE":
            total = total / forest.roots.shape[0]
    elif aggregate in ("MIN", "MAX"):
        how = "amin" if aggregate == "MIN" else "amax"
        total = total.scatter_reduce(1, target, weight, how, include_self=False)
    else:
        raise ValueError(f"aggregate_function {aggregate!r} is none of 'SUM', 'AVERAGE', 'MIN' and 'MAX'")
    return total[:, :-1], voted
