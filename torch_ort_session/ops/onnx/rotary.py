"""Rotary position embedding: RotaryEmbedding.

Source: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.rotary import rotate, turned
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("RotaryEmbedding", since=(23,), checks=True, native=("check_range", "rotary"))
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
    ctx: KernelContext,
) -> Tensor:
    """Each head's features rotated in pairs by angles of their position.

    Args:
        x: [B, H, L, D], or [B, L, H * D] with ``num_heads``.
        cos_cache: [positions, width / 2], or [B, L, width / 2] without ``position_ids``.
        sin_cache: Like ``cos_cache``.
        position_ids: int64 [B, L].
        interleaved: Whether a pair is two neighbours rather than one of each half.
        num_heads: H, for inputs of rank 3.
        rotary_embedding_dim: Number of features to rotate, 0 for all.

    Raises:
        ValueError: Inputs or attributes do not fit each other.

    Source: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
    """
    if x.dim() == 4 or num_heads:
        width = rotary_embedding_dim or (x.shape[3] if x.dim() == 4 else x.shape[2] // (num_heads or 1))
        tables = cos_cache, sin_cache
        y = turned(x, tables, position_ids, num_heads or 0, width, interleaved != 0, ctx)
        if y is not None:
            return y
    if position_ids is not None:
        position_ids = check_places(position_ids, cos_cache.shape[0], Flag.INDEX, ctx)
        cos_cache, sin_cache = F.embedding(position_ids, cos_cache), F.embedding(position_ids, sin_cache)
    # Axis of the heads: 1 in rank 4, 2 once the features of rank 3 are split.
    if x.dim() == 4:
        cos, sin = cos_cache.unsqueeze(1), sin_cache.unsqueeze(1)
        return rotate(x, cos, sin, rotary_embedding_dim or x.shape[3], interleaved != 0)
    if not num_heads:
        raise ValueError("An input of rank 3 needs num_heads.")
    split = x.reshape(x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads)
    cos, sin = cos_cache.unsqueeze(2), sin_cache.unsqueeze(2)
    return rotate(split, cos, sin, rotary_embedding_dim or split.shape[3], interleaved != 0).flatten(2)
