"""Sequence operators with a state of fixed size: LinearAttention, CausalConvWithState.

Sources: https://onnx.ai/onnx/operators/onnx__LinearAttention.html,
https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.attention import group_heads, merge_heads, split_heads
from torch_ort_session.ops.common.delta_rule import rule, walk
from torch_ort_session.ops.kernel import kernel


@kernel("LinearAttention", since=(27,))
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
    update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:
    """Attention through a matrix state that each step decays, corrects, adds to and reads.

    Args:
        query: [B, T, H * D].
        key: [B, T, G * D].
        value: [B, T, G * E].
        past_state: [B, G, D, E].
        decay: Logarithms of the decay [B, T, G] or [B, T, G * D], for the gated rules.
        beta: Strength of the correction [B, T, G] or [B, T, 1], for the delta rules.
        chunk_size: A hint that changes no result; not used.
        kv_num_heads: G.
        q_num_heads: H, a multiple of G.
        scale: Factor of the result; 0 is ``1 / sqrt(D)``.
        update_rule: linear, gated, delta or gated_delta.

    Returns:
        The result [B, T, H * E], and the state after the last step [B, G, D, E].

    Raises:
        ValueError: Inputs or attributes do not fit each other.

    Source: https://onnx.ai/onnx/operators/onnx__LinearAttention.html
    """
    gated, corrected = rule(update_rule, decay, beta)
    for name, tensor, taken in (("decay", decay, gated), ("beta", beta, corrected)):
        if tensor is not None and not taken:
            raise ValueError(f"update_rule {update_rule!r} takes no {name}.")
    if kv_num_heads <= 0 or q_num_heads % kv_num_heads:
        raise ValueError(f"{q_num_heads} query heads are not a multiple of {kv_num_heads} key heads.")
    q = split_heads(query, q_num_heads).to(torch.float32)
    k = split_heads(key, kv_num_heads).to(torch.float32)
    v = split_heads(value, kv_num_heads).to(torch.float32)
    # Query heads that share a state are read from it together.
    q = group_heads(q, kv_num_heads) * (scale or 1.0 / math.sqrt(q.shape[3]))
    factor = None if decay is None else torch.exp(split_heads(decay, kv_num_heads).to(torch.float32))
    strength = None if beta is None else split_heads(beta, beta.shape[2]).to(torch.float32)
    if past_state is None:
        state = q.new_zeros(q.shape[0], kv_num_heads, k.shape[3], v.shape[3])
    else:
        state = past_state.to(torch.float32)
    walked = walk(q, k, v, state, factor, strength)
    y, state = walked.reads.flatten(1, 2), walked.states[-1]
    kept = query.dtype if past_state is None else past_state.dtype
    return merge_heads(y).to(query.dtype), state.to(kept)


@kernel("CausalConvWithState", since=(27,))
def causal_conv_with_state(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    """Convolution of each channel with its own kernel over the present and the K - 1 elements before it.

    Args:
        x: [B, C, L].
        weight: [C, 1, K].
        bias: [C].
        past_state: [B, C, K - 1], what comes before ``x``; None is zeros.
        activation: none, silu or swish (another name of silu).

    Returns:
        The result [B, C, L], and the last K - 1 elements seen [B, C, K - 1].

    Raises:
        ValueError: An unknown activation.

    Source: https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html
    """
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation must be none, silu or swish, not {activation!r}.")
    before = weight.shape[2] - 1
    padded = torch.constant_pad_nd(x, [before, 0]) if past_state is None else torch.cat((past_state, x), 2)
    y = torch.convolution(padded, weight, bias, [1], [0], [1], False, [0], x.shape[1])
    if activation != "none":
        y = F.silu(y)
    return y, padded.narrow(2, padded.shape[2] - before, before).clone()
