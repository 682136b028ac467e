"""QEmbedLayerNormalization of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QEmbedLayerNormalization
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("QEmbedLayerNormalization", domain="com.microsoft", since=(1,), checks=True, native=("check_range",))
def qembed_layer_normalization(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word_embedding: Tensor,
    position_embedding: Tensor,
    segment_embedding: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None,
    word_scale: Tensor,
    position_scale: Tensor,
    segment_scale: Tensor | None,
    gamma_scale: Tensor,
    beta_scale: Tensor,
    word_zero_point: Tensor,
    position_zero_point: Tensor,
    segment_zero_point: Tensor | None,
    gamma_zero_point: Tensor,
    beta_zero_point: Tensor,
    *,
    epsilon: float = 9.999999960041972e-13,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Layer normalization of the sum of a word's, its position's and its segment's quantized embedding.

    Only the rows that are read are taken out of their quantized form. Scales and zero points are scalars.

    Args:
        input_ids: int32 [B, L].
        segment_ids: int32 [B, L].
        word_embedding: int8 or uint8 [words, D].
        position_embedding: int8 or uint8 [positions, D].
        segment_embedding: int8 or uint8 [segments, D].
        gamma: int8 or uint8 [D].
        beta: int8 or uint8 [D].
        mask: int32 [B, L], 1 for a word and 0 for filling.
        word_scale: Of the words.
        position_scale: Of the positions.
        segment_scale: Of the segments.
        gamma_scale: Of ``gamma``.
        beta_scale: Of ``beta``.
        word_zero_point: Of the words.
        position_zero_point: Of the positions.
        segment_zero_point: Of the segments.
        gamma_zero_point: Of ``gamma``.
        beta_zero_point: Of ``beta``.
        epsilon: Added to the variance.
        ctx: Where a bad index is reported.

    Returns:
        The result [B, L, D], and the number of words of each sample (int32 [B]).

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QEmbedLayerNormalization
    """
    words = _rows(word_embedding, input_ids, ctx)
    total = _real(words, word_scale, word_zero_point)
    positions = position_embedding[: input_ids.shape[1]]
    total = total + _real(positions, position_scale, position_zero_point)
    if segment_ids is not None and segment_embedding is not None and segment_scale is not None:
        segments = _rows(segment_embedding, segment_ids, ctx)
        total = total + _real(segments, segment_scale, segment_zero_point)
    y = torch.layer_norm(
        total,
        total.shape[-1:],
        _real(gamma, gamma_scale, gamma_zero_point),
        _real(beta, beta_scale, beta_zero_point),
        epsilon,
    )
    if not ctx.wants(1):
        return y, None
    counted = torch.zeros_like(input_ids) if mask is None else mask.eq(1)
    return y, counted.sum(1, dtype=torch.int32)


def _rows(table: Tensor, ids: Tensor, ctx: KernelContext) -> Tensor:
    index = check_places(ids, table.shape[0], Flag.INDEX, ctx)
    return torch.index_select(table, 0, index.reshape(-1)).reshape(*ids.shape, table.shape[1])


def _real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    wide = x.to(scale.dtype)
    return (wide if zero is None else wide - zero.to(scale.dtype)) * scale
