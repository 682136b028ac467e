"""Element types that torch stores but hardly computes with: uint16, uint32, uint64 and the 8-bit floats.

Two views of the same bits carry most of the work without a copy: ``same_bits`` for arithmetic that wraps and
for moving elements, ``ordered`` for everything that compares. What neither serves goes through ``to_wide``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

UNSIGNED = frozenset({torch.uint16, torch.uint32, torch.uint64})
"""Unsigned dtypes that torch does not compute with on the CPU (uint8 is a full citizen)."""

FLOAT8 = frozenset(
    {
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
        torch.float8_e8m0fnu,
    }
)
"""8-bit floats: torch casts them and tests them for equality and NaN, little else."""

HALF = frozenset({torch.float16, torch.bfloat16})
"""Floats of two bytes, whose longer formulas are computed in float32 and rounded once."""

STORED = UNSIGNED | FLOAT8
"""Dtypes that torch stores and moves, and computes with hardly at all."""

_SIGNED = {
    torch.uint8: torch.int8,
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(x: Tensor) -> Tensor:
    """The bits of ``x`` in a dtype that torch computes with and moves: a view of the same shape.

    uint16, uint32 and uint64 become the signed integers of their width (addition, multiplication, bitwise
    operators and left shifts have the same bits there), the 8-bit floats become uint8. Other dtypes stay.
    """
    if x.dtype in STORED:
        return x.view(_BITS[x.dtype.itemsize])
    return x


def with_bits(fn: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """``fn`` on the bits of tensors of one dtype, and its result in that dtype again.

    For functions whose result depends on bits alone: ring arithmetic, moving, picking and reordering.
    """
    return typed(fn(*(same_bits(x) for x in xs)), xs[0].dtype)


def typed(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """Result of :func:`same_bits`, in its dtype again.

    A tensor that is seen as another type, even as its own one, has no gradient.
    """
    return bits if bits.dtype == dtype else bits.view(dtype)


def pick(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``torch.where`` for every dtype: that of torch 2.11 has no unsigned integers of two bytes and more."""
    if x.dtype in UNSIGNED:
        return torch.where(condition, same_bits(x), same_bits(y)).view(x.dtype)
    return torch.where(condition, x, y)


def ordered(x: Tensor) -> Tensor:
    """An unsigned tensor as signed integers of its width in the same order; other dtypes stay.

    Flipping the top bit is the order-preserving map; :func:`unordered` takes it back.
    """
    if x.dtype not in UNSIGNED:
        return x
    bits = x.view(_SIGNED[x.dtype])
    return bits ^ torch.iinfo(bits.dtype).min


def unordered(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Result of :func:`ordered`, in its unsigned dtype again; a no-op for other dtypes."""
    if dtype not in UNSIGNED:
        return x
    return (x ^ torch.iinfo(x.dtype).min).view(dtype)


def with_order(fn: Callable[..., Tensor], *xs: Tensor) -> Tensor:
    """``fn`` on tensors of one dtype as :func:`ordered` integers: for maximum, minimum, clamp and sorting."""
    return unordered(fn(*(ordered(x) for x in xs)), xs[0].dtype)


def to_wide(x: Tensor) -> Tensor:
    """Values of ``x`` in a dtype that torch computes with.

    uint16 and uint32 become int64 (exact), 8-bit floats become float32 (exact), uint64 becomes int64 with its
    bits (exact below ``2**63``). Other dtypes stay.
    """
    if x.dtype in UNSIGNED:
        return x.view(torch.int64) if x.dtype is torch.uint64 else x.to(torch.int64)
    return x.to(torch.float32) if x.dtype in FLOAT8 else x


def to_float(x: Tensor) -> Tensor:
    """``x`` in a dtype fit for float formulas: floats of 4 and 8 bytes stay, halves and 8-bit floats become
    float32, integers and bools become float64.
    """
    if x.dtype.is_floating_point:
        return x if x.dtype.itemsize >= 4 else x.to(torch.float32)
    return x.to(torch.float64)


def divide_truncating(a: Tensor, b: Tensor) -> Tensor:
    """Integer division that rounds towards zero, for every integer dtype, with broadcast.

    The smallest integer divided by -1 wraps to itself; the processor's own instruction would end the process.

    Raises:
        RuntimeError: A divisor is zero (CPU; on a device the result is unspecified).
    """
    dtype = a.dtype
    if dtype is torch.uint64:
        return _divide_uint64(a, b)
    if dtype is torch.int64:
        negative = b.eq(-1)
        quotient = torch.div(a, b.masked_fill(negative, 1), rounding_mode="trunc")
        return torch.where(negative, -quotient, quotient)
    if dtype is torch.int32 or dtype in UNSIGNED:
        return torch.div(a.to(torch.int64), b.to(torch.int64), rounding_mode="trunc").to(dtype)
    return torch.div(a, b, rounding_mode="trunc")


def remainder_unsigned(a: Tensor, b: Tensor) -> Tensor:
    """Remainder of unsigned division for uint16, uint32 and uint64, with broadcast."""
    if a.dtype is torch.uint64:
        quotient = _divide_uint64(a, b).view(torch.int64)
        return (a.view(torch.int64) - quotient * b.view(torch.int64)).view(torch.uint64)
    return torch.remainder(a.to(torch.int64), b.to(torch.int64)).to(a.dtype)


def shift_right_unsigned(a: Tensor, count: Tensor) -> Tensor:
    """Logical right shift of uint16, uint32 and uint64; a count of the width or more gives 0."""
    if a.dtype is torch.uint64:
        # The first step clears the sign bit, so that the rest is an arithmetic shift of a positive number.
        bits, steps = a.view(torch.int64), count.view(torch.int64)
        half = (bits >> 1) & torch.iinfo(torch.int64).max
        rest = (steps - 1).masked_fill(steps < 0, 63)
        return torch.where(steps == 0, bits, half >> rest.clamp(0, 63)).view(torch.uint64)
    return (a.to(torch.int64) >> count.to(torch.int64)).to(a.dtype)


def _divide_uint64(a: Tensor, b: Tensor) -> Tensor:
    # Half of the dividend divides as a signed number; doubling that quotient is at most one too small. A
    # divisor with its top bit set goes into any dividend once or not at all.
    dividend, divisor = a.view(torch.int64), b.view(torch.int64)
    large = divisor < 0
    safe = divisor.masked_fill(large, 1)
    half = (dividend >> 1) & torch.iinfo(torch.int64).max
    quotient = torch.div(half, safe, rounding_mode="trunc") << 1
    rest = dividend - quotient * safe
    quotient = quotient + _not_less_uint64(rest, safe)
    return torch.where(large, _not_less_uint64(dividend, divisor), quotient).view(torch.uint64)


def _not_less_uint64(a: Tensor, b: Tensor) -> Tensor:
    lowest = torch.iinfo(torch.int64).min
    return torch.ge(a ^ lowest, b ^ lowest).to(torch.int64)
