"""Shape and what changes only the shape: Reshape, Flatten, Squeeze, Unsqueeze, Identity.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import kernel


@kernel("Shape", since=(1, 13, 15, 19, 21, 23, 24, 25), host_result=True)
def shape_of(data: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    """The dims of ``data`` from ``start`` up to ``end``, as int64 [rank] on the CPU.

    Source: https://onnx.ai/onnx/operators/onnx__Shape.html
    """
    # Python slices clamp and count negatives from the end exactly as the attributes do.
    return torch.tensor(data.shape[start:end], dtype=torch.int64)


@kernel("Size", since=(1, 13, 19, 21, 23, 24, 25), host_result=True)
def size(data: Tensor) -> Tensor:
    """The number of elements of ``data``, as a 0-d int64 on the CPU.

    Source: https://onnx.ai/onnx/operators/onnx__Size.html
    """
    return torch.tensor(math.prod(data.shape), dtype=torch.int64)


@kernel("Reshape", since=(5, 13, 14, 19, 21, 23, 24, 25), host=("shape",), view_of="data")
def reshape(data: Tensor, shape: list[int], *, allowzero: int = 0) -> Tensor:
    """``data`` in another shape of the same number of elements.

    Args:
        data: Any tensor or strings.
        shape: New dims; one may be -1 (inferred). 0 copies the dim of ``data`` unless ``allowzero``.
        allowzero: Whether 0 means zero.

    Raises:
        ValueError: 0 copies a dim that ``data`` does not have.

    Source: https://onnx.ai/onnx/operators/onnx__Reshape.html
    """
    if 0 in shape and not allowzero:
        dims = data.shape
        if any(size == 0 for size in shape[len(dims) :]):
            raise ValueError(f"shape {shape} copies a dim that data of shape {tuple(dims)} does not have")
        shape = [dims[i] if size == 0 else size for i, size in enumerate(shape)]
    return data.reshape(shape)


@kernel("Reshape", since=(1,), view_of="data")
def reshape_legacy(
    data: Tensor, *, shape: list[int] | None = None, consumed_inputs: list[int] | None = None
) -> Tensor:
    """Reshape with the shape as an attribute; without one the result is 0-d.

    Source: https://onnx.ai/onnx/operators/onnx__Reshape.html#reshape-1
    """
    return reshape(data, shape or [])


@kernel("Flatten", since=(1, 9, 11, 13, 21, 23, 24, 25), view_of="input")
def flatten(input: Tensor, *, axis: int = 1) -> Tensor:
    """``input`` as a matrix: the dims before ``axis`` are the rows, the others the columns.

    Raises:
        ValueError: ``axis`` is not in [-rank, rank].

    Source: https://onnx.ai/onnx/operators/onnx__Flatten.html
    """
    dims = input.shape
    if not -len(dims) <= axis <= len(dims):
        raise ValueError(f"axis {axis} is out of range for an input of rank {len(dims)}")
    return input.reshape((math.prod(dims[:axis]), math.prod(dims[axis:])))


@kernel("Squeeze", since=(13, 21, 23, 24, 25), host=("axes",), view_of="data")
def squeeze(data: Tensor, axes: list[int] | None = None) -> Tensor:
    """``data`` without the given dims of size 1; without all of them when no axes are given.

    Raises:
        ValueError: A dim to remove is not 1.

    Source: https://onnx.ai/onnx/operators/onnx__Squeeze.html
    """
    if not isinstance(data, Tensor):
        return strings.by_position(squeeze, data, axes)
    if axes is None:
        return data.squeeze()
    for axis in axes:
        if data.shape[axis] != 1:
            raise ValueError(
                f"axis {axis} of an input of shape {tuple(data.shape)} cannot be squeezed: it is not 1"
            )
    return data.squeeze(axes[0]) if len(axes) == 1 else data.squeeze(axes)


@kernel("Squeeze", since=(1, 11), view_of="data")
def squeeze_legacy(data: Tensor, *, axes: list[int] | None = None) -> Tensor:
    """Squeeze with the axes as an attribute.

    Source: https://onnx.ai/onnx/operators/onnx__Squeeze.html#squeeze-11
    """
    return squeeze(data, axes)


@kernel("Unsqueeze", since=(13, 21, 23, 24, 25), host=("axes",), view_of="data")
def unsqueeze(data: Tensor, axes: list[int]) -> Tensor:
    """``data`` with dims of size 1 put in at ``axes`` of the result, in any order.

    Raises:
        ValueError: An axis is named twice, or lies outside of the result.

    Source: https://onnx.ai/onnx/operators/onnx__Unsqueeze.html
    """
    if not isinstance(data, Tensor):
        return strings.by_position(unsqueeze, data, axes)
    if len(axes) == 1:
        return data.unsqueeze(axes[0])
    rank = data.dim() + len(axes)
    places = sorted(axis + rank if axis < 0 else axis for axis in axes)
    if len(set(places)) < len(places) or (places and not 0 <= places[0] <= places[-1] < rank):
        raise ValueError(f"axes {axes} do not name {len(axes)} different dims of a result of rank {rank}")
    dims = list(data.shape)
    for place in places:
        dims.insert(place, 1)
    # Dims of size 1 never make a reshape copy.
    return data.reshape(dims)


@kernel("Unsqueeze", since=(1, 11), view_of="data")
def unsqueeze_legacy(data: Tensor, *, axes: list[int]) -> Tensor:
    """Unsqueeze with the axes as an attribute.

    Source: https://onnx.ai/onnx/operators/onnx__Unsqueeze.html#unsqueeze-11
    """
    return unsqueeze(data, axes)


@kernel("Identity", since=(1, 13, 14, 16, 19, 21, 23, 24, 25), view_of="input")
def identity(input: Any) -> Any:
    """``input`` itself: a tensor, strings, a sequence or an optional.

    Source: https://onnx.ai/onnx/operators/onnx__Identity.html
    """
    return input
