"""Sequence operators of com.microsoft with a state of fixed size: LinearAttention, CausalConvWithState.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.attention import group_heads, merge_heads, split_heads
from torch_ort_session.ops.common.delta_rule import rule, walk
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("LinearAttention", domain="com.microsoft", since=(1,))
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:
    """Attention through a matrix state that each step decays, corrects, adds to and reads.

    Args:
        query: [B, T, H * D].
        key: [B, T, G * D], or of fewer heads, each shared by neighbours.
        value: [B, T, G * E].
        past_state: [B, G, D, E], or [W, B, G, D, E], of which the last is read.
        decay: Logarithms of the decay [B, T, G] or [B, T, G * D], for the gated rules.
        beta: Strength of the correction [B, T, G] or [B, T, 1], for the delta rules.
        chunk_size: A hint that changes no result; not used.
        kv_num_heads: G; it divides H, or H divides it.
        q_num_heads: H.
        scale: Factor of the result; 0 is ``1 / sqrt(D)``.
        state_window: W, how many of the last states are wanted; 0 is one, without an axis for it.
        update_rule: linear, gated, delta or gated_delta.

    Returns:
        The result [B, T, max(H, G) * E], and the state [B, G, D, E] or states [W, B, G, D, E], the last one
        after the last step; those before the first step are zeros.

    Raises:
        ValueError: Inputs or attributes do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.LinearAttention
    """
    gated, corrected = rule(update_rule, decay, beta)
    groups, heads = kv_num_heads, max(q_num_heads, kv_num_heads)
    if groups <= 0 or heads % groups or heads % q_num_heads:
        raise ValueError(f"{q_num_heads} query heads and {groups} key heads do not divide each other.")
    width = query.shape[2] // q_num_heads
    q = group_heads(_repeated(split_heads(query, q_num_heads).to(torch.float32), heads), groups)
    k = _repeated(split_heads(key, key.shape[2] // width).to(torch.float32), groups)
    v = split_heads(value, groups).to(torch.float32)
    factor = strength = None
    if gated and decay is not None:
        factor = torch.exp(split_heads(decay, groups).to(torch.float32))
    if corrected and beta is not None:
        strength = split_heads(beta, beta.shape[2]).to(torch.float32)
    if past_state is None:
        state = q.new_zeros(q.shape[0], groups, width, v.shape[3])
    else:
        state = (past_state[-1] if state_window else past_state).to(torch.float32)
    walked = walk(q * (scale or 1.0 / math.sqrt(width)), k, v, state, factor, strength, kept=state_window)
    present = walked.states[-1]
    if state_window:
        known = walked.states[-max(min(state_window, k.shape[2]), 1) :]
        blank = [torch.zeros_like(present)] * (state_window - len(known))
        present = torch.stack([*blank, *known])
    kept = query.dtype if past_state is None else past_state.dtype
    return merge_heads(walked.reads.flatten(1, 2)).to(query.dtype), present.to(kept)


def _repeated(x: Tensor, heads: int) -> Tensor:
    """As many heads, each of those there are standing for a run of neighbours."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


@kernel("LinearAttentionGate", domain="com.microsoft", since=(1,))
def linear_attention_gate(
    a: Tensor, dt_bias: Tensor, decay_scale: Tensor, b: Tensor | None = None, *, ctx: KernelContext
) -> tuple[Tensor, Tensor | None]:
    """``decay_scale * softplus(a + dt_bias)`` and ``sigmoid(b)``: decay and beta of LinearAttention.

    Args:
        a: [B, T, H].
        dt_bias: float32 [H].
        decay_scale: float32 [H].
        b: [B, T, H].
        ctx: Tells whether beta is wanted.

    Returns:
        decay, and where asked for beta, both [B, T, H] in the type of ``a``.

    Raises:
        ValueError: beta is wanted without ``b``.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.LinearAttentionGate
    """
    decay = decay_scale * F.softplus(a.to(torch.float32) + dt_bias)
    if not ctx.wants(1):
        return decay.to(a.dtype), None
    if b is None:
        raise ValueError("the output beta needs the input b.")
    return decay.to(a.dtype), torch.sigmoid(b.to(torch.float32)).to(a.dtype)


