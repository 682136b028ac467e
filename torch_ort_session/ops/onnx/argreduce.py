"""ArgMax and ArgMin.

Source: https://onnx.ai/onnx/operators/onnx__ArgMax.html
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_ort_session.ops._helpers.widen import ordered
from torch_ort_session.ops.kernel import kernel


@kernel("ArgMax", since=(1, 11, 12, 13))
def argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Index of the greatest element along a dim; NaN counts as the greatest.

    Args:
        x: Numbers of any type.
        axis: The dim.
        keepdims: Whether it stays as 1.
        select_last_index: Whether the last of equal elements wins, rather than the first.

    Returns:
        int64 indices.
    """
    if select_last_index:
        return _last(torch.argmax, ordered(x), axis, keepdims != 0)
    return torch.argmax(ordered(x), axis, keepdims != 0)


@kernel("ArgMin", since=(1, 11, 12, 13))
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Index of the least element along a dim; NaN counts as the least. Arguments as in :func:`argmax`."""
    if select_last_index:
        return _last(torch.argmin, ordered(x), axis, keepdims != 0)
    return torch.argmin(ordered(x), axis, keepdims != 0)


def _last(fn: Callable[[Tensor, int, bool], Tensor], x: Tensor, axis: int, keep: bool) -> Tensor:
    if x.ndim == 0:
        return fn(x, axis, keep)
    return x.shape[axis] - 1 - fn(x.flip(axis), axis, keep)
