"""Exact products of integers, also where a device only multiplies floats."""

from __future__ import annotations

import torch
from torch import Tensor

_LIMB = 16
_MASK = (1 << _LIMB) - 1
# A float64 holds 2**53; products of two limbs are below 2**32, so this many may be added before rounding.
_LIMB_DEPTH = 1 << 21


def wrapping_matmul(a: Tensor, b: Tensor) -> Tensor:
    """``torch.matmul`` of integer tensors that wraps around, for every integer type and device.

    Args:
        a: Integer tensor [..., M, K] or [K].
        b: Integer tensor [..., K, N] or [K], of the same dtype.

    Returns:
        The product in the dtype of ``a``.
    """
    dtype = a.dtype
    if dtype is torch.uint64:
        return wrapping_matmul(a.view(torch.int64), b.view(torch.int64)).view(dtype)
    if dtype is torch.uint32:
        a, b = a.to(torch.int64), b.to(torch.int64)
    if a.device.type == "cpu":
        return torch.matmul(a, b).to(dtype)
    return _limb_matmul(a.to(torch.int64), b.to(torch.int64), 8 * dtype.itemsize).to(dtype)


def _limb_matmul(a: Tensor, b: Tensor, bits: int) -> Tensor:
    """The product modulo ``2**bits`` out of float64 products of 16-bit limbs, which are exact."""
    if a.shape[-1] > _LIMB_DEPTH:
        raise ValueError(f"An integer product over {a.shape[-1]} terms is not supported on {a.device}.")
    count = bits // _LIMB
    parts_a = [(a.bitwise_right_shift(_LIMB * i) & _MASK).to(torch.float64) for i in range(count)]
    parts_b = [(b.bitwise_right_shift(_LIMB * i) & _MASK).to(torch.float64) for i in range(count)]
    total: Tensor | None = None
    for i in range(count):
        for j in range(count - i):
            part = torch.matmul(parts_a[i], parts_b[j]).to(torch.int64) << (_LIMB * (i + j))
            total = part if total is None else total + part
    assert total is not None
    return total
