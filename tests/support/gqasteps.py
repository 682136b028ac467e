"""Steps of GroupQueryAttention for tests of its kernels, and what they give in float64."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROUNDING = {torch.float32: 2e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
"""How far a result may be from float64's, as a share of the largest magnitude."""


class Step(NamedTuple):
    """What the op takes."""

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    past_key: Tensor
    past_value: Tensor
    last: Tensor
    total: int
    cos: Tensor | None
    sin: Tensor | None
    position: Tensor | None
    bias: Tensor | None
    sink: Tensor | None
    heads: int
    groups: int
    scale: float
    window: int
    softcap: float
    interleaved: bool
    smooth: bool
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None
    query_epsilon: float = 0.0
    key_epsilon: float = 0.0
    counts: Tensor | None = None
    rolling: bool = False
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None

    def arguments(self) -> tuple[Any, ...]:
        return tuple(self)[: self._fields.index("smooth") + 1]

    def options(self) -> dict[str, Any]:
        """What is given by name."""
        return dict(list(self._asdict().items())[len(self.arguments()) :])

    @property
    def length(self) -> int:
        return self.query.shape[1]

    @property
    def width(self) -> int:
        """Of a head."""
        return self.past_key.shape[3] * (2 if self.past_key.dtype is torch.uint8 else 1)

    @property
    def rounding(self) -> float:
        """How far new keys may be from float64's: codes are the same."""
        return ROUNDING[self.query.dtype] if self.key_scale is None else 1e-9

    @property
    def new(self) -> list[int]:
        """New rows that count, by sample."""
        if self.counts is not None:
            return self.counts.tolist()
        return [min(self.length, last + 1) for last in self.last.tolist()]

    @property
    def before(self) -> list[int]:
        """Positions before the step, by sample."""
        return [last + 1 - new for last, new in zip(self.last.tolist(), self.new, strict=True)]

    @property
    def places(self) -> tuple[int, ...]:
        """The shape of where new rows go."""
        parted = self.rolling or self.counts is not None
        return (self.query.shape[0], 3) if parted else (self.query.shape[0],)

    def held(self, positions: int) -> int:
        """Rows of the cache that hold so many positions."""
        capacity = self.past_key.shape[2]
        if not self.rolling:
            return positions
        while positions > capacity:
            positions -= capacity - self.window + 1
        return positions


