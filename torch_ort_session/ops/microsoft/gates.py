"""Gated activations and sums of com.microsoft, each rounded where its parts would be.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.gates import Gate, Gating, activated
from torch_ort_session.ops.kernel import kernel


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in; torch.promote_types would be seen by a recording."""
    return dtype if dtype == torch.float64 else torch.float32


@kernel("GatedAdd", domain="com.microsoft", since=(1,))
def gated_add(x: Tensor, y: Tensor, gate: Tensor, gate_weight: Tensor | None = None) -> Tensor:
    """``x + y * gate`` with a gate for each row.

    Args:
        x: Floats [..., C].
        y: [..., C].
        gate: [..., 1], or beside a weight [..., K].
        gate_weight: [K, 1]: the gate is then the sigmoid of the product.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GatedAdd
    """
    if gate_weight is not None:
        wide = _wide(gate.dtype)
        product = torch.matmul(gate.to(wide), gate_weight.to(wide)).to(gate.dtype)
        gate = torch.sigmoid(product.to(wide)).to(gate.dtype)
    return x + y * gate


@kernel("ScaledSiLU", domain="com.microsoft", since=(1,))
def scaled_silu(x: Tensor, scale: Tensor | None = None, *, alpha: float = 1.0) -> Tensor:
    """``z * sigmoid(z)`` of ``z = x * scale``.

    Args:
        x: Floats.
        scale: A number; ``alpha`` when absent.
        alpha: The number.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.ScaledSiLU
    """
    if scale is None:
        z = x * alpha
    else:
        wide = _wide(x.dtype)
        z = (x.to(wide) * scale.reshape(()).to(wide)).to(x.dtype)
    return z * torch.sigmoid(z)


@kernel("SwiGLU", domain="com.microsoft", since=(1,), native=("activate",))
def swiglu(
    gate: Tensor,
    up: Tensor | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    round_activation: int = 0,
) -> Tensor:
    """``g * sigmoid(alpha * g) * (l + beta)`` of a gate g and a linear half l.

    Args:
        gate: Floats [..., D], or without ``up`` both halves [..., 2 * D].
        up: [..., D].
        activation_alpha: Factor in the sigmoid.
        activation_beta: Added to the linear half.
        limit: Above 0 the gate is cut there, and the linear half there and at its negative.
        round_activation: Whether the first product is rounded to the dtype of ``gate``.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.SwiGLU
    """
    y = activated(
        Gate.SIGMOID,
        gate,
        up,
        halves=up is None,
        gating=Gating(activation_alpha, activation_beta, limit, round_activation != 0),
    )
    if y is not None:
        return y
    dtype = gate.dtype
    if up is None:
        gate, up = gate.chunk(2, -1)
    wide = _wide(dtype)
    gate, up = gate.to(wide), up.to(wide)
    if limit > 0:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    active = gate * torch.sigmoid(gate * activation_alpha)
    if round_activation:
        active = active.to(dtype).to(wide)
    return (active * (up + activation_beta if activation_beta else up)).to(dtype)


@kernel("BiasSoftmax", domain="com.microsoft", since=(1,))
def bias_softmax(data: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int) -> Tensor:
    """Softmax of ``data + bias`` over all dims from ``axis`` on.

    Args:
        data: Floats.
        bias: From ``axis`` on of the dims of ``data``; of those before it has the first ones, the last ones
            being 1, or the other way about.
        axis: First dim of the softmax.
        is_inner_broadcast: 1 where the bias is the same along the dims next to ``axis``, 0 along the first.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BiasSoftmax
    """
    if not data.numel():
        return data.clone()
    tail = data.shape[axis:].numel()
    rows = bias.reshape(-1, tail)
    total = (
        data.reshape(rows.shape[0], -1, tail) if is_inner_broadcast else data.reshape(-1, rows.shape[0], tail)
    )
    total = total + (rows[:, None] if is_inner_broadcast else rows)
    return torch.softmax(total, -1).reshape(data.shape)


@kernel("ComplexMul", domain="com.microsoft", since=(1,))
def complex_mul(a: Tensor, b: Tensor) -> Tensor:
    """The product of complex numbers.

    Args:
        a: Floats [..., 2]: real and imaginary parts.
        b: [..., 2], broadcast with ``a``.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.ComplexMul
    """
    (ar, ai), (br, bi) = a.unbind(-1), b.unbind(-1)
    return torch.stack((ar * br - ai * bi, ar * bi + ai * br), -1)


@kernel("ComplexMulConj", domain="com.microsoft", since=(1,))
def complex_mul_conj(a: Tensor, b: Tensor) -> Tensor:
    """The product of complex numbers with the conjugates of others.

    Args:
        a: Floats [..., 2]: real and imaginary parts.
        b: [..., 2], broadcast with ``a``.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.ComplexMulConj
    """
    (ar, ai), (br, bi) = a.unbind(-1), b.unbind(-1)
    return torch.stack((ar * br + ai * bi, ai * br - ar * bi), -1)
