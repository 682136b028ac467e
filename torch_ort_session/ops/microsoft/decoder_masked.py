"""Attention of one new token: DecoderMaskedMultiHeadAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common.attention import masked_scores, merge_heads, scores, softmax, split_heads
from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.kv_cache import clean
from torch_ort_session.ops.kernel import KernelContext, kernel

# What onnxruntime adds to a score that the mask takes out of sight.
_FILTER = -10000.0


def _reads_length(node: Node) -> str | None:
    shared = node.attributes.get("past_present_share_buffer")
    if shared and len(node.outputs) > 3 and node.outputs[3]:
        return "the shape of the probabilities depends on the number of cached keys"
    return None


@kernel(
    "DecoderMaskedMultiHeadAttention",
    domain="com.microsoft",
    since=(1,),
    seam=_reads_length,
    checks=True,
    native=("check_range",),
)
def decoder_masked_multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    mask_index: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    mask_filter_value: float | None = None,
    num_heads: int,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Attention of one query a sample, to a cache that grows by its key, or to finished keys.

    The cache is taken in the order its shape tells, as onnxruntime's CPU provider does.

    Args:
        query: [B, 1, H * D], or all three side by side [B, 1, 2 * H * D + H * E].
        key: [B, 1, H * D], or finished keys [B, H, S, D].
        value: [B, 1, H * E], or finished values [B, H, S, E].
        mask_index: int32 [B, T], 1 for what is in sight.
        attention_bias: Added to the scores, broadcastable to [B, H, 1, T].
        past_key: [B, H, P, D], or a buffer [B, H, C, D] with ``past_present_share_buffer``.
        past_value: Like ``past_key``.
        past_sequence_length: int32, one element: how many rows of a buffer count.
        beam_width: Told by the shape of ``cache_indirection``.
        cache_indirection: int32 [B / W, W, C]: from which of W beams each cached key comes.
        bias: [2 * H * D + H * E], added to the three; to finished keys and values nothing is added.
        mask_filter_value: What is added to a score out of sight; None is -10000.
        num_heads: H.
        output_qk: Goes with the fourth output.
        past_present_share_buffer: Whether the caches are buffers, of which a part counts.
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
        ctx: Where a beam that does not exist, or a full buffer, is reported.

    Returns:
        The result [B, 1, H * E], where asked for the caches with the new row, and the probabilities
        [B, H, 1, T].

    Raises:
        ValueError: Inputs that do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DecoderMaskedMultiHeadAttention
    """
    count = None
    if (
        past_present_share_buffer
        and ctx.wants(3)
        and past_key is not None
        and past_sequence_length is not None
    ):
        # What lies beyond the buffer is reported where the row is written.
        count = int(past_sequence_length.item()) % past_key.shape[2] + 1
    return attend_one(
        (query, key, value, bias),
        (past_key, past_value),
        Hiding(mask_index, attention_bias, _FILTER if mask_filter_value is None else mask_filter_value),
        Buffers(past_present_share_buffer != 0, past_sequence_length, cache_indirection, count),
        heads=num_heads,
        scale=scale,
        ctx=ctx,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Hiding:
    """Keys out of sight.

    Attributes:
        mask: int32 [B, T], 0 for keys out of sight.
        bias: Added to the scores, broadcastable to [B, H, L, T].
        filter_value: Added to a score that the mask takes out of sight.
    """

    mask: Tensor | None
    bias: Tensor | None
    filter_value: float


@dataclass(frozen=True, slots=True, eq=False)
class Buffers:
    """Form of the past.

    Attributes:
        shared: Whether it is buffers, whose rows count up to a length.
        length: How many rows of buffers count.
        indirection: int32 [B / W, W, C], the beam that each row comes from.
        count: How many rows of buffers to look at where nothing else tells; None is all.
    """

    shared: bool
    length: Tensor | None
    indirection: Tensor | None
    count: int | None


def attend_one(
    inputs: tuple[Tensor, Tensor | None, Tensor | None, Tensor | None],
    past: tuple[Tensor | None, Tensor | None],
    hiding: Hiding,
    buffers: Buffers,
    *,
    heads: int,
    scale: float | None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Attention of one query a sample, as of DecoderMaskedMultiHeadAttention.

    Args:
        inputs: Queries, keys, values and their bias.
        past: Keys and values.
        hiding: Keys out of sight.
        buffers: Form of the past.
        heads: H.
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
        ctx: Tells which outputs are wanted.

    Raises:
        ValueError: Inputs that do not fit each other.
    """
    query, key, value, bias = inputs
    past_key, past_value = past
    if query.shape[1] != 1:
        raise ValueError(f"one query a sample is served, not {query.shape[1]}.")
    q, k, v = _rows(query, key, value, bias, heads)
    valid: Tensor | None = None
    finished = key is not None and key.dim() == 4
    if not finished and past_key is not None and past_value is not None:
        if buffers.shared:
            if buffers.length is None:
                raise ValueError("past_present_share_buffer needs past_sequence_length.")
            place = check_places(buffers.length.reshape(1), past_key.shape[2], Flag.POSITION, ctx)
            valid = place + 1
            k, v = past_key.index_copy(2, place, k), past_value.index_copy(2, place, v)
        else:
            k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
    present = (k, v)
    if valid is not None:
        rows = _counted(k.shape[2], hiding, buffers.count)
        counts = (torch.arange(rows, device=k.device) < valid).unsqueeze(0)
        k, v = clean(k[:, :, :rows], counts), clean(v[:, :, :rows], counts)
    if buffers.indirection is not None and not finished and past_key is not None:
        beams = beams_of(buffers.indirection, k.shape[2], valid, ctx)
        k, v = by_beam(k, beams), by_beam(v, beams)
    kind = q.dtype
    if kind is torch.float16 and q.device.type == "cpu":
        # As fast there in float32, and what the mask hides keeps its order.
        q, k, v = q.to(torch.float32), k.to(torch.float32), v.to(torch.float32)
    mask = _mask(hiding, valid, q, k.shape[2])
    weights = softmax(masked_scores(scores(q, k, scale or 1.0 / math.sqrt(q.shape[3])), mask), mask)
    y = merge_heads(torch.matmul(weights, v)).to(kind)
    return (
        y,
        present[0].contiguous() if ctx.wants(1) else None,
        present[1].contiguous() if ctx.wants(2) else None,
        weights.to(kind) if ctx.wants(3) else None,
    )


def _rows(
    query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by head."""
    if key is None or value is None:
        if bias is not None:
            query = query + bias
        third = query.shape[2] // 3
        q, k, v = torch.split(query, [third, third, query.shape[2] - 2 * third], 2)
        return split_heads(q, heads), split_heads(k, heads), split_heads(v, heads)
    width = query.shape[2]
    if key.dim() == 4:
        q = query if bias is None else query + bias[:width]
        return split_heads(q, heads), key, value
    if bias is not None:
        query, key, value = query + bias[:width], key + bias[width : 2 * width], value + bias[2 * width :]
    return split_heads(query, heads), split_heads(key, heads), split_heads(value, heads)


def _counted(capacity: int, hiding: Hiding, count: int | None) -> int:
    """Number of rows of a buffer to look at: those that count where their number is told, else all."""
    mask = hiding.mask if hiding.mask is not None else hiding.bias
    if mask is not None:
        return min(int(mask.shape[-1]), capacity)
    return capacity if count is None else count


def beams_of(indirection: Tensor, rows: int, valid: Tensor | None, ctx: KernelContext) -> Tensor:
    """The beam each row comes from [B / W, W, rows]; new rows and those that do not count are their own."""
    width = indirection.shape[1]
    row = torch.arange(rows, device=indirection.device)
    past = row < rows - 1 if valid is None else row < valid - 1
    own = torch.arange(width, device=indirection.device).unsqueeze(1)
    sources = indirection[:, :, :rows]
    sources = F.pad(sources, (0, rows - sources.shape[2]))
    return check_places(torch.where(past, sources, own), width, Flag.INDEX, ctx)


def by_beam(x: Tensor, beams: Tensor) -> Tensor:
    """A cache [B, H, S, D], each row of it taken from the beam it comes from."""
    parts = x.reshape(*beams.shape[:2], *x.shape[1:])
    index = beams[:, :, None, :, None].expand(-1, -1, x.shape[1], -1, x.shape[3])
    return torch.gather(parts, 1, index).flatten(0, 1)


def _mask(hiding: Hiding, valid: Tensor | None, q: Tensor, keys: int) -> Tensor | None:
    """Floats added to the scores: minus infinity where a buffer's row does not count."""
    mask, bias = hiding.mask, hiding.bias
    total = bias
    if mask is not None:
        hidden = torch.where(mask != 0, 0.0, hiding.filter_value).to(q.dtype)[:, None, None, :]
        total = hidden if total is None else total + hidden
    if valid is None or mask is not None or bias is not None:
        return total
    return torch.arange(keys, device=q.device) < valid.reshape(1, 1, 1, 1)
