"""Results whose size depends on the data: NonZero, Compress, Unique.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import bits, strings
from torch_ort_session.ops.kernel import KernelContext, kernel

_SIZE = "the size of the output depends on the data"

# torch.unique compares whole rows through an index: 2,000 rows of 4 take 1.9 ms, sorted by column 0.6.
_SORTED = 8
_ORDERED = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
)


@kernel("NonZero", since=(9, 13), seam=_SIZE)
def non_zero(X: Tensor) -> Tensor:
    """Where ``X`` is not zero: int64 [rank, count] in row-major order.

    Source: https://onnx.ai/onnx/operators/onnx__NonZero.html
    """
    if not isinstance(X, Tensor):
        X = strings.filled(X)
    return torch.nonzero(X if X.dtype == torch.bool else X != 0).t()


@kernel("Compress", since=(9, 11, 28), seam=_SIZE)
def compress(input: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    """The entries of ``input`` along ``axis`` where ``condition`` is true.

    Args:
        input: Tensor or strings; flattened first when there is no axis.
        condition: bool [n], n at most the size of the axis; what lies beyond is left out.
        axis: The axis.

    Source: https://onnx.ai/onnx/operators/onnx__Compress.html
    """
    if not isinstance(input, Tensor):
        return strings.by_position(compress, input, condition, axis=axis)
    size = input.numel() if axis is None else input.shape[axis]
    kept = torch.nonzero(condition[:size]).squeeze(1)
    return bits.movable(torch.index_select, input.reshape(-1) if axis is None else input, axis or 0, kept)


@kernel("Unique", since=(11, 28), seam=_SIZE)
def unique(
    X: Tensor,
    *,
    axis: int | None = None,
    sorted: int = 1,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The different elements of ``X``, or its different slices along ``axis``.

    Of elements, all NaN count as one, as they do for zeros of either sign.

    Args:
        X: Tensor or strings.
        axis: Compare slices along it; elements without it.
        sorted: 1 for ascending order, 0 for that of first appearance.
        ctx: Tells which outputs are wanted.

    Returns:
        The unique values, and int64: where each appears first, which one each input is, and how often
        each appears.

    Source: https://onnx.ai/onnx/operators/onnx__Unique.html
    """
    if not isinstance(X, Tensor):
        codes, table = strings.codes([], X)
        values, *rest = unique(codes, axis=axis, sorted=sorted, ctx=ctx)
        return strings.by_position(torch.take, table, values), *rest
    rows = X.detach().reshape(-1) if axis is None else X.detach().movedim(axis, 0)
    group, count = (_groups_of_elements if axis is None and not X.is_complex() else _groups_of_rows)(rows)
    total = count.shape[0]
    first = torch.full((total,), rows.shape[0], dtype=torch.int64, device=X.device)
    first = first.scatter_reduce(0, group, torch.arange(rows.shape[0], device=X.device), "amin")
    if not sorted:
        order = torch.argsort(first)
        first, count = first[order], count[order]
        group = torch.empty_like(order).scatter(0, order, torch.arange(total, device=X.device))[group]
    values = bits.movable(torch.index_select, X.reshape(-1) if axis is None else X, axis or 0, first)
    return values, first, group, count


def _groups_of_elements(flat: Tensor) -> tuple[Tensor, Tensor]:
    """For each element the ascending number of its value, and how often each value appears."""
    values, order = torch.sort(flat, stable=True)
    fresh = values[1:] != values[:-1]
    if flat.is_floating_point():
        fresh = fresh & ~(values[1:].isnan() & values[:-1].isnan())
    return _groups_in_order(fresh, order)


def _groups_in_order(fresh: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """The same of what is in ``order``, where ``fresh`` says which differs from the one before it."""
    number = torch.cat([fresh.new_zeros(min(1, order.shape[0])), fresh]).cumsum(0)
    group = torch.empty_like(order).scatter(0, order, number)
    return group, torch.bincount(group)


def _groups_of_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The same for rows [n, ...] in lexicographic order (complex numbers: the real part first)."""
    if rows.is_complex():
        rows = torch.view_as_real(rows)
    if rows.numel() == 0:
        alike = torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
        return alike, torch.bincount(alike)
    table = rows.flatten(1)
    if table.shape[1] <= _SORTED and table.dtype in _ORDERED:
        # By the last column first: a stable sort keeps what later columns put in order.
        order = torch.argsort(table[:, -1], stable=True)
        for column in range(table.shape[1] - 2, -1, -1):
            order = order[torch.argsort(table[:, column][order], stable=True)]
        arranged = table[order]
        return _groups_in_order((arranged[1:] != arranged[:-1]).any(1), order)
    _, group, count = torch.unique(rows, dim=0, return_inverse=True, return_counts=True)
    return group, count
