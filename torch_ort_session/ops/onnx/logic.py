"""Logical and bitwise operators, shifts, and Where.

Sources: https://onnx.ai/onnx/operators/onnx__And.html and the page of each operator
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.common.widen import UNSIGNED, pick, shift_right_unsigned, with_bits
from torch_ort_session.ops.kernel import Strings, kernel
from torch_ort_session.ops.onnx.legacy_broadcast import align


@kernel("And", since=(7,))
def and_(a: Tensor, b: Tensor) -> Tensor:
    """``a and b`` of bools, broadcast."""
    return torch.bitwise_and(a, b)


@kernel("Or", since=(7,))
def or_(a: Tensor, b: Tensor) -> Tensor:
    """``a or b`` of bools, broadcast."""
    return torch.bitwise_or(a, b)


@kernel("Xor", since=(7,))
def xor(a: Tensor, b: Tensor) -> Tensor:
    """Either ``a`` or ``b`` of bools, broadcast."""
    return torch.bitwise_xor(a, b)


@kernel("And", since=(1,))
def and_legacy(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """``a and b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return torch.bitwise_and(a, align(a, b, axis, broadcast))


@kernel("Or", since=(1,))
def or_legacy(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """``a or b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return torch.bitwise_or(a, align(a, b, axis, broadcast))


@kernel("Xor", since=(1,))
def xor_legacy(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """Either ``a`` or ``b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return torch.bitwise_xor(a, align(a, b, axis, broadcast))


@kernel("Not", since=(1,))
def not_(x: Tensor) -> Tensor:
    """``not x`` of bools."""
    return torch.logical_not(x)


@kernel("BitwiseAnd", since=(18,))
def bitwise_and(a: Tensor, b: Tensor) -> Tensor:
    """Bits that are set in both, of integers of one dtype, broadcast."""
    return torch.bitwise_and(a, b)


@kernel("BitwiseOr", since=(18,))
def bitwise_or(a: Tensor, b: Tensor) -> Tensor:
    """Bits that are set in one or both, of integers of one dtype, broadcast."""
    return torch.bitwise_or(a, b)


@kernel("BitwiseXor", since=(18,))
def bitwise_xor(a: Tensor, b: Tensor) -> Tensor:
    """Bits that are set in one alone, of integers of one dtype, broadcast."""
    return torch.bitwise_xor(a, b)


@kernel("BitwiseNot", since=(18,))
def bitwise_not(x: Tensor) -> Tensor:
    """Every bit of integers flipped."""
    if x.dtype in UNSIGNED:
        return with_bits(torch.bitwise_not, x)
    return torch.bitwise_not(x)


@kernel("BitShift", since=(11, 28))
def bit_shift(x: Tensor, y: Tensor, *, direction: str) -> Tensor:
    """``x`` shifted by ``y`` bits, of integers of one dtype, broadcast; bits that leave are lost.

    Args:
        x: What to shift. A signed ``x`` keeps its sign to the right.
        y: By how many bits. The width or more, or a negative number, leaves only copies of the sign.
        direction: ``"LEFT"`` or ``"RIGHT"``.

    Raises:
        ValueError: Another word in ``direction``.
    """
    if direction == "RIGHT":
        if x.dtype in UNSIGNED:
            return shift_right_unsigned(x, y)
        return torch.bitwise_right_shift(x, y)
    if direction == "LEFT":
        if x.dtype in UNSIGNED:
            # A count with its top bit set reads as negative, which shifts everything out as well.
            return with_bits(torch.bitwise_left_shift, x, y)
        return torch.bitwise_left_shift(x, y)
    raise ValueError(f"BitShift has the directions LEFT and RIGHT, not {direction!r}.")


@kernel("Where", since=(9, 16))
def where(condition: Tensor, x: Tensor | Strings, y: Tensor | Strings) -> Tensor | Strings:
    """``x`` where the condition holds and ``y`` elsewhere, broadcast.

    Args:
        condition: Bools.
        x: Any type.
        y: The same type.

    Returns:
        A tensor of that type.
    """
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        return pick(condition, x, y)
    return strings.by_position(where, condition, x, y)
