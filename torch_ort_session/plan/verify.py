"""Verify: a plan, and the layout of its memory, are checked again with no code of those who made them."""

from __future__ import annotations

import bisect
from typing import NamedTuple, NoReturn

from torch_ort_session.errors import PlanError
from torch_ort_session.plan.lowering import Step
from torch_ort_session.plan.memory import Evidence, MemoryLayout, Place, PlaceKind
from torch_ort_session.plan.plan import Plan

_ALIGNED = 256


def verify(plan: Plan) -> None:
    """Check that a plan can be followed.

    Raises:
        PlanError: A step is left out, comes twice or out of order; a region is empty, has no reason or could
            be joined with the next one; something is assumed that follows from more than shapes, or from
            others than is noted; a segment holds a step that cannot be recorded; a value is read before it is
            made; or the spec of a value on which segments rely is not compared.
    """
    _regions(plan)
    _assumptions(plan)
    _constants(plan)
    _segments(plan)
    _guards(plan)


def _fail(plan: Plan, message: str, position: int | None = None) -> NoReturn:
    if position is not None:
        node = plan.steps.items[position].node
        message = f"step {position} ({node.name!r}, {node.qualified}): {message}"
    raise PlanError(message)


def _regions(plan: Plan) -> None:
    """Every step once, in order, in a region that says what it is."""
    previous, before = -1, None
    seen: set[int] = set()
    for region in plan.regions:
        if not region.positions:
            _fail(plan, "a region is empty")
        for position in region.positions:
            if not 0 <= position < len(plan.steps.items):
                _fail(plan, f"a region names step {position}, there are {len(plan.steps.items)}")
            if position in seen:
                _fail(plan, "it is in two places", position)
            if position < previous:
                _fail(plan, f"it comes after step {previous}", position)
            seen.add(position)
            previous = position
        if region.reason is not None and not region.message:
            _fail(plan, "a seam does not say why", region.positions[0])
        if before is not None and before.reason is None and region.reason is None:
            _fail(plan, "two segments could be one", region.positions[0])
        before = region
    for position, step in enumerate(plan.steps.items):
        known = plan.static_values.data | plan.static_values.assumed.keys()
        if position not in seen and any(v not in known for v in step.outputs if v):
            _fail(plan, "it is in no region and makes more than constants", position)


def _assumptions(plan: Plan) -> None:
    """What is assumed follows from shapes alone, the last of them made where it is noted."""
    placed = {position for region in plan.regions for position in region.positions}
    data, assumed = plan.static_values.data, plan.static_values.assumed
    made: dict[int, int] = {}
    for position, step in enumerate(plan.steps.items):
        guesses = {assumed[value] for value in step.outputs if value in assumed}
        made.update((value, position) for value in step.outputs if value and not guesses)
        if not guesses:
            continue
        if position in placed or len(guesses) > 1 or any(v and v not in assumed for v in step.outputs):
            _fail(plan, "only some of what it makes is assumed", position)
        if step.bodies or step.kernel.varies:
            _fail(plan, "what it makes is assumed, and follows from more than shapes", position)
        needed = -1
        for value in step.inputs:
            if not value or value in data:
                continue
            if value not in assumed and not step.kernel.host_result:
                name = plan.steps.names[value]
                _fail(plan, f"what it makes is assumed, and follows from the data of {name!r}", position)
            if value in plan.observation.kinds:
                _fail(plan, f"{plan.steps.names[value]!r} has no shape that could be compared", position)
            needed = max(needed, assumed[value] if value in assumed else made.get(value, position))
        if guesses != {needed}:
            wrong = f"what it makes follows from the shape made by step {needed}, not by {guesses.pop()}"
            _fail(plan, wrong, position)


def _reading(step: Step) -> list[int]:
    captured = [outside for body in step.bodies.values() for outside, _ in body.captured]
    return [value for value in (*step.inputs, *captured) if value]


def _constants(plan: Plan) -> None:
    """What no region makes is there before the run."""
    there = {0, *plan.steps.inputs, *plan.observation.static}
    there.update(value for value, held in enumerate(plan.steps.template) if held is not None)
    for position in (p for region in plan.regions for p in region.positions):
        step = plan.steps.items[position]
        for value in _reading(step):
            if value not in there:
                _fail(plan, f"it reads {plan.steps.names[value]!r} before that is made", position)
        there.update(step.outputs)
    for value in plan.steps.outputs:
        if value not in there:
            _fail(plan, f"nothing makes the output {plan.steps.names[value]!r}")


def _segments(plan: Plan) -> None:
    """Nothing is recorded that cannot be."""
    for position in (p for region in plan.regions if region.reason is None for p in region.positions):
        step = plan.steps.items[position]
        if not _recordable(step):
            _fail(plan, "its bodies cannot be recorded", position)
        why = step.kernel.seam_reason(step.node)
        if why is not None:
            _fail(plan, f"it is recorded, and its kernel is a seam: {why}", position)
        if (step.kernel.domain, step.kernel.op) in plan.rules.quarantined:
            _fail(plan, "it is recorded in spite of its quarantine", position)
        params = step.kernel.signature.inputs
        for place, value in enumerate(step.inputs):
            param = params[min(place, len(params) - 1)]
            fixed = value == 0 or value in plan.static_values.data or value in plan.static_values.assumed
            if param.host not in (None, "constant") and not fixed:
                _fail(plan, f"a recording would keep the number {plan.steps.names[value]!r}", position)
            spec = plan.observation.specs[value]
            if spec is not None and spec.device != plan.rules.device and not fixed:
                _fail(plan, f"it reads {plan.steps.names[value]!r} on {spec.device}", position)


