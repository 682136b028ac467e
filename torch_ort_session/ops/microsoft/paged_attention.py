"""Attention to a cache in blocks: PagedAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.PagedAttention
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops.common.attention import fused, masked_scores, scores, softmax, weighted
from torch_ort_session.ops.common.checks import check_places, check_range
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.kv_cache import clean
from torch_ort_session.ops.common.rotary import rotate
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel(
    "PagedAttention",
    domain="com.microsoft",
    since=(1,),
    checks=True,
    native=("check_range", "gqa_decode", "rotary"),
)
def paged_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    key_cache: Tensor,
    value_cache: Tensor | None,
    cumulative_sequence_length: Tensor,
    past_seqlens: Tensor,
    block_table: Tensor,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    slot_mapping: Tensor | None = None,
    head_sink: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    attention_metadata: Tensor | None = None,
    *,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 9.999999974752427e-07,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
    ctx: KernelContext,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Attention of sequences without padding to caches that lie in blocks.

    Args:
        query: [N, H * D], or all three side by side [N, (H + 2 * G) * D].
        key: [N, G * D].
        value: [N, G * D].
        key_cache: [blocks, size, G, D].
        value_cache: Like ``key_cache``.
        cumulative_sequence_length: int32 [B + 1], the sums of the numbers of new tokens.
        past_seqlens: int32 [B], how many tokens of each sequence are in the cache.
        block_table: int32 [B, M], the blocks of each sequence in their order; -1 for none, whose rows are
            neither written nor seen.
        cos_cache: [positions, R / 2], for ``do_rotary``.
        sin_cache: [positions, R / 2].
        slot_mapping: int32 [N], the row of the cache, block by block, for each token; -1 for none. None is
            what the table says.
        head_sink: [H], the logit of a key that every query sees and that has no value.
        q_norm_weight: [D], for a root mean square normalization of the queries before the rotation.
        k_norm_weight: [D], the same for the keys.
        k_scale: Not supported.
        v_scale: Not supported.
        attention_metadata: Bounds of sizes, without effect on the result.
        do_rotary: Whether to rotate queries and keys by their position.
        is_causal: Whether a query sees no later key.
        k_cache_dtype: That of the cache.
        k_quant_type: NONE; others are not supported.
        kv_cache_layout: SEPARATE; others are not supported.
        kv_num_heads: G.
        local_window_size: Number of keys in sight, the query's own counted; -1 for no bound.
        num_heads: H.
        qk_norm_epsilon: Epsilon of the normalizations.
        rotary_interleaved: Whether a pair is two neighbours rather than one of each half.
        rotary_offset: The first feature that is rotated.
        scale: Factor of the scores; None and 0 are ``1 / sqrt(D)``.
        softcap: Bound of the scores by ``tanh``, 0 for none.
        v_cache_dtype: That of the cache.
        v_head_size: Goes with another ``kv_cache_layout``.
        v_quant_type: NONE; others are not supported.
        ctx: Where a block, a row or a position that does not exist is reported.

    Returns:
        The result [N, H * D], and the caches with the new rows.

    Raises:
        ValueError: An option that is not supported, or inputs that do not fit each other.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.PagedAttention
    """
    if (
        value_cache is None
        or kv_cache_layout != "SEPARATE"
        or k_quant_type != "NONE"
        or v_quant_type != "NONE"
    ):
        raise ValueError("quantized caches and caches of another layout than SEPARATE are not supported.")
    blocks, size, groups, width = key_cache.shape
    if key is None or value is None:
        query, key, value = torch.split(query, [num_heads * width, groups * width, groups * width], 1)
    tokens = query.shape[0]
    q, k, v = (
        query.reshape(tokens, -1, width),
        key.reshape(tokens, -1, width),
        value.reshape(tokens, -1, width),
    )
    if q_norm_weight is not None and k_norm_weight is not None:
        q = torch.rms_norm(q, [width], q_norm_weight, qk_norm_epsilon)
        k = torch.rms_norm(k, [width], k_norm_weight, qk_norm_epsilon)
    number = torch.arange(tokens, device=q.device)
    sums = check_range(cumulative_sequence_length, 0, tokens, Flag.LENGTH, ctx)
    owner = (sums[1:, None] <= number).sum(0)
    owner = owner.clamp(max=max(past_seqlens.shape[0] - 1, 0))
    place = (past_seqlens.to(torch.int64) - sums[:-1]).index_select(0, owner) + number
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary needs cos_cache and sin_cache.")
        angle = check_places(place, cos_cache.shape[0], Flag.INDEX, ctx)
        cos, sin = (cache.index_select(0, angle).unsqueeze(1) for cache in (cos_cache, sin_cache))
        q = _turned(q, cos, sin, rotary_offset, rotary_interleaved != 0)
        k = _turned(k, cos, sin, rotary_offset, rotary_interleaved != 0)
    mapped = block_table >= 0
    table = torch.where(mapped, check_range(block_table, -1, blocks - 1, Flag.INDEX, ctx), blocks)
    if slot_mapping is None:
        place = check_places(place, table.shape[1] * size, Flag.POSITION, ctx)
        page = torch.div(place, size, rounding_mode="floor")
        block = table.index_select(0, owner).gather(1, page.unsqueeze(1)).squeeze(1)
        slot = torch.where(block < blocks, block * size + place % size, blocks * size)
    else:
        row = check_range(slot_mapping, -1, blocks * size - 1, Flag.POSITION, ctx)
        slot = torch.where(row >= 0, row, blocks * size)
    keys, values = _written(key_cache, slot, k), _written(value_cache, slot, v)
    # One block more, of what is mapped to none.
    pages = table.reshape(-1)
    seen = _in_sight(table < blocks, size, owner, place, is_causal != 0, local_window_size)
    # What nobody sees may be anything.
    counts = seen.any(0, keepdim=True)
    y = _attend(
        q.transpose(0, 1).unsqueeze(0),
        clean(_read(keys, pages), counts),
        clean(_read(values, pages), counts),
        seen,
        scale,
        softcap,
        head_sink,
    )
    return y.squeeze(0).transpose(0, 1).reshape(tokens, -1), keys, values


