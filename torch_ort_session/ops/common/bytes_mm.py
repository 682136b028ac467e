"""Exact products and convolutions of int8 and uint8 tensors with zero points, summed in int32.

On a CPU with instructions for it the sums run in integers: measured against float32 on one core, a product
[128, 768] @ [768, 768] takes 0.2 ms instead of 1.1, a convolution from 64 to 64 channels, 3x3, over 56x56
2.2 ms instead of 5.4.
Elsewhere they run in floats wide enough to hold every partial sum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ort_session.ops.common.windows import Geometry, pad_spatial, windows

# Differences of two bytes lie within 255; this many products of them stay exact in a float32.
_FLOAT32_TERMS = (1 << 24) // (255 * 255)

# Products of so few numbers are faster in floats: a product of bytes costs 20 microseconds at least.
_SMALL = 1 << 15

_Zero = Tensor | int | None


@functools.cache
def _sums_exactly() -> bool:
    """Whether torch's product of int8 matrices on this CPU sums in int32 all along.

    Without such instructions pairs of products are added in int16, which can saturate.
    """
    supported = getattr(torch.cpu, "_is_vnni_supported", None)
    return supported is not None and bool(supported())


def byte_matmul(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """``(a - a_zero) @ (b - b_zero)`` in int32.

    Args:
        a: int8 or uint8 [..., M, K] or [K].
        b: int8 or uint8 [..., K, N] or [K].
        a_zero: Scalar, [M] by row, or broadcastable to ``a``.
        b_zero: Scalar, [N] by column, or broadcastable to ``b``.
    """
    if a_zero is not None and a_zero.dim() == 1 and a_zero.shape[0] > 1:
        a_zero = a_zero.unsqueeze(-1)
    flat = b.dim() == 2 and (a.dim() == 2 or (a.dim() > 2 and (a_zero is None or a_zero.numel() == 1)))
    flat = flat and a.device.type == "cpu" and (b_zero is None or b_zero.dim() < 2)
    if flat and a.numel() * b.shape[-1] > _SMALL and _sums_exactly():
        product = _product(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), b, a_zero, b_zero)
        return product.reshape(*a.shape[:-1], b.shape[1])
    wide = _wide(a.shape[-1], a.device)
    return torch.matmul(_shifted(a, a_zero, wide), _shifted(b, b_zero, wide)).to(torch.int32)


def byte_conv(
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None,
    w_zero: Tensor | None,
    over: Geometry,
    group: int,
) -> Tensor:
    """Convolution of ``x - x_zero`` with ``w - w_zero`` in int32; pads are worth zero.

    Args:
        x: int8 or uint8 [N, C, D1..Dn].
        w: int8 or uint8 [M, C / group, K1..Kn].
        x_zero: Scalar.
        w_zero: Scalar or [M].
        over: The windows.
        group: Number of channel groups.
    """
    rank = w.dim() - 2
    if group == 1 and x.device.type == "cpu" and _sums_exactly():
        return _unrolled(x, w, x_zero, w_zero, over)
    if w_zero is not None:
        w_zero = w_zero.reshape(-1, *[1] * (rank + 1))
    wide = _wide(math.prod(w.shape[1:]), x.device, fast_conv=True)
    image, pads = _shifted(x, x_zero, wide), over.begin
    if pads != over.end:
        image, pads = pad_spatial(image, over.begin, over.end), [0] * rank
    kernel = _shifted(w, w_zero, wide)
    y = torch.convolution(image, kernel, None, over.strides, pads, over.dilations, False, [0] * rank, group)
    # Fast convolution algorithms on a device are only nearly exact.
    return (y if x.is_cpu else torch.round(y)).to(torch.int32)


def _unrolled(x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None, over: Geometry) -> Tensor:
    """The convolution as a product of the kernel with all windows side by side."""
    rank = w.dim() - 2
    signed, zero = _signed(x, x_zero)
    if any(over.begin) or any(over.end):
        signed = _pad_with(signed, zero, over.begin, over.end)
    taps = windows(signed, w.shape[2:], over.strides, over.dilations)
    sizes = taps.shape[2 : 2 + rank]
    order = (1, *range(2 + rank, 2 + 2 * rank), 0, *range(2, 2 + rank))
    columns = taps.permute(order).reshape(math.prod(w.shape[1:]), -1)
    kernel, kernel_zero = _signed(w.reshape(w.shape[0], -1), w_zero)
    if isinstance(kernel_zero, Tensor):
        kernel_zero = kernel_zero.reshape(-1, 1)
    y = _corrected(kernel, columns, kernel_zero, zero)
    return y.reshape(w.shape[0], x.shape[0], *sizes).transpose(0, 1)


def _pad_with(x: Tensor, zero: _Zero, begin: Sequence[int], end: Sequence[int]) -> Tensor:
    """Spatial padding by a value that only the device may know."""
    if not isinstance(zero, Tensor):
        return pad_spatial(x, begin, end, zero or 0)
    sizes = [size + before + after for size, before, after in zip(x.shape[2:], begin, end, strict=True)]
    padded = zero.to(torch.int8).reshape([1] * x.dim()).repeat(*x.shape[:2], *sizes)
    inner = padded
    for axis, (before, size) in enumerate(zip(begin, x.shape[2:], strict=True), start=2):
        inner = inner.narrow(axis, before, size)
    inner.copy_(x)
    return padded


def _product(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    left, left_zero = _signed(a, a_zero)
    right, right_zero = _signed(b, b_zero)
    return _corrected(left, right, left_zero, right_zero)


def _corrected(a: Tensor, b: Tensor, a_zero: _Zero, b_zero: _Zero) -> Tensor:
    """``(a - a_zero) @ (b - b_zero)`` of int8 matrices, the zero points taken out of the plain product.

    ``a_zero`` is broadcastable to [M, 1] and ``b_zero`` to [1, N]; both int32.
    """
    rows, terms = a.shape
    if a_zero is None:
        y = _plain_product(a, b)
    else:
        # One more row of ones gives the sums of b's columns on the way.
        full = _plain_product(torch.cat((a, a.new_ones(1, terms))), b)
        y, sums = full[:rows], full[rows:]
        if b_zero is not None:
            sums = sums - b_zero * terms
        y = y.sub_(sums * a_zero)
    if b_zero is not None:
        y = y.sub_(_plain_product(a, a.new_ones(terms, 1)) * b_zero)
    return y


def _plain_product(a: Tensor, b: Tensor) -> Tensor:
    return torch._int_mm(_laid_out(a), _laid_out(b))


def _laid_out(x: Tensor) -> Tensor:
    """``x``, copied where its strides overlap, as those of windows do: torch would return garbage."""
    (rows, columns), (down, across) = x.shape, x.stride()
    plain = down >= columns if across == 1 else (down == 1 and across >= rows)
    return x if plain else x.clone(memory_format=torch.contiguous_format)


def _signed(x: Tensor, zero: Tensor | None) -> tuple[Tensor, _Zero]:
    """``x`` as int8, and its zero point moved along, in int32."""
    if x.dtype is torch.int8:
        return x, None if zero is None else zero.to(torch.int32)
    return (x ^ 128).view(torch.int8), -128 if zero is None else zero.to(torch.int32) - 128


def _shifted(x: Tensor, zero: Tensor | None, wide: torch.dtype) -> Tensor:
    return x.to(wide) if zero is None else x.to(wide) - zero.to(wide)


def _wide(terms: int, device: torch.device, fast_conv: bool = False) -> torch.dtype:
    """The narrowest float that sums so many products of byte differences exactly."""
    if terms > _FLOAT32_TERMS or (fast_conv and device.type != "cpu"):
        return torch.float64
    return torch.float32
