"""Elements put at indices: Scatter, ScatterElements, ScatterND, TensorScatter.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops.common import bits, strings
from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.index import check_index, torch_refuses
from torch_ort_session.ops.kernel import KernelContext, kernel

_REDUCE = {"mul": "prod", "max": "amax", "min": "amin"}


@kernel("ScatterElements", since=(11, 13, 16, 18), checks=True, native=("check_index",))
def scatter_elements(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    *,
    axis: int = 0,
    reduction: str = "none",
    ctx: KernelContext,
) -> Tensor:
    """A copy of ``data`` with each update at its own place, but for ``axis``, which the index gives.

    Args:
        data: Tensor or strings.
        indices: int32 or int64 of the rank of ``data``, each in [-size, size) of the axis.
        updates: New elements, in the shape of ``indices``.
        axis: The axis.
        reduction: ``"none"``, or how an update joins what is there: ``"add"``, ``"mul"``, ``"max"``,
            ``"min"``.
        ctx: Where a bad index is reported.

    Raises:
        ValueError: The reduction is another.

    Source: https://onnx.ai/onnx/operators/onnx__ScatterElements.html
    """
    if not isinstance(data, Tensor):
        move = strings.by_position
        return move(scatter_elements, data, indices, updates, axis=axis, reduction=reduction, ctx=ctx)
    index = check_index(indices, data.shape[axis], ctx).to(torch.int64)
    if reduction == "none":
        return bits.movable(torch.scatter, data, axis, index, updates)
    return bits.widened(_reduce, data, updates, axis, index, reduction)


@kernel("Scatter", since=(9, 11), checks=True, native=("check_index",))
def scatter(data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, ctx: KernelContext) -> Tensor:
    """The former name of ScatterElements.

    Source: https://onnx.ai/onnx/operators/onnx__Scatter.html
    """
    return scatter_elements(data, indices, updates, axis=axis, ctx=ctx)


@kernel("ScatterND", since=(11, 13, 16, 18), checks=True, native=("check_index",))
def scatter_nd(
    data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none", ctx: KernelContext
) -> Tensor:
    """A copy of ``data`` with each slice that a row of ``indices`` names replaced by its update.

    Args:
        data: Tensor or strings of rank r.
        indices: int64 [..., k], k at most r; each in [-size, size) of its dim.
        updates: [..., dims of ``data`` from k on].
        reduction: ``"none"``, or how an update joins what is there: ``"add"``, ``"mul"``, ``"max"``,
            ``"min"``.
        ctx: Where a bad index is reported.

    Raises:
        ValueError: The reduction is another.

    Source: https://onnx.ai/onnx/operators/onnx__ScatterND.html
    """
    if not isinstance(data, Tensor):
        return strings.by_position(scatter_nd, data, indices, updates, reduction=reduction, ctx=ctx)
    depth = indices.shape[-1]
    places = [_checked(column, data.shape[i], ctx) for i, column in enumerate(indices.unbind(-1))]
    if reduction == "none" or depth == 0:
        return bits.movable(_put, data, updates, tuple(places))
    rows = math.prod(data.shape[:depth])
    row = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=data.device)
    for size, place in zip(data.shape, places, strict=False):
        row = row * size + place
    flat_data = data.reshape(rows, -1) if data.numel() else data.reshape(rows, math.prod(data.shape[depth:]))
    flat_updates = updates.reshape(row.numel(), flat_data.shape[1])
    index = row.reshape(-1, 1).expand(flat_updates.shape)
    return bits.widened(_reduce, flat_data, flat_updates, 0, index, reduction).reshape(data.shape)


@kernel("TensorScatter", since=(24,), checks=True, native=("check_range",))
def tensor_scatter(
    past_cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
    ctx: KernelContext,
) -> Tensor:
    """A copy of a cache with new steps written from a place of each batch entry's own.

    Args:
        past_cache: [batch, ..., capacity, ...].
        update: [batch, ..., steps, ...].
        write_indices: int64 [batch], the first place written; 0 without it.
        axis: The axis of the steps, not 0.
        mode: ``"linear"`` (all steps must fit) or ``"circular"`` (places wrap around the capacity).
        ctx: Where a bad index is reported.

    Raises:
        ValueError: The mode is another, or the axis is that of the batch.

    Source: https://onnx.ai/onnx/operators/onnx__TensorScatter.html
    """
    axis %= past_cache.dim()
    if axis == 0 or mode not in ("linear", "circular"):
        raise ValueError(
            f"axis {axis} with mode {mode!r}: the axis must not be 0, the mode linear or circular"
        )
    capacity, steps = past_cache.shape[axis], update.shape[axis]
    places = torch.arange(steps, device=update.device)
    if write_indices is not None:
        places = places + write_indices.unsqueeze(1)
    if mode == "circular":
        places = places.remainder(capacity)
    else:
        places = check_places(places, capacity, Flag.POSITION, ctx)
    view = [1] * update.dim()
    view[axis] = steps
    if write_indices is not None:
        view[0] = write_indices.shape[0]
    return bits.movable(torch.scatter, past_cache, axis, places.reshape(view).expand(update.shape), update)


def _checked(index: Tensor, size: int, ctx: KernelContext) -> Tensor:
    """Indices in [0, size): one that lies outside must not reach the sum of a row's place."""
    if torch_refuses(index, ctx):
        return torch.take(torch.arange(size, device=index.device), index)
    return check_index(index, size, ctx)


def _put(data: Tensor, updates: Tensor, places: tuple[Tensor, ...]) -> Tensor:
    return data.index_put(places, updates) if places else updates.expand_as(data).clone()


def _reduce(data: Tensor, updates: Tensor, axis: int, index: Tensor, reduction: str) -> Tensor:
    if reduction == "add":
        return torch.scatter_add(data, axis, index, updates)
    if reduction not in _REDUCE:
        raise ValueError(f"reduction {reduction!r} is none of 'none', 'add', 'mul', 'max' and 'min'")
    return torch.scatter_reduce(data, axis, index, updates, _REDUCE[reduction])
