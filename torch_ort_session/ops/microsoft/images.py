"""Crops, samples, transposed convolution and masked pooling of images: ops of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.windows import fold_windows, pad_spatial, per_axis, window_pads
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.images.conv import conv_transpose
from torch_ort_session.ops.onnx.images.grid import grid_sample_16


@kernel("GridSample", domain="com.microsoft", since=(1,))
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Tensor:
    """Samples of ``x`` at the grid's coordinates.

    Args:
        x: [N, C, H, W].
        grid: [N, H', W', 2] with coordinates in -1 to 1, x first.
        align_corners: Whether -1 and 1 are the centres of the outer samples rather than their outer edges.
        mode: ``bilinear``, ``nearest`` or ``bicubic``.
        padding_mode: ``zeros``, ``border`` or ``reflection``.

    Returns:
        [N, C, H', W'].

    Raises:
        ValueError: A mode is not known or the shapes do not fit together.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GridSample
    """
    return grid_sample_16(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


@kernel("ConvTransposeWithDynamicPads", domain="com.microsoft", since=(1,), host=("pads",))
def conv_transpose_with_dynamic_pads(
    x: Tensor,
    w: Tensor,
    pads: list[int] | None = None,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """ConvTranspose whose pads are an input.

    Args:
        x: [N, C, D1..Dn].
        w: [C, M / group, K1..Kn].
        pads: int64: begins, then ends; none when absent.
        b: [M].
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        dilations: Dilation by axis.
        group: Number of channel groups.
        kernel_shape: K1..Kn once more.
        output_padding: Elements added at the end of each axis.
        strides: Stride by axis.

    Raises:
        ValueError: An attribute does not fit the inputs.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    return conv_transpose(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        pads=pads,
        strides=strides,
    )


@kernel(
    "CropAndResize",
    domain="com.microsoft",
    since=(1,),
    host=("crop_size",),
    checks=True,
    native=("check_range",),
)
def crop_and_resize(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    crop_size: list[int],
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
    ctx: KernelContext,
) -> Tensor:
    """Boxes of images, sampled to one size from corner to corner.

    Args:
        x: Floats [N, C, H, W].
        rois: [boxes, 4]: y1, x1, y2, x2, where 0 and 1 are the centres of the first and the last sample.
        batch_indices: int32 [boxes].
        crop_size: Height and width of the result; an axis of 1 is sampled in the middle of the box.
        extrapolation_value: What lies outside of the image.
        mode: ``bilinear`` or ``nearest``, halves away from zero.
        ctx: Checks the batch indices.

    Returns:
        [boxes, C, height, width].

    Raises:
        ValueError: Another mode, or a size that is not positive.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.CropAndResize
    """
    if mode not in ("bilinear", "nearest"):
        raise ValueError(f"mode must be 'bilinear' or 'nearest', not {mode!r}.")
    if len(crop_size) != 2 or min(crop_size) <= 0:
        raise ValueError(f"crop_size holds a positive height and width, unlike {crop_size}.")
    batch, channels, height, width = x.shape
    boxes = rois.shape[0]
    index = check_places(batch_indices, batch, Flag.INDEX, ctx)
    if boxes == 0 or x.numel() == 0:
        return torch.full((boxes, channels, *crop_size), extrapolation_value, dtype=x.dtype, device=x.device)
    dtype = x.dtype
    if dtype in (torch.float16, torch.bfloat16):
        x, rois = x.to(torch.float32), rois.to(torch.float32)
    rows = _places(rois[:, 0], rois[:, 2], height, crop_size[0])[:, :, None].expand(-1, -1, crop_size[1])
    columns = _places(rois[:, 1], rois[:, 3], width, crop_size[1])[:, None, :].expand_as(rows)
    inside = (rows >= 0) & (rows <= height - 1) & (columns >= 0) & (columns <= width - 1)
    # Whole pixels are taken, channels side by side: no image is copied for each of its boxes.
    pixels = x.permute(0, 2, 3, 1).reshape(-1, channels)
    image = (index * (height * width))[:, None, None]

    def at(row: Tensor, column: Tensor) -> Tensor:
        place = row.clamp(0, height - 1).to(torch.int64) * width + column.clamp(0, width - 1).to(torch.int64)
        return pixels.index_select(0, (image + place).reshape(-1))

    if mode == "nearest":
        y = at((rows + 0.5).floor(), (columns + 0.5).floor())
    else:
        top, left = rows.floor(), columns.floor()
        down, along = ((t.reshape(-1, 1)).expand(-1, channels) for t in (rows - top, columns - left))
        upper = torch.lerp(at(top, left), at(top, left + 1), along)
        lower = torch.lerp(at(top + 1, left), at(top + 1, left + 1), along)
        y = torch.lerp(upper, lower, down)
    outside = torch.full((), extrapolation_value, dtype=y.dtype, device=y.device)
    y = torch.where(inside.reshape(-1, 1), y, outside).to(dtype)
    return y.reshape(boxes, *crop_size, channels).permute(0, 3, 1, 2)