def _turned(x: Tensor, cos: Tensor, sin: Tensor, start: int, interleaved: bool) -> Tensor:
    width = 2 * cos.shape[-1]
    if start == 0:
        return rotate(x, cos, sin, width, interleaved)
    return torch.cat((x[..., :start], rotate(x[..., start:], cos, sin, width, interleaved)), -1)


def _written(cache: Tensor, slot: Tensor, new: Tensor) -> Tensor:
    """A cache with new rows in their slots; what has none is written behind it, and dropped."""
    rows = cache.flatten(0, 1)
    room = torch.cat((rows, rows.new_zeros((1, *rows.shape[1:]))))
    return room.index_copy(0, slot, new)[:-1].reshape(cache.shape)


def _read(cache: Tensor, pages: Tensor) -> Tensor:
    """The rows of pages [1, G, rows, D]."""
    padded = torch.cat((cache, cache.new_zeros((1, *cache.shape[1:]))))
    return padded.index_select(0, pages).flatten(0, 1).transpose(0, 1).unsqueeze(0)


def _in_sight(mapped: Tensor, size: int, owner: Tensor, place: Tensor, causal: bool, window: int) -> Tensor:
    """Which rows of all pages [B, M] each token sees, those of its own sequence: bools [N, B * M * size]."""
    batch, pages = mapped.shape
    row = torch.arange(pages * size, device=mapped.device)
    position = row.repeat(batch)
    sequence = torch.arange(batch, device=mapped.device).repeat_interleave(pages * size)
    real = mapped.reshape(-1).repeat_interleave(size)
    last = torch.zeros(batch, dtype=torch.int64, device=mapped.device)
    last = last.scatter_reduce(0, owner, place + 1, "amax", include_self=True)
    ends = last.index_select(0, sequence)
    seen = (sequence == owner.unsqueeze(1)) & real & (position < ends)
    if causal:
        seen = seen & (position <= place.unsqueeze(1))
    if window > 0:
        seen = seen & (position > place.unsqueeze(1) - window)
    return seen


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor,
    scale: float | None,
    softcap: float,
    sink: Tensor | None,
) -> Tensor:
    if softcap == 0.0 and sink is None:
        return fused(q, k, v, seen, scale=scale or None)
    values = scores(q, k, scale or 1.0 / math.sqrt(q.shape[3]))
    if softcap:
        values = torch.tanh(values / softcap) * softcap
    values = masked_scores(values, seen)
    if sink is None:
        return weighted(softmax(values, seen), v)
    column = sink.reshape(1, -1, 1, 1).expand(1, q.shape[1], q.shape[2], 1)
    return weighted(torch.softmax(torch.cat((values, column), 3), -1)[..., :-1], v)
