"""Verify: a plan is checked again by following its run, with no code of those who made it."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import NoReturn

from torch_ort_session.errors import PlanError
from torch_ort_session.plan.lowering.steps import Step
from torch_ort_session.plan.memory.slots import Interval
from torch_ort_session.plan.plan import Plan

_ALIGNED = 256


def verify(plan: Plan) -> None:
    """Check that a plan can be followed.

    Raises:
        PlanError: A step is left out, comes twice or out of order; a region is empty, has no reason or could
            be joined with the next one; something is assumed that follows from more than shapes, or from
            others than is noted; a segment holds a step that cannot be recorded; a slot is too small,
            not aligned, outside of the arena, of a value that must have none, or written while another value
            in the same bytes is still needed; a segment reads something that does not stay where it is; or
            the numbers do not add up.
    """
    _regions(plan)
    _assumptions(plan)
    _constants(plan)
    _segments(plan)
    lives = _Lives(plan)
    slots = _slots(plan, lives)
    _numbers(plan)
    if plan.stats is not None:
        _disjoint(plan, lives, slots)
        _places(plan, lives, slots)


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
        if (step.kernel.domain, step.kernel.op) in plan.quarantined:
            _fail(plan, "it is recorded in spite of its quarantine", position)
        params = step.kernel.signature.inputs
        for place, value in enumerate(step.inputs):
            param = params[min(place, len(params) - 1)]
            fixed = value == 0 or value in plan.static_values.data or value in plan.static_values.assumed
            if param.host not in (None, "constant") and not fixed:
                _fail(plan, f"a recording would keep the number {plan.steps.names[value]!r}", position)
            spec = plan.observation.specs[value]
            if spec is not None and spec.device != plan.device and not fixed:
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


class _Lives:
    """Where each value's memory is, followed once from the first step to the last.

    Attributes:
        born: Position at which a value's own memory is written, and the region that does it.
        behind: The values in whose memory a value may lie; none for what outlives the run.
        ends: Last position at which the memory of a value is read; the number of steps for results.
        crossing: Values whose memory a segment reads after another region wrote it.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.born: dict[int, tuple[int, int]] = {}
        self.behind: dict[int, set[int]] = {}
        self.ends: dict[int, int] = {}
        self.crossing: set[int] = set()
        recorded = [p for region in plan.regions if region.reason is None for p in region.positions]
        copied = {value for position in recorded for value in _reading(plan.steps.items[position])}
        for number, region in enumerate(plan.regions):
            for position in region.positions:
                self.follow(number, position, copied)
        for value in plan.steps.outputs:
            for memory in self.behind.get(value, ()):
                self.ends[memory] = len(plan.steps.items)

    def follow(self, number: int, position: int, copied: set[int]) -> None:
        step, recorded = self.plan.steps.items[position], self.recorded(number)
        for value in _reading(step):
            for memory in self.behind.get(value, ()):
                self.ends[memory] = position
                writer = self.born[memory][1]
                if writer != number and (recorded or self.recorded(writer)):
                    self.crossing.add(memory)
        for value in step.outputs:
            if not value or value in self.plan.static_values.data:
                continue
            # What segments read of an eager step is a copy; the rest may be memory that the step was given.
            fresh = (not recorded and value in copied) or (
                recorded and not self.seen_in(step, value, recorded)
            )
            behind = set() if fresh else {m for v in self.sources(step, value, recorded) for m in v}
            if fresh or not recorded:
                self.born[value] = (position, number)
                self.ends[value] = position
                behind.add(value)
            self.behind[value] = behind

    def recorded(self, number: int) -> bool:
        return self.plan.regions[number].reason is None

    def seen_in(self, step: Step, value: int, recorded: bool) -> list[int]:
        """The values in whose storage an output of a step was seen.

        An eager step may put two outputs into one storage: where one of them is copied, the other is not.
        """
        specs = self.plan.observation.specs
        spec = specs[value]
        if spec is None or spec.owner == value:
            return []
        found = [v for v in _reading(step) if (known := specs[v]) and known.owner == spec.owner]
        sibling = spec.owner in step.outputs
        return found or ([] if self.opaque(step) or (sibling and not recorded) else [spec.owner])

    def opaque(self, step: Step) -> bool:
        """Whether a step may hand on all that it reads: it runs bodies, or some values are no tensors."""
        kinds = self.plan.observation.kinds
        return bool(step.bodies) or any(v in kinds for v in (*_reading(step), *step.outputs))

    def sources(self, step: Step, value: int, recorded: bool) -> Iterator[set[int]]:
        seen = self.seen_in(step, value, recorded)
        if not recorded:
            if self.opaque(step):
                seen = [*seen, *_reading(step)]
            params = step.kernel.signature.inputs
            for place, other in enumerate(step.inputs):
                if params[min(place, len(params) - 1)].name == step.kernel.view_of:
                    seen = [*seen, other]
        return (self.behind.get(other, set()) for other in seen)