def _places(first: Tensor, last: Tensor, size: int, count: int) -> Tensor:
    """Coordinates of the samples of one axis of each box: [boxes, count]."""
    if count == 1:
        return ((first + last) * (0.5 * (size - 1)))[:, None]
    step = (last - first) * (size - 1) / (count - 1)
    numbers = torch.arange(count, device=first.device, dtype=first.dtype)
    return (first * (size - 1))[:, None] + numbers * step[:, None]


@kernel("MaxpoolWithMask", domain="com.microsoft", since=(1,))
def max_pool_with_mask(
    x: Tensor,
    m: Tensor,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: list[int],
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> Tensor:
    """Maximum over sliding windows, each row of which ends at the first masked element.

    Args:
        x: float32 [N, C, D1..Dn].
        m: int32 [N', C', D1..Dn]: 0 masks an element, other than the first of a plane or volume. Its N' * C'
            parts are gone through in turn.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        kernel_shape: Window size by axis.
        pads: Begins, then ends.
        storage_order: Of indices, which this op has none of.
        strides: Stride by axis.

    Returns:
        [N, C, O1..On]; where a window holds nothing the lowest number of the dtype.

    Raises:
        ValueError: An attribute or the mask does not fit the input.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    batch, channels, *sizes = x.shape
    rank = len(sizes)
    if list(m.shape[2:]) != sizes or len(kernel_shape) != rank:
        raise ValueError(
            f"a mask {list(m.shape)} and kernel_shape {kernel_shape} do not fit an input {list(x.shape)}."
        )
    strides, ones = per_axis(strides, rank, "strides"), [1] * rank
    begin, end = window_pads(auto_pad, pads, sizes, kernel_shape, strides, ones)
    lowest = torch.finfo(x.dtype).min
    open_ = m.reshape(1, -1, *sizes) != 0
    if rank > 1:
        open_ = open_ | (torch.arange(math.prod(sizes), device=x.device).reshape(sizes) == 0)
    if open_.shape[1] != batch * channels:
        planes = torch.arange(batch * channels, device=x.device) % open_.shape[1]
        open_ = open_.index_select(1, planes)
    # Padding lies outside of every window, so that it ends no row.
    open_ = pad_spatial(open_.reshape(x.shape), begin, end, 1)
    rows = _open_rows(pad_spatial(x, begin, end, lowest), open_, kernel_shape[-1], strides[-1], lowest)
    if rank == 1:
        return rows
    return fold_windows(rows, [*kernel_shape[:-1], 1], [*strides[:-1], 1], ones, torch.maximum)


def _open_rows(x: Tensor, open_: Tensor, width: int, stride: int, lowest: float) -> Tensor:
    """Maxima of windows along the last axis, each of which ends at the first element that is not open."""
    count = max((x.shape[-1] - width) // stride + 1, 0)
    best, alive = None, None
    for shift in range(width):
        part = slice(shift, shift + max((count - 1) * stride + 1, 0), stride)
        alive = open_[..., part] if alive is None else alive & open_[..., part]
        reached = torch.where(alive, x[..., part], lowest)
        best = reached if best is None else torch.maximum(best, reached)
    assert best is not None
    return best
