"""Sequences of several lengths behind one another, with states: GatedDeltaNet and VarlenCausalConvWithState.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.checks import check_range, has_input
from torch_ort_session.ops.common.delta_rule import Walk, rule, walk, walk_rows
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel


def _rows(ends: Tensor, count: int) -> Tensor:
    """The sequence that each of ``count`` tokens lies in."""
    place = torch.arange(count, device=ends.device)
    return torch.searchsorted(ends, place, right=True).clamp(max=ends.shape[0] - 1)


@kernel("GatedDeltaNet", domain="com.microsoft", since=(1,), checks=has_input(3), native=("check_range",))
def gated_delta_net(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    initial_state: Tensor | None = None,
    a_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    capture_count: Tensor | None = None,
    state_update_active: Tensor | None = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    gate_lower_bound: float = -5.0,
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Linear attention of tokens behind one another, each sequence with a state of its own.

    Args:
        query: [T, H, D] or [B, L, H, D]; or all three side by side [T, 2 * H * D + G * E].
        key: Like ``query``.
        value: [T, G, E] or [B, L, G, E], G a multiple of H.
        cu_seqlens: int32 [B + 1], where sequences begin, and the end; None for sequences of one length.
        decay: Logarithms of the decay [T, G] or [T, G, D], or what ``gate_activation`` makes them of.
        beta: Strength of the correction [T, G].
        initial_state: float32 [B, G, E, D]; None is zeros.
        a_log: float32 [G], for the gate.
        dt_bias: float32 [G] or [G, D], for the gate.
        capture_count: Goes with ``state_update_capacity``.
        state_update_active: Goes with ``state_update_capacity``.
        beta_activation: none or sigmoid.
        chunk_size: A hint that changes no result; not used.
        gate_activation: none, softplus (or qwen) or sigmoid (or kda).
        gate_lower_bound: Factor of the sigmoid.
        qk_l2_norm: Whether queries and keys are brought to length 1.
        scale: Factor of the result; 0 is ``1 / sqrt(D)``.
        state_update_capacity: Not supported.
        update_rule: linear, gated, delta or gated_delta.
        ctx: Tells whether the states are wanted.

    Returns:
        The result in the shape of ``value``, and where asked for the states after the last tokens.

    Raises:
        ValueError: Inputs or attributes do not fit each other, or an option that is not supported.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GatedDeltaNet
    """
    if state_update_capacity:
        raise ValueError("state_update_capacity is not supported.")
    gated, corrected = rule(update_rule, decay, beta)
    if key is None or value is None:
        query, key, value = _unpacked(query, initial_state)
    shape, width = value.shape, query.shape[-1]
    q, k, v = (part.to(torch.float32).reshape(-1, *part.shape[-2:]) for part in (query, key, value))
    if qk_l2_norm:
        q, k = (F.normalize(part, dim=-1, eps=1e-6) for part in (q, k))
    groups = v.shape[1]
    q, k = (part.repeat_interleave(groups // part.shape[1], 1) for part in (q, k))
    q = q * (scale or 1.0 / math.sqrt(width))
    factor = strength = None
    if gated and decay is not None:
        decays = decay.to(torch.float32).reshape(v.shape[0], groups, -1)
        factor = torch.exp(_gate(decays, a_log, dt_bias, gate_activation, gate_lower_bound))
    if corrected and beta is not None:
        strength = beta.to(torch.float32).reshape(v.shape[0], groups, 1)
        strength = torch.sigmoid(strength) if beta_activation == "sigmoid" else strength
    batch = _batch(cu_seqlens, initial_state, shape)
    state = v.new_zeros(batch, groups, width, v.shape[2])
    if initial_state is not None:
        state = initial_state.to(torch.float32).transpose(2, 3)
    if cu_seqlens is None:
        walked = _even(q, k, v, state, factor, strength)
    else:
        sums = check_range(cu_seqlens, 0, v.shape[0], Flag.LENGTH, ctx)
        rows = _rows(sums[1:], v.shape[0])
        walked = walk_rows(q, k, v, state, factor, strength, rows)
    y = walked.reads.reshape(shape).to(query.dtype)
    return y, walked.states[-1].transpose(2, 3).contiguous() if ctx.wants(1) else None


def _unpacked(packed: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    if state is None:
        raise ValueError("packed queries, keys and values need initial_state.")
    groups, values, width = state.shape[1:]
    heads = (packed.shape[-1] - groups * values) // (2 * width)
    parts = torch.split(packed, [heads * width, heads * width, groups * values], -1)
    sizes = ((heads, width), (heads, width), (groups, values))
    q, k, v = (part.reshape(*part.shape[:-1], *size) for part, size in zip(parts, sizes, strict=True))
    return q, k, v


def _gate(decay: Tensor, a_log: Tensor | None, bias: Tensor | None, activation: str, lowest: float) -> Tensor:
    """The logarithm of the decay [T, G, 1 or D]."""
    if activation == "none":
        return decay
    if activation not in ("softplus", "qwen", "sigmoid", "kda"):
        raise ValueError(f"gate_activation must be none, softplus or sigmoid, not {activation!r}.")
    if a_log is None or bias is None:
        raise ValueError(f"gate_activation {activation!r} needs a_log and dt_bias.")
    rate = torch.exp(a_log).reshape(-1, 1)
    raw = decay + bias.reshape(a_log.shape[0], -1)
    return (
        -rate * F.softplus(raw) if activation in ("softplus", "qwen") else lowest * torch.sigmoid(rate * raw)
    )


def _batch(cu_seqlens: Tensor | None, state: Tensor | None, shape: torch.Size) -> int:
    if state is not None:
        return state.shape[0]
    if cu_seqlens is not None:
        return cu_seqlens.shape[0] - 1
    if len(shape) == 4:
        return shape[0]
    raise ValueError("sequences of one length need initial_state, which tells how many there are.")


def _even(
    q: Tensor, k: Tensor, v: Tensor, state: Tensor, factor: Tensor | None, strength: Tensor | None
) -> Walk:
    """The walk along sequences of one length; what is read comes token by token again."""
    batch = state.shape[0]

    def by_sequence(x: Tensor) -> Tensor:
        return x.reshape(batch, x.shape[0] // batch, *x.shape[1:]).transpose(1, 2)

    walked = walk(
        by_sequence(q).unsqueeze(2),
        by_sequence(k),
        by_sequence(v),
        state,
        None if factor is None else by_sequence(factor),
        None if strength is None else by_sequence(strength),
    )
    return Walk(walked.reads.squeeze(2).transpose(1, 2), walked.states, walked.writes)


@kernel("VarlenCausalConvWithState", domain="com.microsoft", since=(1,), checks=True, native=("check_range",))
def varlen_causal_conv_with_state(
    x: Tensor,
    weight: Tensor,
    cumulative_sequence_length: Tensor,
    bias: Tensor | None,
    initial_state: Tensor,
    capture_count: Tensor | None = None,
    kernel_delta: Tensor | None = None,
    previous_mask: Tensor | None = None,
    *,
    activation: str = "none",
    delta_offset: int = 0,
    dilation: int = 1,
    group_size: int = 1,
    state_update_capacity: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Convolution of each channel with its own kernel over the present and what came before it.

    Args:
        x: [T, C], sequences behind one another.
        weight: [C, 1, K].
        cumulative_sequence_length: int32 [B + 1], where sequences begin, and the end.
        bias: [C].
        initial_state: [B, C, (K - 1) * dilation], what comes before each sequence.
        capture_count: int32 [B], how many tokens of each sequence the third output shows.
        kernel_delta: Not supported.
        previous_mask: Not supported.
        activation: none, silu or swish (another name of silu).
        delta_offset: Goes with ``kernel_delta``.
        dilation: Steps from one weight to the next.
        group_size: Goes with ``kernel_delta``.
        state_update_capacity: Most tokens that are shown.
        ctx: Is told of sequences that end outside of the tokens.

    Returns:
        The result [T, C], the states after the sequences, and the first tokens [B, capacity, C].

    Raises:
        ValueError: An unknown activation, or an option that is not supported.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.VarlenCausalConvWithState
    """
    if kernel_delta is not None or previous_mask is not None:
        raise ValueError("kernels that differ by token are not supported.")
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation must be none, silu or swish, not {activation!r}.")
    sums = check_range(cumulative_sequence_length, 0, x.shape[0], Flag.LENGTH, ctx)
    starts, ends = sums[:-1], sums[1:]
    row = _rows(ends, x.shape[0])
    local = torch.arange(x.shape[0], device=x.device) - starts[row]
    before = initial_state.shape[2]
    old = initial_state.transpose(1, 2)

    tokens = x if x.shape[0] else x.new_zeros(1, x.shape[1])

    def at(rows: Tensor, where: Tensor) -> Tensor:
        new = tokens[(starts[rows] + where).clamp(0, tokens.shape[0] - 1)]
        if not before:
            return new
        return torch.where((where >= 0).unsqueeze(-1), new, old[rows, (where + before).clamp(0, before - 1)])

    taps, wide = weight.shape[2], torch.float32 if x.dtype != torch.float64 else x.dtype
    total = torch.zeros_like(x, dtype=wide) if bias is None else bias.to(wide).expand_as(x)
    for tap in range(taps):
        total = total + at(row, local - (taps - 1 - tap) * dilation).to(wide) * weight[:, 0, tap].to(wide)
    y = (F.silu(total) if activation != "none" else total).to(x.dtype)
    every = torch.arange(starts.shape[0], device=x.device).unsqueeze(1)
    slot = torch.arange(before, device=x.device)
    final = at(every, (ends - starts).unsqueeze(1) - before + slot).transpose(1, 2)
    update = None
    if state_update_capacity and capture_count is not None:
        step = torch.arange(state_update_capacity, device=x.device)
        shown = torch.minimum(capture_count.to(torch.int64), ends - starts).unsqueeze(1)
        first = at(every, step.expand(starts.shape[0], -1))
        update = torch.where((step < shown).unsqueeze(-1), first, torch.zeros_like(first))
    return y, final.contiguous(), update
