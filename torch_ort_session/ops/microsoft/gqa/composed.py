"""A step of GroupQueryAttention by torch's own ops: any number of rows, with gradients, with scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    window,
)
from torch_ort_session.ops.common.rotary import rotate
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.microsoft.gqa.cache_rows import check_room, gives_rows
from torch_ort_session.ops.microsoft.gqa.config import GroupQueryConfig
from torch_ort_session.ops.microsoft.gqa.decode_step import Attending, Tables


@dataclass(frozen=True, slots=True, eq=False)
class _Extents:
    """Where the new rows of each sample lie.

    Attributes:
        valid: [B], positions after the step.
        before: [B], positions before it.
        counts: [B], how many new rows count; None for all.
    """

    valid: Tensor
    before: Tensor
    counts: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class _Cached:
    """Keys and values that new rows see, and the caches after the step.

    Attributes:
        key: [B, G, S, D] in sight, as stored.
        value: The same of values.
        caches: Of keys and of values [B, G, C, D].
        mask: What is added to scores, or which of them count.
        filled: [B, S], which rows in sight hold something; None for all.
        place: Where the new rows belong: see :class:`~.decode_step.Decoded`.
    """

    key: Tensor
    value: Tensor
    caches: tuple[Tensor, Tensor]
    mask: Tensor | None
    filled: Tensor | None
    place: Tensor


def composed(
    rows: tuple[Tensor, Tensor | None, Tensor | None],
    past: tuple[Tensor | None, Tensor | None],
    last: Tensor,
    total: int,
    tables: Tables | None,
    how: Attending,
    ctx: KernelContext,
) -> tuple[Tensor | None, ...]:
    """The outputs of a node by torch's own ops; arguments are those of :func:`~.decode_step.decode_step`."""
    config = how.config
    q, k, v = _heads(rows, config)
    if how.norms is not None:
        q = torch.rms_norm(q, q.shape[3:], how.norms[0], config.query_epsilon)
        k = torch.rms_norm(k, k.shape[3:], how.norms[1], config.key_epsilon)
    extents = _extents(q.shape[2], past[0], last, total, how, ctx)
    if tables is not None:
        q, k = _turned(q, k, tables, extents, config, ctx)
    keys, values = how.stored
    fresh = quantized(k, keys), quantized(v, values)
    cached = (_rolled if config.rolling else _grown)(fresh, past, total, extents, how)
    seen_key = clean(dequantized(cached.key, keys, q.dtype), cached.filled)
    seen_value = clean(dequantized(cached.value, values, q.dtype), cached.filled)
    y, products = _attend(q, seen_key, seen_value, cached.mask, how)
    if past[0] is not None and gives_rows(ctx.node):
        if not config.rolling:
            check_room(past[0], total)
        copies = (part.clone(memory_format=torch.contiguous_format) for part in fresh)
        return merge_heads(y), *copies, products, cached.place
    return merge_heads(y), *cached.caches, products


def _heads(
    rows: tuple[Tensor, Tensor | None, Tensor | None], config: GroupQueryConfig
) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = rows
    heads, groups = config.heads, config.groups
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * groups)
        query, key, value = torch.split(query, [heads * size, groups * size, groups * size], 2)
    return split_heads(query, heads), split_heads(key, groups), split_heads(value, groups)


def _extents(
    length: int, past: Tensor | None, last: Tensor, total: int, how: Attending, ctx: KernelContext
) -> _Extents:
    rolling = how.config.rolling
    # The first call fills an empty cache, where shorter samples are padded behind.
    first = total == length or how.counts is not None or rolling
    ends = check_range(last, 0 if first else length - 1, total - 1, Flag.POSITION, ctx)
    valid = ends.reshape(-1) + 1
    counts = check_lengths(how.counts, length, ctx)
    if counts is not None:
        counts = counts.reshape(-1)
        room = past.shape[2] if past is not None and not rolling else total
        before = check_range(valid - counts, 0, room, Flag.POSITION, ctx)
    elif rolling:
        before = (valid - length).clamp(min=0)
    else:
        before = torch.zeros_like(valid) if total == length else valid - length
    return _Extents(valid, before, counts)


