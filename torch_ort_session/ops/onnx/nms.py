"""NonMaxSuppression: the greedy choice of boxes, in blocks rather than box by box.

Source: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel

# Candidates compared at once: bounds the memory of the pairwise overlaps.
_BLOCK = 1024


@kernel(
    "NonMaxSuppression",
    since=(10, 11),
    host=("max_output_boxes_per_class", "iou_threshold", "score_threshold"),
    seam="the number of selected boxes depends on the data",
)
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: int | None = None,
    iou_threshold: float | None = None,
    score_threshold: float | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """Choose boxes of high score that overlap no chosen box of the same class too much.

    Source: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html

    Args:
        boxes: float ``[batch, count, 4]``: two opposite corners, or centre and size.
        scores: float ``[batch, classes, count]``.
        max_output_boxes_per_class: Most boxes of a batch entry and class; None selects none.
        iou_threshold: Overlap above which a box is dropped; None is 0.
        score_threshold: Score that a box must exceed; None takes every box.
        center_point_box: Whether boxes are centre and size.

    Returns:
        int64 ``[selected, 3]``: batch, class and box index, by batch, class and falling score.

    Raises:
        ValueError: The shapes do not fit together.
    """
    if boxes.dim() != 3 or boxes.shape[2] != 4:
        raise ValueError(f"boxes have shape {list(boxes.shape)} where [batch, count, 4] is needed.")
    if scores.dim() != 3 or (scores.shape[0], scores.shape[2]) != (boxes.shape[0], boxes.shape[1]):
        raise ValueError(
            f"scores have shape {list(scores.shape)} where [{boxes.shape[0]}, classes, {boxes.shape[1]}] "
            "is needed."
        )
    classes, limit = scores.shape[1], max_output_boxes_per_class or 0
    passing = (
        torch.ones_like(scores, dtype=torch.bool) if score_threshold is None else scores > score_threshold
    )
    where = passing.nonzero() if limit > 0 else scores.new_empty(0, 3, dtype=torch.int64)
    if where.shape[0] == 0:
        return where
    by_score = scores[passing].argsort(descending=True, stable=True)
    group = where[:, 0] * classes + where[:, 1]
    where = where[by_score[group[by_score].argsort(stable=True)]]
    corners = _corners(boxes, bool(center_point_box))[where[:, 0], where[:, 2]]
    chosen = _greedy(corners, where[:, 0] * classes + where[:, 1], limit, iou_threshold or 0.0)
    return where[chosen]


def _corners(boxes: Tensor, centred: bool) -> Tensor:
    """Lowest and highest corner of each box, ``[batch, count, 4]``."""
    if centred:
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        return torch.cat((centre - half, centre + half), -1)
    return torch.cat(
        (torch.minimum(boxes[..., :2], boxes[..., 2:]), torch.maximum(boxes[..., :2], boxes[..., 2:])), -1
    )


def _greedy(corners: Tensor, group: Tensor, limit: int, threshold: float) -> Tensor:
    """Positions of the chosen candidates, rising.

    Args:
        corners: ``[candidates, 4]``, best first within a group.
        group: int64 ``[candidates]``, rising; only candidates of one group suppress each other.
        limit: Most choices of a group.
        threshold: Greatest overlap that is allowed.
    """
    total = group.shape[0]
    ends = torch.searchsorted(group, group, right=True)
    chosen: list[Tensor] = []
    open_group, taken = -1, group.new_empty(0)
    start = 0
    while start < total:
        own = group[start : start + _BLOCK]
        box = corners[start : start + _BLOCK]
        continues = own == open_group
        alive = ~(_overlap(corners[taken], box, threshold).any(0) & continues)
        suppresses = (_overlap(box, box, threshold) & (own[:, None] == own)).triu(1).to(torch.float32)
        keep = alive
        # Each round settles at least one more candidate of every chain of overlaps; most chains are short.
        while True:
            settled = alive & (keep.to(torch.float32) @ suppresses == 0)
            if torch.equal(settled, keep):
                break
            keep = settled
        keep = keep & (_rank(keep, own) + continues * taken.shape[0] <= limit)
        found = keep.nonzero()[:, 0]
        chosen.append(found + start)
        last = int(own[-1])
        fresh = chosen[-1][own[found] == last]
        taken = torch.cat((taken, fresh)) if last == open_group else fresh
        open_group = last
        start += own.shape[0]
        if taken.shape[0] >= limit and start < total and int(group[start]) == last:
            start = int(ends[start])
    return torch.cat(chosen)


def _rank(keep: Tensor, group: Tensor) -> Tensor:
    """How many of its group are kept up to and with each candidate."""
    upto = keep.cumsum(0)
    first = torch.searchsorted(group, group)
    return upto - (upto - keep.to(torch.int64))[first]


def _overlap(a: Tensor, b: Tensor, threshold: float) -> Tensor:
    """Whether the intersection of two boxes exceeds that share of their union; bool ``[a, b]``."""
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    extent = (high - low).clamp(min=0)
    shared = extent[..., 0] * extent[..., 1]
    area_a = (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1])
    area_b = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    union = area_a[:, None] + area_b - shared
    return (shared > 0) & (area_a > 0)[:, None] & (area_b > 0) & (shared / union > threshold)
