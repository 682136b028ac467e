"""Slice: ranges of a tensor along some axes.

Source: https://onnx.ai/onnx/operators/onnx__Slice.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import bits, strings
from torch_ort_session.ops.kernel import kernel

_ALL = slice(None)
# Below this, which is the start of any axis all the same, torch warns.
_LEAST = -(1 << 62)


@kernel("Slice", since=(10, 11, 13), host=("starts", "ends", "axes", "steps"), view_of="data")
def slice_(
    data: Tensor,
    starts: list[int],
    ends: list[int],
    axes: list[int] | None = None,
    steps: list[int] | None = None,
) -> Tensor:
    """``data[start:end:step]`` along each of ``axes``, with numpy's clamping and negative counting.

    Args:
        data: Any tensor or strings.
        starts: Where each range begins.
        ends: Where it ends, this place excluded.
        axes: The axes; the first ones when not given.
        steps: Steps, negative ones walk backwards; 1 when not given.

    Raises:
        ValueError: A step is 0, an axis is named twice, or the lists differ in length.

    Source: https://onnx.ai/onnx/operators/onnx__Slice.html
    """
    if len(starts) == 1 and len(ends) == 1 and (steps is None or steps[0] > 0):
        axis = 0 if axes is None else axes[0]
        step = None if steps is None else steps[0]
        start, end = starts[0], ends[0]
        # Not max(): it would make another symbol of one that an exporter knows.
        index = slice(start if start > _LEAST else _LEAST, end if end > _LEAST else _LEAST, step)
        if axis > 0:
            return data[(_ALL,) * axis + (index,)]
        return data[index] if axis == 0 else data[(..., index) + (_ALL,) * (-1 - axis)]
    return _many(data, starts, ends, axes, steps)


@kernel("Slice", since=(1,), view_of="data")
def slice_legacy(
    data: Tensor, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Tensor:
    """Slice with all as attributes.

    Source: https://onnx.ai/onnx/operators/onnx__Slice.html#slice-1
    """
    return slice_(data, starts, ends, axes)


def _many(
    data: Tensor, starts: list[int], ends: list[int], axes: list[int] | None, steps: list[int] | None
) -> Tensor:
    if not isinstance(data, Tensor):
        return strings.by_position(_many, data, starts, ends, axes, steps)
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError(
            f"starts {starts}, ends {ends}, axes {axes} and steps {steps} must be of the same length"
        )
    rank = data.dim()
    index = [_ALL] * rank
    backwards = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -rank <= axis < rank or index[axis] is not _ALL:
            raise ValueError(f"axes {axes} do not name different dims of an input of rank {rank}")
        index[axis] = slice(max(start, _LEAST), max(end, _LEAST), step)
        if step < 0:
            # torch has no negative steps: take the same places in ascending order, then turn them round.
            # Unlike Python's, a start before the first element is moved onto it.
            size = data.shape[axis]
            places = range(size)[max(start, -size) : end : step]
            index[axis] = slice(places[-1], places[0] + 1, -step) if len(places) else slice(0, 0)
            backwards.append(axis)
    part = data[tuple(index)]
    return bits.movable(torch.flip, part, backwards) if backwards else part
