"""Layout: where the memory that recorded calls of one capture touch lies, all recordings of it together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from torch_ort_session.plan.memory import (
    Evidence,
    Interval,
    MemoryLayout,
    Packing,
    Place,
    PlaceKind,
    Touch,
    live_bytes,
    pack,
    spilled,
)
from torch_ort_session.runtime.recorders.api import RecordingStats, Use
from torch_ort_session.runtime.recorders.tape.native import NativeModule, NativeTape


class Reuse(NamedTuple):
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


def inplace_reuse(
    slotted: Sequence[Interval], places: Mapping[int, int], reuses: Iterable[Reuse]
) -> dict[int, int]:
    """Which slots are handed on.

    Args:
        slotted: Intervals of the storages that get a slot.
        places: The interval's number by storage key.
        reuses: Calls that may hand one on, in order.

    Returns:
        For each interval that gets the slot of an earlier one, the first that had it.
    """
    known = {item.value: item for item in slotted}
    homes: dict[int, int] = {}
    for heir in reuses:
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


_PLACEMENTS = 30_000
"""Tries at a packing: recording so many calls takes longer than they do."""


class Notes(NamedTuple):
    """What is known of recorded calls.

    Attributes:
        reuses: Those whose result may take the place of an argument.
        scratch: Those that take bytes for themselves, with how many.
    """

    reuses: tuple[Reuse, ...] = ()
    scratch: tuple[tuple[int, int], ...] = ()


class Part(NamedTuple):
    """One of the recordings.

    Attributes:
        base: Position of its first call among all of the capture's.
        tape: Its calls.
        notes: What is known of them.
    """

    base: int
    tape: NativeTape
    notes: Notes


class Life(NamedTuple):
    """When memory is needed by others than recorded calls.

    Attributes:
        tensor: What lies there.
        use: What may be done with it.
        start: Position at which others write it; None when a recorded call is the first to do so.
        stop: Last position at which others read it.
    """

    tensor: torch.Tensor
    use: Use
    start: int | None
    stop: int


@dataclass(slots=True)
class _Span:
    """One storage and its uses. Lives as long as a layout is made.

    Attributes:
        start: First position that touches it.
        stop: Last position that needs it.
        touched: Last position of a recorded call that touches it; -1 when none does.
        nbytes: Its bytes.
        functional: Whether a replay makes it anew.
        places: By part, its number among the intervals of that part.
        lives: What others do with it.
    """

    start: int
    stop: int
    touched: int
    nbytes: int
    functional: bool
    places: dict[int, int] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)

    def used(self, use: Use) -> bool:
        return any(life.use is use for life in self.lives)


class LaidOut(NamedTuple):
    """What giving storages their places came to.

    Attributes:
        block: What the slots lie in.
        stats: The numbers; calls and views are not counted.
        layout: The places.
        evidence: What the layout is checked against; None where slots are not poisoned.
    """

    block: torch.Tensor
    stats: RecordingStats
    layout: MemoryLayout
    evidence: Evidence | None


def lay_out(
    native: NativeModule,
    parts: Sequence[Part],
    lives: Sequence[Life],
    starts: Sequence[int],
    block: Callable[[int], torch.Tensor],
    saved: Iterable[torch.Tensor] = (),
    *,
    poison: bool = False,
) -> LaidOut:
    """Give every storage that recorded calls touch its place, and have bytes freed that nobody reads.

    Args:
        native: The compiled extension.
        parts: The recordings in order.
        lives: Memory that others need, or write.
        starts: The position at which each region begins, and at last how many positions there are: a life
            that lasts to that one is read after the last call.
        block: Makes the 1-d uint8 tensor of at least so many bytes that the slots lie in.
        saved: Tensors that hold their data when this returns; others that get a slot do not.
        poison: Fill slots with 0xFF after their last reader.
    """
    spans = _spans(native, parts, lives, starts[-1])
    keys, storages = list(spans), _placed(spans, parts, lives)
    memory = block(storages.packing.total)
    offsets = storages.offsets
    slotted = {keys[value] for value in offsets}
    saved = list(saved)
    kept = {k: t for t, k in zip(saved, native.storage_keys(saved), strict=True) if k in slotted}
    # A tape that has its plan tells of no intervals any more.
    touches = _touches(parts) if poison else []
    # Of the whole storage: a result may show one element in many places, and cannot be written to then.
    data = {key: _bytes_of(tensor).clone() for key, tensor in kept.items()}
    for number, part in enumerate(parts):
        part.tape.plan(memory, *_orders(number, storages, poison=poison))
    for value, offset in offsets.items():
        span = storages.spans[value]
        if not span.places:
            native.place(span.lives[0].tensor, memory, offset)
    for key, tensor in kept.items():
        _bytes_of(tensor).copy_(data[key])
    calls = sum(len(part.tape) for part in parts)
    evidence = _evidence(native, parts, lives, touches, memory) if poison else None
    return LaidOut(memory, _stats(storages), _layout(keys, storages, calls, starts), evidence)


class _Storages(NamedTuple):
    """Storages by number, and what becomes of each.

    Attributes:
        spans: What is known of them.
        kinds: Where each has its bytes.
        homes: Of those that take over the slot of another one, the first that had it.
        moved: Those that were to have a slot and are allocated on their own.
        packing: Where the slots lie, by their first owner.
        offsets: Of those in the block, their offset.
        live: The most bytes that are needed at once.
    """

    spans: Sequence[_Span]
    kinds: Sequence[PlaceKind]
    homes: Mapping[int, int]
    moved: frozenset[int]
    packing: Packing
    offsets: Mapping[int, int]
    live: int


def _rows(spans: Sequence[_Span], kinds: Sequence[PlaceKind], *wanted: PlaceKind) -> list[Interval]:
    """Intervals of the storages of some kinds."""
    return [
        Interval(value, span.start, span.stop, span.nbytes)
        for value, (span, kind) in enumerate(zip(spans, kinds, strict=True))
        if kind in wanted
    ]


def _placed(spans: Mapping[int, _Span], parts: Sequence[Part], lives: Sequence[Life]) -> _Storages:
    """Decide where each storage has its bytes."""
    listed = list(spans.values())
    kinds = [_kind(span) for span in listed]
    slotted = _rows(listed, kinds, PlaceKind.SLOT)
    fresh = _rows(listed, kinds, PlaceKind.FRESH, PlaceKind.GIVEN)
    reuses = [Reuse(part.base + h.call, h.result, h.arguments) for part in parts for h in part.notes.reuses]
    homes = inplace_reuse(slotted, {key: i for i, key in enumerate(spans)}, reuses)
    live = live_bytes([*joined(slotted, homes), *fresh, *_rows(listed, kinds, PlaceKind.HELD)])
    chained = {*homes, *homes.values()}
    movable = {
        row.value
        for row in slotted
        if row.value not in chained and len(listed[row.value].places) == 1 and not listed[row.value].lives
    }
    moved = spilled(joined(slotted, homes), [*fresh, *_passing(parts, lives, len(listed))], movable)
    for value in moved:
        kinds[value] = PlaceKind.FRESH
    slotted = [row for row in slotted if row.value not in moved]
    packing = pack(joined(slotted, homes), _PLACEMENTS)
    offsets = {row.value: packing.offsets[homes.get(row.value, row.value)] for row in slotted}
    return _Storages(listed, kinds, homes, moved, packing, offsets, live)


def _stats(storages: _Storages) -> RecordingStats:
    spans, kinds = storages.spans, storages.kinds
    fresh = _rows(spans, kinds, PlaceKind.FRESH, PlaceKind.GIVEN)
    slotted = [spans[value] for value in storages.offsets]
    return RecordingStats(
        calls=0,
        arena=storages.packing.total,
        bound=storages.packing.bound,
        fresh=live_bytes(fresh),
        kept=sum(row.nbytes for row in _rows(spans, kinds, PlaceKind.HELD)),
        naive=sum(span.nbytes for span in spans),
        slotted=sum(span.nbytes for span in slotted),
        functional=sum(row.nbytes for row in fresh if spans[row.value].functional),
        given=sum(row.nbytes for row in fresh if kinds[row.value] is PlaceKind.GIVEN),
        inputs=sum(span.nbytes for span in slotted if span.used(Use.INPUT)),
        live=storages.live,
    )


def _layout(keys: Sequence[int], storages: _Storages, calls: int, starts: Sequence[int]) -> MemoryLayout:
    offsets = storages.offsets
    places = tuple(
        Place(key, kind, offsets.get(value, 0), span.nbytes, span.start, span.stop)
        for value, (key, span, kind) in enumerate(zip(keys, storages.spans, storages.kinds, strict=True))
    )
    packing = storages.packing
    return MemoryLayout(calls, tuple(starts), packing.total, packing.bound, storages.live, places)


def _touches(parts: Sequence[Part]) -> list[Touch]:
    """What the calls of tapes touch, read from them anew."""
    return [
        Touch(key, part.base + first, part.base + last, nbytes, not functional)
        for part in parts
        for first, last, nbytes, functional, key in part.tape.intervals()
    ]


def _evidence(
    native: NativeModule,
    parts: Sequence[Part],
    lives: Sequence[Life],
    touches: list[Touch],
    block: torch.Tensor,
) -> Evidence:
    """What a layout is checked against: calls' touches and others', the latter where they lie now."""
    begin, end = block.data_ptr(), block.data_ptr() + block.nbytes
    ours = {touch.storage: touch for touch in touches}
    for life, key in zip(lives, native.storage_keys([life.tensor for life in lives]), strict=True):
        known = ours.get(key)
        if known is None and (
            life.use is Use.HELD or life.start is None or not key or not life.tensor.nbytes
        ):
            # Constants and bound tensors are somebody else's.
            continue
        storage = life.tensor.untyped_storage()
        first = (known.first if known is not None else life.stop) if life.start is None else life.start
        address = storage.data_ptr()
        offset = address - begin if begin <= address < end else -1
        slot = life.use is not Use.HELD
        touches.append(Touch(key, first, max(first, life.stop), storage.nbytes(), slot, offset))
    overwrites = {
        (part.base + reuse.call, reuse.result, argument)
        for part in parts
        for reuse in part.notes.reuses
        for argument in reuse.arguments
    }
    return Evidence(tuple(touches), frozenset(overwrites))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _kind(span: _Span) -> PlaceKind:
    if span.used(Use.HELD):
        return PlaceKind.HELD
    # What others write as well would be written there again.
    if span.used(Use.GIVEN) and all(life.start is None for life in span.lives):
        return PlaceKind.GIVEN
    if span.functional:
        # Only a recorded call can free what another one made.
        return PlaceKind.FRESH if span.stop == span.touched else PlaceKind.HELD
    return PlaceKind.SLOT


def _passing(parts: Sequence[Part], lives: Sequence[Life], first: int) -> list[Interval]:
    """Bytes that are there for a moment: calls' scratch memory, and what seams give beside its copy."""
    found = [(part.base + call, nbytes) for part in parts for call, nbytes in part.notes.scratch]
    landings = (life for life in lives if life.use is Use.SHARED)
    found += [(life.start, life.tensor.nbytes) for life in landings if life.start is not None]
    return [Interval(first + i, at, at, nbytes) for i, (at, nbytes) in enumerate(found)]


