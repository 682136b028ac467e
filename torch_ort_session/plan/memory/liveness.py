"""Liveness: from where to where each value's own bytes are needed, with views folded into their owner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from torch_ort_session.plan.analysis.specs import Observation, Spec
from torch_ort_session.plan.analysis.static_values import StaticValues
from torch_ort_session.plan.lowering.steps import NOTHING, Step, Steps
from torch_ort_session.plan.memory.slots import Interval
from torch_ort_session.plan.partition.segments import Region


@dataclass(frozen=True, slots=True, eq=False)
class Liveness:
    """Which values have bytes of their own, and for how long.

    Attributes:
        slotted: Intervals of the values that get a slot.
        results: Intervals of the values in whose memory a result may lie: they never get one.
        others: Intervals of the other values made in a run: torch's allocator keeps those.
        views: Pairs of a value and another one in whose memory it lies.
        unknown: Values made in a run that have no size: sequences and strings.
    """

    slotted: tuple[Interval, ...]
    results: tuple[Interval, ...]
    others: tuple[Interval, ...]
    views: tuple[tuple[int, int], ...]
    unknown: tuple[int, ...]


def intervals(
    steps: Steps,
    regions: Sequence[Region],
    static_values: StaticValues,
    observation: Observation,
    device: torch.device,
) -> Liveness:
    """Follow every value from the step that makes it to its last reader.

    A value gets a slot when a kernel with ``out`` makes it in a segment, when a segment makes it and another
    region reads it, or when a seam makes it and a segment reads it: then it lands there. What a seam hands on
    may be memory of its inputs, in this run or in another one, so they live as long as it does. Constants,
    static values and feeds never get a slot, nor does anything in whose memory a result may lie.

    Args:
        steps: The steps.
        regions: Their regions.
        static_values: What is static.
        observation: What the warm run showed.
        device: Where slots lie.

    Returns:
        The intervals, over places in ``steps.items``.
    """
    walk = _Walk(steps, regions, static_values, observation)
    for number, region in enumerate(regions):
        for position in region.positions:
            walk.step(number, position)
    results = {root for value in steps.outputs for root in walk.touched(value)}
    slotted: list[Interval] = []
    kept: list[Interval] = []
    others: list[Interval] = []
    unknown: list[int] = []
    for root, (start, number) in walk.made.items():
        spec = observation.specs[root]
        if spec is None:
            if root in observation.kinds and observation.kinds[root] != "absent":
                unknown.append(root)
            continue
        stop = len(steps.items) if root in results else walk.last.get(root, start)
        lands = not regions[number].is_segment
        item = Interval(root, start, stop, dense_bytes(spec) if lands else spec.nbytes)
        wanted = root in walk.wanted
        if not wanted and spec.owner != root:
            # What a seam hands on, and no segment reads, takes no bytes beside those that it lies in.
            continue
        if root in results:
            kept.append(item)
        elif wanted and spec.device == device:
            slotted.append(item)
        else:
            others.append(item)
    return Liveness(tuple(slotted), tuple(kept), tuple(others), tuple(walk.views), tuple(unknown))


def dense_bytes(spec: Spec) -> int:
    """Bytes of a tensor's elements, each counted once a place."""
    return math.prod(spec.shape) * spec.dtype.itemsize


def eager_peak(steps: Steps, observation: Observation) -> int:
    """Most bytes that live values hold at once in an eager run, feeds and constants left out.

    Args:
        steps: The steps, each with the values that are dropped after it.
        observation: What a run of them showed.
    """
    lasting = {*steps.inputs, *(value for value, held in enumerate(steps.template) if held is not None)}
    holders: dict[int, int] = {}
    live = peak = 0
    for step in steps.items:
        for spec in _specs(step.outputs, observation):
            if spec.owner not in lasting:
                count = holders.get(spec.owner, 0)
                holders[spec.owner] = count + 1
                live += 0 if count else spec.nbytes
        peak = max(peak, live)
        for spec in _specs(step.release, observation):
            if spec.owner in holders:
                holders[spec.owner] -= 1
                live -= 0 if holders[spec.owner] else spec.nbytes
    return peak


