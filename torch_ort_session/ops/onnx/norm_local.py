"""Normalizations without learned parameters: LRN, LpNormalization, MeanVarianceNormalization.

Sources: https://onnx.ai/onnx/operators/onnx__LRN.html and the pages of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel


@kernel("LRN", since=(1, 13))
def lrn(
    x: Tensor,
    *,
    alpha: float = 9.999999747378752e-05,
    beta: float = 0.75,
    bias: float = 1.0,
    size: int,
) -> Tensor:
    """Divided by a power of the squares summed over the nearest channels.

    Args:
        x: [N, C, D1..Dn].
        alpha: Factor of the mean square.
        beta: Exponent.
        bias: Added to the scaled mean square.
        size: Number of channels to sum over.

    Source: https://onnx.ai/onnx/operators/onnx__LRN.html
    """
    channels = x.shape[1]
    pads = [0, 0] * (x.dim() - 2) + [(size - 1) // 2, size // 2]
    squares = torch.constant_pad_nd(x * x, pads)
    # Adding shifted slices was measured faster on the CPU than a pooling along the channels.
    total = squares.narrow(1, 0, channels)
    for shift in range(1, size):
        total = total + squares.narrow(1, shift, channels)
    return x / torch.pow(total * (alpha / size) + bias, beta)


@kernel("LpNormalization", since=(1, 22))
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Divided by the p-norm along an axis; zero where that is zero.

    Args:
        x: Any shape.
        axis: Axis of the norm.
        p: 1 or 2.

    Source: https://onnx.ai/onnx/operators/onnx__LpNormalization.html
    """
    norm = torch.linalg.vector_norm(x, p, dim=axis, keepdim=True)
    # Where the norm is zero, so is everything it divides.
    return x / torch.where(norm == 0, 1.0, norm)


@kernel("MeanVarianceNormalization", since=(9, 13))
def mean_variance_normalization(x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    """Mean 0 and deviation 1 over some axes.

    Args:
        x: Any shape.
        axes: Axes to normalize over.

    Source: https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html
    """
    var, mean = torch.var_mean(x, tuple(axes), correction=0, keepdim=True)
    return (x - mean) / (torch.sqrt(var) + 1e-9)
