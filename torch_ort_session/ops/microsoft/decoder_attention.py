"""Attention of a decoder with its projections: DecoderAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DecoderAttention
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.attention import fused, merge_heads, split_heads
from torch_ort_session.ops.kernel import KernelContext, kernel

# What onnxruntime adds to a score that the mask takes out of sight.
_FILTER = -10000.0


@kernel(
    "DecoderAttention",
    domain="com.microsoft",
    since=(1,),
    host=("static_kv", "use_past", "has_layer_state", "has_key_padding_mask"),
    native=("gqa_decode",),
)
def decoder_attention(
    query: Tensor,
    key: Tensor,
    q_weight: Tensor,
    kv_weight: Tensor,
    bias: Tensor,
    key_padding_mask: Tensor | None,
    key_cache: Tensor | None,
    value_cache: Tensor | None,
    static_kv: bool,
    use_past: bool,
    has_layer_state: bool,
    has_key_padding_mask: bool,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Attention to the decoder's own tokens, or to an encoder's, with or without a cache.

    Args:
        query: [L, B, H * D].
        key: [S, B, H * D], of which keys and values are made for an encoder's tokens.
        q_weight: [H * D, H * D].
        kv_weight: [H * D, 2 * H * D], keys before values.
        bias: [3 * H * D].
        key_padding_mask: bool [B, T], True for keys out of sight.
        key_cache: [B, H, P, D], for ``use_past``.
        value_cache: [B, H, P, D].
        static_kv: Whether keys are an encoder's, so that a cache holds all of them; else they are made of the
            query and come behind the cache.
        use_past: Whether there is a cache; without effect where caches are no results.
        has_layer_state: Whether caches are results.
        has_key_padding_mask: Whether the mask counts.
        mask_filter_value: What is added to a score out of sight; None is -10000.
        num_heads: H.
        ctx: Which results are wanted.

    Returns:
        The result [L, B, H * D], and with ``has_layer_state`` keys and values [B, H, T, D].

    Raises:
        ValueError: A cache or a mask that is announced does not come.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DecoderAttention
    """
    width = query.shape[2]
    x = query.transpose(0, 1)
    q = split_heads(torch.matmul(x, q_weight) + bias[:width], num_heads)
    use_past = use_past and has_layer_state
    if use_past and (key_cache is None or value_cache is None):
        raise ValueError("use_past needs key_cache and value_cache.")
    if use_past and static_kv and key_cache is not None and value_cache is not None:
        k, v = key_cache, value_cache
    else:
        source = key.transpose(0, 1) if static_kv else x
        projected = torch.matmul(source, kv_weight) + bias[width:]
        k, v = (split_heads(part, num_heads) for part in torch.chunk(projected, 2, -1))
        if use_past and key_cache is not None and value_cache is not None:
            k, v = torch.cat((key_cache, k), 2), torch.cat((value_cache, v), 2)
    mask: Tensor | None = None
    if has_key_padding_mask:
        if key_padding_mask is None:
            raise ValueError("has_key_padding_mask needs key_padding_mask.")
        filter_value = _FILTER if mask_filter_value is None else mask_filter_value
        mask = torch.where(key_padding_mask, filter_value, 0.0).to(q.dtype)[:, None, None, :]
    y = merge_heads(fused(q, k, v, mask)).transpose(0, 1).contiguous()
    if not has_layer_state:
        return y, None, None
    return y, k.contiguous() if ctx.wants(1) else None, v.contiguous() if ctx.wants(2) else None
