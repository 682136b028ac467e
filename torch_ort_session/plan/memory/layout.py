"""The memory layout of a plan: where each storage that recorded calls touch lies, and from when to when."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from torch_ort_session.plan.memory.slots import Interval, live_bytes


class PlaceKind(enum.Enum):
    """Where a storage has its bytes.

    Attributes:
        SLOT: In the arena.
        FRESH: Allocated by a replay and freed by it again.
        GIVEN: Allocated by a replay; they leave with a result.
        HELD: Bytes of its own from replay to replay.
    """

    SLOT = "slot"
    FRESH = "fresh"
    GIVEN = "given"
    HELD = "held"


class Place(NamedTuple):
    """One storage. Positions count the recorded calls of a run in order, and one for each seam.

    Attributes:
        storage: Its key: it tells storages apart while they live.
        kind: Where it has its bytes.
        offset: Offset of its slot in the arena; 0 outside of it.
        nbytes: Its bytes.
        first: The first position that writes it.
        last: The last position that needs it.
        name: The value that lies in it; empty for what a kernel makes for itself.
    """

    storage: int
    kind: PlaceKind
    offset: int
    nbytes: int
    first: int
    last: int
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class MemoryLayout:
    """Where everything lies that a capture's recorded calls touch.

    Attributes:
        calls: Recorded calls.
        starts: The position at which each region begins, and at last that after all of them.
        arena: Bytes of the arena that the slots take; 0 where a device's own allocator keeps a pool.
        bound: Bytes that live in slots at once, at least: no packing takes less.
        live: Most bytes that are needed at once, in slots or not.
        places: Every storage; none where a device's own allocator keeps a pool.
        pool: Bytes that a device's own allocator took for the pool of the capture's graphs.
    """

    calls: int
    starts: tuple[int, ...]
    arena: int = 0
    bound: int = 0
    live: int = 0
    places: tuple[Place, ...] = ()
    pool: int = 0

    @property
    def slots(self) -> tuple[Place, ...]:
        """Storages that lie in the arena."""
        return self.of(PlaceKind.SLOT)

    @property
    def beside(self) -> int:
        """Most bytes at once that a replay allocates beside the arena."""
        rows = self.of(PlaceKind.FRESH, PlaceKind.GIVEN)
        return live_bytes([Interval(i, row.first, row.last, row.nbytes) for i, row in enumerate(rows)])

    def of(self, *kinds: PlaceKind) -> tuple[Place, ...]:
        """Storages of some kinds, in the order in which they begin."""
        return tuple(place for place in self.places if place.kind in kinds)

    def nbytes(self, *kinds: PlaceKind) -> int:
        """Bytes of the storages of some kinds together; of all without any."""
        return sum(place.nbytes for place in (self.of(*kinds) if kinds else self.places))


class Touch(NamedTuple):
    """That recorded calls touch a storage, or that others do, as the recordings themselves have it.

    Attributes:
        storage: Its key.
        first: First position.
        last: Last position.
        nbytes: Its bytes.
        slot: Whether it may lie in a slot.
        offset: Where in the arena it was found to lie after all was laid out; None where it was not looked.
            -1 for outside of it.
    """

    storage: int
    first: int
    last: int
    nbytes: int
    slot: bool
    offset: int | None = None


class Evidence(NamedTuple):
    """What a layout is checked against: it comes from recorded calls, and from nothing that was planned.

    Attributes:
        touches: Who touches which storage, and when.
        overwrites: Position, key of the result and key of an argument of each call that may write its result
            over that argument.
    """

    touches: tuple[Touch, ...]
    overwrites: frozenset[tuple[int, int, int]]


def named(places: Iterable[Place], names: dict[int, str]) -> tuple[Place, ...]:
    """Places with the names of the values that lie in them, by storage key."""
    return tuple(place._replace(name=names.get(place.storage, "")) for place in places)
