"""Deformable convolution: DeformConv.

Source: https://onnx.ai/onnx/operators/onnx__DeformConv.html
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from torch_ort_session.ops.common.windows import per_axis, window_pads
from torch_ort_session.ops.kernel import kernel


@kernel("DeformConv", since=(19, 22))
def deform_conv(
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Convolution whose sampling points are moved by learned offsets, sampled linearly, zero outside.

    Args:
        x: [N, C, D1..Dn].
        w: [M, C / group, K1..Kn].
        offset: [N, offset_group * K1 * .. * Kn * n, O1..On], in elements of ``x``.
        b: [M].
        mask: [N, offset_group * K1 * .. * Kn, O1..On], a factor of every sample.
        dilations: Dilation by axis.
        group: Number of channel groups.
        kernel_shape: K1..Kn once more.
        offset_group: Number of channel groups that share offsets.
        pads: Begins, then ends.
        strides: Stride by axis.

    Raises:
        ValueError: Shapes and attributes do not fit each other.

    Source: https://onnx.ai/onnx/operators/onnx__DeformConv.html
    """
    widths = tuple(w.shape[2:])
    rank = len(widths)
    taps = math.prod(widths)
    if kernel_shape is not None and tuple(kernel_shape) != widths:
        raise ValueError(f"kernel_shape is {kernel_shape}, but the weight's spatial shape is {list(widths)}.")
    strides = per_axis(strides, rank, "strides")
    dilations = per_axis(dilations, rank, "dilations")
    begin, end = window_pads("NOTSET", pads, x.shape[2:], widths, strides, dilations)
    sizes = tuple(x.shape[2:])
    outs = tuple(
        (sizes[d] + begin[d] + end[d] - (widths[d] - 1) * dilations[d] - 1) // strides[d] + 1
        for d in range(rank)
    )
    wanted = [x.shape[0], offset_group * taps * rank, *outs]
    if list(offset.shape) != wanted:
        raise ValueError(f"offset must have the shape {wanted}, but it is {list(offset.shape)}.")
    batch, channels = x.shape[0], x.shape[1]
    moved = offset.reshape(batch, offset_group, taps, rank, *outs)
    positions = [
        moved[:, :, :, d] + _grid(d, widths, outs, strides[d], dilations[d], begin[d], x) for d in range(rank)
    ]
    sampled = _sample(x.reshape(batch, offset_group, channels // offset_group, -1), sizes, positions)
    if mask is not None:
        sampled = sampled * mask.reshape(batch, offset_group, 1, taps, *outs)
    columns = sampled.reshape(batch, group, channels // group * taps, math.prod(outs))
    y = torch.matmul(w.reshape(group, w.shape[0] // group, -1), columns)
    y = y.reshape(batch, w.shape[0], *outs)
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def _grid(
    axis: int,
    widths: tuple[int, ...],
    outs: tuple[int, ...],
    stride: int,
    dilation: int,
    begin: int,
    x: Tensor,
) -> Tensor:
    """Where the undeformed taps lie on one axis: [K1 * .. * Kn, O1..On], broadcastable."""
    rank = len(widths)
    tap = torch.arange(widths[axis], device=x.device) * dilation
    tap = tap.reshape([widths[axis] if d == axis else 1 for d in range(rank)]).expand(widths)
    start = torch.arange(outs[axis], device=x.device) * stride - begin
    start = start.reshape([outs[axis] if d == axis else 1 for d in range(rank)])
    return tap.reshape(-1, *[1] * rank) + start


def _sample(x: Tensor, sizes: tuple[int, ...], positions: list[Tensor]) -> Tensor:
    """Multilinear samples of ``x`` [N, G, C, D1 * .. * Dn] at positions [N, G, K, O..]: [N, G, C, K, O..]."""
    floors = [position.floor() for position in positions]
    fractions = [position - low for position, low in zip(positions, floors, strict=True)]
    total: Tensor | None = None
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        index: Tensor | None = None
        weight: Tensor | None = None
        for bit, size, low, fraction in zip(corner, sizes, floors, fractions, strict=True):
            at = low + bit
            part = (fraction if bit else 1 - fraction) * ((at >= 0) & (at < size))
            weight = part if weight is None else weight * part
            at = at.clamp(0, size - 1).to(torch.int64)
            index = at if index is None else index * size + at
        assert index is not None
        assert weight is not None
        shape = (*x.shape[:3], *index.shape[2:])
        flat = index.reshape(*index.shape[:2], 1, -1).expand(-1, -1, x.shape[2], -1)
        part = torch.gather(x, 3, flat).reshape(shape) * weight.unsqueeze(2)
        total = part if total is None else total + part
    assert total is not None
    return total
