"""Add, Sub, Mul, Div, Pow and Mod with today's broadcast.

Sources: https://onnx.ai/onnx/operators/onnx__Add.html, onnx__Sub, onnx__Mul, onnx__Div, onnx__Pow, onnx__Mod
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_divisor, divides_integers
from torch_ort_session.ops.common.widen import (
    UNSIGNED,
    divide_truncating,
    remainder_unsigned,
    to_wide,
    with_bits,
)
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.signature import Scalar


@kernel("Add", since=(7, 13, 14))
def add(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise ``a + b`` of one dtype, broadcast; integers wrap."""
    if a.dtype in UNSIGNED:
        return with_bits(torch.add, a, b)
    return torch.add(a, b)


@kernel("Sub", since=(7, 13, 14))
def sub(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise ``a - b`` of one dtype, broadcast; integers wrap."""
    if a.dtype in UNSIGNED:
        return with_bits(torch.sub, a, b)
    return torch.sub(a, b)


@kernel("Mul", since=(7, 13, 14))
def mul(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise ``a * b`` of one dtype, broadcast; integers wrap."""
    if a.dtype in UNSIGNED:
        return with_bits(torch.mul, a, b)
    return torch.mul(a, b)


@kernel("Div", since=(7, 13, 14), checks=divides_integers, native=("check_range",))
def div(a: Tensor, b: Tensor, *, ctx: KernelContext) -> Tensor:
    """Elementwise ``a / b`` of one dtype, broadcast; integer division rounds towards zero.

    Args:
        a: Dividend.
        b: Divisor.
        ctx: Where an integer divisor that is zero is reported.

    Raises:
        RuntimeError: An integer divisor is zero (CPU, where nobody asks).
    """
    if a.dtype.is_floating_point:
        return torch.div(a, b)
    return divide_truncating(a, check_divisor(a, b, ctx))


@kernel("Pow", since=(7, 12, 13, 15), host=("y",))
def pow_(x: Tensor, y: Scalar | Tensor) -> Tensor:
    """Elementwise ``x ** y`` in the dtype of ``x``, broadcast.

    Integer powers of integers are exact modulo the width of ``x``; a float power of an integer is computed
    in float64 and rounded towards zero. A constant exponent comes as a number: torch squares and takes roots
    by far faster than it raises to a tensor.
    """
    if not isinstance(y, Tensor):
        if x.dtype.is_floating_point:
            return torch.pow(x, y)
        y = torch.tensor(y, dtype=torch.float64 if isinstance(y, float) else torch.int64, device=x.device)
    if x.dtype is y.dtype:
        return torch.pow(x, y)
    if x.dtype.is_floating_point:
        if y.dtype.is_floating_point and y.dtype.itemsize > x.dtype.itemsize:
            return torch.pow(x.to(y.dtype), y).to(x.dtype)
        return torch.pow(x, y.to(x.dtype))
    if y.dtype.is_floating_point:
        return torch.pow(x.to(torch.float64), y.to(torch.float64)).to(x.dtype)
    if y.dtype is torch.uint64:
        # An exponent of 2**63 or more is negative as int64; a half of it is not.
        bits = y.view(torch.int64)
        half = torch.pow(x, (bits >> 1) & torch.iinfo(torch.int64).max)
        return (half * half * torch.pow(x, bits & 1)).to(x.dtype)
    return torch.pow(x.to(torch.int64), to_wide(y)).to(x.dtype)


@kernel("Mod", since=(10, 13, 28), checks=divides_integers, native=("check_range",))
def mod(a: Tensor, b: Tensor, *, fmod: int = 0, ctx: KernelContext) -> Tensor:
    """Elementwise remainder of one dtype, broadcast.

    Args:
        a: Dividend.
        b: Divisor.
        fmod: 0 gives the sign of the divisor (a zero too), 1 that of the dividend.
        ctx: Where an integer divisor that is zero is reported.

    Raises:
        RuntimeError: An integer divisor is zero (CPU, where nobody asks).
    """
    if not a.dtype.is_floating_point:
        b = check_divisor(a, b, ctx)
    if a.dtype in UNSIGNED:
        return remainder_unsigned(a, b)
    if fmod:
        return torch.fmod(a, b)
    if a.dtype.is_floating_point:
        rest = torch.remainder(a, b)
        return torch.where(rest == 0, torch.copysign(rest, b), rest)
    return torch.remainder(a, b)