def step(
    seed: int,
    dtype: torch.dtype,
    *,
    heads: int,
    groups: int,
    width: int,
    capacity: int,
    batch: int = 2,
    length: int = 1,
    window: int = -1,
    softcap: float = 0.0,
    smooth: bool = False,
    sink: bool = False,
    bias: bool = False,
    packed: bool = False,
    rotary: str = "",
    positions: bool = False,
    normed: bool = False,
    padded: bool = False,
    rolling: int | None = None,
    stored: int = 0,
    channels: bool = False,
    scale: float | None = None,
    total: int | None = None,
) -> Step:
    """A random one; the first sample's cache is full but for the new rows.

    With `rolling` it holds the last positions only, of which there were about as many more as that.
    """
    random = torch.Generator().manual_seed(seed)

    def made(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).to(dtype)

    def held() -> Tensor:
        shape = (batch, groups, capacity, width)
        if not stored:
            return made(*shape)
        if stored == 8:
            return torch.randint(-128, 128, shape, generator=random).to(torch.int8)
        return torch.randint(256, (*shape[:3], width // 2), generator=random).to(torch.uint8)

    def scales() -> Tensor | None:
        shape = (1, groups, 1, width) if channels else (1,)
        unit = 0.02 if stored == 8 else 0.3
        return (torch.rand(shape, generator=random) + 0.5) * unit if stored else None

    width += width % 2 if stored == 4 else 0
    room = capacity - (length if rolling is None else 0)
    before = torch.randint(0, room + 1, (batch,), generator=random)
    before[0] = room
    if rolling is not None:
        before += torch.arange(rolling, rolling - batch, -1).clamp(min=0)
    total = int(before.max()) + length if total is None else total
    query, key, value = made(batch, length, heads * width), None, None
    if packed:
        query = made(batch, length, (heads + 2 * groups) * width)
    else:
        key, value = made(batch, length, groups * width), made(batch, length, groups * width)
    counts = torch.full((batch,), length)
    if padded:
        counts = torch.randint(length + 1, (batch,), generator=random)
        counts[before == 0] = length
    half = width // 2 // (2 if rotary == "part" else 1)
    turned = bool(rotary) and half > 0
    angles = torch.rand(total + 3, half, generator=random) * 6
    return Step(
        query,
        key,
        value,
        held(),
        held(),
        (before + counts - 1).to(torch.int32),
        total,
        angles.cos().to(dtype) if turned else None,
        angles.sin().to(dtype) if turned else None,
        torch.randint(capacity, (batch, length), generator=random) if turned and positions else None,
        made(1, heads, length, total + 2) if bias else None,
        made(heads) if sink else None,
        heads,
        groups,
        1 / math.sqrt(width) if scale is None else scale,
        window,
        softcap,
        rotary == "pairs",
        smooth,
        *((made(width) + 1, made(width), 1e-6, 0.3) if normed else (None, None, 0.0, 0.0)),
        counts.to(torch.int32) if padded else None,
        rolling is not None,
        scales(),
        scales(),
    )


def counting(one: Step, rows: Tensor) -> Tensor:
    """New rows [B, G, L, D] in float64, with zeros for those that do not count."""
    places = torch.arange(one.length)[:, None]
    each = zip(one.new, numbers(rows), strict=True)
    return torch.stack([torch.where(places < new, part, 0) for new, part in each])


class Wanted(NamedTuple):
    """What it gives: the result, the new rows, and where they go."""

    y: Tensor
    key: Tensor
    value: Tensor
    places: list[Any]


def reference(one: Step) -> Wanted:
    """The same in float64, row by row."""
    batch, length, width = one.query.shape[0], one.length, one.width
    if one.key is None or one.value is None:
        sizes = [one.heads * width, one.groups * width, one.groups * width]
        query, key, value = torch.split(one.query, sizes, 2)
    else:
        query, key, value = one.query, one.key, one.value
    query, key, value = (
        part.double().reshape(batch, length, -1, width).transpose(1, 2) for part in (query, key, value)
    )
    query, key = (
        part if weight is None else torch.rms_norm(part, (width,), weight.double(), epsilon)
        for part, weight, epsilon in (
            (query, one.query_norm, one.query_epsilon),
            (key, one.key_norm, one.key_epsilon),
        )
    )
    y = torch.zeros(batch, length, one.heads, width, dtype=torch.float64)
    told: list[Any] = []
    for b, (before, new) in enumerate(zip(one.before, one.new, strict=True)):
        held, kept = one.held(before), one.held(before + new)
        start = kept - new
        told.append([start, held - max(start, 0), new] if len(one.places) > 1 else start)
        places = torch.arange(before, before + length) if one.position is None else one.position[b]
        if new < length:
            # The others count for nothing, and no angle is theirs.
            query[b, :, new:], key[b, :, new:], value[b, :, new:] = 0, 0, 0
            places = places.clamp(max=before + max(new, 1) - 1)
        query[b], key[b] = turned(one, query[b], places), turned(one, key[b], places)
        key[b], value[b] = codes(one, key[b], one.key_scale), codes(one, value[b], one.value_scale)
        new_key = floats(one, key[b], one.key_scale)
        missing = torch.full((one.groups, before - held, width), math.nan, dtype=torch.float64)
        new_value = floats(one, value[b], one.value_scale)
        keys = torch.cat(
            (missing, floats(one, numbers(one.past_key[b, :, :held]), one.key_scale), new_key), 1
        )
        old_value = floats(one, numbers(one.past_value[b, :, :held]), one.value_scale)
        values = torch.cat((missing, old_value, new_value), 1)
        for h in range(one.heads):
            g = h * one.groups // one.heads
            for i in range(new):
                end = before + i + 1
                first = max(0, end - one.window) if one.window > 0 else 0
                scores = keys[g, first:end] @ query[b, h, i] * one.scale
                if one.softcap:
                    scores = torch.tanh(scores / one.softcap) * one.softcap
                if one.bias is not None:
                    scores = scores + one.bias[0, h, i, first:end].double()
                logit = one.sink[h : h + 1].double() if one.sink is not None else torch.zeros(1).double()
                if one.sink is not None or one.smooth:
                    weights = torch.softmax(torch.cat((scores, logit)), 0)[:-1]
                else:
                    weights = torch.softmax(scores, 0)
                y[b, i, h] = weights @ values[g, first:end]
    return Wanted(y.reshape(batch, length, -1), key.contiguous(), value.contiguous(), told)


def numbers(cache: Tensor) -> Tensor:
    """What a cache holds, in float64."""
    if cache.dtype is not torch.uint8:
        return cache.double()
    return torch.stack((cache & 15, cache >> 4), -1).flatten(-2).double() - 8


def codes(one: Step, rows: Tensor, scale: Tensor | None) -> Tensor:
    """Rows [G, L, D] as a cache holds them, in float64."""
    rounded = rows.to(one.query.dtype)
    if scale is None:
        return rounded.double()
    most = 7 if one.past_key.dtype is torch.uint8 else 127
    spread = scale.reshape(-1, 1, one.width) if scale.numel() > 1 else scale.reshape(())
    return (rounded.float() / spread).round().clamp(-most - 1, most).double()


def floats(one: Step, rows: Tensor, scale: Tensor | None) -> Tensor:
    """What numbers [G, L, D] of a cache stand for."""
    if scale is None:
        return rows
    return rows * (scale.reshape(-1, 1, one.width) if scale.numel() > 1 else scale.reshape(())).double()


def turned(one: Step, x: Tensor, places: Tensor) -> Tensor:
    """Rows [H, L, D] rotated."""
    if one.cos is None or one.sin is None:
        return x
    cos, sin, half = one.cos[places].double(), one.sin[places].double(), one.cos.shape[1]
    step, stop = (2, 2 * half) if one.interleaved else (1, half)
    first = slice(0, stop, step)
    second = slice(1, stop, 2) if one.interleaved else slice(half, 2 * half)
    made = x.clone()
    made[..., first] = x[..., first] * cos - x[..., second] * sin
    made[..., second] = x[..., first] * sin + x[..., second] * cos
    return made


def moved(cache: Tensor, fresh: Tensor, places: Tensor) -> Tensor:
    """A cache [B, G, C, D] after old rows made way and new ones were put."""
    made = cache.clone()
    for b, (start, drop, count) in enumerate(places.tolist()):
        if start > 0 and drop > 0 and start + drop <= cache.shape[2]:
            made[b, :, :start] = cache[b, :, drop : drop + start]
        for row in range(min(count, fresh.shape[2])):
            if 0 <= start + row < cache.shape[2]:
                made[b, :, start + row] = fresh[b, :, row]
    return made
