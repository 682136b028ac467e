"""Softmax, LogSoftmax and Hardmax.

Before opset 13 the input is taken as a matrix: the dims from ``axis`` on are one dim. From 13 on only the
dim ``axis`` is meant. Source: https://onnx.ai/onnx/operators/onnx__Softmax.html
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import HALF
from torch_ort_session.ops.kernel import kernel


@kernel("Softmax", since=(13,))
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Softmax over one dim; the result has the shape and dtype of ``x``."""
    return torch.softmax(x, axis)


@kernel("LogSoftmax", since=(13,))
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Logarithm of softmax over one dim; the result has the shape and dtype of ``x``."""
    if x.dtype in HALF:
        # torch's own kernel for halves is off by up to 3 units in the last place.
        return torch.log_softmax(x, axis, dtype=torch.float32).to(x.dtype)
    return torch.log_softmax(x, axis)


@kernel("Hardmax", since=(13,))
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """1 at the first greatest element along one dim, 0 elsewhere; shape and dtype of ``x``."""
    if x.numel() == 0:
        return torch.zeros_like(x)
    if x.ndim == 0:
        return torch.ones_like(x)
    index = torch.argmax(x, axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, index, 1.0)


@kernel("Softmax", since=(1, 11))
def softmax_of_matrix(x: Tensor, *, axis: int = 1) -> Tensor:
    """Softmax over all dims from ``axis`` on; the result has the shape and dtype of ``x``."""
    if axis == x.ndim - 1 or axis == -1:
        return torch.softmax(x, -1)
    return _as_matrix(softmax, x, axis)


@kernel("LogSoftmax", since=(1, 11))
def log_softmax_of_matrix(x: Tensor, *, axis: int = 1) -> Tensor:
    """Logarithm of softmax over all dims from ``axis`` on; shape and dtype of ``x``."""
    if axis == x.ndim - 1 or axis == -1:
        return log_softmax(x)
    return _as_matrix(log_softmax, x, axis)


@kernel("Hardmax", since=(1, 11))
def hardmax_of_matrix(x: Tensor, *, axis: int = 1) -> Tensor:
    """1 at the first greatest element of all dims from ``axis`` on, 0 elsewhere."""
    return _as_matrix(hardmax, x, axis)


def _as_matrix(fn: Callable[[Tensor], Tensor], x: Tensor, axis: int) -> Tensor:
    """``fn`` over the columns of ``x`` taken as a matrix that splits at ``axis``.

    Raises:
        ValueError: ``axis`` is outside of ``[-rank, rank]``.
    """
    if not -x.ndim <= axis <= x.ndim:
        raise ValueError(f"axis {axis} is outside of an input of {x.ndim} dims.")
    start = axis + x.ndim if axis < 0 else axis
    rows = 1
    for size in x.shape[:start]:
        rows *= size
    columns = 1
    for size in x.shape[start:]:
        columns *= size
    return fn(x.reshape(rows, columns)).reshape(x.shape)