def _turned(
    q: Tensor, k: Tensor, tables: Tables, extents: _Extents, config: GroupQueryConfig, ctx: KernelContext
) -> tuple[Tensor, Tensor]:
    """Queries and keys turned by their positions."""
    order = torch.arange(q.shape[2], device=q.device)
    position = extents.before.unsqueeze(1) + order if tables.position is None else tables.position
    if extents.counts is not None:
        # Rows that do not count have no place.
        position = torch.where(order < extents.counts.unsqueeze(1), position, 0)
    position = check_places(position, tables.cos.shape[0], Flag.INDEX, ctx)
    cos, sin = tables.cos[position].unsqueeze(1), tables.sin[position].unsqueeze(1)
    width = 2 * tables.cos.shape[1]
    return rotate(q, cos, sin, width, config.interleaved), rotate(k, cos, sin, width, config.interleaved)


def _rolled(
    fresh: tuple[Tensor, Tensor],
    past: tuple[Tensor | None, Tensor | None],
    total: int,
    extents: _Extents,
    how: Attending,
) -> _Cached:
    """Caches that keep the last positions only."""
    past_key, past_value = past
    config = how.config
    if past_key is None or past_value is None or config.products:
        raise ValueError("a cache of a window needs past_key and past_value, and gives no scores.")
    length = fresh[0].shape[2]
    rows = window(past_key.shape[2], config.window, length, extents.valid, extents.counts)
    key, present_key = kept(past_key, fresh[0], rows.source)
    value, present_value = kept(past_value, fresh[1], rows.source)
    mask = in_window(rows, config.window, how.bias)
    return _Cached(key, value, (present_key, present_value), mask, rows.position >= 0, rows.place)


def _grown(
    fresh: tuple[Tensor, Tensor],
    past: tuple[Tensor | None, Tensor | None],
    total: int,
    extents: _Extents,
    how: Attending,
) -> _Cached:
    """Caches with the new rows behind those of each sample."""
    config, length = how.config, fresh[0].shape[2]
    before, counts = extents.before, extents.counts
    place = before.to(torch.int64)
    if counts is not None:
        place = parted(place, counts)
    filled = counting(past[0], length, before, total, counts)
    key = appended(past[0], fresh[0], before, total, counts)
    value = appended(past[1], fresh[1], before, total, counts)
    mask: Tensor | None = visible(
        length,
        total,
        before.device,
        causal=config.causal,
        offset=before,
        window=(config.window - 1 if config.window > 0 else -1, -1),
        valid=None if config.causal else extents.valid,
    )
    if how.bias is not None:
        mask = combine(how.bias[..., :total], mask)
    return _Cached(key[:, :, :total], value[:, :, :total], (key, value), mask, filled, place)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, how: Attending
) -> tuple[Tensor, Tensor | None]:
    config = how.config
    if config.softcap == 0.0 and how.sink is None and not config.smooth and config.products == 0:
        return fused(q, k, v, mask, scale=config.scale), None
    logits = scores(q, k, config.scale or 1.0 / math.sqrt(q.shape[3]))
    if config.softcap:
        logits = torch.tanh(logits / config.softcap) * config.softcap
    logits = masked_scores(logits, mask)
    if how.sink is None and not config.smooth:
        probabilities = softmax(logits, mask)
    else:
        sink = q.new_zeros(1) if how.sink is None else how.sink
        column = sink.reshape(1, -1, 1, 1).expand(q.shape[0], q.shape[1], q.shape[2], 1)
        probabilities = torch.softmax(torch.cat((logits, column), 3), -1)[..., :-1]
    products = (None, logits, probabilities)[config.products]
    return weighted(probabilities, v), products
