"""Attention to neighbours and to a few tokens that all see: LongformerAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.LongformerAttention
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.attention import fused, merge_heads, split_heads
from torch_ort_session.ops.kernel import kernel


@kernel("LongformerAttention", domain="com.microsoft", since=(1,), native=("gqa_decode",))
def longformer_attention(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor,
    global_weight: Tensor,
    global_bias: Tensor,
    flags: Tensor,
    *,
    num_heads: int,
    window: int,
) -> Tensor:
    """Self attention in which a token sees its neighbours and the global tokens, and a global token sees all.

    Args:
        x: [B, L, H * D].
        weight: [H * D, 3 * H * D], the three projections side by side.
        bias: [3 * H * D].
        mask: Added to the scores of each key [B, L]: 0, or a large negative number for padding.
        global_weight: Like ``weight``, of the queries of global tokens, and of the keys and values they see.
        global_bias: Like ``bias``.
        flags: int32 [B, L], 1 for a global token.
        num_heads: H.
        window: How many neighbours a token sees on either side.

    Returns:
        [B, L, H * D].

    Raises:
        ValueError: A hidden size that does not divide into the heads.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.LongformerAttention
    """
    chosen = flags != 0
    place = torch.arange(x.shape[1], device=x.device)
    near = (place - place.unsqueeze(1)).abs() <= window
    added = mask[:, None, None, :]
    seen = near | chosen[:, None, None, :]
    local = _attend(x, weight, bias, torch.where(seen, added, -torch.inf), num_heads)
    everywhere = _attend(x, global_weight, global_bias, added, num_heads)
    return torch.where(chosen.unsqueeze(2), everywhere, local)


def _attend(x: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, heads: int) -> Tensor:
    parts = torch.chunk(torch.matmul(x, weight) + bias, 3, -1)
    q, k, v = (split_heads(part, heads) for part in parts)
    return merge_heads(fused(q, k, v, mask))