def _recordable(step: Step) -> bool:
    """Whether every body of a step is a function of plain kernels, which a Gradient differentiates."""
    waiting = list(step.bodies.values())
    if waiting and step.node.op != "Gradient":
        return False
    while waiting:
        for inner in waiting.pop().steps.items:
            if inner.kernel.seam_reason(inner.node) is not None or inner.kernel.varies:
                return False
            if inner.bodies and inner.node.op != "Gradient":
                return False
            waiting.extend(inner.bodies.values())
    return True


def _guards(plan: Plan) -> None:
    """What segments read of seams, and shapes from which constants follow, are compared in each run."""
    made = {value: p for p, step in enumerate(plan.steps.items) for value in step.outputs if value}
    assumed = plan.static_values.assumed
    relied = [
        (v, p)
        for r in plan.regions
        if r.reason is None
        for p in r.positions
        for v in _reading(plan.steps.items[p])
    ]
    for position, step in enumerate(plan.steps.items):
        if any(value in assumed for value in step.outputs):
            relied += [(v, position) for v in step.inputs if v and v not in assumed]
    placed = {position for region in plan.regions for position in region.positions}
    for value, reader in relied:
        maker = made.get(value)
        if maker not in placed or plan.observation.specs[value] is None:
            continue
        if (value, plan.observation.specs[value]) not in plan.guards[maker]:
            _fail(plan, f"it relies on {plan.steps.names[value]!r}, which is not compared", reader)


class _Life(NamedTuple):
    """When a storage is needed, as those who touch it have it."""

    first: int
    last: int
    nbytes: int


def verify_layout(layout: MemoryLayout, evidence: Evidence) -> None:
    """Check the layout of a capture's memory against what its recorded calls touch.

    Args:
        layout: The layout.
        evidence: Who touches which storage and when, read from the recordings once all was laid out.

    Raises:
        PlanError: A storage has no place, or one that is too small, or kept for too short a time; a slot is
            not aligned, leaves the arena, is not where the storage was found, or is of a storage that must
            have none; or two storages that are needed at once share a byte.
    """
    places = {place.storage: place for place in layout.places}
    lives: dict[int, _Life] = {}
    for touch in evidence.touches:
        place = places.get(touch.storage)
        if place is None:
            raise PlanError(f"a storage of {touch.nbytes} bytes that calls touch has no place")
        if place.kind is PlaceKind.SLOT and not touch.slot:
            raise PlanError(f"{_called(place)} has a slot, and must have none")
        where = place.offset if place.kind is PlaceKind.SLOT else -1
        if touch.offset is not None and touch.nbytes and touch.offset != where:
            raise PlanError(f"{_called(place)} should lie at {where} and lies at {touch.offset}")
        known = lives.get(touch.storage, _Life(touch.first, touch.last, 0))
        lives[touch.storage] = _Life(
            min(known.first, touch.first), max(known.last, touch.last), max(known.nbytes, touch.nbytes)
        )
    if len(places) != len(layout.places) or places.keys() != lives.keys():
        raise PlanError("a place is of a storage that no call touches, or comes twice")
    top = 0
    for storage, place in places.items():
        life = lives[storage]
        if place.nbytes < life.nbytes or place.first > life.first or place.last < life.last:
            kept = f"{place.nbytes} bytes from {place.first} to {place.last}"
            raise PlanError(
                f"{_called(place)} has {kept}, and needs {life.nbytes} from {life.first} to {life.last}"
            )
        if place.kind is PlaceKind.SLOT:
            if place.offset < 0 or place.offset % _ALIGNED or place.offset + place.nbytes > layout.arena:
                raise PlanError(f"the slot of {_called(place)} is not aligned or leaves the arena")
            top = max(top, place.offset + place.nbytes)
    _disjoint(layout, lives, evidence)
    if layout.arena - top >= _ALIGNED or layout.bound > layout.arena:
        raise PlanError(f"the arena of {layout.arena} bytes is not what its slots take")


def _called(place: Place) -> str:
    return repr(place.name) if place.name else f"a storage of {place.nbytes} bytes"


def _disjoint(layout: MemoryLayout, lives: dict[int, _Life], evidence: Evidence) -> None:
    """No two storages that are needed at one time share a byte, but for a result over its call's argument."""
    live: list[tuple[int, int, int]] = []
    slots = {place.storage: place for place in layout.places if place.kind is PlaceKind.SLOT and place.nbytes}
    for storage in sorted(slots, key=lambda key: lives[key].first):
        first, place = lives[storage].first, slots[storage]
        live = [entry for entry in live if lives[entry[2]].last >= first]
        begin, end = place.offset, place.offset + place.nbytes
        at = bisect.bisect(live, (begin, end, storage))
        for other_begin, other_end, other in live[max(0, at - 1) : at + 1]:
            if other_begin >= end or begin >= other_end:
                continue
            over = (first, storage, other) in evidence.overwrites and lives[other].last == first
            if not over or (other_begin, other_end) != (begin, end):
                both = f"{_called(slots[other])} and {_called(place)}"
                raise PlanError(f"the slots of {both} overlap at {first}, while both are needed")
            live.remove((other_begin, other_end, other))
        bisect.insort(live, (begin, end, storage))
