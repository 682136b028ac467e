"""The reductions with their axes as an input: from opset 18 on, ReduceSum from 13.

All kernels here take ``axes`` (dims to reduce), ``keepdims`` (whether they stay as 1) and
``noop_with_empty_axes`` (whether no axes means none rather than all), and give the dtype of their input.
Sources: https://onnx.ai/onnx/operators/onnx__ReduceSum.html and its fellows
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx import reduction
from torch_ort_session.ops.onnx.reduction import reduce_over


@kernel("ReduceSum", since=(13,), host=("axes",))
def reduce_sum(
    x: Tensor,
    axes: list[int] | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:
    """Sum over ``axes``."""
    if axes and x.dtype.is_floating_point:
        return torch.sum(x, axes, keepdims != 0)
    return reduce_over(reduction.total, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceMean", since=(18,), host=("axes",))
def reduce_mean(
    x: Tensor,
    axes: list[int] | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:
    """Mean over ``axes``."""
    if axes and x.dtype.is_floating_point:
        return torch.mean(x, axes, keepdims != 0)
    return reduce_over(reduction.mean, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceMax", since=(18, 20), host=("axes",))
def reduce_max(
    x: Tensor,
    axes: list[int] | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:
    """Greatest element over ``axes``."""
    if axes and x.dtype.is_floating_point and x.numel():
        return torch.amax(x, axes, keepdims != 0)
    return reduce_over(reduction.maximum, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceMin", since=(18, 20), host=("axes",))
def reduce_min(
    x: Tensor,
    axes: list[int] | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Tensor:
    """Least element over ``axes``."""
    if axes and x.dtype.is_floating_point and x.numel():
        return torch.amin(x, axes, keepdims != 0)
    return reduce_over(reduction.minimum, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceProd", since=(18,), host=("axes",))
def reduce_prod(
    x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    """Product over ``axes``."""
    return reduce_over(reduction.product, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceL1", since=(18,), host=("axes",))
def reduce_l1(
    x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    """Sum of absolute values over ``axes``."""
    return reduce_over(reduction.norm1, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceL2", since=(18,), host=("axes",))
def reduce_l2(
    x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    """Square root of the sum of squares over ``axes``."""
    return reduce_over(reduction.norm2, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceLogSum", since=(18, 28), host=("axes",))
def reduce_log_sum(
    x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    """Logarithm of the sum over ``axes``."""
    return reduce_over(reduction.log_sum, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceLogSumExp", since=(18, 28), host=("axes",))
def reduce_log_sum_exp(
    x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    """Logarithm of the sum of exponentials over ``axes``."""
    return reduce_over(reduction.log_sum_exp, x, axes, keepdims, noop_with_empty_axes)


@kernel("ReduceSumSquare", since=(18,), host=("axes",))
def reduce_sum_square(
    x: Tensor, axes: list[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Tensor:
    """Sum of squares over ``axes``."""
    return reduce_over(reduction.sum_square, x, axes, keepdims, noop_with_empty_axes)
