"""Affine, Scale, ParametricSoftplus, ScaledTanh and DynamicSlice: of ai.onnx, though onnx has dropped them.

Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md (experimental)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx.slice import slice_ as onnx_slice


@kernel("Affine", since=(0,))
def affine(x: Tensor, *, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """``alpha * x + beta``.

    Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md#Affine
    """
    return x * alpha + beta


@kernel("Scale", since=(0,))
def scale_by(x: Tensor, *, scale: float = 1.0) -> Tensor:
    """``scale * x``.

    Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md#Scale
    """
    return x * scale


@kernel("ParametricSoftplus", since=(0,))
def parametric_softplus(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    """``alpha * log(exp(beta * x) + 1)``, for large numbers too.

    Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md#ParametricSoftplus
    """
    return F.softplus(x * beta) * alpha


@kernel("ScaledTanh", since=(0,))
def scaled_tanh(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    """``alpha * tanh(beta * x)``.

    Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md#ScaledTanh
    """
    return torch.tanh(x * beta) * alpha


@kernel("DynamicSlice", since=(0,), host=("starts", "ends", "axes"), view_of="data")
def dynamic_slice(data: Tensor, starts: list[int], ends: list[int], axes: list[int] | None = None) -> Tensor:
    """A part of ``data``, as Slice takes it by steps of 1.

    Args:
        data: Tensor or strings.
        starts: First place by axis; a negative one counts from the end.
        ends: Place behind the last one.
        axes: The axes; the first ones when absent.

    Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md#DynamicSlice
    """
    return onnx_slice(data, starts, ends, axes)
