"""Slots: where in one block of memory each interval of bytes lies.

Offset packing by decreasing size, each at the lowest place that is free for as long as it lives. Source:
the greedy-by-size strategy of Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference
(2020), https://arxiv.org/abs/2001.03288.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torch_ort_session.errors import PlanError

ALIGNMENT = 256
"""Bytes to which slots are aligned: what CUDA's allocations give, and four cache lines on a CPU."""

_LIMIT = 1 << 60


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
        naive: The aligned bytes of all intervals together: what a block without reuse takes.
    """

    offsets: Mapping[int, int]
    total: int
    bound: int
    naive: int


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the alignment.

    Raises:
        PlanError: It is negative or absurdly large.
    """
    if not 0 <= nbytes <= _LIMIT:
        raise PlanError(f"a slot of {nbytes} bytes cannot be planned")
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def pack(intervals: Sequence[Interval]) -> Packing:
    """Lay out intervals so that those alive at once do not overlap.

    Args:
        intervals: One a value; an empty one gets offset 0.

    Returns:
        The packing.

    Raises:
        PlanError: A value comes twice, an interval ends before it starts, or the sizes overflow.
    """
    order = sorted(intervals, key=lambda item: (-item.nbytes, item.start, item.value))
    if len({item.value for item in order}) != len(order):
        raise PlanError("a value has two intervals")
    offsets: dict[int, int] = {}
    placed = _Placed(len(order))
    for item in order:
        if item.stop < item.start:
            raise PlanError(f"value {item.value} ends at {item.stop}, before it starts at {item.start}")
        offsets[item.value] = placed.put(item.start, item.stop, aligned(item.nbytes))
    return Packing(offsets, placed.total, live_bytes(intervals), placed.naive)


def live_bytes(intervals: Sequence[Interval]) -> int:
    """The most aligned bytes alive at one position."""
    if not intervals:
        return 0
    last = max(item.stop for item in intervals)
    change = np.zeros(last + 2, dtype=np.int64)
    for item in intervals:
        change[item.start] += aligned(item.nbytes)
        change[item.stop + 1] -= aligned(item.nbytes)
    return int(np.cumsum(change).max())


class _Placed:
    """What lies in the block already, in rows of (start, stop, offset, end)."""

    def __init__(self, count: int) -> None:
        self.rows = np.zeros((count, 4), dtype=np.int64)
        self.count = 0
        self.total = 0
        self.naive = 0

    def put(self, start: int, stop: int, size: int) -> int:
        """Place ``size`` bytes at the lowest offset that is free from ``start`` to ``stop``."""
        if size == 0:
            return 0
        offset = self.lowest(start, stop, size)
        self.rows[self.count] = (start, stop, offset, offset + size)
        self.count += 1
        self.total = max(self.total, offset + size)
        self.naive += size
        if self.naive > _LIMIT:
            raise PlanError(f"slots of {self.naive} bytes together cannot be planned")
        return offset

    def lowest(self, start: int, stop: int, size: int) -> int:
        rows = self.rows[: self.count]
        rows = rows[(rows[:, 0] <= stop) & (rows[:, 1] >= start)]
        if not len(rows):
            return 0
        rows = rows[np.argsort(rows[:, 2], kind="stable")]
        # The gap before each taken stretch begins where everything before it ends.
        ends = np.maximum.accumulate(np.concatenate(([0], rows[:, 3])))
        fits = np.nonzero(rows[:, 2] - ends[:-1] >= size)[0]
        return int(ends[fits[0]] if len(fits) else ends[-1])
