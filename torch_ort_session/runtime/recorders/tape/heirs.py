"""Heirs: results that are written over an argument which nobody reads afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch

from torch_ort_session.plan.memory.slots import Interval


class Heir(NamedTuple):
    """A call whose result may lie where an argument of the same form lay.

    Attributes:
        call: Its place among the calls.
        result: Key of its result's storage.
        arguments: Keys of the storages of such arguments.
    """

    call: int
    result: int
    arguments: tuple[int, ...]


def alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same form in storages of the same bytes, from the first byte on."""
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and a.stride() == b.stride()
        and a.storage_offset() == 0 == b.storage_offset()
        and a.untyped_storage().nbytes() == b.untyped_storage().nbytes()
    )


def inherited(
    slotted: Sequence[Interval], places: Mapping[int, int], heirs: Iterable[Heir]
) -> dict[int, int]:
    """Which slots are handed on.

    Args:
        slotted: Intervals of the storages that get a slot.
        places: The interval's number by storage key.
        heirs: Calls that may hand one on, in order.

    Returns:
        For each interval that gets the slot of an earlier one, the first that had it.
    """
    known = {item.value: item for item in slotted}
    homes: dict[int, int] = {}
    for heir in heirs:
        result = known.get(places.get(heir.result, -1))
        if result is None or result.start != heir.call:
            continue
        for key in heir.arguments:
            old = known.get(places.get(key, -1))
            if old is not None and old.start < old.stop == heir.call and old.nbytes == result.nbytes:
                homes[result.value] = homes.get(old.value, old.value)
                break
    return homes


def joined(slotted: Sequence[Interval], homes: Mapping[int, int]) -> list[Interval]:
    """One interval for each slot: from where its first owner begins to where its last one ends."""
    stops: dict[int, int] = {}
    for item in slotted:
        home = homes.get(item.value, item.value)
        stops[home] = max(stops.get(home, 0), item.stop)
    return [
        Interval(item.value, item.start, stops[item.value], item.nbytes)
        for item in slotted
        if item.value not in homes
    ]
