"""The order of images in memory on the CPU: channels last, where convolutions are faster so.

An image [N, C, H, W] whose channels lie side by side goes through pointwise ops, pools, norms and concats as
it is, so that only the first convolution of a model copies anything.
"""

from __future__ import annotations

import torch
from torch import Tensor

_HALVES = frozenset((torch.bfloat16, torch.float16))

_UNFOLDED = 20480
"""Elements up to which torch makes a convolution of one image a product with its unfolded windows."""

_UNFOLDED_WIDTH = 3
"""The largest kernel for which it does."""

_FEW = 4
"""Channels below which channels last does not pay there."""

_HEAVY = 8
"""How much larger than the image a weight is that is not worth turning."""


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of ``x`` [N, C, H, W] lie side by side, and there are several."""
    return x.dim() == 4 and x.shape[1] > 1 and x.stride(1) == 1 and x.stride(3) != 1


def is_channels_last_1d(x: Tensor) -> bool:
    """Whether the channels of ``x`` [N, C, L] lie side by side, and there are several."""
    return x.dim() == 3 and x.shape[1] > 1 and x.stride(1) == 1 and x.stride(2) != 1


def channels_last(x: Tensor) -> Tensor:
    """``x`` [N, C, H, W] with its channels side by side: as it is where they are, else a copy.

    One channel is both orders at once; torch takes it for the other one, so its strides are named anew.
    """
    if x.shape[1] == 1:
        return turned_back(x.reshape(x.shape[0], x.shape[2], x.shape[3], 1))
    return x if x.stride(1) == 1 else turned_back(turned(x).contiguous())


def turned(x: Tensor) -> Tensor:
    """``x`` [N, C, H, W] as a view [N, H, W, C], which is contiguous where the channels lie side by side."""
    return x.permute(0, 2, 3, 1)


def turned_back(x: Tensor) -> Tensor:
    """``x`` [N, H, W, C] as a view [N, C, H, W]."""
    return x.permute(0, 3, 1, 2)


def convolution(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    groups: int,
) -> Tensor:
    """``torch.convolution``, of images on the CPU in the order in which it is fastest.

    The choice depends on shapes and dtype alone:

    - a 1x1 kernel without a stride is a product in either order: the input stays as it is;
    - what torch computes as a product with unfolded windows (one small image, a small kernel, no groups) goes
      row by row where the channels are few, or the weight, which is turned for every call, is much larger;
    - everything else goes channels last, halves in any case.

    Measured with one thread, AVX-512, torch 2.13, milliseconds row by row and channels last: 3 to 64
    channels, 3x3, 224x224: 8.8 and 1.1; 64 to 64, 3x3, 224x224: 30 and 19; depthwise 96, 3x3, 56x56: 0.26
    and 0.11; 1 to 24, 3x3, 76x32: 0.018 and 0.090; 192 to 384, 3x3, 6x6: 0.38 and 0.65; 576 to 128, 1x1,
    14x14: 0.15 and 0.14; bfloat16, 64 to 64, 3x3, 56x56: 0.44 and 0.22. Volumes gain nothing: 2.6 and 2.4,
    6.0 and 10.8.

    Args:
        x: [N, C, D1..Dn] on any device.
        w: [M, C / groups, K1..Kn].
        b: [M].
        strides: Stride by axis.
        pads: Zeros on both ends of each axis.
        dilations: Dilation by axis.
        groups: Number of channel groups.

    Returns:
        [N, M, O1..On], channels last where the input went in so.
    """
    rank = x.dim() - 2
    if x.device.type == "cpu" and 1 <= rank <= 2 and (x.dtype == torch.float32 or x.dtype in _HALVES):
        turns = _turns(x, w, strides, groups)
        if rank == 1 and (turns or (turns is None and is_channels_last_1d(x))):
            parts = [1, *strides], [0, *pads], [1, *dilations]
            return convolution(x.unsqueeze(2), w.unsqueeze(2), b, *parts, groups).squeeze(2)
        x = channels_last(x) if turns else x if turns is None else x.contiguous()
    return torch.convolution(x, w, b, strides, pads, dilations, False, [0] * rank, groups)


def _turns(x: Tensor, w: Tensor, strides: list[int], groups: int) -> bool | None:
    """Whether a convolution goes channels last; None where it takes its input as it comes."""
    if x.dtype in _HALVES:
        return True
    kernel = w.shape[2:]
    if max(kernel) == 1 == max(strides):
        return None
    return not _unfolds(x, w, groups)


def _unfolds(x: Tensor, w: Tensor, groups: int) -> bool:
    if x.shape[0] != 1 or x.numel() > _UNFOLDED or (min(w.shape[2:]) > _UNFOLDED_WIDTH and w.dim() == 4):
        return False
    gains = x.shape[1] < _FEW or w.numel() > _HEAVY * x.numel()
    return gains and groups == 1
