"""Attention of decoders with a cache: GroupQueryAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention
"""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.gqa.cache_rows import check_room, gives_rows
from torch_ort_session.ops.microsoft.gqa.composed import composed
from torch_ort_session.ops.microsoft.gqa.config import GroupQueryConfig
from torch_ort_session.ops.microsoft.gqa.decode_step import Attending, Decoded, Tables, decode_step, present


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
    config = prepared(
        ctx,
        lambda: GroupQueryConfig(
            heads=num_heads,
            groups=kv_num_heads,
            scale=scale or None,
            softcap=softcap,
            smooth=smooth_softmax == 1,
            causal=causal != 0,
            window=local_window_size,
            rolling=sliding_window_cache != 0,
            rotary=do_rotary != 0,
            interleaved=rotary_interleaved != 0,
            query_epsilon=q_norm_epsilon or qk_norm_epsilon,
            key_epsilon=k_norm_epsilon or qk_norm_epsilon,
            products=qk_output,
            key_kind=k_quant_type,
            value_kind=v_quant_type,
            cache_bits=kv_cache_bit_width,
        ),
    )
    tables = _tables(config, cos_cache, sin_cache, position_ids)
    norms = _norms(q_norm_weight, k_norm_weight)
    stored = config.stored((k_scale, v_scale), (past_key, past_value))
    how = Attending(config, attention_bias, head_sink, norms, query_seqlens, stored)
    rows, caches = (query, key, value), (past_key, past_value)
    if config.causal and not config.products:
        step = decode_step(rows, caches, seqlens_k, total_sequence_length, tables, how, ctx)
        if step is not None and past_key is not None and past_value is not None:
            return _decoded(step, (past_key, past_value), total_sequence_length, config, ctx)
    return composed(rows, caches, seqlens_k, total_sequence_length, tables, how, ctx)


def _tables(
    config: GroupQueryConfig, cos: Tensor | None, sin: Tensor | None, position: Tensor | None
) -> Tables | None:
    if not config.rotary:
        return None
    if cos is None or sin is None:
        raise ValueError("do_rotary needs cos_cache and sin_cache.")
    return Tables(cos, sin, position)


def _norms(query: Tensor | None, key: Tensor | None) -> tuple[Tensor, Tensor] | None:
    if (query is None) != (key is None):
        raise ValueError("q_norm_weight and k_norm_weight go together: give both or neither.")
    return None if query is None or key is None else (query, key)


def _decoded(
    step: Decoded, past: tuple[Tensor, Tensor], total: int, config: GroupQueryConfig, ctx: KernelContext
) -> tuple[Tensor | None, ...]:
    """The outputs of a node whose step one compiled op has done."""
    rows_after = past[0].shape[2] if config.rolling else total
    if gives_rows(ctx.node):
        check_room(past[0], rows_after)
        return step.y, step.key, step.value, None, step.start
    pairs = (past[0], step.key), (past[1], step.value)
    caches = (
        present(cache, fresh, step.start, rows_after) if ctx.wants(place) else None
        for place, (cache, fresh) in enumerate(pairs, 1)
    )
    return step.y, *caches, None
