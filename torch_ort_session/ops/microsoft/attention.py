"""Attention and MultiHeadAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops.common.attention import fused, masked_scores, merge_heads, scores, split_heads
from torch_ort_session.ops.common.bytes_mm import byte_matmul
from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.kv_cache import clean
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.decoder_masked import beams_of, by_beam
from torch_ort_session.ops.microsoft.padding_mask import combined


@kernel("Attention", domain="com.microsoft", since=(1,), native=("gqa_decode",))
def attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask_index: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Self attention with its projection.

    Args:
        x: [B, L, C].
        weights: [C, Q + K + V], the three projections side by side.
        bias: [Q + K + V].
        mask_index: int32: lengths [B]; ends and starts [2 * B]; or 1 for what is in sight [B, T],
            [B, L, T] or [B, 1, M, M].
        past: [2, B, H, P, D], put before keys and values.
        attention_bias: Added to the scores, broadcastable to [B, H, L, T].
        past_sequence_length: Goes with ``past_present_share_buffer``.
        do_rotary: Not supported.
        mask_filter_value: What is added to a score out of sight; None is -10000.
        num_heads: H.
        past_present_share_buffer: Not supported.
        qkv_hidden_sizes: Q, K and V; None is three equal parts.
        rotary_embedding_dim: Goes with ``do_rotary``.
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
        unidirectional: Whether a query sees no later key.

    Returns:
        The result [B, L, V], and where asked for keys and values [2, B, H, P + L, D].

    Raises:
        ValueError: An option that is not supported, or inputs that do not fit each other.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Attention
    """
    if do_rotary or past_present_share_buffer:
        raise ValueError("do_rotary and past_present_share_buffer are not supported.")
    projected = torch.matmul(x, weights)
    if bias is not None:
        projected = projected + bias
    sizes = qkv_hidden_sizes or [projected.shape[-1] // 3] * 3
    q, k, v, present = _with_past(projected, sizes, num_heads, past, ctx.wants(1))
    before = k.shape[2] - q.shape[2]
    mask = combined(mask_index, attention_bias, q, k.shape[2], before, unidirectional != 0, mask_filter_value)
    return merge_heads(fused(q, k, v, mask, scale=scale or None)), present


@kernel("QAttention", domain="com.microsoft", since=(1,), native=("gqa_decode",))
def quantized_attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    input_scale: Tensor,
    weight_scale: Tensor,
    mask_index: Tensor | None = None,
    input_zero_point: Tensor | None = None,
    weight_zero_point: Tensor | None = None,
    past: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Self attention whose projection is a product of quantized tensors.

    Args:
        x: int8 or uint8 [B, L, C].
        weight: int8 or uint8 [C, 3 * H * D].
        bias: [3 * H * D].
        input_scale: Scalar.
        weight_scale: Scalar or [3 * H * D].
        mask_index: As of Attention.
        input_zero_point: Scalar.
        weight_zero_point: Scalar or [3 * H * D].
        past: [2, B, H, P, D], put before keys and values.
        do_rotary: Not supported.
        mask_filter_value: What is added to a score out of sight; None is -10000.
        num_heads: H.
        past_present_share_buffer: Not supported.
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
        unidirectional: Whether a query sees no later key.

    Returns:
        The result [B, L, H * D], and where asked for keys and values [2, B, H, P + L, D].

    Raises:
        ValueError: An option that is not supported, or inputs that do not fit each other.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QAttention
    """
    if do_rotary or past_present_share_buffer:
        raise ValueError("do_rotary and past_present_share_buffer are not supported.")
    projected = byte_matmul(x, weight, input_zero_point, weight_zero_point)
    projected = projected * (input_scale * weight_scale) + bias
    sizes = [projected.shape[-1] // 3] * 3
    q, k, v, present = _with_past(projected, sizes, num_heads, past, ctx.wants(1))
    before = k.shape[2] - q.shape[2]
    mask = combined(mask_index, None, q, k.shape[2], before, unidirectional != 0, mask_filter_value)
    return merge_heads(fused(q, k, v, mask, scale=scale or None)), present


@kernel(
    "MultiHeadAttention",
    domain="com.microsoft",
    since=(1,),
    checks=True,
    native=("check_range", "gqa_decode"),
)
def multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Self or cross attention on projected inputs.

    Args:
        query: [B, L, H * D], or all three as [B, L, H, 3, D].
        key: [B, S, H * D], both as [B, S, H, 2, D], or finished keys [B, H, S, D].
        value: [B, S, H * E], or finished values [B, H, S, E].
        bias: [H * D + H * D + H * E], added to the three.
        key_padding_mask: int32: lengths [B], or 1 for what is in sight [B, T] or [B, L, T].
        attention_bias: Added to the scores, broadcastable to [B, H, L, T].
        past_key: [B, H, P, D], put before the keys; or a buffer [B, H, C, D] that they are written into.
        past_value: [B, H, P, E], like ``past_key``.
        past_sequence_length: int32, one element: how many rows of the buffers count.
        cache_indirection: int32 [B / W, W, C]: from which of W beams each row of the buffers comes.
        mask_filter_value: What is added to a score out of sight; None is -10000.
        num_heads: H.
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
        unidirectional: Whether a query sees no later key.
        ctx: Where a full buffer is reported, or a beam that does not exist.

    Returns:
        The result [B, L, H * E], where asked for the keys and values with what was put before them, and the
        masked scores.

    Raises:
        ValueError: An option that is not supported, or inputs that do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MultiHeadAttention
    """
    q, k, v = _three(query, key, value, bias, num_heads)
    before = 0
    if past_sequence_length is not None:
        if past_key is None or past_value is None or ctx.wants(3):
            raise ValueError("past_sequence_length needs buffers, and no scores are shown beside them.")
        place = past_sequence_length.reshape(1) + torch.arange(q.shape[2], device=q.device)
        place = check_places(place, past_key.shape[2], Flag.POSITION, ctx)
        k, v = past_key.index_copy(2, place, k), past_value.index_copy(2, place, v)
        y = _buffered(
            (q, k, v),
            place,
            (key_padding_mask, attention_bias, mask_filter_value),
            cache_indirection,
            causal=unidirectional != 0,
            scale=scale or None,
            ctx=ctx,
        )
        return y, k if ctx.wants(1) else None, v if ctx.wants(2) else None, None
    if past_key is not None and past_value is not None:
        before = past_key.shape[2]
        k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
    mask = combined(
        key_padding_mask, attention_bias, q, k.shape[2], before, unidirectional != 0, mask_filter_value
    )
    y = merge_heads(fused(q, k, v, mask, scale=scale or None))
    products = None
    if ctx.wants(3):
        products = masked_scores(scores(q, k, scale or 1.0 / math.sqrt(q.shape[3])), mask)
    return y, k.contiguous() if ctx.wants(1) else None, v.contiguous() if ctx.wants(2) else None, products


def _with_past(
    projected: Tensor, sizes: list[int], heads: int, past: Tensor | None, wanted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries, keys and values by head out of one projection, keys and values behind those of the past."""
    q, k, v = (split_heads(part, heads) for part in torch.split(projected, sizes, -1))
    if past is not None:
        k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
    return q, k, v, torch.stack((k, v)) if wanted else None


def _three(
    query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by head, in whatever form they came."""
    if query.dim() == 5:
        q, k, v = (query.select(3, i).flatten(2) for i in range(3))
    elif key is not None and key.dim() == 5:
        q, k, v = query, key.select(3, 0).flatten(2), key.select(3, 1).flatten(2)
    elif key is not None and value is not None:
        q, k, v = query, key, value
    else:
        raise ValueError("key and value may only be left out where they are packed into another input.")
    if bias is not None:
        width, rest = q.shape[2], bias.shape[0] - 2 * q.shape[2]
        q_bias, k_bias, v_bias = torch.split(bias, [width, width, rest])
        q = q + q_bias
        if k.dim() == 3:
            k, v = k + k_bias, v + v_bias
    q = split_heads(q, heads)
    if k.dim() == 3:
        k, v = split_heads(k, heads), split_heads(v, heads)
    return q, k, v


def _buffered(
    heads: tuple[Tensor, Tensor, Tensor],
    place: Tensor,
    hiding: tuple[Tensor | None, Tensor | None, float | None],
    indirection: Tensor | None,
    *,
    causal: bool,
    scale: float | None,
    ctx: KernelContext,
) -> Tensor:
    """Attention to those rows of buffers that count; ``place`` tells where the newest ones lie."""
    q, k, v = heads
    mask, bias, filter_value = hiding
    valid = place[-1:] + 1
    shown = mask if mask is not None and mask.dim() > 1 else bias
    rows = k.shape[2] if shown is None else min(shown.shape[-1], k.shape[2])
    k, v = k[:, :, :rows], v[:, :, :rows]
    if indirection is not None and q.shape[2] == 1:
        beams = beams_of(indirection, rows, valid, ctx)
        k, v = by_beam(k, beams), by_beam(v, beams)
    total = combined(mask, bias, q, rows, rows - q.shape[2], False, filter_value)
    total = q.new_zeros(()) if total is None else total
    key = torch.arange(rows, device=q.device)
    counts = (key < valid).unsqueeze(0)
    k, v = clean(k, counts), clean(v, counts)
    visible = key <= place.unsqueeze(1) if causal else (key < valid).expand(q.shape[2], -1)
    total = torch.where(visible, total, float("-inf"))
    return merge_heads(fused(q, k, v, total, scale=scale))
