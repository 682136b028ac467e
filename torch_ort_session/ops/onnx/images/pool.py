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
    closing_pads,
    fold_windows,
    pad_spatial,
    per_axis,
    window_counts,
    window_pads,
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
    rank = _check_rank(x, kernel_shape)
    sizes = x.shape[2:]
    strides = per_axis(strides, rank, "strides")
    dilations = per_axis(dilations, rank, "dilations")
    begin, end = window_pads(auto_pad, pads, sizes, kernel_shape, strides, dilations)
    # torch on the CPU has no avg_pool3d of halves.
    lacking = rank == 3 and x.dtype.itemsize == 2
    fits = begin == end and max(dilations) == 1 and rank in _POOLS and _half(begin, kernel_shape)
    folds = x.device.type == "cpu" and x.numel() >= FOLD_FROM and not is_channels_last(x)
    if fits and not lacking and not folds:
        return _POOLS[rank](x, kernel_shape, strides, begin, bool(ceil_mode), bool(count_include_pad))
    # Sums of shifted slices round at each step.
    wide = x.to(torch.float32) if x.dtype.itemsize == 2 else x
    y = _average_folded(wide, kernel_shape, strides, dilations, begin, end, ceil_mode, count_include_pad)
    return y.to(x.dtype)


def _average_folded(
    x: Tensor,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    begin: list[int],
    end: list[int],
    ceil_mode: int,
    count_include_pad: int,
) -> Tensor:
    rank = len(kernel)
    sizes = x.shape[2:]
    counts = window_counts(sizes, kernel, strides, dilations, begin, ceil_mode, end)
    closing = closing_pads(sizes, kernel, strides, dilations, begin, counts)
    total = fold_windows(pad_spatial(x, begin, closing), kernel, strides, dilations, torch.add)
    taps = 1
    for axis, (size, width) in enumerate(zip(sizes, kernel, strict=True)):
        low, high = (-begin[axis], size + end[axis]) if count_include_pad else (0, size)
        if -begin[axis] >= low and size + closing[axis] <= high:
            taps *= width
            continue
        places = torch.arange(counts[axis], device=x.device).unsqueeze(1) * strides[axis] - begin[axis]
        places = places + torch.arange(width, device=x.device) * dilations[axis]
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
    return _lp_pool(x, auto_pad, ceil_mode, dilations, kernel_shape, p, pads, strides)


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
    return _lp_pool(x, auto_pad, 0, None, kernel_shape, p, pads, strides)


@kernel("GlobalAveragePool", since=(1, 22))
def global_average_pool(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Mean over all spatial axes of ``x`` [N, C, D1..Dn], which are kept with size 1.

    Source: https://onnx.ai/onnx/operators/onnx__GlobalAveragePool.html
    """
    dims = tuple(range(2, x.dim()))
    if not dims:
        return x.clone() if out is None else out.copy_(x)
    return torch.mean(x, dims, keepdim=True, out=out)


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


def _lp_pool(
    x: Tensor,
    auto_pad: str,
    ceil_mode: int,
    dilations: list[int] | None,
    kernel_shape: list[int],
    p: float,
    pads: list[int] | None,
    strides: list[int] | None,
) -> Tensor:
    rank = _check_rank(x, kernel_shape)
    sizes = x.shape[2:]
    strides = per_axis(strides, rank, "strides")
    dilations = per_axis(dilations, rank, "dilations")
    begin, end = window_pads(auto_pad, pads, sizes, kernel_shape, strides, dilations)
    counts = window_counts(sizes, kernel_shape, strides, dilations, begin, ceil_mode, end)
    closing = closing_pads(sizes, kernel_shape, strides, dilations, begin, counts)
    taps = windows(pad_spatial(x, begin, closing), kernel_shape, strides, dilations)
    norm: Tensor = torch.linalg.vector_norm(taps, p, dim=tuple(range(-rank, 0)))
    return norm


def _check_rank(x: Tensor, kernel_shape: list[int]) -> int:
    if x.dim() - 2 != len(kernel_shape):
        raise ValueError(f"kernel_shape {kernel_shape} does not fit an input of rank {x.dim()}.")
    return len(kernel_shape)


def _half(pads: Sequence[int], kernel: Sequence[int]) -> bool:
    """Whether the pads are within what torch's pooling takes: half of the window."""
    return all(2 * pad <= width for pad, width in zip(pads, kernel, strict=True))