@kernel("CausalConvWithState", domain="com.microsoft", since=(1,))
def causal_conv_with_state(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    input_channel_offset: int = 0,
    input_channels: int = 0,
    ndim: int = 1,
    state_channels_last: int = -1,
    state_length: int = 0,
    state_update_capacity: int = 0,
    state_window: int = 0,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Convolution of each channel with its own kernel over the present and what came before it.

    Args:
        x: [B, C, L], or with ``channels_last`` [B, L, ...], all dims behind L being channels.
        weight: [C, 1, K].
        bias: [C].
        past_state: [B, C, S] in the layout of ``x``, what comes before it; with a window [W, ...], of which
            the last is read. None is zeros.
        activation: none, silu or swish (another name of silu).
        channels_last: The layout.
        dilation: Steps from one weight to the next.
        input_channel_offset: First channel that is taken.
        input_channels: How many are taken; 0 is all.
        ndim: 1: how to pad other dims is not told.
        state_channels_last: The layout of states where it differs; -1 is that of ``x``.
        state_length: S, when more than the ``(K - 1) * dilation`` elements that are looked at.
        state_update_capacity: How many of the first steps the third output shows.
        state_window: W, how many of the last states are wanted; 0 is one, without an axis for it.

    Returns:
        The result, the last S elements seen (with a window also those before each of the last steps, zeros
        where there are none), and the first steps [B, capacity, C].

    Raises:
        ValueError: An unknown activation, or an option that is not supported.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.CausalConvWithState
    """
    if ndim != 1:
        raise ValueError(
            "ndim other than 1 is not supported: how the other dims are padded is not documented."
        )
    dims = x.shape[2:] if channels_last else x.shape[1:2]
    flat = x.flatten(2).transpose(1, 2) if channels_last else x
    if input_channels or input_channel_offset:
        flat = flat.narrow(1, input_channel_offset, input_channels or flat.shape[1] - input_channel_offset)
        dims = flat.shape[1:2]
    last = bool(channels_last) if state_channels_last < 0 else bool(state_channels_last)
    reach = (weight.shape[2] - 1) * dilation
    before = state_length or reach
    if past_state is None:
        joined = torch.constant_pad_nd(flat, [before, 0])
    else:
        state = past_state[-1] if state_window else past_state
        joined = torch.cat((state.flatten(2).transpose(1, 2) if last else state, flat), 2)
    y = convolved(joined[:, :, before - reach :], weight, bias, activation, dilation)
    length = flat.shape[2]
    shape = [flat.shape[0], before, *dims] if last else [flat.shape[0], flat.shape[1], before]

    def after(step: int) -> Tensor:
        window = joined.narrow(2, step, before)
        return (window.transpose(1, 2) if last else window).reshape(shape)

    if state_window:
        blank = max(state_window - length, 0)
        some = [after(max(length - state_window, 0) + slot + 1) for slot in range(state_window - blank)]
        present = torch.stack([*([torch.zeros_like(after(0))] * blank), *some])
    else:
        present = after(length).clone()
    update = None
    if state_update_capacity:
        first = flat[:, :, :state_update_capacity].transpose(1, 2)
        update = F.pad(first, (0, 0, 0, state_update_capacity - first.shape[1]))
    if channels_last:
        y = y.transpose(1, 2).reshape(x.shape[0], length, *dims)
    return y.contiguous(), present, update


def convolved(joined: Tensor, weight: Tensor, bias: Tensor | None, activation: str, dilation: int) -> Tensor:
    """Each channel [B, C, reach + L] convolved with its own kernel, then the activation.

    Raises:
        ValueError: An unknown activation.
    """
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation must be none, silu or swish, not {activation!r}.")
    y = torch.convolution(joined, weight, bias, [1], [0], [dilation], False, [0], weight.shape[0])
    return y if activation == "none" else F.silu(y)
