"""A step of a decoder over its cache in one compiled op: see ``csrc/attention/gqa_decode/``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.common.kv_cache import Stored
from torch_ort_session.ops.common.rows import differentiated
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.microsoft.gqa.config import GroupQueryConfig

# New rows of a step of few queries over many keys. For more of them matrix products are faster.
_MOST_ROWS = 8

# The widest head that the kernel for CUDA has registers for.
_WIDEST_ON_CUDA = 256

_FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16))


@dataclass(frozen=True, slots=True)
class Tables:
    """What queries and keys are turned by; see :func:`~.rotary.rotate`.

    Attributes:
        cos: [positions, width / 2].
        sin: [positions, width / 2].
        position: int64 [B, L]; None counts on from the cache.
    """

    cos: Tensor
    sin: Tensor
    position: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class Attending:
    """What the new rows of one step attend by, besides queries, keys and values.

    Attributes:
        config: Of the node.
        bias: Added to the scores, broadcastable to [B, H, L, T].
        sink: [H], the logit of a key without a value.
        norms: [D], what queries and what keys are multiplied by once each head is normalized (see
            ``torch.rms_norm``), before they are turned; None where none is.
        counts: int32 [B], how many new rows of each sample count; None for all that can be.
        stored: How the caches of keys and of values hold their numbers.
    """

    config: GroupQueryConfig
    bias: Tensor | None
    sink: Tensor | None
    norms: tuple[Tensor, Tensor] | None
    counts: Tensor | None
    stored: tuple[Stored, Stored]


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What a step gives.

    Attributes:
        y: The result [B, L, H * D].
        key: New keys as the cache holds them [B, G, L, D].
        value: New values [B, G, L, D].
        start: Where they belong in the cache, int64 [B]; negative where what tells it cannot be. With counts,
            and for rolling caches, [B, 3] as :func:`~.cache_rows.put_rows` takes them.
    """

    y: Tensor
    key: Tensor
    value: Tensor
    start: Tensor


def decode_step(
    rows: tuple[Tensor, Tensor | None, Tensor | None],
    past: tuple[Tensor | None, Tensor | None],
    last: Tensor,
    total: int,
    tables: Tables | None,
    how: Attending,
    ctx: KernelContext,
) -> Decoded | None:
    """Attention of a few new rows over a cache and themselves, each sample's behind its own rows.

    Args:
        rows: Queries [B, L, H * D], keys [B, L, G * D] and values; or all three side by side in the first.
        past: Caches of keys and of values [B, G, C, D].
        last: int32 [B], the number of rows of each sample after the step, less one.
        total: The greatest number of rows there can be after the step.
        tables: What queries and keys are turned by.
        how: The rest.
        ctx: Context of the running kernel, which must be declared with ``checks=True``.

    Returns:
        None where plain ops have to do it: without the op for the device, for many rows, where gradients are
        wanted, where bad data is not noted, and for what is not of one float type.
    """
    query, past_key, past_value = rows[0], *past
    config = how.config
    validation = ctx.validation
    if past_key is None or past_value is None or validation is None or not validation.on:
        return None
    if last.dtype is not torch.int32 or not _is_step(query, past_key, total, how):
        return None
    turning = () if tables is None else (tables.cos, tables.sin)
    norms = (None, None) if how.norms is None else how.norms
    floats = [t for t in (*rows, *turning, how.bias, how.sink, *norms) if t is not None]
    scales = _scales(how, past_key)
    if scales is None:
        floats += [past_key, past_value]
    elif any(scale is None for scale in scales) or past_value.dtype is not past_key.dtype:
        return None
    width = past_key.shape[3] * (2 if how.stored[0].packed else 1)
    if query.dtype not in _FLOATS or any(t.dtype is not query.dtype for t in floats):
        return None
    if width == 0 or past_key.shape != past_value.shape or differentiated(*floats):
        return None
    if query.is_cuda and width > _WIDEST_ON_CUDA:
        return None
    op = native.device_op("gqa_decode", *floats, *past, last, how.counts, *(scales or ()))
    if op is None:
        return None
    place = None if tables is None or tables.position is None else _dense(tables.position)
    number, word = validation.noting(ctx.node)
    results = op(
        *(part if part is None or part.stride(2) == 1 else part.contiguous() for part in rows),
        *(part if part.stride(3) == 1 else part.contiguous() for part in (past_key, past_value)),
        _dense(last),
        total,
        *(_dense(part) for part in (turning or (None, None))),
        place,
        how.bias if how.bias is None or how.bias.stride(3) == 1 else how.bias.contiguous(),
        _dense(how.sink),
        config.heads,
        config.groups,
        config.scale or 1.0 / math.sqrt(width),
        config.window,
        config.softcap,
        tables is not None and config.interleaved,
        config.smooth,
        number,
        word,
        query_norm=_dense(norms[0]),
        key_norm=_dense(norms[1]),
        query_epsilon=0.0 if how.norms is None else config.query_epsilon,
        key_epsilon=0.0 if how.norms is None else config.key_epsilon,
        counts=_dense(how.counts),
        rolling=config.rolling,
        key_scale=scales[0] if scales else None,
        value_scale=scales[1] if scales else None,
    )
    return Decoded(*results)


def _is_step(query: Tensor, past: Tensor, total: int, how: Attending) -> bool:
    """Whether there are as few new rows as the op is made for, and lengths and bias are in its form."""
    batch, length = query.shape[:2]
    if not 0 < length <= _MOST_ROWS or not batch:
        return False
    if how.config.rolling or how.counts is not None:
        if how.config.rolling and not 0 < how.config.window <= past.shape[2]:
            return False
        if how.counts is not None and how.counts.dtype is not torch.int32:
            return False
    elif length == total and length > 1:
        return False
    return how.bias is None or (how.bias.dim() == 4 and how.bias.shape[3] >= max(total, length))


def present(past: Tensor, fresh: Tensor, start: Tensor, total: int) -> Tensor:
    """A cache with new rows where they belong, and at least ``total`` rows.

    Args:
        past: [B, G, C, D].
        fresh: [B, G, L, D].
        start: As :class:`Decoded` has it.
        total: Rows that the result has at least.
    """
    op = native.device_op("cache_appended", past, fresh, start)
    assert op is not None, "the library that decodes appends"
    whole: Tensor = op(past, fresh, start, total)
    return whole


def _scales(how: Attending, past: Tensor) -> tuple[Tensor | None, Tensor | None] | None:
    """The scales of keys and values, one number or [G, D] each; None among them for what no kernel reads."""
    if not how.config.quantized:
        return None
    key, value = (_scale(one, how.config.groups, past) for one in how.stored)
    return key, value


def _scale(one: Stored, groups: int, past: Tensor) -> Tensor | None:
    scale = one.scale
    if scale is None or scale.dtype is not torch.float32:
        return None
    if past.dtype is not (torch.uint8 if one.packed else torch.int8):
        return None
    if scale.numel() == 1:
        return scale.reshape(1)
    if scale.shape[0] != 1 or scale.shape[2] != 1:
        return None
    width = past.shape[3] * (2 if one.packed else 1)
    return scale.expand(1, groups, 1, width).contiguous()


def _dense(part: Tensor | None) -> Tensor | None:
    return None if part is None else part.contiguous()