def _spans(
    native: NativeModule, parts: Sequence[Part], lives: Sequence[Life], length: int
) -> dict[int, _Span]:
    """Every storage that a recorded call or a life touches, by key, in the order in which they begin."""
    keys = native.storage_keys([life.tensor for life in lives])
    # A result may lie in a constant, or in a tensor of the user's.
    ours = {interval[4] for part in parts for interval in part.tape.intervals()}
    ours |= {key for life, key in zip(lives, keys, strict=True) if life.start is not None and key}
    shared = [
        life.tensor for life, key in zip(lives, keys, strict=True) if life.use is not Use.HELD and key in ours
    ]
    spans: dict[int, _Span] = {}
    for number, part in enumerate(parts):
        # A storage of another part's, or of nobody's, counts as this part's own as well.
        part.tape.own(shared)
        for place, (first, last, nbytes, functional, key) in enumerate(part.tape.intervals()):
            start, stop = part.base + first, part.base + last
            span = spans.setdefault(key, _Span(start, stop, stop, nbytes, functional))
            span.stop = span.touched = stop
            span.places[number] = place
    for life, key in zip(lives, keys, strict=True):
        known = spans.get(key)
        if known is None:
            if life.use is Use.HELD or life.start is None or not key or not life.tensor.nbytes:
                continue
            nbytes = life.tensor.untyped_storage().nbytes()
            known = spans[key] = _Span(life.start, life.stop, -1, nbytes, functional=False)
        known.lives.append(life)
        known.stop = max(known.stop, life.stop)
        if life.start is not None:
            known.start = min(known.start, life.start)
    for span in spans.values():
        if span.used(Use.HELD):
            span.stop = length
    return spans


