"""Attention that sees blocks of keys: SparseAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.SparseAttention
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.attention import fused, merge_heads, split_heads
from torch_ort_session.ops.common.checks import check_places, check_range
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.kv_cache import clean
from torch_ort_session.ops.common.rotary import rotate
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel(
    "SparseAttention",
    domain="com.microsoft",
    since=(1,),
    checks=True,
    native=("check_range", "gqa_decode", "rotary"),
)
def sparse_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor,
    past_value: Tensor,
    block_row_indices: Tensor,
    block_col_indices: Tensor,
    total_sequence_length: Tensor,
    key_total_sequence_lengths: Tensor,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    num_heads: int,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sparse_block_size: int,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention with a cache, where a block of queries sees some blocks of keys.

    Args:
        query: [B, L, H * D], or all three side by side [B, L, (H + 2 * G) * D].
        key: [B, L, G * D].
        value: [B, L, G * D].
        past_key: [B, G, C, D], of which each sample uses what ``key_total_sequence_lengths`` says.
        past_value: [B, G, C, D].
        block_row_indices: int32 [S, M + 1], where the columns of each row of blocks start, in S layouts that
            the heads take in turn.
        block_col_indices: int32 [S, N], the columns in sight, row by row.
        total_sequence_length: int32, one element, the greatest number of keys after this step; where it is L,
            the cache is empty before it.
        key_total_sequence_lengths: int32 [B], the number of keys of each sample after this step.
        cos_cache: [positions, D / 2], for ``do_rotary``.
        sin_cache: [positions, D / 2].
        do_rotary: Whether to rotate queries and keys by their position.
        kv_num_heads: G.
        num_heads: H.
        rotary_interleaved: Whether a pair is two neighbours rather than one of each half.
        scale: Factor of the scores; None and 0 are ``1 / sqrt(D)``.
        sparse_block_size: Positions in a block.
        ctx: Where a position beyond a cache and a column that there is not are reported.

    Returns:
        The result [B, L, H * D], and the caches with the new rows.

    Raises:
        ValueError: Inputs that do not fit each other.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.SparseAttention
    """
    if key is None or value is None:
        size = query.shape[2] // (num_heads + 2 * kv_num_heads)
        parts = [num_heads * size, kv_num_heads * size, kv_num_heads * size]
        query, key, value = torch.split(query, parts, 2)
    q, k, v = split_heads(query, num_heads), split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)
    length = q.shape[2]
    lengths = key_total_sequence_lengths.reshape(-1).to(torch.int64)
    # The first call fills an empty cache, where shorter samples are padded behind.
    before = torch.where(total_sequence_length.reshape(1) == length, 0, lengths - length)
    place = before.unsqueeze(1) + torch.arange(length, device=q.device)
    place = check_places(place, past_key.shape[2], Flag.POSITION, ctx)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary needs cos_cache and sin_cache.")
        angle = check_places(place, cos_cache.shape[0], Flag.INDEX, ctx).reshape(-1)
        cos, sin = (
            cache.index_select(0, angle).reshape(*place.shape, -1).unsqueeze(1)
            for cache in (cos_cache, sin_cache)
        )
        width = 2 * cos_cache.shape[1]
        q = rotate(q, cos, sin, width, rotary_interleaved != 0)
        k = rotate(k, cos, sin, width, rotary_interleaved != 0)
    row = place[:, None, :, None].expand_as(k)
    present_key, present_value = past_key.scatter(2, row, k), past_value.scatter(2, row, v)
    columns = block_col_indices
    starts = check_range(block_row_indices, 0, columns.shape[1], Flag.LENGTH, ctx)
    named = torch.arange(columns.shape[1], device=q.device) < starts[:, -1:]
    columns = check_places(torch.where(named, columns, 0), starts.shape[1] - 1, Flag.INDEX, ctx)
    seen = _in_sight(starts, columns, place, past_key.shape[2], sparse_block_size)
    seen = seen.repeat(1, num_heads // seen.shape[1], 1, 1)
    counts = torch.arange(past_key.shape[2], device=q.device) <= place[:, -1:]
    y = fused(q, clean(present_key, counts), clean(present_value, counts), seen, scale=scale or None)
    return merge_heads(y), present_key, present_value


def _in_sight(starts: Tensor, columns: Tensor, place: Tensor, keys: int, size: int) -> Tensor:
    """Bools [B, S, L, keys] of what a query at each place sees in each layout, later keys excluded."""
    layouts, rows = starts.shape[0], starts.shape[1] - 1
    number = torch.arange(columns.shape[1], device=columns.device)
    # A column belongs to as many rows further down as end at or before it; padding is in none.
    row = (starts[:, 1:, None] <= number).sum(1)
    blocks = torch.zeros((layouts, (rows + 1) * (rows + 1)), dtype=torch.bool, device=columns.device)
    spot = torch.where(row < rows, row * (rows + 1) + columns, rows * (rows + 1) + rows)
    blocks = blocks.scatter(1, spot, True).reshape(layouts, rows + 1, rows + 1)
    key = torch.arange(keys, device=columns.device)
    of_query = (place // size).clamp(max=rows - 1)
    of_key = (key // size).clamp(max=rows - 1)
    seen = blocks.index_select(2, of_key)[:, of_query.reshape(-1)].reshape(layouts, *place.shape, keys)
    return seen.transpose(0, 1) & (key <= place[:, None, :, None])
