"""RoiAlign and MaxRoiPool: gradients, many boxes, and what is refused."""

from __future__ import annotations

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops import registry
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.onnx.images import roi


def _node(**attributes: int) -> Node:
    return Node(
        name="n", op="RoiAlign", domain="", inputs=(), outputs=("y",), attributes=attributes, since=22
    )


CTX = KernelContext(node=_node(), device=torch.device("cpu"), wanted=(True,))


def test_pooling_passes_gradients_to_the_greatest_samples() -> None:
    x = torch.arange(24, dtype=torch.float64).reshape(1, 1, 4, 6).requires_grad_()
    rois = torch.tensor([[0.0, 0.0, 0.0, 5.0, 3.0]], dtype=torch.float64)
    y = roi.max_roi_pool(x, rois, pooled_shape=[2, 2], ctx=CTX)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.nonzero()[:, 2:].tolist() == [[1, 2], [1, 5], [3, 2], [3, 5]]


def test_many_boxes_go_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    make = torch.Generator().manual_seed(3)
    x = torch.randn(2, 3, 8, 8, generator=make)
    boxes = torch.rand(50, 4, generator=make) * 4
    boxes[:, 2:] += boxes[:, :2]
    batch = torch.arange(50) % 2

    def results() -> tuple[torch.Tensor, torch.Tensor]:
        aligned = roi.roi_align(x, boxes, batch, mode="max", output_height=3, output_width=2, ctx=CTX)
        rois = torch.cat((batch[:, None].float(), boxes), 1)
        return aligned, roi.max_roi_pool(x, rois, pooled_shape=[2, 2], ctx=CTX)

    whole = results()
    monkeypatch.setattr(roi, "_CHUNK", 1)
    for one, other in zip(whole, results(), strict=True):
        assert torch.equal(one, other)


def test_only_adaptive_sampling_reads_the_boxes() -> None:
    kernel = registry.find("RoiAlign", "", 22)
    assert kernel is not None
    assert kernel.seam_reason(_node(sampling_ratio=2)) is None
    assert_expected_inline(
        str(kernel.seam_reason(_node())), """the number of samples depends on the size of the boxes"""
    )


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError) as mode:
        roi.roi_align(torch.zeros(1, 1, 2, 2), torch.zeros(1, 4), torch.zeros(1).long(), mode="sum", ctx=CTX)
    assert_expected_inline(
        str(mode.value),
        """mode 'sum' with coordinate_transformation_mode 'half_pixel' is not defined by RoiAlign.""",
    )
