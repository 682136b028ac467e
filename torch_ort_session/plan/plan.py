"""The plan: when and where everything runs under one signature."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch

from torch_ort_session.errors import PlanError
from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.plan.analysis.static_values import StaticValues
from torch_ort_session.plan.lowering.steps import Steps
from torch_ort_session.plan.memory.liveness import Liveness, eager_peak, intervals
from torch_ort_session.plan.memory.slots import Interval, Packing, aligned, live_bytes, pack
from torch_ort_session.plan.partition.segments import Region, is_folded, split


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """What a plan says of memory: activations only, without feeds, constants and static values.

    Attributes:
        complete: Whether the size of every value is known; if not, no savings are claimed.
        peak: Bytes of the arena for values of steps; a recording sees every call that a kernel makes, and its
            own arena may take more or less: `RecordingStats.arena`.
        bound: Fewest bytes that any packing of the slots could take.
        slotted: Bytes of all slots together, as if none was used twice.
        naive: Bytes of all activations together, with and without a slot.
        results: Bytes of those in whose memory a result may lie.
        live: Most bytes of activations that are needed at once: no way to run them takes less.
        baseline: Most bytes that an eager run of the same steps holds at once.
        slots: Places in the arena that differ.
        assignments: Values that have a slot.
        views: Values that lie in the memory of another one.
        unknown: Values whose size is not known.
    """

    complete: bool
    peak: int
    bound: int
    slotted: int
    naive: int
    results: int
    live: int
    baseline: int
    slots: int
    assignments: int
    views: int
    unknown: int

    @property
    def savings(self) -> int:
        """Bytes that the arena takes less than its values together; 0 unless every size is known."""
        return max(0, self.slotted - self.peak) if self.complete else 0

    @property
    def share(self) -> float:
        """The part of the bytes of activations, results aside, that lies in slots; 1.0 without any."""
        others = self.naive - self.results
        return self.slotted / others if others else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """When and where, for one signature.

    Attributes:
        steps: The steps.
        static_values: What is static.
        observation: What the warm run showed.
        device: The session's device.
        regions: Segments and seams in order; a step in none is folded into constants.
        intervals: From where to where each slot is in use.
        packing: Where each slot lies.
        stats: What that means; None when slots could not be planned.
        failure: Why they could not; empty otherwise.
        quarantined: (domain, operator) pairs whose recording failed before.
        minimum: Launches from which on a segment is worth recording.
        keys: Names and values of the key feeds.
    """

    steps: Steps
    static_values: StaticValues
    observation: Observation
    device: torch.device
    regions: tuple[Region, ...]
    intervals: tuple[Interval, ...] = ()
    packing: Packing = field(default_factory=lambda: Packing({}, 0, 0, 0))
    stats: MemoryStats | None = None
    failure: str = ""
    quarantined: frozenset[tuple[str, str]] = frozenset()
    minimum: int = 1
    keys: tuple[tuple[str, int | bool], ...] = ()

    @property
    def segments(self) -> tuple[Region, ...]:
        """The regions that are recorded."""
        return tuple(region for region in self.regions if region.is_segment)

    @property
    def seams(self) -> tuple[Region, ...]:
        """The regions that run eagerly."""
        return tuple(region for region in self.regions if not region.is_segment)

    @property
    def folded(self) -> tuple[int, ...]:
        """Positions of the steps that make nothing but constants."""
        return tuple(p for p, step in enumerate(self.steps.items) if is_folded(step, self.static_values))


def make_plan(
    steps: Steps,
    static_values: StaticValues,
    observation: Observation,
    device: torch.device,
    quarantined: Collection[tuple[str, str]] = (),
    minimum: int = 1,
    keys: tuple[tuple[str, int | bool], ...] = (),
    unstable: Collection[str] = (),
) -> Plan:
    """Plan what a run has shown.

    Args:
        steps: The steps that were run.
        static_values: What of them is static.
        observation: What the run showed.
        device: The session's device.
        quarantined: (domain, operator) pairs whose recording failed before.
        minimum: Launches from which on a segment is worth recording.
        keys: Names and values of the key feeds that make these steps what they are.
        unstable: Names of nodes whose results change their shape from run to run.

    Returns:
        The plan. Without slots, and with the reason, when they cannot be planned: everything then stays with
        torch's own allocator.
    """
    regions = split(steps, static_values, observation, device, quarantined, minimum, unstable)
    found: Liveness | None = None
    packing, stats, failure = Packing({}, 0, 0, 0), None, ""
    try:
        found = intervals(steps, regions, static_values, observation, device)
        packing = pack(found.slotted)
        stats = _stats(steps, observation, found, packing)
    except PlanError as error:
        found, packing, failure = None, Packing({}, 0, 0, 0), str(error)
    return Plan(
        steps=steps,
        static_values=static_values,
        observation=observation,
        device=device,
        regions=regions,
        intervals=found.slotted if found is not None else (),
        packing=packing,
        stats=stats,
        failure=failure,
        quarantined=frozenset(quarantined),
        minimum=minimum,
        keys=keys,
    )


def _stats(steps: Steps, observation: Observation, found: Liveness, packing: Packing) -> MemoryStats:
    everything = (*found.slotted, *found.results, *found.others)
    return MemoryStats(
        complete=not found.unknown,
        peak=packing.total,
        bound=packing.bound,
        slotted=packing.naive,
        naive=sum(aligned(item.nbytes) for item in everything),
        results=sum(aligned(item.nbytes) for item in found.results),
        live=live_bytes(everything),
        baseline=eager_peak(steps, observation),
        slots=len({packing.offsets[item.value] for item in found.slotted if item.nbytes}),
        assignments=len(found.slotted),
        views=len(found.views),
        unknown=len(found.unknown),
    )
