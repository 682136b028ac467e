"""Sum, Mean, Max and Min of any number of tensors.

Revisions up to 6 want equal shapes, later ones broadcast; equal shapes broadcast to themselves.
Sources: https://onnx.ai/onnx/operators/onnx__Sum.html and its fellows
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import HALF, UNSIGNED, with_order
from torch_ort_session.ops.kernel import kernel


@kernel("Sum", since=(1, 6, 8, 13))
def sum_(*xs: Tensor, consumed_inputs: list[int] | None = None) -> Tensor:
    """Elementwise sum of floats of one dtype; ``consumed_inputs`` has no effect."""
    if len(xs) == 2:
        return torch.add(xs[0], xs[1])
    if len(xs) == 1:
        return xs[0].clone()
    return _added(xs).to(xs[0].dtype)


@kernel("Mean", since=(1, 6, 8, 13))
def mean(*xs: Tensor, consumed_inputs: list[int] | None = None) -> Tensor:
    """Elementwise mean of floats of one dtype; ``consumed_inputs`` has no effect."""
    if len(xs) == 1:
        return xs[0].clone()
    return (_added(xs) / len(xs)).to(xs[0].dtype)


@kernel("Max", since=(1, 6, 8, 12, 13))
def max_(*xs: Tensor, consumed_inputs: list[int] | None = None) -> Tensor:
    """Elementwise greatest of numbers of one dtype, NaN where there is one."""
    if len(xs) == 2 and xs[0].dtype not in UNSIGNED:
        return torch.maximum(xs[0], xs[1])
    result = xs[0] if len(xs) > 1 else xs[0].clone()
    for x in xs[1:]:
        result = with_order(torch.maximum, result, x)
    return result


@kernel("Min", since=(1, 6, 8, 12, 13))
def min_(*xs: Tensor, consumed_inputs: list[int] | None = None) -> Tensor:
    """Elementwise least of numbers of one dtype, NaN where there is one."""
    if len(xs) == 2 and xs[0].dtype not in UNSIGNED:
        return torch.minimum(xs[0], xs[1])
    result = xs[0] if len(xs) > 1 else xs[0].clone()
    for x in xs[1:]:
        result = with_order(torch.minimum, result, x)
    return result


def _added(xs: tuple[Tensor, ...]) -> Tensor:
    # A chain of half-precision sums would round at every step.
    result = xs[0].to(torch.float32) if xs[0].dtype in HALF else xs[0]
    for x in xs[1:]:
        result = torch.add(result, x)
    return result