def _orders(
    number: int, storages: _Storages, *, poison: bool
) -> tuple[list[tuple[int, int]], list[int], list[int], list[int]]:
    """What one part has to do: slots with their offsets, what it supplies, frees, and poisons."""
    slots: list[tuple[int, int]] = []
    supplied: list[int] = []
    released: list[int] = []
    poisoned: list[int] = []
    offsets, moved = storages.offsets, storages.moved
    handed = _handed_on(storages.spans, storages.homes) if poison else set()
    for value, (span, kind) in enumerate(zip(storages.spans, storages.kinds, strict=True)):
        place = span.places.get(number)
        if place is None:
            continue
        first, last = number == min(span.places), number == max(span.places)
        if kind is PlaceKind.SLOT:
            if first:
                slots.append((place, offsets[value]))
            if poison and last and span.stop == span.touched and value not in handed:
                poisoned.append(place)
            continue
        if first and not span.functional and (value in moved or kind is PlaceKind.GIVEN):
            supplied.append(place)
        if last and kind is PlaceKind.FRESH:
            released.append(place)
    return slots, supplied, released, poisoned


def _handed_on(spans: Sequence[_Span], homes: Mapping[int, int]) -> set[int]:
    """Those whose slot holds another one's data from their last call on."""
    begins = {(home, spans[value].start) for value, home in homes.items()}
    return {
        value
        for value, span in enumerate(spans)
        if (homes.get(value, value), span.stop) in begins and span.start < span.stop
    }
