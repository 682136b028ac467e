"""Conversion of numbers between ONNX element types, with the rules of the narrow ones.

Source: https://onnx.ai/onnx/operators/onnx__Cast.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType

_NARROW = (
    ElementType.FLOAT8E4M3FN,
    ElementType.FLOAT8E4M3FNUZ,
    ElementType.FLOAT8E5M2,
    ElementType.FLOAT8E5M2FNUZ,
    ElementType.FLOAT8E8M0,
    ElementType.INT4,
    ElementType.UINT4,
    ElementType.INT2,
    ElementType.UINT2,
    ElementType.FLOAT4E2M1,
)
PLAIN: dict[int, torch.dtype] = {
    int(element): element.torch_dtype
    for element in ElementType
    if element.torch_dtype is not None and element not in _NARROW
}
"""Element types that torch's own conversion serves, by code."""


def convert(x: Tensor, to: ElementType, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """``x`` as elements of another type; ``x`` itself when it is of that dtype already.

    Args:
        x: Numbers or bools in the carrier of their type.
        to: Any type but strings.
        saturate: Whether what is too large for an 8-bit float becomes its greatest number, rather than
            infinity or NaN.
        round_mode: How float8e8m0 rounds: ``"up"``, ``"down"`` or ``"nearest"``.

    Returns:
        A tensor of the carrier dtype of ``to``.

    Raises:
        ValueError: An unknown ``round_mode``.
    """
    plain = PLAIN.get(to)
    if plain is not None:
        return x.to(plain)
    if to is ElementType.FLOAT8E8M0:
        return to_float8e8m0(x, saturate, round_mode)
    if to is ElementType.FLOAT4E2M1:
        return to_float4e2m1(x)
    if to.is_packed:
        return _to_small_int(x, to)
    return _to_float8(x, to, saturate)


def _to_float8(x: Tensor, to: ElementType, saturate: bool) -> Tensor:
    dtype = to.torch_dtype
    assert dtype is not None
    if x.dtype is dtype:
        return x
    wide = _rounded_to_odd(x) if x.dtype is torch.float64 else x.to(torch.float32)
    if saturate:
        largest = torch.finfo(dtype).max
        wide = wide.clamp(-largest, largest)
    elif to is ElementType.FLOAT8E4M3FN:
        # torch holds this type at its greatest number, 448; what rounds above it starts beyond 464.
        wide = wide.masked_fill(wide.abs() > 464, float("nan"))
    return wide.to(dtype)


def _rounded_to_odd(x: Tensor) -> Tensor:
    """float64 as float32, so that rounding once more to fewer bits rounds as if only once.

    Inexact results take the neighbour with an odd last bit, which no tie of a shorter format has.
    """
    near = x.to(torch.float32)
    back = near.to(torch.float64)
    bits = near.view(torch.int32)
    inward = torch.where(back.abs() > x.abs(), bits - 1, bits)
    odd = (inward | 1).view(torch.float32)
    return torch.where((back == x) | torch.isnan(x) | torch.isinf(x), near, odd)


def to_float8e8m0(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """Powers of two from 2**-127 to 2**127, by the exponent bits of float32.

    Zero and what lies below the range become the least power when saturating, else NaN; infinity and what
    lies above become the greatest, else NaN. The sign is dropped.

    Raises:
        ValueError: An unknown ``round_mode``.
    """
    bits = x.to(torch.float32).view(torch.int32) & 0x7FFFFFFF
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    # Below 2**-126 float32 has no implied bit: 2**-127 is the fraction 0x400000 under exponent 0.
    tiny = exponent == 0
    if round_mode == "up":
        step = torch.where(tiny, fraction > 0x400000, fraction > 0)
    elif round_mode == "nearest":
        step = torch.where(tiny, fraction >= 0x600000, fraction >= 0x400000)
    elif round_mode == "down":
        step = torch.zeros_like(tiny)
    else:
        raise ValueError(f'round_mode is "up", "down" or "nearest", not {round_mode!r}.')
    code = exponent + step.to(torch.int32)
    nan = bits > 0x7F800000
    if saturate:
        code = code.clamp(0, 0xFE).masked_fill(nan, 0xFF)
    else:
        code = code.clamp(0, 0xFF).masked_fill(nan | (bits < 0x400000), 0xFF)
    return code.to(torch.uint8).view(torch.float8_e8m0fnu)


def to_float4e2m1(x: Tensor) -> Tensor:
    """Rounded to 0, 0.5, 1, 1.5, 2, 3, 4 or 6 with a sign, ties to even, held in [-6, 6]; NaN becomes 0."""
    wide = _rounded_to_odd(x) if x.dtype is torch.float64 else x.to(torch.float32)
    size = wide.abs().clamp(max=6.0).nan_to_num()
    # The spacing is 0.5 below 2, 1 below 4 and 2 up to 6.
    coarse = torch.where(size < 4, torch.round(size), torch.round(size * 0.5) * 2)
    rounded = torch.where(size < 2, torch.round(size * 2) * 0.5, coarse)
    return torch.copysign(rounded, wide).to(torch.float8_e4m3fn)


def _to_small_int(x: Tensor, to: ElementType) -> Tensor:
    """The lowest bits of integers, and of floats rounded towards zero."""
    bits = to.bits
    low = x.to(torch.int32) & ((1 << bits) - 1)
    if to in (ElementType.UINT4, ElementType.UINT2):
        return low.to(torch.uint8)
    half = 1 << (bits - 1)
    return ((low ^ half) - half).to(torch.int8)


def bits_of(x: Tensor, element: ElementType) -> Tensor:
    """The bit patterns of a type of less than a byte, as uint8 numbers."""
    if element is not ElementType.FLOAT4E2M1:
        return x.view(torch.uint8) & ((1 << element.bits) - 1)
    size = x.to(torch.float32).abs()
    code = torch.zeros_like(x, dtype=torch.uint8)
    for edge in (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0):
        code = code + (size >= edge).to(torch.uint8)
    return code | ((x.view(torch.uint8) >> 4) & 8)


def from_bits(code: Tensor, element: ElementType) -> Tensor:
    """The values, in their carrier, that uint8 bit patterns stand for in a type of less than a byte."""
    if element is not ElementType.FLOAT4E2M1:
        return _to_small_int(code, element)
    exponent, fraction = (code >> 1) & 3, (code & 1).to(torch.float32) * 0.5
    scale = torch.exp2(exponent.to(torch.float32) - 1)
    size = torch.where(exponent == 0, fraction, (1 + fraction) * scale)
    return torch.where(code >= 8, -size, size).to(torch.float8_e4m3fn)
