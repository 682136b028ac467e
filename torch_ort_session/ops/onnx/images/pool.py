"""Pooling by means and norms: AveragePool, LpPool, GlobalAveragePool, GlobalLpPool.

Sources: https://onnx.ai/onnx/operators/onnx__AveragePool.html, https://onnx.ai/onnx/operators/onnx__LpPool.html
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.windows import (
    FOLD_FROM,
    Geometry,
    closing_pads,
    fold_windows,
    geometry,
    pad_spatial,
    window_counts,
    windows,
)
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx.images.layout import is_channels_last

_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@kernel("AveragePool", since=(1, 7, 10, 11, 19, 22))
def average_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Mean over sliding windows.

    Args:
        x: [N, C, D1..Dn].
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        ceil_mode: Whether the last window may hang over the end.
        count_include_pad: Whether pads count as zeros; what hangs over never counts.
        dilations: Dilation by axis.
        kernel_shape: Window size by axis.
        pads: Begins, then ends.
        strides: Stride by axis.

    Raises:
        ValueError: An attribute does not fit the input's spatial axes.

    Source: https://onnx.ai/onnx/operators/onnx__AveragePool.html
    """
    over = _geometry(x, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    rank, begin = len(kernel_shape), over.begin
    # torch on the CPU has no avg_pool3d of halves.
    lacking = rank == 3 and x.dtype.itemsize == 2
    fits = begin == over.end and max(over.dilations) == 1 and rank in _POOLS and _half(begin, kernel_shape)
    folds = x.device.type == "cpu" and x.numel() >= FOLD_FROM and not is_channels_last(x)
    if fits and not lacking and not folds:
        return _POOLS[rank](x, kernel_shape, over.strides, begin, bool(ceil_mode), bool(count_include_pad))
    # Sums of shifted slices round at each step.
    wide = x.to(torch.float32) if x.dtype.itemsize == 2 else x
    y = _average_folded(wide, over, ceil_mode, count_include_pad)
    return y.to(x.dtype)


def _average_folded(x: Tensor, over: Geometry, ceil_mode: int, count_include_pad: int) -> Tensor:
    begin, end = over.begin, over.end
    rank = len(over.kernel)
    sizes = x.shape[2:]
    counts = window_counts(sizes, over, ceil_mode)
    closing = closing_pads(sizes, over, counts)
    total = fold_windows(pad_spatial(x, begin, closing), over.kernel, over.strides, over.dilations, torch.add)
    taps = 1
    for axis, (size, width) in enumerate(zip(sizes, over.kernel, strict=True)):
        low, high = (-begin[axis], size + end[axis]) if count_include_pad else (0, size)
        if -begin[axis] >= low and size + closing[axis] <= high:
            taps *= width
            continue
        places = torch.arange(counts[axis], device=x.device).unsqueeze(1) * over.strides[axis] - begin[axis]
        places = places + torch.arange(width, device=x.device) * over.dilations[axis]
        valid = ((places >= low) & (places < high)).sum(1)
        total = total / valid.reshape([-1 if d == axis else 1 for d in range(rank)])
    return total / taps


@kernel("LpPool", since=(2, 11, 18, 22))
def lp_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """p-norm over sliding windows; pads count as zeros.

    Args:
        x: [N, C, D1..Dn].
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        ceil_mode: Whether the last window may hang over the end.
        dilations: Dilation by axis.
        kernel_shape: Window size by axis.
        p: Exponent of the norm.
        pads: Begins, then ends.
        strides: Stride by axis.

    Raises:
        ValueError: An attribute does not fit the input's spatial axes.

    Source: https://onnx.ai/onnx/operators/onnx__LpPool.html
    """
    over = _geometry(x, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    return _lp_pool(x, over, ceil_mode, p)


@kernel("LpPool", since=(1,))
def lp_pool_1(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: list[int] | None = None,
    p: float = 2.0,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """p-norm over sliding windows: the revision with a fractional ``p``; without a kernel over everything.

    Source: https://onnx.ai/onnx/operators/onnx__LpPool.html
    """
    kernel_shape = list(x.shape[2:]) if kernel_shape is None else kernel_shape
    over = _geometry(x, kernel_shape, strides=strides, dilations=None, pads=pads, auto_pad=auto_pad)
    return _lp_pool(x, over, 0, p)


@kernel("GlobalAveragePool", since=(1, 22))
def global_average_pool(x: Tensor) -> Tensor:
    """Mean over all spatial axes of ``x`` [N, C, D1..Dn], which are kept with size 1.

    Source: https://onnx.ai/onnx/operators/onnx__GlobalAveragePool.html
    """
    dims = tuple(range(2, x.dim()))
    if not dims:
        return x.clone()
    return torch.mean(x, dims, keepdim=True)


@kernel("GlobalLpPool", since=(1, 2, 22))
def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    """p-norm over all spatial axes of ``x`` [N, C, D1..Dn], which are kept with size 1.

    Source: https://onnx.ai/onnx/operators/onnx__GlobalLpPool.html
    """
    dims = tuple(range(2, x.dim()))
    if not dims:
        return x.abs()
    norm: Tensor = torch.linalg.vector_norm(x, p, dim=dims, keepdim=True)
    return norm


def _lp_pool(x: Tensor, over: Geometry, ceil_mode: int, p: float) -> Tensor:
    sizes = x.shape[2:]
    closing = closing_pads(sizes, over, window_counts(sizes, over, ceil_mode))
    taps = windows(pad_spatial(x, over.begin, closing), over.kernel, over.strides, over.dilations)
    norm: Tensor = torch.linalg.vector_norm(taps, p, dim=tuple(range(-len(over.kernel), 0)))
    return norm


def _geometry(
    x: Tensor,
    kernel_shape: list[int],
    *,
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
    auto_pad: str,
) -> Geometry:
    if x.dim() - 2 != len(kernel_shape):
        raise ValueError(f"kernel_shape {kernel_shape} does not fit an input of rank {x.dim()}.")
    return geometry(
        x.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )


def _half(pads: Sequence[int], kernel: Sequence[int]) -> bool:
    """Whether the pads are within what torch's pooling takes: half of the window."""
    return all(2 * pad <= width for pad, width in zip(pads, kernel, strict=True))
