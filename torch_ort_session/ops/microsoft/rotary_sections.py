"""Rotary position embeddings of one family of models each: MRotaryEmbedding, GemmaRotaryEmbedding.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.rotary import rotate
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("MRotaryEmbedding", domain="com.microsoft", since=(1,), checks=True, native=("check_range", "rotary"))
def m_rotary_embedding(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    mrope_section: list[int],
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
    ctx: KernelContext,
) -> Tensor:
    """Each head's features rotated in pairs by angles of three positions: in time, by row and by column.

    Args:
        x: [B, L, H * D] or [B, H, L, D].
        position_ids: int64 [3, B, L].
        cos_cache: [positions, width / 2].
        sin_cache: [positions, width / 2].
        interleaved: Whether a pair is two neighbours rather than one of each half.
        is_packed_batching: Not supported.
        mrope_layout: 0: one run of angles for each position; 1: angles take turns.
        mrope_section: How many of the angles are of each position.
        num_heads: H, needed where ``x`` has three dims.
        rotary_embedding_dim: Number of features to rotate, 0 for all.
        scale: Not used, as by RotaryEmbedding.
        ctx: Where a bad position is reported.

    Raises:
        ValueError: An option that is not supported, or inputs that do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MRotaryEmbedding
    """
    if is_packed_batching:
        raise ValueError("is_packed_batching is not supported.")
    half = cos_cache.shape[1]
    if len(mrope_section) != 3 or sum(mrope_section) != half:
        raise ValueError(f"three sections of {half} angles are needed, not {mrope_section}.")
    places = check_places(position_ids, cos_cache.shape[0], Flag.INDEX, ctx)
    angle = torch.arange(half, device=x.device)
    if mrope_layout:
        turn = angle % 3
        later = torch.where(turn == 1, 3 * mrope_section[1], 3 * mrope_section[2])
        which = torch.where((turn > 0) & (angle < later), turn, 0)
    else:
        which = (angle >= mrope_section[0]).long() + (angle >= mrope_section[0] + mrope_section[1]).long()
    # [B, L, half]: each angle from the table's row of its own position.
    rows = places.permute(1, 2, 0)[..., which]
    cos, sin = cos_cache[rows, angle], sin_cache[rows, angle]
    if x.dim() == 4:
        width = rotary_embedding_dim or x.shape[3]
        return rotate(x, cos.unsqueeze(1), sin.unsqueeze(1), width, interleaved != 0)
    if not num_heads:
        raise ValueError("num_heads is needed where the input has three dims.")
    split = x.reshape(*x.shape[:2], num_heads, x.shape[2] // num_heads)
    width = rotary_embedding_dim or split.shape[3]
    return rotate(split, cos.unsqueeze(2), sin.unsqueeze(2), width, interleaved != 0).flatten(2)


@kernel("GemmaRotaryEmbedding", domain="com.microsoft", since=(1,))
def gemma_rotary_embedding(
    emb: Tensor, q: Tensor, q_rot: Tensor, k: Tensor, k_rot: Tensor
) -> tuple[Tensor, Tensor]:
    """``q * cos(emb) + q_rot * sin(emb)``, and the same of keys.

    Args:
        emb: float32 angles [B, L, D].
        q: float16 [B, H, L, D].
        q_rot: Of the shape of ``q``.
        k: float16 [B, H, L, D].
        k_rot: Of the shape of ``k``.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GemmaRotaryEmbedding
    """
    cos = torch.cos(emb).to(q.dtype).unsqueeze(1)
    sin = torch.sin(emb).to(q.dtype).unsqueeze(1)
    return q * cos + q_rot * sin, k * cos + k_rot * sin
