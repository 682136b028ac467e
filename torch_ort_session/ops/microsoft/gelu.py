"""Gaussian error linear units of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.gates import Gate, Gating, activated
from torch_ort_session.ops.kernel import kernel

_FEW = 1 << 17


@kernel("Gelu", domain="com.microsoft", since=(1,))
def gelu(x: Tensor) -> Tensor:
    """``x * Phi(x)``, where Phi is the normal distribution function.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Gelu
    """
    return F.gelu(x)


@kernel("BiasGelu", domain="com.microsoft", since=(1,), native=("activate",))
def bias_gelu(a: Tensor, b: Tensor) -> Tensor:
    """Gelu of ``a + b``, where ``b`` [D] goes along the last axis.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BiasGelu
    """
    # Of many numbers of 16 bits torch's two passes were measured to be as fast.
    few = a.dtype == torch.float32 or a.numel() <= _FEW
    y = activated(Gate.GELU, a, bias=b) if few else None
    return F.gelu(a + b) if y is None else y


@kernel("FastGelu", domain="com.microsoft", since=(1,), native=("activate",))
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu of ``x + bias`` with the distribution function approximated by ``tanh``.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.FastGelu
    """
    y = activated(Gate.TANH_GELU, x, bias=bias)
    return F.gelu(x if bias is None else x + bias, approximate="tanh") if y is None else y


@kernel("QuickGelu", domain="com.microsoft", since=(1,), native=("activate",))
def quick_gelu(x: Tensor, *, alpha: float = 1.7020000219345093) -> Tensor:
    """``x * sigmoid(alpha * x)``.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QuickGelu
    """
    y = activated(Gate.SIGMOID, x, gating=Gating(alpha))
    return x * torch.sigmoid(x * alpha) if y is None else y
