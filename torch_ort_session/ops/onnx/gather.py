"""Elements by index: Gather, GatherElements, GatherND.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import bits, strings
from torch_ort_session.ops.common.index import check_index, take, torch_refuses
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("Gather", since=(1, 11, 13), checks=True, native=("check_index",))
def gather(data: Tensor, indices: Tensor, *, axis: int = 0, ctx: KernelContext) -> Tensor:
    """The entries of ``data`` along ``axis`` that ``indices`` names.

    Args:
        data: Tensor or strings of rank 1 or more.
        indices: int32 or int64 of any shape, each in [-size, size) of the axis.
        axis: The axis; the result has the dims of ``indices`` in its place.
        ctx: Where a bad index is reported.

    Source: https://onnx.ai/onnx/operators/onnx__Gather.html
    """
    if not isinstance(data, Tensor):
        return strings.by_position(gather, data, indices, axis=axis, ctx=ctx)
    shape = data.shape
    if len(shape) == 1 and data.dtype == indices.dtype == torch.int64:
        return take(data, indices, ctx)
    index = check_index(indices, shape[axis], ctx)
    if index.dim() == 1:
        return bits.movable(torch.index_select, data, axis, index)
    if index.dim() == 0:
        return bits.movable(torch.index_select, data, axis, index).squeeze(axis)
    part = bits.movable(torch.index_select, data, axis, index.reshape(-1))
    return part.reshape(shape[:axis] + index.shape + (shape[axis + 1 :] if axis != -1 else ()))


@kernel("GatherElements", since=(11, 13), checks=True, native=("check_index",))
def gather_elements(data: Tensor, indices: Tensor, *, axis: int = 0, ctx: KernelContext) -> Tensor:
    """For each element of ``indices``, the element of ``data`` at that place with ``axis`` replaced by it.

    Args:
        data: Tensor or strings.
        indices: int32 or int64 of the rank of ``data``, each in [-size, size) of the axis.
        axis: The axis.
        ctx: Where a bad index is reported.

    Source: https://onnx.ai/onnx/operators/onnx__GatherElements.html
    """
    if not isinstance(data, Tensor):
        return strings.by_position(gather_elements, data, indices, axis=axis, ctx=ctx)
    index = check_index(indices, data.shape[axis], ctx).to(torch.int64)
    return bits.movable(torch.gather, data, axis, index)


@kernel("GatherND", since=(11, 12, 13), checks=True, native=("check_index",))
def gather_nd(data: Tensor, indices: Tensor, *, batch_dims: int = 0, ctx: KernelContext) -> Tensor:
    """The slices of ``data`` that the rows of ``indices`` name.

    Args:
        data: Tensor or strings of rank r.
        indices: int64 [..., k], k at most r - ``batch_dims``; each in [-size, size) of its dim.
        batch_dims: How many leading dims both have in common.
        ctx: Where a bad index is reported.

    Source: https://onnx.ai/onnx/operators/onnx__GatherND.html
    """
    if not isinstance(data, Tensor):
        return strings.by_position(gather_nd, data, indices, batch_dims=batch_dims, ctx=ctx)
    outer = indices.dim() - 1
    places: list[Tensor] = []
    for dim in range(batch_dims):
        view = [1] * outer
        view[dim] = -1
        places.append(torch.arange(data.shape[dim], device=data.device).reshape(view))
    columns = indices.unbind(-1)
    if torch_refuses(indices, ctx):
        # Here torch itself counts negatives from the end and refuses what lies outside.
        places.extend(columns)
    else:
        places.extend(
            check_index(column, data.shape[batch_dims + i], ctx) for i, column in enumerate(columns)
        )
    return data[tuple(places)]
