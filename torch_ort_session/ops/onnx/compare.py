"""Equal, Greater, Less, GreaterOrEqual and LessOrEqual; the results are bools.

Revision 1 broadcasts by attributes. Sources: https://onnx.ai/onnx/operators/onnx__Equal.html and its fellows
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.common.widen import UNSIGNED, ordered
from torch_ort_session.ops.kernel import KernelContext, Strings, kernel
from torch_ort_session.ops.onnx.legacy_broadcast import align


@kernel("Equal", since=(7, 11, 13))
def equal(a: Tensor, b: Tensor) -> Tensor:
    """``a == b`` of numbers or bools of one dtype, broadcast; NaN equals nothing."""
    return torch.eq(a, b)


@kernel("Equal", since=(19,))
def equal_with_strings(a: Tensor | Strings, b: Tensor | Strings, *, ctx: KernelContext) -> Tensor:
    """``a == b`` of numbers, bools or strings, broadcast.

    Raises:
        ValueError: Strings against numbers.
    """
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.eq(a, b)
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        raise ValueError("Equal compares strings with strings only.")
    left, right, _ = strings.codes((), a, b)
    return torch.eq(left, right).to(ctx.device)


@kernel("Greater", since=(7, 9, 13))
def greater(a: Tensor, b: Tensor) -> Tensor:
    """``a > b`` of numbers of one dtype, broadcast; false where one is NaN."""
    if a.dtype in UNSIGNED:
        return torch.gt(ordered(a), ordered(b))
    return torch.gt(a, b)


@kernel("Less", since=(7, 9, 13))
def less(a: Tensor, b: Tensor) -> Tensor:
    """``a < b`` of numbers of one dtype, broadcast; false where one is NaN."""
    if a.dtype in UNSIGNED:
        return torch.lt(ordered(a), ordered(b))
    return torch.lt(a, b)


@kernel("GreaterOrEqual", since=(12, 16))
def greater_or_equal(a: Tensor, b: Tensor) -> Tensor:
    """``a >= b`` of numbers of one dtype, broadcast; false where one is NaN."""
    if a.dtype in UNSIGNED:
        return torch.ge(ordered(a), ordered(b))
    return torch.ge(a, b)


@kernel("LessOrEqual", since=(12, 16))
def less_or_equal(a: Tensor, b: Tensor) -> Tensor:
    """``a <= b`` of numbers of one dtype, broadcast; false where one is NaN."""
    if a.dtype in UNSIGNED:
        return torch.le(ordered(a), ordered(b))
    return torch.le(a, b)


@kernel("Equal", since=(1,))
def equal_legacy(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """``a == b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return torch.eq(a, align(a, b, axis, broadcast))


@kernel("Greater", since=(1,))
def greater_legacy(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """``a > b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return torch.gt(a, align(a, b, axis, broadcast))


@kernel("Less", since=(1,))
def less_legacy(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
    """``a < b`` in the shape of ``a``, with ``b`` aligned at ``axis``.

    Raises:
        ValueError: The shapes do not fit.
    """
    return torch.lt(a, align(a, b, axis, broadcast))
