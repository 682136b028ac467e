"""The order of images in memory on the CPU: channels last, where convolutions are faster so.

An image [N, C, H, W] whose channels lie side by side goes through pointwise ops, pools, norms and concats as
it is, so that only the first convolution of a model copies anything.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.onnx.images import onednn

_HALVES = frozenset((torch.bfloat16, torch.float16))

_UNFOLDED = 1 << 16
"""Bytes of unfolded windows up to which a convolution of one image may be a product with them."""

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
    if x.stride(1) != 1:
        return turned_back(turned(x).contiguous())
    if 1 in x.shape[2:]:
        # The stride of an axis of one may be anything, and torch tells the order by it.
        return turned_back(turned(x).flatten(1, 2).reshape(x.shape[0], *x.shape[2:], x.shape[1]))
    return x


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
    - one image whose unfolded windows are few bytes goes row by row where the channels are few, or the
      weight, which is turned for every call, is much larger: torch makes it a product with the windows;
    - everything else goes channels last, halves in any case; float32 by oneDNN where the windows are more.

    Measured with one thread, AVX-512, torch 2.13, milliseconds row by row and channels last: 3 to 64
    channels, 3x3, 224x224: 8.8 and 1.1; 64 to 64, 3x3, 224x224: 30 and 19; depthwise 96, 3x3, 56x56: 0.26
    and 0.11; 3 to 28, 3x3, 24x24: 0.018 and 0.071; 576 to 128, 1x1, 14x14: 0.15 and 0.14; bfloat16, 64 to
    64, 3x3, 56x56: 0.44 and 0.22. Volumes gain nothing: 2.6 and 2.4, 6.0 and 10.8; but torch itself computes
    one of them on one thread without oneDNN: 16 to 16, 3x3x3, 16x32x32: 33 where oneDNN takes 2.8. Where the
    weight is large an eager call is slower channels last and one with a packed weight faster, 192 to 320,
    3x3, 7x7: 0.67, 1.06 and 0.45.

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
        small = (
            groups == 1 == max(dilations) == x.shape[0] and _window_bytes(x, w, strides, pads) <= _UNFOLDED
        )
        turns = _turns(x, w, strides, small)
        if rank == 1 and (turns or (turns is None and is_channels_last_1d(x))):
            image, kernel = x.unsqueeze(2), w.unsqueeze(2)
            return convolution(image, kernel, b, [1, *strides], [0, *pads], [1, *dilations], groups).squeeze(
                2
            )
        x = channels_last(x) if turns else x if turns is None else x.contiguous()
        is_image = rank == 2 and (turns or (turns is None and is_channels_last(x)))
        if is_image and not small and onednn.serves(x, w, b):
            return onednn.convolution(channels_last(x), w, b, strides, pads, dilations, groups)
    if rank == 3 and x.device.type == "cpu" and onednn.serves(x, w, b):
        return onednn.volumes(x.contiguous(), w, b, strides, pads, dilations, groups)
    return torch.convolution(x, w, b, strides, pads, dilations, False, [0] * rank, groups)


def transposed_convolution(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    over: onednn.Spread,
    groups: int,
) -> Tensor:
    """A transposed ``torch.convolution``, of images on the CPU in the order in which it is fastest.

    Large float32 results go channels last, by oneDNN. Measured with one thread, AVX-512, torch 2.13,
    milliseconds row by row, channels last, and with a packed weight: 256 to 128 channels, 860 long, 12 wide,
    stride 6: 11.1, 4.7 and 4.0; 512 to 256, 86 long, 20 wide, stride 10: 4.7, 5.5 and 2.6; depthwise 512, 43
    long: 0.08, 0.07 and 0.04; 64 to 32, 28 long, 4 wide: 0.01, 0.07 and 0.03.

    Args:
        x: [N, C, D1..Dn] on any device.
        w: [C, M / groups, K1..Kn].
        b: [M].
        over: Its geometry.
        groups: Number of channel groups.

    Returns:
        [N, M, O1..On].
    """
    rank = x.dim() - 2
    if 1 <= rank <= 2 and x.device.type == "cpu" and onednn.serves(x, w, b):
        nbytes = x.element_size() * x.shape[0] * w.shape[1] * groups
        for size, width, stride in zip(x.shape[2:], w.shape[2:], over.strides, strict=True):
            nbytes *= (size - 1) * stride + width
        if nbytes > _UNFOLDED:
            if rank == 2:
                return onednn.transposed(channels_last(x), w, b, over, groups)
            lines = onednn.Spread(
                strides=[1, *over.strides],
                pads=[0, *over.pads],
                dilations=[1, *over.dilations],
                extra=[0, *over.extra],
            )
            image = channels_last(x.unsqueeze(2))
            return onednn.transposed(image, w.unsqueeze(2), b, lines, groups).squeeze(2)
    return torch.convolution(x, w, b, over.strides, over.pads, over.dilations, True, over.extra, groups)


def _turns(x: Tensor, w: Tensor, strides: list[int], small: bool) -> bool | None:
    """Whether a convolution goes channels last; None where it takes its input as it comes."""
    if x.dtype in _HALVES:
        return True
    if max(w.shape[2:]) == 1 == max(strides):
        return None
    return not (small and (x.shape[1] < _FEW or w.numel() > _HEAVY * x.numel()))


def _window_bytes(x: Tensor, w: Tensor, strides: list[int], pads: list[int]) -> int:
    nbytes = x.element_size() * x.shape[1]
    for size, width, stride, pad in zip(x.shape[2:], w.shape[2:], strides, pads, strict=True):
        nbytes *= width * ((size + 2 * pad - width) // stride + 1)
    return nbytes
