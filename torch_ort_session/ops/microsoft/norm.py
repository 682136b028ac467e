"""Normalizations of com.microsoft that add their inputs first.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.norms import row_norm
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.norm_layer import rms_normalization

_FLOAT = int(ElementType.FLOAT)
_EPSILON = 9.999999960041972e-13
_Four = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]


@kernel("SkipLayerNormalization", domain="com.microsoft", since=(1,))
def skip_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = _EPSILON,
    ctx: KernelContext,
) -> _Four:
    """Layer normalization of ``x + skip + bias`` over the last axis.

    Args:
        x: [B, L, D] or [L, D].
        skip: Broadcastable to ``x``.
        gamma: [D].
        beta: [D].
        bias: [D].
        epsilon: Added to the variance.

    Returns:
        The result, and where asked for the mean and inverse deviation [B, L, 1] in float32, and the sum.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.SkipLayerNormalization
    """
    total = x + skip if bias is None else x + skip + bias
    width = total.shape[-1:]
    if not ctx.wants(1) and not ctx.wants(2):
        return torch.layer_norm(total, width, gamma, beta, epsilon), None, None, total
    y, mean, inverse = torch.native_layer_norm(total, width, gamma, beta, epsilon)
    return y, mean.to(torch.float32), inverse.to(torch.float32), total


@kernel("SkipSimplifiedLayerNormalization", domain="com.microsoft", since=(1,), native=("skip_rms_norm",))
def skip_simplified_layer_normalization(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    bias: Tensor | None = None,
    *,
    epsilon: float = _EPSILON,
    ctx: KernelContext,
) -> _Four:
    """Root mean square normalization of ``x + skip + bias`` over the last axis.

    Args:
        x: [B, L, D] or [L, D].
        skip: Broadcastable to ``x``.
        gamma: [D].
        bias: [D].
        epsilon: Added to the mean square.

    Returns:
        The result, nothing for the mean, where asked for the inverse root [B, L, 1] in float32, and the sum.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.SkipSimplifiedLayerNormalization
    """
    wants_inverse = ctx.wants(2)
    results = row_norm(x, skip, bias, gamma, epsilon, wants_total=ctx.wants(3), wants_inverse=wants_inverse)
    if results is not None:
        y, total, inverse = results
        return y, None, inverse if wants_inverse else None, total if ctx.wants(3) else None
    total = x + skip if bias is None else x + skip + bias
    y = torch.rms_norm(total, total.shape[-1:], gamma, epsilon)
    return y, None, _inverse(total, epsilon) if wants_inverse else None, total


@kernel("SimplifiedLayerNormalization", since=(0,), native=("skip_rms_norm",))
def simplified_layer_normalization(
    x: Tensor,
    scale: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 9.999999747378752e-06,
    stash_type: int = 1,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Root mean square normalization, as onnxruntime puts it into the default domain.

    Args:
        x: [D1..Dn].
        scale: [Daxis..Dn].
        axis: First axis to normalize over.
        epsilon: Added to the mean square.
        stash_type: Element type of the mean square: float32 or bfloat16.

    Returns:
        The result, and where asked for the inverse root in float32.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    if ctx.wants(1) and stash_type == _FLOAT and axis in (-1, x.dim() - 1):
        results = row_norm(x, None, None, scale, epsilon, wants_inverse=True)
        if results is not None:
            return results[0], results[2]
    y = rms_normalization(x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)
    return y, _inverse(x, epsilon, axis) if ctx.wants(1) else None


@kernel("EmbedLayerNormalization", domain="com.microsoft", since=(1,), checks=True, native=("check_range",))
def embed_layer_normalization(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word_embedding: Tensor,
    position_embedding: Tensor,
    segment_embedding: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = _EPSILON,
    mask_index_type: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Layer normalization of the sum of a word's, its position's and its segment's embedding.

    Args:
        input_ids: int32 [B, L].
        segment_ids: int32 [B, L].
        word_embedding: [words, D].
        position_embedding: [positions, D].
        segment_embedding: [segments, D].
        gamma: [D].
        beta: [D].
        mask: int32 [B, L], 1 for a word and 0 for filling.
        position_ids: int32 [B, L] or [1, L]; None counts from 0.
        epsilon: Added to the variance.
        mask_index_type: A hint for shape inference; not used.

    Returns:
        The result [B, L, D], the number of words of each sample (int32 [B]), and the sum of the embeddings.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.EmbedLayerNormalization
    """
    total = F.embedding(check_places(input_ids, word_embedding.shape[0], Flag.INDEX, ctx), word_embedding)
    if position_ids is None:
        total = total + position_embedding[: input_ids.shape[1]]
    else:
        places = check_places(position_ids, position_embedding.shape[0], Flag.INDEX, ctx)
        total = total + F.embedding(places, position_embedding)
    if segment_ids is not None and segment_embedding is not None:
        segments = check_places(segment_ids, segment_embedding.shape[0], Flag.INDEX, ctx)
        total = total + F.embedding(segments, segment_embedding)
    count = None
    if ctx.wants(1):
        ones = torch.zeros_like(input_ids) if mask is None else mask.eq(1)
        count = ones.sum(1, dtype=torch.int32)
    return torch.layer_norm(total, total.shape[-1:], gamma, beta, epsilon), count, total


def _inverse(x: Tensor, epsilon: float, axis: int = -1) -> Tensor:
    dims = tuple(range(axis % x.dim(), x.dim()))
    return torch.rsqrt(x.to(torch.float32).square().mean(dims, keepdim=True) + epsilon)
