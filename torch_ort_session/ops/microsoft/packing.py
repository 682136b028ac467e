"""Batches without padding: RemovePadding, RestorePadding, PackedAttention, PackedMultiHeadAttention.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.attention import combine, fused, merge_heads, split_heads
from torch_ort_session.ops.common.checks import check_range
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.packed_tokens import repacked, unpacked

_COUNTED = "the number of tokens depends on the data"


@kernel(
    "RemovePadding", domain="com.microsoft", since=(1,), seam=_COUNTED, checks=True, native=("check_range",)
)
def remove_padding(
    x: Tensor, sequence_token_count: Tensor, *, ctx: KernelContext
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tokens of a padded batch that count.

    Args:
        x: [B, L, C], padded behind.
        sequence_token_count: int32 [B], how many tokens of each sequence count.
        ctx: Where a count that does not fit is reported.

    Returns:
        The tokens [N, C]; int32 their places in the batch, then those of the padding [B, L]; the sums of the
        counts before each sequence and of all [B + 1]; and the greatest count [1].

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.RemovePadding
    """
    batch, length, _ = x.shape
    counts = check_range(sequence_token_count, 0, length, Flag.LENGTH, ctx).reshape(-1, 1)
    padding = torch.arange(length, device=x.device) >= counts
    offset = torch.argsort(padding.reshape(-1), stable=True)
    tokens = x.flatten(0, 1).index_select(0, offset[: int((~padding).sum().item())])
    sums = torch.cat((counts.new_zeros(1), counts.reshape(-1).cumsum(0)))
    longest = counts.reshape(-1).amax(0, keepdim=True) if batch else counts.new_zeros(1)
    kind = sequence_token_count.dtype
    return tokens, offset.reshape(batch, length).to(kind), sums.to(kind), longest.to(kind)


@kernel("RestorePadding", domain="com.microsoft", since=(1,), checks=True, native=("check_range",))
def restore_padding(x: Tensor, token_offset: Tensor, *, ctx: KernelContext) -> Tensor:
    """Tokens put back to where they were in a padded batch, with zeros for the padding.

    Args:
        x: [N, C].
        token_offset: int32 [B, L], the places of the tokens, before those of the padding.
        ctx: Where a place that does not exist is reported.

    Returns:
        [B, L, C].

    Raises:
        ValueError: There are more tokens than places.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.RestorePadding
    """
    return unpacked(x, token_offset, ctx)


@kernel(
    "PackedAttention", domain="com.microsoft", since=(1,), checks=True, native=("check_range", "gqa_decode")
)
def packed_attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    token_offset: Tensor,
    cumulative_sequence_length: Tensor,
    attention_bias: Tensor | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: list[int] | None = None,
    scale: float | None = None,
    ctx: KernelContext,
) -> Tensor:
    """Self attention with its projection, within each sequence of a batch without padding.

    Args:
        x: [N, C], the tokens that count.
        weights: [C, Q + K + V], the three projections side by side.
        bias: [Q + K + V].
        token_offset: int32 [B, L], the places of the tokens in the padded batch, before those of the padding.
        cumulative_sequence_length: int32 [B + 1], the sums of the sequences' lengths.
        attention_bias: Added to the scores, broadcastable to [B, H, L, L].
        num_heads: H.
        qkv_hidden_sizes: Q, K and V; None is three equal parts.
        scale: Factor of the scores; None and 0 are ``1 / sqrt(D)``.
        ctx: Where a place that does not exist is reported.

    Returns:
        [N, V].

    Raises:
        ValueError: Inputs that do not fit each other.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.PackedAttention
    """
    projected = torch.matmul(x, weights) + bias
    sizes = qkv_hidden_sizes or [projected.shape[1] // 3] * 3
    q, k, v = torch.split(projected, sizes, 1)
    rows, sums = (q, k, v), cumulative_sequence_length
    return _within(rows, token_offset, sums, attention_bias, num_heads, scale, ctx)


@kernel(
    "PackedMultiHeadAttention",
    domain="com.microsoft",
    since=(1,),
    checks=True,
    native=("check_range", "gqa_decode"),
)
def packed_multi_head_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    bias: Tensor | None,
    token_offset: Tensor,
    cumulative_sequence_length: Tensor,
    attention_bias: Tensor | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    scale: float | None = None,
    ctx: KernelContext,
) -> Tensor:
    """Attention on projected inputs, within each sequence of a batch without padding.

    Args:
        query: [N, H * D], or all three as [N, H, 3, D].
        key: [N, H * D].
        value: [N, H * E].
        bias: [2 * H * D + H * E], added to the three.
        token_offset: int32 [B, L], the places of the tokens in the padded batch, before those of the padding.
        cumulative_sequence_length: int32 [B + 1], the sums of the sequences' lengths.
        attention_bias: Added to the scores, broadcastable to [B, H, L, L].
        mask_filter_value: Without effect, as there is no padding to hide.
        num_heads: H.
        scale: Factor of the scores; None and 0 are ``1 / sqrt(D)``.
        ctx: Where a place that does not exist is reported.

    Returns:
        [N, H * E].

    Raises:
        ValueError: Inputs that do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.PackedMultiHeadAttention
    """
    if query.dim() == 4:
        q, k, v = (query.select(2, i).flatten(1) for i in range(3))
    elif key is not None and value is not None:
        q, k, v = query, key, value
    else:
        raise ValueError("key and value may only be left out where they are packed into the query.")
    if bias is not None:
        width = q.shape[1]
        q, k, v = q + bias[:width], k + bias[width : 2 * width], v + bias[2 * width :]
    rows, sums = (q, k, v), cumulative_sequence_length
    return _within(rows, token_offset, sums, attention_bias, num_heads, scale, ctx)


def _within(
    rows: tuple[Tensor, Tensor, Tensor],
    offset: Tensor,
    sums: Tensor,
    bias: Tensor | None,
    heads: int,
    scale: float | None,
    ctx: KernelContext,
) -> Tensor:
    """Attention of tokens [N, ...] in the padded batch, where each sees those of its sequence."""
    tokens = rows[0].shape[0]
    q, k, v = (split_heads(unpacked(part, offset, ctx), heads) for part in rows)
    key = torch.arange(offset.shape[1], device=q.device)
    sums = check_range(sums, 0, tokens, Flag.LENGTH, ctx)
    seen = key < sums.diff().reshape(-1, 1, 1, 1)
    y = merge_heads(fused(q, k, v, combine(bias, seen), scale=scale or None))
    return repacked(y, tokens, offset, ctx)
