"""Relief: what leaves the block because bytes that are allocated anyway at another time can serve it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from torch_ort_session.plan.memory.slots import Interval, aligned

_MOVES = 48
"""How many intervals leave at most: each costs an allocation in every replay."""

_ENOUGH = 1.02
"""Times the live bytes: nothing leaves once the block and what is beside it take no more."""


def spilled(
    slotted: Sequence[Interval], beside: Sequence[Interval], movable: Collection[int]
) -> frozenset[int]:
    """Choose intervals to be allocated on their own, so that a block and what lies beside it take least.

    A block holds its bytes all the time. Where others are allocated beside it for a part of the time, such as
    results that are given away, their bytes are spare before and afterwards: an interval of a time when the
    block is fullest can have them then, and the block gets smaller.

    Args:
        slotted: Intervals that would lie in the block.
        beside: Intervals that are allocated on their own in any case.
        movable: Values of those of `slotted` that may leave the block.

    Returns:
        Values of the intervals that leave it.
    """
    if not beside or not slotted:
        return frozenset()
    length = max(item.stop for item in (*slotted, *beside)) + 1
    inside, outside = _profile(slotted, length), _profile(beside, length)
    spare = outside.max() - outside
    enough = _ENOUGH * int((inside + outside).max())
    rows = [item for item in slotted if item.value in movable and item.nbytes]
    starts = np.array([item.start for item in rows], dtype=np.int64)
    stops = np.array([item.stop for item in rows], dtype=np.int64)
    sizes = np.array([aligned(item.nbytes) for item in rows], dtype=np.int64)
    left = np.ones(len(rows), dtype=bool)
    gone: list[int] = []
    while len(gone) < _MOVES and inside.max() + outside.max() > enough:
        at = int(inside.argmax())
        over = left & (starts <= at) & (stops >= at) & (sizes <= spare[at])
        fitting = [
            place
            for place in np.flatnonzero(over)
            if spare[starts[place] : stops[place] + 1].min() >= sizes[place]
        ]
        if not fitting:
            break
        best = max(fitting, key=lambda place: int(sizes[place]))
        span = slice(int(starts[best]), int(stops[best]) + 1)
        inside[span] -= sizes[best]
        spare[span] -= sizes[best]
        left[best] = False
        gone.append(rows[best].value)
    return frozenset(gone)


def _profile(intervals: Sequence[Interval], length: int) -> np.ndarray:
    """The aligned bytes alive at each position."""
    change = np.zeros(length + 1, dtype=np.int64)
    sizes = np.array([aligned(item.nbytes) for item in intervals], dtype=np.int64)
    np.add.at(change, [item.start for item in intervals], sizes)
    np.subtract.at(change, [item.stop + 1 for item in intervals], sizes)
    return np.cumsum(change)[:length]