def _specs(values: Iterable[int], observation: Observation) -> Iterator[Spec]:
    return (spec for value in values if (spec := observation.specs[value]) is not None)


class _Walk:
    """What is known of the values up to a step.

    Attributes:
        landed: What segments read: where a seam makes it, it is copied to a place of its own.
        made: Where the values that have bytes of their own were made: position and number of the region.
        home: By value, the one in whose memory segments find it; None for what outlives the run.
        touches: By value, those whose memory it may lie in when an eager step reads it.
        last: The last position that reads the memory of each of them.
        wanted: Those that need a slot.
        views: Pairs of a value and the one in whose memory it lay.
    """

    def __init__(
        self, steps: Steps, regions: Sequence[Region], static_values: StaticValues, observation: Observation
    ) -> None:
        self.plan = (steps, regions, static_values, observation)
        recorded = (position for region in regions if region.is_segment for position in region.positions)
        self.landed = frozenset(value for position in recorded for value in reads(steps.items[position]))
        self.made: dict[int, tuple[int, int]] = {}
        self.home: dict[int, int | None] = {}
        self.touches: dict[int, frozenset[int]] = {}
        self.last: dict[int, int] = {}
        self.wanted: set[int] = set()
        self.views: list[tuple[int, int]] = []

    def step(self, number: int, position: int) -> None:
        """Read the inputs of a step, then make its outputs."""
        steps, regions, static_values, _ = self.plan
        step, recorded = steps.items[position], regions[number].is_segment
        for value in reads(step):
            home = self.home.get(value)
            for root in (() if home is None else (home,)) if recorded else self.touched(value):
                self.last[root] = position
                maker = self.made[root][1]
                if maker != number and (recorded or regions[maker].is_segment):
                    self.wanted.add(root)
        for value in step.outputs:
            if value != NOTHING and value not in static_values.data:
                self.make(value, step, number, position)

    def make(self, value: int, step: Step, number: int, position: int) -> None:
        _, regions, _, observation = self.plan
        spec, recorded = observation.specs[value], regions[number].is_segment
        if spec is not None and spec.owner != value:
            self.views.append((value, spec.owner))
            if recorded:
                base = self.viewed(step, spec.owner)
                self.home[value], self.touches[value] = self.home.get(base), self.touched(base)
                return
        self.made[value] = (position, number)
        self.home[value] = value
        touches = {value}
        if not recorded and value not in self.landed:
            touches.update(root for read in may_alias(step, observation) for root in self.touched(read))
        elif step.kernel.signature.takes_out:
            self.wanted.add(value)
        self.touches[value] = frozenset(touches)

    def viewed(self, step: Step, owner: int) -> int:
        """The value whose memory a step's result lies in, by the value that first had that memory."""
        for value in reads(step):
            spec = self.plan[3].specs[value]
            if spec is not None and spec.owner == owner:
                return value
        # The first output of a step may own what its others are views of.
        return owner

    def touched(self, value: int) -> frozenset[int]:
        return self.touches.get(value, frozenset())


def reads(step: Step) -> Iterator[int]:
    """Values that a step reads, by its bodies too."""
    for value in step.inputs:
        if value != NOTHING:
            yield value
    for body in step.bodies.values():
        for outside, _ in body.captured:
            yield outside


def may_alias(step: Step, observation: Observation) -> Iterator[int]:
    """Values in whose memory a step's results may lie when it runs eagerly."""
    if step.bodies or any(value in observation.kinds for value in (*step.inputs, *step.outputs)):
        yield from reads(step)
        return
    # What a kernel was seen to do counts as well as what it declares.
    specs = _specs(step.outputs, observation)
    owners = {spec.owner for spec in specs}
    names = [param.name for param in step.kernel.signature.inputs]
    for place, value in enumerate(step.inputs):
        spec = observation.specs[value] if value != NOTHING else None
        name = names[min(place, len(names) - 1)] if names else ""
        if name == step.kernel.view_of or (spec is not None and spec.owner in owners):
            yield value
