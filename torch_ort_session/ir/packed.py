"""Element types of less than a byte: from the file's bits to one element a byte.

Source: https://onnx.ai/onnx/technical/int4.html, https://onnx.ai/onnx/technical/float4.html
"""

from __future__ import annotations

import functools
import math

import torch

from torch_ort_session.ir.types import ElementType

# Exponent and mantissa bits of the small floats; none of them has infinities or NaN.
_FLOATS: dict[ElementType, tuple[int, int]] = {
    ElementType.FLOAT4E2M1: (2, 1),
    ElementType.FLOAT6E2M3: (2, 3),
    ElementType.FLOAT6E3M2: (3, 2),
}


def packed_bytes(count: int, element: ElementType) -> int:
    """Bytes that ``count`` elements take in the file."""
    return (count * element.bits + 7) // 8


def unpack(packed: torch.Tensor, element: ElementType, dims: tuple[int, ...]) -> torch.Tensor:
    """Packed bytes (uint8, flat, lowest bits first) to elements in the carrier dtype.

    Args:
        packed: uint8 tensor of ``packed_bytes`` bytes.
        element: A packed element type.
        dims: Dims of the result.
    """
    if element.bits == 6:
        padded = torch.nn.functional.pad(packed, (0, -packed.numel() % 3)).reshape(-1, 3)
        low, middle, high = padded.unbind(-1)
        parts = [low, low >> 6 | middle << 2, middle >> 4 | high << 4, high >> 2]
    else:
        parts = [packed >> shift for shift in range(0, 8, element.bits)]
    codes = torch.stack([part & ((1 << element.bits) - 1) for part in parts], dim=-1)
    return decode(codes.reshape(-1)[: math.prod(dims)], element).reshape(dims)


def decode(codes: torch.Tensor, element: ElementType) -> torch.Tensor:
    """Bit patterns, one a byte (uint8), to elements in the carrier dtype; the result has memory "
    "of its own."""
    if element in _FLOATS:
        return _table(element).index_select(0, codes.int()).view(torch.float8_e4m3fn)
    if element in (ElementType.INT4, ElementType.INT2):
        half = 1 << (element.bits - 1)
        return (codes ^ half).to(torch.int8) - half
    return codes.clone()


@functools.cache
def _table(element: ElementType) -> torch.Tensor:
    """The float8_e4m3fn pattern of every code, as uint8."""
    exponent_bits, mantissa_bits = _FLOATS[element]
    bias = (1 << (exponent_bits - 1)) - 1
    values = []
    for code in range(1 << element.bits):
        mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
        exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
        size = (1 + mantissa) * 2.0 ** (exponent - bias) if exponent else mantissa * 2.0 ** (1 - bias)
        values.append(-size if code >> (element.bits - 1) else size)
    return torch.tensor(values).to(torch.float8_e4m3fn).view(torch.uint8)
