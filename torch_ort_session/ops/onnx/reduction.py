"""What the reductions compute, apart from how a revision names its axes.

Each function takes a tensor of at least one dim, the dims to reduce (never empty) and whether they stay as 1;
the result has the tensor's dtype. Nothing to reduce gives the identity of the operation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import (
    HALF,
    UNSIGNED,
    divide_truncating,
    ordered,
    same_bits,
    to_float,
    typed,
    unordered,
    with_bits,
)

Reduction = Callable[[Tensor, list[int], bool], Tensor]


def reduce_over(fn: Reduction, x: Tensor, axes: list[int] | None, keepdims: int, noop: int = 0) -> Tensor:
    """``fn`` over the axes that a node names.

    Args:
        fn: The reduction.
        x: Data.
        axes: Dims, negative ones from the end; None or empty means all of them, unless ``noop``.
        keepdims: Whether reduced dims stay as 1.
        noop: Whether no axes means that nothing is reduced, though ``fn`` still maps each element.
    """
    if axes and x.ndim:
        return fn(x, axes, keepdims != 0)
    if x.ndim == 0 or noop:
        return fn(x.unsqueeze(-1), [-1], False)
    return fn(x, list(range(x.ndim)), keepdims != 0)


def total(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Sum; integers wrap."""
    if x.dtype in UNSIGNED:
        return with_bits(lambda bits: torch.sum(bits, dims, keep, dtype=bits.dtype), x)
    return torch.sum(x, dims, keep, dtype=x.dtype)


def mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Mean; of integers rounded towards zero. Of nothing it is NaN, or 0 for integers."""
    if x.dtype.is_floating_point:
        return torch.mean(x, dims, keep)
    count = _count(x, dims)
    if count == 0:
        return total(x, dims, keep)
    if x.dtype is torch.uint64:
        return divide_truncating(total(x, dims, keep), torch.full((), count, dtype=x.dtype, device=x.device))
    summed = torch.sum(x.to(torch.int64), dims, keep)
    return torch.div(summed, count, rounding_mode="trunc").to(x.dtype)


def product(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Product; integers wrap."""
    if x.dtype in HALF:
        return product(x.to(torch.float32), dims, keep).to(x.dtype)
    result = same_bits(x)
    for dim in sorted({dim % x.ndim for dim in dims}, reverse=True):
        result = torch.prod(result, dim, keep, dtype=result.dtype)
    return typed(result, x.dtype)


def maximum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Greatest element, NaN where there is one; of nothing the lowest value of the dtype."""
    if x.dtype is torch.bool:
        return torch.any(x, dims, keep)
    if x.numel() == 0 and _count(x, dims) == 0:
        return _filled(x, dims, keep, lowest=True)
    if x.dtype in UNSIGNED:
        return unordered(torch.amax(ordered(x), dims, keep), x.dtype)
    return torch.amax(x, dims, keep)


def minimum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Least element, NaN where there is one; of nothing the greatest value of the dtype."""
    if x.dtype is torch.bool:
        return torch.all(x, dims, keep)
    if x.numel() == 0 and _count(x, dims) == 0:
        return _filled(x, dims, keep, lowest=False)
    if x.dtype in UNSIGNED:
        return unordered(torch.amin(ordered(x), dims, keep), x.dtype)
    return torch.amin(x, dims, keep)


def norm1(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Sum of absolute values."""
    if x.dtype.is_floating_point:
        return _norm(x, 1, dims, keep)
    return total(x if x.dtype in UNSIGNED else torch.abs(x), dims, keep)


def norm2(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Square root of the sum of squares; of integers in float64, rounded towards zero."""
    if x.dtype.is_floating_point:
        return _norm(x, 2, dims, keep)
    return _norm(to_float(x), 2, dims, keep).to(x.dtype)


def log_sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Logarithm of the sum; of integers in float64, rounded towards zero."""
    return torch.log(torch.sum(to_float(x), dims, keep)).to(x.dtype)


def log_sum_exp(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Logarithm of the sum of exponentials; of nothing it is negative infinity."""
    return torch.logsumexp(to_float(x), dims, keep).to(x.dtype)


def sum_square(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    """Sum of squares; integers wrap."""
    if x.dtype.is_floating_point:
        wide = to_float(x)
        return torch.sum(wide * wide, dims, keep).to(x.dtype)
    return total(with_bits(torch.square, x), dims, keep)


def _norm(x: Tensor, order: int, dims: list[int], keep: bool) -> Tensor:
    result: Tensor = torch.linalg.vector_norm(x, order, dims, keep)
    return result


def _count(x: Tensor, dims: list[int]) -> int:
    count = 1
    for dim in dims:
        count *= x.shape[dim]
    return count


def _filled(x: Tensor, dims: list[int], keep: bool, *, lowest: bool) -> Tensor:
    reduced = {dim % x.ndim for dim in dims}
    shape = [1 if i in reduced else size for i, size in enumerate(x.shape) if keep or i not in reduced]
    if x.dtype.is_floating_point:
        return torch.full(shape, float("-inf" if lowest else "inf"), dtype=x.dtype, device=x.device)
    ends = torch.iinfo(x.dtype)
    return torch.full(shape, ends.min if lowest else ends.max, dtype=x.dtype, device=x.device)
