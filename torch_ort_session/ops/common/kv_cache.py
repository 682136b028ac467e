"""Caches of keys and values that hold integers, and caches that hold a window.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupQueryAttention
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import typed


@dataclass(frozen=True, slots=True)
class Stored:
    """The form in which a cache holds its numbers.

    Attributes:
        scale: What a stored number is multiplied by, broadcastable to the cache; None where it holds floats.
        packed: Whether two numbers of 4 bits share a byte.
        dtype: Of the cache.
    """

    scale: Tensor | None
    packed: bool
    dtype: torch.dtype


def stored(kind: str, scale: Tensor | None, bits: int, past: Tensor | None) -> Stored:
    """The form in which a cache holds its numbers, by the attributes of a node.

    Raises:
        ValueError: A quantized cache has no scale.
    """
    if kind == "NONE":
        return Stored(None, False, torch.int8)
    if scale is None:
        raise ValueError(f"a cache quantized {kind} needs its scale.")
    if scale.numel() > 1 and scale.dim() < 4:
        scale = scale.reshape(1, -1, 1, scale.shape[-1])
    packed = bits == 4
    dtype = past.dtype if past is not None else torch.uint8 if packed else torch.int8
    return Stored(scale, packed, dtype)


def quantized(x: Tensor, how: Stored) -> Tensor:
    """Floats [B, G, L, D] as the cache holds them."""
    if how.scale is None:
        return x
    ratio = x.to(torch.float32) / how.scale
    if how.dtype is torch.float8_e4m3fn:
        return ratio.clamp(-448.0, 448.0).to(how.dtype)
    if not how.packed:
        return torch.round(ratio).clamp(-128, 127).to(torch.int8)
    number = torch.round(ratio).clamp(-8, 7).to(torch.int32) + 8
    return (number[..., 0::2] | (number[..., 1::2] << 4)).to(torch.uint8)


def dequantized(cache: Tensor, how: Stored, dtype: torch.dtype) -> Tensor:
    """The numbers of a cache, as floats [B, G, S, D]."""
    if how.scale is None:
        return cache
    if how.packed:
        low, high = cache & 15, cache >> 4
        numbers = torch.stack((low, high), -1).flatten(-2).to(torch.float32) - 8.0
    else:
        numbers = cache.to(torch.float32)
    return (numbers * how.scale).to(dtype)


def appended(past: Tensor | None, new: Tensor, before: Tensor, total: int, count: Tensor | None) -> Tensor:
    """A cache with the new rows behind those of each sample that count.

    Args:
        past: [B, G, C, D].
        new: [B, G, L, D].
        before: Rows of the past that count, by sample [B].
        total: Rows that the result has at least.
        count: New rows that count, by sample [B]; None for all.
    """
    if past is None or past.shape[2] == 0:
        return new.contiguous()
    capacity, length = past.shape[2], new.shape[2]
    if _whole(past, total, length, count):
        return torch.cat((past, new), 2)
    row = torch.arange(max(capacity, total), device=past.device)
    start = before.reshape(-1, 1).to(torch.int64)
    fresh = (row >= start) & (row < start + (length if count is None else count.reshape(-1, 1)))
    # Rows of the past come first in what is picked from, then the new ones.
    source = torch.where(fresh, capacity + row - start, row.clamp(max=capacity - 1))
    return typed(_picked(torch.cat((_bytes(past), _bytes(new)), 2), source), past.dtype)


def counting(
    past: Tensor | None, length: int, before: Tensor, total: int, count: Tensor | None
) -> Tensor | None:
    """Which of the first ``total`` rows of what :func:`appended` gives count [B, total]; None for all.

    Args:
        past: The cache before.
        length: Number of new rows.
        before: Rows of the past that count, by sample [B].
        total: T.
        count: New rows that count, by sample [B]; None for all.
    """
    if past is None or past.shape[2] == 0 or _whole(past, total, length, count):
        return None
    end = before.reshape(-1, 1).to(torch.int64) + (length if count is None else count.reshape(-1, 1))
    return torch.arange(total, device=past.device) < end


def clean(cache: Tensor, counts: Tensor | None) -> Tensor:
    """A cache [B, G, S, D] of floats with zeros in rows that do not count [B, S].

    What lies there may be anything, and no weight makes nothing of what is no number.
    """
    return cache if counts is None else cache.masked_fill(~counts[:, None, :, None], 0.0)


def _whole(past: Tensor, total: int, length: int, count: Tensor | None) -> bool:
    """Whether every row of the past counts, and every new one behind it."""
    return past.shape[0] == 1 and total == past.shape[2] + length and count is None


@dataclass(frozen=True, slots=True)
class Window:
    """A cache that holds a window, with the new rows behind it, and what of them stays.

    Attributes:
        position: What position each row of cache and new rows holds [B, C + L]; -1 for none.
        query: Position of each query [B, L].
        source: For each row of the cache afterwards, the row it is taken from [B, C].
        place: Where the new rows go, how many rows make way, and how many new ones count: int64 [B, 3].
    """

    position: Tensor
    query: Tensor
    source: Tensor
    place: Tensor


def window(capacity: int, width: int, length: int, valid: Tensor, count: Tensor | None) -> Window:
    """Places of rows in a cache of ``capacity`` rows that keeps at least the last ``width`` positions.

    Args:
        capacity: C.
        width: Positions in sight.
        length: L, the number of new rows.
        valid: Number of positions after this step, by sample [B].
        count: New rows that count, by sample [B]; None for as many as there can be.

    Raises:
        ValueError: The cache holds fewer rows than are in sight.
    """
    if not 0 < width <= capacity:
        raise ValueError(f"a cache of {capacity} rows cannot hold a window of {width}.")
    after = valid.reshape(-1, 1).to(torch.int64)
    new = after.clamp(max=length) if count is None else count.reshape(-1, 1).to(torch.int64)
    before = after - new
    held, kept = _resident(before, capacity, width), _resident(after, capacity, width)
    row, fresh = (torch.arange(n, device=valid.device) for n in (capacity, length))
    old = torch.where(row < held, before - held + row, -1)
    query = before + fresh
    position = torch.cat((old, torch.where(fresh < new, query, -1)), 1)
    place = after - kept + row
    source = torch.where(place >= before, capacity + place - before, place - before + held)
    start = kept - new
    moved = torch.cat((start, held - start.clamp(min=0), new), 1)
    return Window(position, query, torch.where(row < kept, source, row), moved)


def in_window(rows: Window, width: int, bias: Tensor | None) -> Tensor:
    """Mask of what each query sees of a cache of a window and the new rows, with the bias of their positions.

    Args:
        rows: Where they lie.
        width: Positions in sight.
        bias: Added to the scores [B or 1, H or 1, L, T], by position; None for none.
    """
    position, query = rows.position[:, None, None, :], rows.query[:, None, :, None]
    seen = (position >= 0) & (position <= query) & (position > query - width)
    if bias is None:
        return seen
    column = rows.position.clamp(0, bias.shape[3] - 1)[:, None, None, :]
    shape = (column.shape[0], *bias.shape[1:3], column.shape[3])
    spread = bias.expand(shape[0], -1, -1, -1)
    return torch.where(seen, torch.gather(spread, 3, column.expand(shape)), -math.inf)


def parted(start: Tensor, count: Tensor) -> Tensor:
    """Places of new rows of which some count, as ``put_rows`` of ``cache_rows.py`` takes them.

    Args:
        start: Where they go, int64 [B].
        count: How many count [B].
    """
    return torch.stack((start, torch.zeros_like(start), count.to(torch.int64)), 1)


def kept(past: Tensor, new: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """A cache with the new rows behind it [B, G, C + L, D], and what of them the cache keeps [B, G, C, D]."""
    rows = torch.cat((_bytes(past), _bytes(new)), 2)
    return typed(rows, past.dtype), typed(_picked(rows, source), past.dtype)


def _resident(total: Tensor, capacity: int, width: int) -> Tensor:
    """Number of rows, of so many positions, that a cache holds after as few evictions as make them fit."""
    step = capacity - width + 1
    over = (total - capacity).clamp(min=0)
    return total - step * torch.div(over + step - 1, step, rounding_mode="floor")


def _picked(rows: Tensor, source: Tensor) -> Tensor:
    index = source[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[3])
    return torch.gather(rows, 2, index)


def _bytes(x: Tensor) -> Tensor:
    return x.view(torch.uint8) if x.dtype is torch.float8_e4m3fn else x
