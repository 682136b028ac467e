"""The reductions with their axes as an attribute: up to opset 17, ReduceSum up to 12.

All kernels here take ``axes`` (dims to reduce, all when absent) and ``keepdims`` (whether they stay as 1),
and give the dtype of their input.
Sources: https://onnx.ai/onnx/operators/onnx__ReduceSum.html and its fellows
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx import reduction
from torch_ort_session.ops.onnx.reduction import reduce_over


@kernel("ReduceSum", since=(1, 11))
def reduce_sum_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Sum over ``axes``."""
    if axes and x.dtype.is_floating_point:
        return torch.sum(x, axes, keepdims != 0)
    return reduce_over(reduction.total, x, axes, keepdims)


@kernel("ReduceMean", since=(1, 11, 13))
def reduce_mean_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Mean over ``axes``."""
    if axes and x.dtype.is_floating_point:
        return torch.mean(x, axes, keepdims != 0)
    return reduce_over(reduction.mean, x, axes, keepdims)


@kernel("ReduceMax", since=(1, 11, 12, 13))
def reduce_max_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Greatest element over ``axes``."""
    if axes and x.dtype.is_floating_point and x.numel():
        return torch.amax(x, axes, keepdims != 0)
    return reduce_over(reduction.maximum, x, axes, keepdims)


@kernel("ReduceMin", since=(1, 11, 12, 13))
def reduce_min_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Least element over ``axes``."""
    if axes and x.dtype.is_floating_point and x.numel():
        return torch.amin(x, axes, keepdims != 0)
    return reduce_over(reduction.minimum, x, axes, keepdims)


@kernel("ReduceProd", since=(1, 11, 13))
def reduce_prod_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Product over ``axes``."""
    return reduce_over(reduction.product, x, axes, keepdims)


@kernel("ReduceL1", since=(1, 11, 13))
def reduce_l1_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Sum of absolute values over ``axes``."""
    return reduce_over(reduction.norm1, x, axes, keepdims)


@kernel("ReduceL2", since=(1, 11, 13))
def reduce_l2_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Square root of the sum of squares over ``axes``."""
    return reduce_over(reduction.norm2, x, axes, keepdims)


@kernel("ReduceLogSum", since=(1, 11, 13))
def reduce_log_sum_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Logarithm of the sum over ``axes``."""
    return reduce_over(reduction.log_sum, x, axes, keepdims)


@kernel("ReduceLogSumExp", since=(1, 11, 13))
def reduce_log_sum_exp_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Logarithm of the sum of exponentials over ``axes``."""
    return reduce_over(reduction.log_sum_exp, x, axes, keepdims)


@kernel("ReduceSumSquare", since=(1, 11, 13))
def reduce_sum_square_by_attribute(x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
    """Sum of squares over ``axes``."""
    return reduce_over(reduction.sum_square, x, axes, keepdims)
