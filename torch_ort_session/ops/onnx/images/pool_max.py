"""Maximum pooling and its inverse: MaxPool, GlobalMaxPool, MaxUnpool.

Sources: https://onnx.ai/onnx/operators/onnx__MaxPool.html, https://onnx.ai/onnx/operators/onnx__MaxUnpool.html
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.windows import (
    FOLD_FROM,
    Geometry,
    closing_pads,
    fold_windows,
    geometry,
    pad_spatial,
    per_axis,
    window_counts,
    window_pads,
)
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.images.layout import is_channels_last

_POOLS = {1: torch.max_pool1d, 2: torch.max_pool2d, 3: torch.max_pool3d}
# Largest window that is folded axis by axis.
_FOLDED = 32


@kernel("MaxPool", since=(1,))
def max_pool_1(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Maximum over sliding windows: the revision without indices.

    Source: https://onnx.ai/onnx/operators/onnx__MaxPool.html
    """
    over = _geometry(x, kernel_shape, strides=strides, dilations=None, pads=pads, auto_pad=auto_pad)
    return _max_pool(x, over, 0, 0, False)[0]


@kernel("MaxPool", since=(8, 10, 11, 12, 22))
def max_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Maximum over sliding windows, with the flat index of each where it is asked for.

    Args:
        x: [N, C, D1..Dn] with one to three spatial axes; floats, int8 or uint8.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        ceil_mode: Whether the last window may hang over the end.
        dilations: Dilation by axis.
        kernel_shape: Window size by axis.
        pads: Begins, then ends.
        storage_order: 0: indices count row by row; 1: column by column.
        strides: Stride by axis.

    Returns:
        The maxima [N, C, O1..On], and their int64 indices into the whole of ``x``.

    Raises:
        ValueError: An attribute does not fit the input's spatial axes.

    Source: https://onnx.ai/onnx/operators/onnx__MaxPool.html
    """
    over = _geometry(x, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    return _max_pool(x, over, ceil_mode, storage_order, ctx.wants(1))


@kernel("GlobalMaxPool", since=(1, 22))
def global_max_pool(x: Tensor) -> Tensor:
    """Maximum over all spatial axes of ``x`` [N, C, D1..Dn], which are kept with size 1.

    Source: https://onnx.ai/onnx/operators/onnx__GlobalMaxPool.html
    """
    dims = tuple(range(2, x.dim()))
    if not dims:
        return x.clone()
    return torch.amax(x, dims, keepdim=True)


@kernel("MaxUnpool", since=(9, 11, 22), host=("output_shape",), checks=True, native=("check_range",))
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: list[int] | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    ctx: KernelContext,
) -> Tensor:
    """Values put back where MaxPool found them, zeros elsewhere.

    Args:
        x: [N, C, D1..Dn].
        indices: int64, same shape: flat indices into the result that the attributes describe.
        output_shape: Shape of the result; what the attributes describe lies at its begin.
        kernel_shape: Window size by axis.
        pads: Begins, then ends.
        strides: Stride by axis.

    Raises:
        ValueError: ``output_shape`` is smaller than what the attributes describe.

    Source: https://onnx.ai/onnx/operators/onnx__MaxUnpool.html
    """
    rank = len(kernel_shape)
    strides = per_axis(strides, rank, "strides")
    begin, end = window_pads("NOTSET", pads, x.shape[2:], kernel_shape, strides, strides)
    sizes = [
        (size - 1) * stride + width - before - after
        for size, stride, width, before, after in zip(
            x.shape[2:], strides, kernel_shape, begin, end, strict=True
        )
    ]
    shape = [*x.shape[:2], *sizes]
    total = math.prod(shape)
    flat = check_places(indices.reshape(-1), total, Flag.INDEX, ctx)
    y = torch.zeros(total, dtype=x.dtype, device=x.device).scatter(0, flat, x.reshape(-1)).reshape(shape)
    if output_shape is None or output_shape == shape:
        return y
    grow = [wanted - size for wanted, size in zip(output_shape, shape, strict=True)]
    if min(grow) < 0:
        raise ValueError(f"output_shape {output_shape} is smaller than the unpooled shape {shape}.")
    return pad_spatial(y, [0] * len(grow), grow)


def _geometry(
    x: Tensor,
    kernel_shape: list[int],
    *,
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
    auto_pad: str,
) -> Geometry:
    rank, sizes = len(kernel_shape), x.shape[2:]
    if len(sizes) != rank or rank not in _POOLS:
        raise ValueError(
            f"kernel_shape {kernel_shape} does not fit an input with {len(sizes)} spatial axes; "
            "one to three are supported."
        )
    return geometry(sizes, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)


def _max_pool(
    x: Tensor, over: Geometry, ceil_mode: int, storage_order: int, indexed: bool
) -> tuple[Tensor, Tensor | None]:
    whole = not x.is_floating_point()
    sizes = x.shape[2:]
    kernel, strides, dilations, begin = over.kernel, over.strides, over.dilations, over.begin
    halves = [((k - 1) * d + 1) // 2 for k, d in zip(kernel, dilations, strict=True)]
    shift = [0] * len(kernel)
    # Of equal elements torch's pooling passes the gradient to the first, a maximum shares it.
    folds = x.numel() >= FOLD_FROM and x.device.type == "cpu" and not indexed and not x.requires_grad
    folds = folds and max(kernel) <= _FOLDED and (whole or not is_channels_last(x))
    if whole and not folds:
        # With the channels last torch pools no bytes of more than 127 (255) elements a channel.
        x = x.contiguous()
    if folds or begin != over.end or any(pad > half for pad, half in zip(begin, halves, strict=True)):
        closing = closing_pads(sizes, over, window_counts(sizes, over, ceil_mode))
        lowest = -math.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
        x = pad_spatial(x, begin, closing, lowest)
        if folds:
            return fold_windows(x, kernel, strides, dilations, torch.maximum), None
        shift, over, ceil_mode = begin, replace(over, begin=[0] * len(kernel)), 0
    if not indexed:
        return _values(x, over, bool(ceil_mode)), None
    values, places = _values_and_places(x, over, bool(ceil_mode))
    return values, _flat_index(places, x.shape[2:], sizes, shift, storage_order)


def _values(x: Tensor, over: Geometry, ceil: bool) -> Tensor:
    if x.is_floating_point():
        pool = _POOLS[len(over.kernel)]
        return pool(x, over.kernel, over.strides, over.begin, over.dilations, ceil)
    return _values_and_places(x, over, ceil)[0]


def _values_and_places(x: Tensor, over: Geometry, ceil: bool) -> tuple[Tensor, Tensor]:
    """Maxima, and their flat indices within each channel."""
    dtype = x.dtype
    kernel, strides, pads, dilations = over.kernel, over.strides, over.begin, over.dilations
    if not x.is_floating_point() and x.device.type != "cpu":
        x = x.to(torch.float32)
    if len(kernel) == 1:
        values, places = F.max_pool2d_with_indices(
            x.unsqueeze(2), [1, *kernel], [1, *strides], [0, *pads], [1, *dilations], ceil
        )
        return values.squeeze(2).to(dtype), places.squeeze(2)
    pool = F.max_pool2d_with_indices if len(kernel) == 2 else F.max_pool3d_with_indices
    values, places = pool(x, kernel, strides, pads, dilations, ceil)
    return values.to(dtype), places


def _flat_index(
    places: Tensor, padded: torch.Size, sizes: torch.Size, shift: list[int], storage_order: int
) -> Tensor:
    """Indices within a padded channel as indices into the whole unpadded tensor, in the order asked for."""
    planes = torch.arange(places.shape[0] * places.shape[1], device=places.device) * math.prod(sizes)
    planes = planes.reshape(places.shape[0], places.shape[1], *[1] * len(sizes))
    if storage_order == 0 and padded == sizes:
        return places + planes
    coordinates = []
    for size, begin in zip(reversed(padded), reversed(shift), strict=True):
        coordinates.append(places % size - begin)
        places = places // size
    total, step = planes, 1
    for axis in range(len(sizes)) if storage_order else reversed(range(len(sizes))):
        total = total + coordinates[len(sizes) - 1 - axis] * step
        step *= sizes[axis]
    return total
