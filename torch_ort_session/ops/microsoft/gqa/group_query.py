"""Attention of decoders with a cache: GroupQueryAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops.common.attention import (
    combine,
    fused,
    masked_scores,
    merge_heads,
    scores,
    softmax,
    split_heads,
    visible,
    weighted,
)
from torch_ort_session.ops.common.checks import check_lengths, check_places, check_range
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.kv_cache import (
    appended,
    clean,
    counting,
    dequantized,
    in_window,
    kept,
    parted,
    quantized,
    stored,
    window,
)
from torch_ort_session.ops.common.rotary import rotate
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.gqa.cache_rows import check_room, gives_rows
from torch_ort_session.ops.microsoft.gqa.decode_step import (
    Attending,
    Norms,
    Tables,
    Weighing,
    decode_step,
    present,
)


@kernel(
    "GroupQueryAttention",
    domain="com.microsoft",
    since=(1,),
    host=("total_sequence_length",),
    checks=True,
    native=("cache_appended", "check_range", "gqa_decode", "rotary"),
)
def group_query_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    seqlens_k: Tensor,
    total_sequence_length: int,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
    query_seqlens: Tensor | None = None,
    *,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 9.999999974752427e-07,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
    ctx: KernelContext,
) -> tuple[Tensor | None, ...]:
    """Causal attention that puts new keys and values behind those of a cache.

    Args:
        query: [B, L, H * D], or all three side by side [B, L, (H + 2 * G) * D].
        key: [B, L, G * D].
        value: [B, L, G * D].
        past_key: [B, G, P, D], of which each sample uses what ``seqlens_k`` says.
        past_value: [B, G, P, D].
        seqlens_k: int32 [B], the number of keys of each sample after this step, less one.
        total_sequence_length: The greatest number of keys after this step.
        cos_cache: [positions, width / 2], for ``do_rotary``.
        sin_cache: [positions, width / 2].
        position_ids: int64 [B, L]; None counts on from the cache.
        attention_bias: Added to the scores, broadcastable to [B, H, L, T].
        head_sink: [H], the logit of a key that every query sees and that has no value.
        k_scale: float32, what the numbers of a quantized cache are multiplied by.
        v_scale: The same for the values.
        q_norm_weight: [D], for a root mean square normalization of the queries before the rotation.
        k_norm_weight: [D], the same for the keys.
        query_seqlens: int32 [B], how many new rows of each sample count; the others are padding behind.
        causal: Whether a query sees no later key.
        do_rotary: Whether to rotate queries and keys by their position.
        k_norm_epsilon: Epsilon of the keys' normalization; None is ``qk_norm_epsilon``.
        k_quant_type: NONE, PER_TENSOR or PER_CHANNEL: how the cache of keys is quantized.
        kv_cache_bit_width: 8, or 4 for two numbers in a byte.
        kv_num_heads: G.
        local_window_size: Number of keys in sight, the query's own counted; -1 for no bound.
        num_heads: H.
        q_norm_epsilon: Epsilon of the queries' normalization; None is ``qk_norm_epsilon``.
        qk_norm_epsilon: Epsilon of both normalizations.
        qk_output: What the fourth output holds: 1 the masked scores, 2 the probabilities.
        rotary_interleaved: Whether a pair is two neighbours rather than one of each half.
        scale: Factor of the scores; None and 0 are ``1 / sqrt(D)``.
        sliding_window_cache: Whether the caches hold the last positions only, in their order from row 0.
        smooth_softmax: 1 for a sink of logit 0 in every head.
        softcap: Bound of the scores by ``tanh``, 0 for none.
        v_quant_type: The same for the values.

    Returns:
        The result [B, L, H * D], the caches [B, G, C, D], where C is the greater of P and the total length,
        and where asked for the scores. For a binding that puts the new rows into the caches itself, those
        rows [B, G, L, D] in place of the caches, and last where they belong: see ``gqa/cache_rows.py``.

    Raises:
        ValueError: An option that is not supported, or inputs that do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention
    """
    weighing = Weighing(scale or None, softcap, head_sink, smooth_softmax == 1)
    tables = _tables(do_rotary, cos_cache, sin_cache, position_ids, rotary_interleaved)
    integers = k_quant_type != "NONE" or v_quant_type != "NONE"
    if (q_norm_weight is None) != (k_norm_weight is None):
        raise ValueError("q_norm_weight and k_norm_weight go together: give both or neither.")
    norms = None
    if q_norm_weight is not None and k_norm_weight is not None:
        epsilons = (epsilon or qk_norm_epsilon for epsilon in (q_norm_epsilon, k_norm_epsilon))
        norms = Norms(q_norm_weight, k_norm_weight, *epsilons)
    rolling = sliding_window_cache != 0
    keys = stored(k_quant_type, k_scale, kv_cache_bit_width, past_key)
    values = stored(v_quant_type, v_scale, kv_cache_bit_width, past_value)
    if causal and not qk_output:
        how = Attending(
            *(num_heads, kv_num_heads, local_window_size, attention_bias, weighing, norms),
            *(query_seqlens, rolling, (keys, values) if integers else None),
        )
        past = past_key, past_value
        step = decode_step((query, key, value), past, seqlens_k, total_sequence_length, tables, how, ctx)
        if step is not None and past_key is not None and past_value is not None:
            most = past_key.shape[2] if rolling else total_sequence_length
            if gives_rows(ctx.node):
                check_room(past_key, most)
                return step.y, step.key, step.value, None, step.start
            both = (past_key, step.key), (past_value, step.value)
            whole = (
                present(past, fresh, step.start, most) if ctx.wants(place) else None
                for place, (past, fresh) in enumerate(both, 1)
            )
            return step.y, *whole, None
    q, k, v = _heads(query, key, value, num_heads, kv_num_heads)
    if norms is not None:
        q = torch.rms_norm(q, q.shape[3:], norms.query, norms.query_epsilon)
        k = torch.rms_norm(k, k.shape[3:], norms.key, norms.key_epsilon)
    length = q.shape[2]
    # The first call fills an empty cache, where shorter samples are padded behind.
    first = total_sequence_length == length or query_seqlens is not None or rolling
    least = 0 if first else length - 1
    ends = check_range(seqlens_k, least, total_sequence_length - 1, Flag.POSITION, ctx)
    valid = ends.reshape(-1) + 1
    query_seqlens = check_lengths(query_seqlens, length, ctx)
    if query_seqlens is not None:
        query_seqlens = query_seqlens.reshape(-1)
        room = past_key.shape[2] if past_key is not None and not rolling else total_sequence_length
        before = check_range(valid - query_seqlens, 0, room, Flag.POSITION, ctx)
    elif rolling:
        before = (valid - length).clamp(min=0)
    else:
        # The first call fills an empty cache, where shorter samples are padded behind.
        before = torch.zeros_like(valid) if total_sequence_length == length else valid - length
    if tables is not None:
        if position_ids is None:
            position_ids = before.unsqueeze(1) + torch.arange(length, device=q.device)
        if query_seqlens is not None:
            # Rows that do not count have no place.
            real = torch.arange(length, device=q.device) < query_seqlens.unsqueeze(1)
            position_ids = torch.where(real, position_ids, 0)
        position_ids = check_places(position_ids, tables.cos.shape[0], Flag.INDEX, ctx)
        cos, sin = tables.cos[position_ids].unsqueeze(1), tables.sin[position_ids].unsqueeze(1)
        q = rotate(q, cos, sin, 2 * tables.cos.shape[1], tables.interleaved)
        k = rotate(k, cos, sin, 2 * tables.cos.shape[1], tables.interleaved)
    k, v = quantized(k, keys), quantized(v, values)
    mask: Tensor | None
    if rolling:
        if past_key is None or past_value is None or qk_output:
            raise ValueError("a cache of a window needs past_key and past_value, and gives no scores.")
        rows = window(past_key.shape[2], local_window_size, length, valid, query_seqlens)
        seen_key, present_key = kept(past_key, k, rows.source)
        seen_value, present_value = kept(past_value, v, rows.source)
        mask = in_window(rows, local_window_size, attention_bias)
        counts: Tensor | None = rows.position >= 0
        place = rows.place
    else:
        place = before.to(torch.int64)
        if query_seqlens is not None:
            place = parted(place, query_seqlens)
        counts = counting(past_key, length, before, total_sequence_length, query_seqlens)
        present_key = appended(past_key, k, before, total_sequence_length, query_seqlens)
        present_value = appended(past_value, v, before, total_sequence_length, query_seqlens)
        seen_key = present_key[:, :, :total_sequence_length]
        seen_value = present_value[:, :, :total_sequence_length]
        mask = visible(
            length,
            total_sequence_length,
            q.device,
            causal=causal != 0,
            offset=before,
            left=local_window_size - 1 if local_window_size > 0 else -1,
            valid=None if causal else valid,
        )
        if attention_bias is not None:
            mask = combine(attention_bias[..., :total_sequence_length], mask)
    seen_key = clean(dequantized(seen_key, keys, q.dtype), counts)
    seen_value = clean(dequantized(seen_value, values, q.dtype), counts)
    y, products = _attend(q, seen_key, seen_value, mask, weighing, qk_output)
    if past_key is not None and gives_rows(ctx.node):
        if not rolling:
            check_room(past_key, total_sequence_length)
        fresh = (part.clone(memory_format=torch.contiguous_format) for part in (k, v))
        return merge_heads(y), *fresh, products, place
    return merge_heads(y), present_key, present_value, products


def _tables(
    rotary: int, cos: Tensor | None, sin: Tensor | None, position: Tensor | None, pairs: int
) -> Tables | None:
    if not rotary:
        return None
    if cos is None or sin is None:
        raise ValueError("do_rotary needs cos_cache and sin_cache.")
    return Tables(cos, sin, position, pairs != 0)


def _heads(
    query: Tensor, key: Tensor | None, value: Tensor | None, heads: int, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * groups)
        query, key, value = torch.split(query, [heads * size, groups * size, groups * size], 2)
    return split_heads(query, heads), split_heads(key, groups), split_heads(value, groups)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, how: Weighing, output: int
) -> tuple[Tensor, Tensor | None]:
    if how.softcap == 0.0 and how.sink is None and not how.smooth and output == 0:
        return fused(q, k, v, mask, scale=how.scale), None
    values = scores(q, k, how.scale or 1.0 / math.sqrt(q.shape[3]))
    if how.softcap:
        values = torch.tanh(values / how.softcap) * how.softcap
    values = masked_scores(values, mask)
    if how.sink is None and not how.smooth:
        probabilities = softmax(values, mask)
    else:
        sink = q.new_zeros(1) if how.sink is None else how.sink
        column = sink.reshape(1, -1, 1, 1).expand(q.shape[0], q.shape[1], q.shape[2], 1)
        probabilities = torch.softmax(torch.cat((values, column), 3), -1)[..., :-1]
    products = (None, values, probabilities)[output]
    return weighted(probabilities, v), products
