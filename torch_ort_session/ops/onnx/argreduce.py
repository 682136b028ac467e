"""ArgMax and ArgMin.

Source: https://onnx.ai/onnx/operators/onnx__ArgMax.html
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import ordered
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
        return _last(_first_greatest, ordered(x), axis, keepdims != 0)
    return _first_greatest(ordered(x), axis, keepdims != 0)


@kernel("ArgMin", since=(1, 11, 12, 13))
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Index of the least element along a dim; NaN counts as the least. Arguments as in :func:`argmax`."""
    if select_last_index:
        return _last(_first_least, ordered(x), axis, keepdims != 0)
    return _first_least(ordered(x), axis, keepdims != 0)


def _first_greatest(x: Tensor, axis: int, keep: bool) -> Tensor:
    # On the CPU max finds the first place in half the time of argmax; on a device it finds any.
    return torch.max(x.detach(), axis, keep).indices if x.is_cpu else torch.argmax(x, axis, keep)


def _first_least(x: Tensor, axis: int, keep: bool) -> Tensor:
    return torch.min(x.detach(), axis, keep).indices if x.is_cpu else torch.argmin(x, axis, keep)


def _last(fn: Callable[[Tensor, int, bool], Tensor], x: Tensor, axis: int, keep: bool) -> Tensor:
    if x.ndim == 0:
        return fn(x, axis, keep)
    return x.shape[axis] - 1 - fn(x.flip(axis), axis, keep)
