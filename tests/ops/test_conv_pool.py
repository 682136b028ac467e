"""Convolution and pooling: what users read about attributes that do not fit, and shapes no oracle takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from expecttest import TestCase
from torch import Tensor

from torch_ort_session.ops.onnx.images.conv import conv, conv_transpose
from torch_ort_session.ops.onnx.images.conv_deform import deform_conv
from torch_ort_session.ops.onnx.images.pool import average_pool
from torch_ort_session.ops.onnx.images.pool_max import max_pool_1
from torch_ort_session.ops.onnx.matmul import gemm_legacy


def said(call: Callable[[], Tensor]) -> str:
    with pytest.raises(ValueError) as caught:
        call()
    return str(caught.value)


class TestMessages(TestCase):
    x, w = torch.zeros(1, 2, 6, 6), torch.zeros(3, 2, 3, 3)

    def test_kernel_shape(self) -> None:
        self.assertExpectedInline(
            said(lambda: conv(self.x, self.w, kernel_shape=[2, 2])),
            """kernel_shape is [2, 2], but the weight's spatial shape is [3, 3].""",
        )

    def test_pads(self) -> None:
        self.assertExpectedInline(
            said(lambda: conv(self.x, self.w, pads=[1, 1])),
            """pads needs 4 values for 2 spatial axes, but has 2.""",
        )

    def test_strides(self) -> None:
        self.assertExpectedInline(
            said(lambda: conv(self.x, self.w, strides=[1])),
            """strides needs 2 values for 2 spatial axes, but has 1.""",
        )

    def test_auto_pad(self) -> None:
        self.assertExpectedInline(
            said(lambda: conv(self.x, self.w, auto_pad="SAME")),
            """auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not 'SAME'.""",
        )

    def test_offset(self) -> None:
        offset = torch.zeros(1, 18, 3, 3)
        self.assertExpectedInline(
            said(lambda: deform_conv(self.x, self.w, offset)),
            """offset must have the shape [1, 18, 4, 4], but it is [1, 18, 3, 3].""",
        )

    def test_pool_rank(self) -> None:
        self.assertExpectedInline(
            said(lambda: average_pool(self.x, kernel_shape=[2])),
            """kernel_shape [2] does not fit an input of rank 4.""",
        )

    def test_max_pool_rank(self) -> None:
        self.assertExpectedInline(
            said(lambda: max_pool_1(self.x, kernel_shape=[2])),
            """kernel_shape [2] does not fit an input with 2 spatial axes; one to three are supported.""",
        )

    def test_gemm_without_broadcast(self) -> None:
        a, b, c = torch.zeros(2, 3), torch.zeros(3, 4), torch.zeros(4)
        self.assertExpectedInline(
            said(lambda: gemm_legacy(a, b, c)),
            """Gemm without broadcast needs C of shape [2, 4], but it is [4].""",
        )


def test_a_convolution_grown_beyond_its_input() -> None:
    x, w, b = torch.ones(1, 1, 2), torch.ones(1, 1, 2), torch.tensor([0.5])
    y = conv_transpose(x, w, b, output_shape=[7])
    assert y.tolist() == [[[0.5, 0.5, 1.5, 2.5, 1.5, 0.5, 0.5]]]


def test_a_window_of_pads_alone_averages_nothing() -> None:
    y = average_pool(torch.ones(1, 1, 2), kernel_shape=[1], pads=[1, 0])
    assert y[0, 0, 1:].tolist() == [1.0, 1.0]
    assert y[0, 0, 0].isnan()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_bytes_with_the_channels_last_are_pooled(dtype: torch.dtype, rank: int) -> None:
    x = torch.randint(0, 100, (2, *[20] * rank, 3), generator=torch.Generator().manual_seed(1)).to(dtype)
    last = x.movedim(-1, 1)
    kernel = [2, 3, 2][:rank]
    wanted = max_pool_1(last.to(torch.float32).contiguous(), kernel_shape=kernel).to(dtype)
    assert torch.equal(max_pool_1(last, kernel_shape=kernel), wanted)
