"""NonMaxSuppression: shapes that are refused, and a limit that is reached over several blocks."""

from __future__ import annotations

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ops.onnx.nms import non_max_suppression


def test_shapes_that_do_not_fit_are_said() -> None:
    with pytest.raises(ValueError) as boxes:
        non_max_suppression(torch.zeros(3, 4), torch.zeros(1, 1, 3))
    assert_expected_inline(str(boxes.value), """boxes have shape [3, 4] where [batch, count, 4] is needed.""")
    with pytest.raises(ValueError) as scores:
        non_max_suppression(torch.zeros(1, 3, 4), torch.zeros(1, 1, 2))
    assert_expected_inline(
        str(scores.value), """scores have shape [1, 1, 2] where [1, classes, 3] is needed."""
    )


def test_no_limit_selects_nothing() -> None:
    picked = non_max_suppression(torch.rand(1, 3, 4), torch.rand(1, 2, 3))
    assert picked.shape == (0, 3) and picked.dtype == torch.int64


@pytest.mark.parametrize("limit", [1, 127, 128, 129, 500, 1000])
def test_boxes_apart_are_taken_by_score_up_to_the_limit(limit: int) -> None:
    corner = torch.arange(700.0)[:, None] * 2
    boxes = torch.cat((corner, corner, corner + 1, corner + 1), 1).expand(2, 700, 4)
    scores = torch.stack((torch.linspace(0, 1, 700), torch.linspace(1, 0, 700))).expand(2, 2, 700)
    picked = non_max_suppression(boxes, scores, limit, 0.5)
    count = min(limit, 700)
    down, up = torch.arange(699, 699 - count, -1), torch.arange(count)
    assert torch.equal(picked[:, 2], torch.cat((down, up, down, up)))
    assert torch.equal(
        picked[:, :2], torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).repeat_interleave(count, 0)
    )
