"""NonMaxSuppression: the greedy choice of boxes, by compiled code or in blocks rather than box by box.

Source: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.kernel import kernel

# Candidates compared at once. A group mostly fills up from its first few candidates; one that does not goes
# on in longer blocks, whose length bounds the memory of the pairwise overlaps.
_FIRST_BLOCK, _LONGEST_BLOCK = 128, 1024


@kernel(
    "NonMaxSuppression",
    since=(10, 11),
    host=("max_output_boxes_per_class", "iou_threshold", "score_threshold"),
    seam="the number of selected boxes depends on the data",
    native=("non_max_suppression",),
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
    choose = native.cpu_op("non_max_suppression", boxes, scores)
    if choose is not None and boxes.dtype == scores.dtype in (torch.float32, torch.float64):
        boxes, scores, overlap = boxes.detach(), scores.detach(), iou_threshold or 0.0
        chosen: Tensor = choose(boxes, scores, limit, overlap, score_threshold, bool(center_point_box))
        return chosen
    passing = (
        torch.ones_like(scores, dtype=torch.bool) if score_threshold is None else scores > score_threshold
    )
    where = passing.nonzero() if limit > 0 else scores.new_empty(0, 3, dtype=torch.int64)
    if where.shape[0] == 0:
        return where
    by_score = scores[passing].argsort(descending=True, stable=True)
    group = where[:, 0] * classes + where[:, 1]
    where = where[by_score[group[by_score].argsort(stable=True)]]
    corners = _corners(boxes, bool(center_point_box))[where[:, 0], where[:, 2]].t().contiguous()
    return where[_greedy(corners, where[:, 0] * classes + where[:, 1], limit, iou_threshold or 0.0)]


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
        corners: ``[4, candidates]``, best first within a group.
        group: int64 ``[candidates]``, rising; only candidates of one group suppress each other.
        limit: Most choices of a group.
        threshold: Greatest overlap that is allowed.
    """
    total = group.shape[0]
    ends = torch.searchsorted(group, group, right=True)
    chosen: list[Tensor] = []
    open_group, taken = -1, group.new_empty(0)
    start, length = 0, _FIRST_BLOCK
    while start < total:
        own = group[start : start + length]
        box = corners[:, start : start + length]
        continues = own == open_group
        suppresses = (
            _overlap(box, box, threshold).logical_and_(own[:, None] == own).triu_(1).to(torch.float32)
        )
        alive = ~(_overlap(corners[:, taken], box, threshold).any(0) & continues)
        keep = alive
        # Each round settles at least one more candidate of every chain of overlaps; most chains are short.
        while True:
            settled = alive & (keep.to(torch.float32) @ suppresses == 0)
            if torch.equal(settled, keep):
                break
            keep = settled
        keep = keep & (_rank(keep, own) + continues * taken.shape[0] <= limit)
        kept = keep.nonzero()[:, 0]
        chosen.append(kept + start)
        last = int(own[-1])
        fresh = chosen[-1][own[kept] == last]
        taken = torch.cat((taken, fresh)) if last == open_group else fresh
        start += own.shape[0]
        length = min(2 * length, _LONGEST_BLOCK) if last == open_group else _FIRST_BLOCK
        open_group = last
        if taken.shape[0] >= limit and start < total and int(group[start]) == last:
            start, length = int(ends[start]), _FIRST_BLOCK
    return torch.cat(chosen)


def _rank(keep: Tensor, group: Tensor) -> Tensor:
    """How many of its group are kept up to and with each candidate."""
    upto = keep.cumsum(0)
    first = torch.searchsorted(group, group)
    return upto - (upto - keep.to(torch.int64))[first]


def _overlap(a: Tensor, b: Tensor, threshold: float) -> Tensor:
    """Whether the intersection of two boxes exceeds that share of their union.

    Args:
        a: ``[4, boxes]``: lowest corner, highest corner.
        b: The same, of another number of boxes.
        threshold: The share.

    Returns:
        bool ``[boxes of a, boxes of b]``.
    """
    a = a[:, :, None]
    shared = torch.minimum(a[2], b[2]).sub_(torch.maximum(a[0], b[0])).clamp_(min=0)
    shared *= torch.minimum(a[3], b[3]).sub_(torch.maximum(a[1], b[1])).clamp_(min=0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    # Boxes without area share none, and the quotient of two zeros exceeds nothing.
    return shared.div_(union) > threshold
