"""Biases of attention scores by relative position: RelativePositionBias, GatedRelativePositionBias.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops.common.attention import split_heads
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.packed_tokens import unpacked


@kernel("RelativePositionBias", domain="com.microsoft", since=(1,), host=("query_length", "key_length"))
def relative_position_bias(
    bias_table: Tensor, query_length: int, key_length: int, *, is_bidirectional: int = 0, max_distance: int
) -> Tensor:
    """A learned number for each head and each bucket of distances between query and key.

    Near distances have a bucket each, farther ones share buckets that widen with the logarithm.

    Args:
        bias_table: Of shape [N, H], but with the numbers of one head side by side in memory, as if it were
            [H, N]: N buckets.
        query_length: L.
        key_length: S.
        is_bidirectional: Whether keys after the query have the second half of the buckets to themselves;
            else they are all as near as the query's own.
        max_distance: From where on all distances share the last bucket.

    Returns:
        [1, H, L, S].

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.RelativePositionBias
    """
    buckets, heads = bias_table.shape
    place = torch.arange(key_length, device=bias_table.device)
    ahead = place - torch.arange(query_length, device=bias_table.device).unsqueeze(1)
    table = bias_table.reshape(heads, buckets)
    if is_bidirectional:
        buckets //= 2
        first, distance = (ahead > 0).to(torch.int64) * buckets, ahead.abs()
    else:
        first, distance = torch.zeros_like(ahead), (-ahead).clamp(min=0)
    exact = buckets // 2
    share = torch.log(distance.clamp(min=1).to(torch.float32) / exact) / math.log(max_distance / exact)
    wide = exact + (share * (buckets - exact)).to(torch.int64)
    bucket = first + torch.where(distance < exact, distance, wide.clamp(max=buckets - 1))
    return table.index_select(1, bucket.reshape(-1)).reshape(1, heads, query_length, key_length)


@kernel("GatedRelativePositionBias", domain="com.microsoft", since=(1,), checks=True, native=("check_range",))
def gated_relative_position_bias(
    query_layer: Tensor,
    query_bias: Tensor,
    rel_pos: Tensor,
    weight: Tensor,
    bias: Tensor,
    eco_a: Tensor,
    token_offset: Tensor | None = None,
    *,
    num_heads: int,
    ctx: KernelContext,
) -> Tensor:
    """A bias by relative position, multiplied by a gate that each query opens.

    Args:
        query_layer: [B, L, H * D], or only the tokens that count [N, H * D].
        query_bias: [H * D], added to the queries.
        rel_pos: [1, H, L, L].
        weight: [D, 2 * E], the projection of the gates.
        bias: [2 * E].
        eco_a: [1, H, 1, 1].
        token_offset: int32 [B, L], the places of the tokens that count, before those of the padding, whose
            queries are ``query_bias`` alone.
        num_heads: H.
        ctx: Where a place that does not exist is reported.

    Returns:
        ``(u * (r * eco_a - 1) + 2) * rel_pos`` [B, H, L, L], where u and r are the sigmoids of the sums of
        the two halves of the projected queries.

    Raises:
        ValueError: Inputs that do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GatedRelativePositionBias
    """
    if token_offset is not None:
        query_layer = unpacked(query_layer, token_offset, ctx)
    if query_layer.dim() != 3:
        raise ValueError("tokens without padding need token_offset.")
    projected = torch.matmul(split_heads(query_layer + query_bias, num_heads), weight) + bias
    halves = projected.reshape(*projected.shape[:-1], 2, projected.shape[-1] // 2).sum(-1)
    u, r = torch.split(torch.sigmoid(halves), 1, -1)
    gate = u * (r * eco_a - 1.0) + 2.0
    return gate * rel_pos
