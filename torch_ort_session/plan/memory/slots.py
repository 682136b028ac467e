"""Slots: where in one block of memory each interval of bytes lies.

Offset packing by decreasing size, each at the lowest place that is free for as long as it lives; while that
takes more than the lower bound, what came to lie on top is placed first in another try. The largest are tried
alone before: there are few of them, they decide, and the others fit between them. Sources: greedy by
size in Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference (2020),
https://arxiv.org/abs/2001.03288; Joslin and Clements, Squeaky Wheel Optimization, Journal of Artificial
Intelligence Research 10 (1999).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torch_ort_session.errors import PlanError

ALIGNMENT = 256
"""Bytes to which slots are aligned: what CUDA's allocations give, and four cache lines on a CPU."""

_LIMIT = 1 << 60

_LARGE = 64
"""An interval is large when so many of its size take no less than the bound."""

_PLACEMENTS = 9000
"""How many intervals are placed at most over all tries, so that it never takes longer than some 0.2 s."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Bytes that are needed for a while.

    Attributes:
        value: Id of the value that owns them.
        start: First position at which they are written.
        stop: Last position at which they are read, itself included.
        nbytes: How many.
    """

    value: int
    start: int
    stop: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where everything lies.

    Attributes:
        offsets: Offset in bytes by value id.
        total: Bytes of the block.
        bound: The most aligned bytes alive at one position: no packing needs less.
    """

    offsets: Mapping[int, int]
    total: int
    bound: int


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the alignment.

    Raises:
        PlanError: It is negative or absurdly large.
    """
    if not 0 <= nbytes <= _LIMIT:
        raise PlanError(f"a slot of {nbytes} bytes cannot be planned")
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def pack(intervals: Sequence[Interval], placements: int = _PLACEMENTS) -> Packing:
    """Lay out intervals so that those alive at once do not overlap.

    Args:
        intervals: One a value; an empty one gets offset 0.
        placements: How many intervals are placed at most over all tries.

    Returns:
        The packing.

    Raises:
        PlanError: A value comes twice, an interval ends before it starts, or the sizes overflow.
    """
    order = sorted(intervals, key=lambda item: (-item.nbytes, item.start, item.value))
    if len({item.value for item in order}) != len(order):
        raise PlanError("a value has two intervals")
    for item in order:
        if item.stop < item.start:
            raise PlanError(f"value {item.value} ends at {item.stop}, before it starts at {item.start}")
    naive = sum(aligned(item.nbytes) for item in order)
    if naive > _LIMIT:
        raise PlanError(f"slots of {naive} bytes together cannot be planned")
    bound = live_bytes(order)
    large = sum(item.nbytes * _LARGE >= bound for item in order)
    if large < len(order):
        # In the order of sizes they come first.
        order[:large] = _tried(order[:large], live_bytes(order[:large]), placements)[0]
    _, offsets, total = _tried(order, bound, placements)
    return Packing(offsets, total, bound)


def _tried(
    order: Sequence[Interval], bound: int, placements: int
) -> tuple[list[Interval], dict[int, int], int]:
    """Place intervals until they take no more than the bound; gives the best order, offsets and bytes."""
    order = list(order)
    trial, height = _place(order)
    best = order[:], trial, height
    tries = placements // max(1, len(order)) - 1
    while best[2] > bound and tries > 0:
        tries -= 1
        top = {item.value for item in order if trial[item.value] + aligned(item.nbytes) == height}
        order.sort(key=lambda item: item.value not in top)
        trial, height = _place(order)
        if height < best[2]:
            best = order[:], trial, height
    return best


def _place(order: Sequence[Interval]) -> tuple[dict[int, int], int]:
    """Offsets of intervals that are placed one after the other, and the bytes that they take."""
    placed = _Placed(len(order))
    offsets = {item.value: placed.put(item.start, item.stop, aligned(item.nbytes)) for item in order}
    return offsets, placed.total


def live_bytes(intervals: Sequence[Interval]) -> int:
    """The most aligned bytes alive at one position."""
    if not intervals:
        return 0
    sizes = np.array([aligned(item.nbytes) for item in intervals], dtype=np.int64)
    change = np.zeros(max(item.stop for item in intervals) + 2, dtype=np.int64)
    np.add.at(change, [item.start for item in intervals], sizes)
    np.subtract.at(change, [item.stop + 1 for item in intervals], sizes)
    return int(np.cumsum(change).max())


class _Placed:
    """What lies in the block already, in the order of offsets.

    It lives while one arena is packed.
    """

    def __init__(self, count: int) -> None:
        # First and last position, offset, end: a row each, so that every test runs over packed memory.
        self.rows = np.zeros((4, count), dtype=np.int64)
        self.count = 0
        self.total = 0

    def put(self, start: int, stop: int, size: int) -> int:
        """Place ``size`` bytes at the lowest offset that is free from ``start`` to ``stop``."""
        if size == 0:
            return 0
        offset = self.lowest(start, stop, size)
        count = self.count
        place = int(np.searchsorted(self.rows[2, :count], offset))
        self.rows[:, place + 1 : count + 1] = self.rows[:, place:count]
        self.rows[:, place] = (start, stop, offset, offset + size)
        self.count = count + 1
        self.total = max(self.total, offset + size)
        return offset

    def lowest(self, start: int, stop: int, size: int) -> int:
        rows = self.rows[:, : self.count]
        taken = np.flatnonzero((rows[0] <= stop) & (rows[1] >= start))
        if not len(taken):
            return 0
        # The gap before each taken stretch begins where everything before it ends.
        ends = np.empty(len(taken) + 1, dtype=np.int64)
        ends[0] = 0
        np.maximum.accumulate(rows[3, taken], out=ends[1:])
        fits = rows[2, taken] - ends[:-1] >= size
        first = int(fits.argmax())
        return int(ends[first] if fits[first] else ends[-1])
