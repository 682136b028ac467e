"""Mixtures of experts of com.microsoft: MoE, QMoE.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MoE
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import counts_routes, note_routes
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.experts import Activation, Projection, mix, route
from torch_ort_session.ops.microsoft.nibbles import unpacked


@kernel(
    "MoE",
    domain="com.microsoft",
    since=(1,),
    checks=counts_routes,
    native=("expert_rows", "expert_rows_nbits"),
)
def moe(
    x: Tensor,
    router_probs: Tensor,
    fc1_weights: Tensor,
    fc1_bias: Tensor | None,
    fc2_weights: Tensor,
    fc2_bias: Tensor | None = None,
    fc3_weights: Tensor | None = None,
    fc3_bias: Tensor | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
    ctx: KernelContext,
) -> Tensor:
    """For each token the weighted sum of what its ``k`` best experts make of it.

    Args:
        x: [T, H] or [B, L, H].
        router_probs: Logits [T, E].
        fc1_weights: [E, I, H]; 2 I rows where gates and values share them.
        fc1_bias: [E, rows].
        fc2_weights: [E, H, I].
        fc2_bias: [E, H].
        fc3_weights: [E, I, H], the values of gates.
        fc3_bias: [E, I].
        activation_alpha: Factor of the gate within swiglu's sigmoid.
        activation_beta: Added to swiglu's values.
        activation_type: relu, relu2, gelu (by tanh), silu, identity, swiglu or geglu.
        k: Experts a token.
        normalize_routing_weights: Whether the shares of a token's experts sum to 1.
        swiglu_fusion: 1 where gates and values come by turns, 2 one after the other, 0 not together.
        swiglu_limit: Bound of gates and values.
        swiglu_limit_after_activation: Whether the activated gate is bounded instead.
        use_sparse_mixer: Whether each of two experts is only weighed against those that score nearly as high.
        ctx: Where it is counted how often an expert is chosen.

    Returns:
        Shape of ``x``.

    Raises:
        ValueError: An attribute has no meaning.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MoE
    """
    tokens = x.reshape(-1, x.shape[-1])
    experts, shares = route(router_probs, k, normalize_routing_weights != 0, use_sparse_mixer != 0)
    note_routes(experts, router_probs.shape[-1], ctx)
    third = None if fc3_weights is None else Projection((fc3_weights,), _same, fc3_bias, 0)
    projections = (
        Projection((fc1_weights,), _same, fc1_bias, 0),
        Projection((fc2_weights,), _same, fc2_bias, 0),
        third,
    )
    late = swiglu_limit_after_activation != 0
    activation = Activation(
        activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit, late
    )
    return mix(tokens, experts, shares, fc1_weights.shape[0], projections, activation).reshape(x.shape)


@kernel(
    "QMoE",
    domain="com.microsoft",
    since=(1,),
    checks=counts_routes,
    native=("expert_rows", "expert_rows_nbits"),
)
def qmoe(
    x: Tensor,
    router_probs: Tensor,
    fc1_weights: Tensor,
    fc1_scales: Tensor | None,
    fc1_bias: Tensor | None,
    fc2_weights: Tensor,
    fc2_scales: Tensor | None = None,
    fc2_bias: Tensor | None = None,
    fc3_weights: Tensor | None = None,
    fc3_scales: Tensor | None = None,
    fc3_bias: Tensor | None = None,
    fc1_zero_points: Tensor | None = None,
    fc2_zero_points: Tensor | None = None,
    fc3_zero_points: Tensor | None = None,
    router_weights: Tensor | None = None,
    fc1_global_scale: Tensor | None = None,
    fc2_global_scale: Tensor | None = None,
    fc1_act_scale: Tensor | None = None,
    fc2_act_scale: Tensor | None = None,
    fc1_act_block_scale: Tensor | None = None,
    fc2_act_block_scale: Tensor | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int | None = None,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
    ctx: KernelContext,
) -> Tensor:
    """MoE whose weights are quantized: ``(number - zero point) * scale`` by row, or by block of a row.

    Args:
        x: [T, H] or [B, L, H].
        router_probs: Logits [T, E].
        fc1_weights: uint8 [E, rows, H * bits / 8], the lowest bits first; or float8 [E, rows, H].
        fc1_scales: [E, rows] or [E, rows, blocks]; for float8 by square block.
        fc1_bias: [E, rows].
        fc2_weights: Like the first, [E, H, I * bits / 8].
        fc2_scales: Like the first.
        fc2_bias: [E, H].
        fc3_weights: Like the first, the values of gates.
        fc3_scales: Like the first.
        fc3_bias: [E, I].
        fc1_zero_points: One a scale, packed like the weights along the last axis; None is half the range.
        fc2_zero_points: Like the first.
        fc3_zero_points: Like the first.
        router_weights: [T, E], the shares that experts get once they are chosen.
        fc1_global_scale: float32 [E], for float8 without blocks.
        fc2_global_scale: Like the first.
        fc1_act_scale: Not supported.
        fc2_act_scale: Not supported.
        fc1_act_block_scale: Not supported.
        fc2_act_block_scale: Not supported.
        accuracy_level: How coarse the products may be; they are computed in the type of ``x`` anyway.
        activation_alpha: As for MoE.
        activation_beta: As for MoE.
        activation_type: As for MoE.
        block_size: Columns of a block.
        expert_weight_bits: 2, 3, 4 or 8.
        fc1_expert_weight_bits: Of the first projection, where it differs.
        fc2_expert_weight_bits: Of the second.
        fc3_expert_weight_bits: Of the third.
        k: As for MoE.
        normalize_routing_weights: As for MoE.
        quant_type: int or fp8.
        swiglu_fusion: As for MoE.
        swiglu_limit: As for MoE.
        swiglu_limit_after_activation: As for MoE.
        use_sparse_mixer: As for MoE.
        weights_prepacked: -1 or 0: the layout above.
        ctx: Where it is counted how often an expert is chosen.

    Returns:
        Shape of ``x``.

    Raises:
        ValueError: An attribute has no meaning, or another layout is asked for.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QMoE
    """
    scaled = (fc1_act_scale, fc2_act_scale, fc1_act_block_scale, fc2_act_block_scale)
    if quant_type not in ("int", "fp8") or weights_prepacked == 1 or any(s is not None for s in scaled):
        raise ValueError(
            f"quant_type {quant_type!r}, weights_prepacked {weights_prepacked}, or scales of activations "
            "are not supported; int and fp8 weights in the plain layout are."
        )

    def projection(
        weights: Tensor,
        scales: Tensor | None,
        zeros: Tensor | None,
        bias: Tensor | None,
        total: Tensor | None,
        bits: int | None,
    ) -> Projection:
        make: Callable[..., Tensor]
        if quant_type == "fp8":
            make = functools.partial(_squares, block=block_size or 0)
            return Projection((weights, scales if block_size else total), make, bias)
        make = functools.partial(_numbers, bits=bits or expert_weight_bits)
        return Projection((weights, scales, zeros), make, bias, bits or expert_weight_bits)

    third = None
    if fc3_weights is not None:
        third = projection(fc3_weights, fc3_scales, fc3_zero_points, fc3_bias, None, fc3_expert_weight_bits)
    one, two = fc1_expert_weight_bits, fc2_expert_weight_bits
    first = projection(fc1_weights, fc1_scales, fc1_zero_points, fc1_bias, fc1_global_scale, one)
    second = projection(fc2_weights, fc2_scales, fc2_zero_points, fc2_bias, fc2_global_scale, two)
    late = swiglu_limit_after_activation != 0
    activation = Activation(
        activation_type, swiglu_fusion, activation_alpha, activation_beta, swiglu_limit, late
    )
    normalize, sparse = normalize_routing_weights != 0, use_sparse_mixer != 0
    experts, shares = route(router_probs, k, normalize, sparse, router_weights)
    note_routes(experts, router_probs.shape[-1], ctx)
    tokens = x.reshape(-1, x.shape[-1])
    y = mix(tokens, experts, shares, fc1_weights.shape[0], (first, second, third), activation)
    return y.reshape(x.shape)


def _same(weight: Tensor) -> Tensor:
    return weight


def _numbers(weight: Tensor, scale: Tensor | None, zero: Tensor | None, *, bits: int) -> Tensor:
    """Weights [..., N, K] from packed numbers, and scales by row [..., N] or by block [..., N, blocks]."""
    if scale is None:
        raise ValueError("integer weights need scales.")
    by_row = scale.dim() < weight.dim()
    number = unpacked(weight, bits).to(scale.dtype)
    if zero is None:
        number = number - (1 << (bits - 1))
    else:
        zero = unpacked(zero, bits)[..., : scale.shape[-1]].to(scale.dtype)
    if by_row:
        number = number if zero is None else number - zero.unsqueeze(-1)
        return number * scale.unsqueeze(-1)
    blocked = number.reshape(*scale.shape, number.shape[-1] // scale.shape[-1])
    blocked = blocked if zero is None else blocked - zero.unsqueeze(-1)
    return (blocked * scale.unsqueeze(-1)).flatten(-2)


def _squares(weight: Tensor, scale: Tensor | None, *, block: int) -> Tensor:
    """Weights [..., N, K] from float8, with one scale for all of an expert or one a square block."""
    if scale is None:
        raise ValueError("float8 weights need scales by block, or a global one.")
    wide = weight.to(torch.float32)
    if not block:
        return wide * scale.reshape(*scale.shape, 1, 1)
    rows, columns = weight.shape[-2:]
    spread = scale.to(torch.float32).repeat_interleave(block, -2).repeat_interleave(block, -1)
    return wide * spread[..., :rows, :columns]
