"""Rotary position embedding of com.microsoft: RotaryEmbedding.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.RotaryEmbedding
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.rotary import rotate, turned
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("RotaryEmbedding", domain="com.microsoft", since=(1,), checks=True, native=("check_range", "rotary"))
def rotary_embedding(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
    ctx: KernelContext,
) -> Tensor:
    """Each head's features rotated in pairs by angles of their position.

    Args:
        x: [B, L, H * D] or [B, H, L, D].
        position_ids: int64 [B, L], or [1], the position of the first element of every sample.
        cos_cache: [positions, width / 2].
        sin_cache: [positions, width / 2].
        interleaved: Whether a pair is two neighbours rather than one of each half.
        is_packed_batching: Whether samples lie behind each other in one, each with its own positions; it
            changes nothing here.
        num_heads: H; needed only together with ``rotary_embedding_dim``.
        rotary_embedding_dim: Number of features to rotate, 0 for all.
        scale: Not used, as by onnxruntime.

    Raises:
        ValueError: Inputs do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.RotaryEmbedding
    """
    flat = x.dim() == 3
    length = x.shape[1] if flat else x.shape[2]
    size, heads = x.shape[-1], 0
    if flat:
        heads = num_heads if rotary_embedding_dim and num_heads else size // (2 * cos_cache.shape[1])
        size //= heads
    width = rotary_embedding_dim or size
    y = turned(x, (cos_cache, sin_cache), position_ids, heads, width, interleaved != 0, ctx)
    if y is not None:
        return y
    if position_ids.numel() == 1 and position_ids.dim() == 1:
        position_ids = position_ids + torch.arange(length, device=x.device).unsqueeze(0)
    position_ids = check_places(position_ids, cos_cache.shape[0], Flag.INDEX, ctx)
    cos, sin = cos_cache[position_ids], sin_cache[position_ids]
    if not flat:
        return rotate(x, cos.unsqueeze(1), sin.unsqueeze(1), width, interleaved != 0)
    split = x.reshape(x.shape[0], length, heads, size)
    return rotate(split, cos.unsqueeze(2), sin.unsqueeze(2), width, interleaved != 0).flatten(2)
