"""Convolutions of images by oneDNN, whatever torch would choose.

For small images, kernels of 1x1 and few threads torch takes a product with unfolded windows instead, which
copies images that lie channels last, and whose windows take nine times the image for a 3x3 kernel.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor


def serves(x: Tensor, w: Tensor, b: Tensor | None) -> bool:
    """Whether oneDNN may be called itself: for plain float32 tensors on the CPU that nobody differentiates.

    Under tracing and function transforms torch's own convolution is called, which they know.
    """
    return (
        not torch.is_grad_enabled()
        and x.numel() > 0
        and w.numel() > 0
        and all(t is None or (type(t) is Tensor and t.dtype == torch.float32) for t in (x, w, b))
        and not torch.compiler.is_compiling()
        and not any(_wrapped(t) for t in (x, w, b) if t is not None)
        and _has_convolution()
        and torch._C._get_mkldnn_enabled()
    )


def convolution(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    groups: int,
) -> Tensor:
    """A convolution of images that lie channels last.

    Args:
        x: [N, C, H, W] in float32.
        w: [M, C / groups, K1, K2].
        b: [M].
        strides: Stride by axis.
        pads: Zeros on both ends of each axis.
        dilations: Dilation by axis.
        groups: Number of channel groups.

    Returns:
        [N, M, O1, O2], channels last.
    """
    y: Tensor = torch.ops.mkldnn._convolution_pointwise(
        x, w, b, pads, strides, dilations, groups, "none", [], ""
    )
    return y


def volumes(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    groups: int,
) -> Tensor:
    """A convolution of volumes [N, C, D, H, W] in float32; arguments as in :func:`convolution`."""
    return torch.mkldnn_convolution(x, w, b, pads, strides, dilations, groups)


@dataclass(frozen=True, slots=True)
class Spread:
    """Geometry of a transposed convolution, by spatial axis.

    Attributes:
        strides: Elements between what two elements of the input spread to.
        pads: Elements cut off both ends.
        dilations: Elements between two of the kernel.
        extra: Elements added at the end.
    """

    strides: list[int]
    pads: list[int]
    dilations: list[int]
    extra: list[int]


def transposed(
    x: Tensor,
    w: Tensor,
    b: Tensor | None,
    over: Spread,
    groups: int,
) -> Tensor:
    """A transposed convolution of images that lie channels last.

    Args:
        x: [N, C, H, W] in float32.
        w: [C, M / groups, K1, K2].
        b: [M].
        over: Its geometry.
        groups: Number of channel groups.

    Returns:
        [N, M, O1, O2], channels last.
    """
    y: Tensor = torch.ops.mkldnn._convolution_transpose_pointwise(
        x, w, b, over.pads, over.extra, over.strides, over.dilations, groups, "none", [], ""
    )
    return y


def _wrapped(tensor: Tensor) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


@functools.cache
def _has_convolution() -> bool:
    """Whether this torch has the ops, with the arguments that they are given here."""
    try:
        forward = torch.ops.mkldnn._convolution_pointwise.default
        backward = torch.ops.mkldnn._convolution_transpose_pointwise.default
        return [len(op._schema.arguments) for op in (forward, backward)] == [10, 11]
    except (AttributeError, RuntimeError):
        return False
