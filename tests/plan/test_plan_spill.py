"""Relief: bytes that are allocated anyway at another time serve what would make the block larger."""

from __future__ import annotations

import random

import pytest

from torch_ort_session.plan.memory.slots import Interval, live_bytes
from torch_ort_session.plan.memory.spill import spilled


def everything(slotted: list[Interval], beside: list[Interval], gone: frozenset[int]) -> int:
    """The most bytes that a block and what is allocated beside it take at once."""
    block = live_bytes([item for item in slotted if item.value not in gone])
    return block + live_bytes([*beside, *(item for item in slotted if item.value in gone)])


def test_m13_a_result_at_the_end_makes_room_for_what_is_needed_before() -> None:
    slotted = [Interval(0, 0, 3, 4096), Interval(1, 2, 5, 4096), Interval(2, 4, 9, 1024)]
    beside = [Interval(9, 8, 12, 4096)]
    gone = spilled(slotted, beside, {0, 1, 2})
    assert everything(slotted, beside, frozenset()) == 12288
    assert len(gone) == 1
    assert everything(slotted, beside, gone) < 12288


@pytest.mark.parametrize("beside", [[], [Interval(9, 0, 12, 4096)]], ids=["nothing beside", "all the time"])
def test_m13_nothing_leaves_where_no_bytes_are_spare(beside: list[Interval]) -> None:
    slotted = [Interval(0, 0, 3, 4096), Interval(1, 2, 5, 4096)]
    assert spilled(slotted, beside, {0, 1}) == frozenset()


def test_m13_nothing_leaves_where_the_block_and_the_rest_take_no_more_than_is_live() -> None:
    slotted = [Interval(0, 0, 5, 4096), Interval(1, 6, 9, 256)]
    assert spilled(slotted, [Interval(9, 3, 4, 512)], {0, 1}) == frozenset()


def test_m13_only_what_may_leave_does() -> None:
    slotted = [Interval(0, 0, 3, 4096), Interval(1, 2, 5, 4096)]
    beside = [Interval(9, 8, 12, 4096)]
    assert spilled(slotted, beside, set()) == frozenset()
    assert spilled(slotted, beside, {1}) == {1}


@pytest.mark.parametrize("seed", range(20))
def test_m13_relief_never_takes_more_than_before(seed: int) -> None:
    draw = random.Random(seed)

    def intervals(first: int, count: int, longest: int) -> list[Interval]:
        found = []
        for value in range(first, first + count):
            start = draw.randrange(60)
            found.append(Interval(value, start, start + draw.randrange(longest), draw.randrange(9000)))
        return found

    slotted, beside = intervals(0, 60, 12), intervals(100, 6, 20)
    gone = spilled(slotted, beside, range(60))
    assert everything(slotted, beside, gone) <= everything(slotted, beside, frozenset())
    assert live_bytes([*slotted, *beside]) <= everything(slotted, beside, gone)