def _slots(plan: Plan, lives: _Lives) -> dict[int, tuple[int, int]]:
    """Slots as (offset, end), each looked at by itself."""
    used = {item.value: item for item in plan.intervals}
    if len(used) != len(plan.intervals) or set(used) != set(plan.packing.offsets):
        _fail(plan, "slots and intervals are not of the same values")
    kept = {memory for value in plan.steps.outputs for memory in lives.behind.get(value, ())}
    slots: dict[int, tuple[int, int]] = {}
    for value, item in used.items():
        name, offset = repr(plan.steps.names[value]), plan.packing.offsets[value]
        spec = plan.observation.specs[value]
        if value not in lives.born or spec is None:
            _fail(plan, f"{name} has a slot, and no step of a region writes its memory")
        if value in kept or value in plan.steps.outputs:
            _fail(plan, f"{name} has a slot, and a result may lie in it")
        if spec.device != plan.device:
            _fail(plan, f"{name} has a slot on {plan.device} and lies on {spec.device}")
        if offset < 0 or offset % _ALIGNED or offset + item.nbytes > plan.packing.total:
            _fail(plan, f"the slot of {name} at {offset} is not aligned or leaves the arena")
        if item.nbytes < _extent(plan, lives, value):
            _fail(plan, f"the slot of {name} has {item.nbytes} bytes, fewer than it takes")
        position, _ = lives.born[value]
        if item.start > position or item.stop < lives.ends[value]:
            life = f"{position} to {lives.ends[value]}"
            _fail(plan, f"the slot of {name} is kept from {item.start} to {item.stop}, not from {life}")
        slots[value] = (offset, offset + item.nbytes)
    return slots


def _extent(plan: Plan, lives: _Lives, value: int) -> int:
    """Bytes from the first to the last element of a value, as it lies in its slot."""
    spec = plan.observation.specs[value]
    assert spec is not None
    if 0 in spec.shape:
        return 0
    if lives.recorded(lives.born[value][1]):
        last = sum((size - 1) * step for size, step in zip(spec.shape, spec.stride, strict=True))
        return (spec.offset + last + 1) * spec.dtype.itemsize
    count = 1
    for size in spec.shape:
        count *= size
    return count * spec.dtype.itemsize


def _disjoint(plan: Plan, lives: _Lives, slots: dict[int, tuple[int, int]]) -> None:
    """No two values that are needed at one time share a byte."""
    written = sorted(slots, key=lambda value: lives.born[value][0])
    live: list[tuple[int, int, int]] = []
    for value in written:
        position = lives.born[value][0]
        live = [entry for entry in live if lives.ends[entry[2]] >= position]
        begin, end = slots[value]
        if begin == end:
            continue
        place = bisect.bisect(live, (begin, end, value))
        for other in live[max(0, place - 1) : place + 1]:
            if other[0] < end and begin < other[1]:
                names = (repr(plan.steps.names[v]) for v in (other[2], value))
                _fail(plan, f"the slots of {' and '.join(names)} overlap while both are needed", position)
        live.insert(place, (begin, end, value))


def _places(plan: Plan, lives: _Lives, slots: dict[int, tuple[int, int]]) -> None:
    """What a segment reads from elsewhere stays where it is."""
    kept = {memory for value in plan.steps.outputs for memory in lives.behind.get(value, ())}
    for value in lives.crossing - kept - set(slots):
        spec = plan.observation.specs[value]
        if spec is not None and spec.device == plan.device:
            _fail(plan, f"{plan.steps.names[value]!r} crosses regions and has no slot")


def _numbers(plan: Plan) -> None:
    stats, packing = plan.stats, plan.packing
    if stats is None:
        if not plan.failure or plan.intervals:
            _fail(plan, "there are no numbers and no reason for that")
        return
    sizes = {item.value: -(-item.nbytes // _ALIGNED) * _ALIGNED for item in plan.intervals}
    needed = _most(plan.intervals, sizes)
    found = (packing.bound, packing.naive, stats.peak, stats.assignments)
    if found != (needed, sum(sizes.values()), packing.total, len(sizes)):
        _fail(plan, f"the numbers {found} are not those of the slots")
    if packing.total < needed or stats.bound != needed or stats.slotted != packing.naive:
        _fail(plan, "the arena is smaller than what lives in it at once")
    unsized = [v for r in plan.regions for p in r.positions for v in plan.steps.items[p].outputs if v]
    unsized = [v for v in unsized if plan.observation.kinds.get(v) in ("sequence", "strings")]
    if stats.complete == bool(unsized) or stats.unknown != len(unsized):
        _fail(plan, f"{len(unsized)} values have no size, and the numbers say {stats.unknown}")
    if not stats.complete and stats.savings:
        _fail(plan, "savings are claimed while sizes are unknown")


def _most(intervals: Iterable[Interval], sizes: dict[int, int]) -> int:
    """The most bytes in use at one position."""
    events = [(item.start, 1, sizes[item.value]) for item in intervals]
    # At one position what is still read there and what is written there are in use together.
    events += [(item.stop + 1, 0, -sizes[item.value]) for item in intervals]
    live = most = 0
    for _, _, change in sorted(events):
        live += change
        most = max(most, live)
    return most
