"""Activation functions.

Sources: https://onnx.ai/onnx/operators/onnx__Relu.html and the page of each operator
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.gates import Gate, Gating, activated
from torch_ort_session.ops.common.widen import HALF, UNSIGNED, to_float
from torch_ort_session.ops.kernel import kernel

SIXTH = 0.1666666716337204
_LEAK = 0.009999999776482582


@kernel("Relu", since=(1, 6, 13, 14))
def relu(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """``max(x, 0)`` of floats and signed integers; NaN stays NaN."""
    return torch.relu(x)


@kernel("Sigmoid", since=(1, 6, 13))
def sigmoid(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """``1 / (1 + exp(-x))`` of floats."""
    return torch.sigmoid(x)


@kernel("Tanh", since=(1, 6, 13))
def tanh(x: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """Hyperbolic tangent of floats."""
    return torch.tanh(x)


@kernel("LeakyRelu", since=(1, 6, 16))
def leaky_relu(x: Tensor, *, alpha: float = _LEAK, consumed_inputs: list[int] | None = None) -> Tensor:
    """``x`` where it is not negative, ``alpha * x`` elsewhere."""
    return F.leaky_relu(x, alpha)


@kernel("PRelu", since=(7, 9, 16))
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """``x`` where it is not negative, ``slope * x`` elsewhere.

    Args:
        x: Numbers.
        slope: The same dtype; its shape broadcasts to that of ``x``.
    """
    if x.dtype in UNSIGNED:
        return x.clone()
    per_channel = 1 <= slope.ndim == x.ndim - 1 and slope.numel() == slope.shape[0] == x.shape[1]
    if per_channel and x.dtype.is_floating_point:
        return F.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, slope * x, x)


@kernel("PRelu", since=(1, 6))
def prelu_legacy(x: Tensor, slope: Tensor, *, consumed_inputs: list[int] | None = None) -> Tensor:
    """As :func:`prelu`, with one slope for all or one for each channel (axis 1) of ``x``."""
    if slope.ndim == 1 and x.ndim > 1 and slope.shape[0] == x.shape[1]:
        return F.prelu(x, slope)
    return torch.where(x < 0, slope * x, x)


@kernel("Elu", since=(1, 6, 22))
def elu(x: Tensor, *, alpha: float = 1.0, consumed_inputs: list[int] | None = None) -> Tensor:
    """``x`` where it is not negative, ``alpha * (exp(x) - 1)`` elsewhere."""
    return F.elu(x, alpha)


@kernel("Selu", since=(6, 22))
def selu(x: Tensor, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Tensor:
    """``gamma`` times :func:`elu`."""
    if x.dtype in HALF:
        return (gamma * F.elu(to_float(x), alpha)).to(x.dtype)
    return gamma * F.elu(x, alpha)


@kernel("Selu", since=(1,))
def selu_v1(
    x: Tensor,
    *,
    alpha: float = 1.673200011253357,
    gamma: float = 1.0506999492645264,
    consumed_inputs: list[int] | None = None,
) -> Tensor:
    """As :func:`selu`, with coarser defaults."""
    return selu(x, alpha=alpha, gamma=gamma)


@kernel("Celu", since=(12, 28))
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``."""
    return F.celu(x, alpha)


@kernel("HardSigmoid", since=(1, 6, 22))
def hard_sigmoid(
    x: Tensor,
    *,
    alpha: float = 0.20000000298023224,
    beta: float = 0.5,
    consumed_inputs: list[int] | None = None,
) -> Tensor:
    """``alpha * x + beta``, held in [0, 1]."""
    if alpha == SIXTH and beta == 0.5:
        return F.hardsigmoid(x)
    if x.dtype in HALF:
        return torch.clamp(alpha * to_float(x) + beta, 0.0, 1.0).to(x.dtype)
    if beta == 0.5:
        # torch's function has the slope 1/6; two calls are a third of the time of three.
        return F.hardsigmoid(x * (6.0 * alpha))
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@kernel("HardSwish", since=(14, 22))
def hard_swish(x: Tensor) -> Tensor:
    """``x * max(0, min(1, x / 6 + 0.5))``."""
    return F.hardswish(x)


@kernel("Mish", since=(18, 22))
def mish(x: Tensor) -> Tensor:
    """``x * tanh(softplus(x))``."""
    return F.mish(x)


@kernel("Softplus", since=(1, 22))
def softplus(x: Tensor) -> Tensor:
    """``log(exp(x) + 1)``."""
    # Above 40 the result is x in every dtype; torch's own threshold of 20 is too low for float64.
    return F.softplus(x, 1.0, 40.0)


@kernel("Softsign", since=(1, 22))
def softsign(x: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    if x.dtype in HALF:
        return F.softsign(to_float(x)).to(x.dtype)
    return F.softsign(x)


@kernel("ThresholdedRelu", since=(10, 22))
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``x`` where it is greater than ``alpha``, 0 elsewhere."""
    return F.threshold(x, alpha, 0.0)


@kernel("Shrink", since=(9,))
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, 0 between; integers through float64."""
    wide = x if x.dtype.is_floating_point else to_float(x)
    inner = torch.where(wide > lambd, wide - bias, torch.zeros_like(wide))
    return torch.where(wide < -lambd, wide + bias, inner).to(x.dtype)


@kernel("Gelu", since=(20,), native=("activate",))
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution function at ``x``, exactly or by the tanh formula.

    Args:
        x: Floats.
        approximate: ``"none"`` or ``"tanh"``.

    Raises:
        RuntimeError: Another word in ``approximate``.
    """
    y = activated(Gate.TANH_GELU, x) if approximate == "tanh" else None
    return F.gelu(x, approximate=approximate) if y is None else y


@kernel("Swish", since=(24,), native=("activate",))
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``x * sigmoid(alpha * x)``."""
    if alpha == 1.0:
        return F.silu(x)
    y = activated(Gate.SIGMOID, x, gating=Gating(alpha))
    if y is not None:
        return y
    wide = to_float(x)
    return (wide * torch.sigmoid(alpha * wide)).to(x.dtype)


@kernel("SwiGLU", since=(28,), native=("activate",))
def swiglu(a: Tensor, b: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``swish(a) * b``.

    Args:
        a: The gate.
        b: The linear part, of the same shape and dtype.
        alpha: Factor inside the sigmoid.

    Raises:
        ValueError: The shapes differ.
    """
    if a.shape != b.shape:
        raise ValueError(f"SwiGLU takes inputs of one shape, not {tuple(a.shape)} and {tuple(b.shape)}.")
    y = activated(Gate.SIGMOID, a, b, gating=Gating(alpha))
    if y is not None:
        return y
    if a.dtype in HALF:
        return (swish(to_float(a), alpha=alpha) * b).to(a.dtype)
    return swish(a, alpha=alpha) * b
