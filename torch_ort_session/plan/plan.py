"""The plan: when and where everything runs under one signature."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from torch_ort_session.plan.analysis import Observation, Spec, StaticValues
from torch_ort_session.plan.lowering import Steps, reads
from torch_ort_session.plan.memory import MemoryLayout
from torch_ort_session.plan.partition import Fusion, Region, fuse, guarded, is_folded, split

Specs = tuple[tuple[int, Spec], ...]
"""Values with what each was in the observed run."""


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What plans of a session go by, whatever the signature.

    Attributes:
        device: The session's device.
        quarantined: (domain, operator) pairs whose recording failed before.
        minimum: Launches from which on a segment is worth recording.
        unstable: Names of nodes whose results change their shape from run to run.
        fuse: Whether elementwise steps of one segment are fused.
    """

    device: torch.device
    quarantined: frozenset[tuple[str, str]] = frozenset()
    minimum: int = 1
    unstable: frozenset[str] = frozenset()
    fuse: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class LastReads:
    """The number of the last region that reads each value.

    Attributes:
        anywhere: In any region; the number of regions for results.
        recorded: In a segment.
    """

    anywhere: Mapping[int, int]
    recorded: Mapping[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """When and where, for one signature; what a capture is made from.

    Attributes:
        steps: The steps, some of them fused, with what is static, or assumed to be, as constants.
        static_values: What is static.
        observation: What the warm run showed.
        rules: What it goes by.
        regions: Segments and seams in order; a step in none is folded into constants.
        sources: For each step the places of the observed steps that it computes: several for a fused one.
        reads: The last region that reads each value.
        guards: For each step those of its results whose specs must be the observed ones: all of what is
            recorded, and of a seam those on which segments, or constants of the plan, rely.
        keys: Names and values of the key feeds.
        memory: Where memory lies, once the segments are recorded; None before, and where nothing is.
        failure: Why nothing is recorded, where that was tried; empty otherwise.
    """

    steps: Steps
    static_values: StaticValues
    observation: Observation
    rules: PlanRules
    regions: tuple[Region, ...]
    sources: tuple[tuple[int, ...], ...]
    reads: LastReads
    guards: tuple[Specs, ...]
    keys: tuple[tuple[str, int | bool], ...] = ()
    memory: MemoryLayout | None = None
    failure: str = ""

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
    rules: PlanRules,
    keys: tuple[tuple[str, int | bool], ...] = (),
) -> Plan:
    """Plan what a run has shown.

    Args:
        steps: The steps that were run, with what is static, or assumed to be, as constants.
        static_values: What of them is static.
        observation: What the run showed.
        rules: What plans of the session go by.
        keys: Names and values of key feeds that make these steps what they are.

    Returns:
        The plan; its memory is laid out when its segments are recorded.
    """
    device, refused, minimum = rules.device, rules.quarantined, rules.minimum
    regions = split(steps, static_values, observation, device, refused, minimum, rules.unstable)
    sources: tuple[tuple[int, ...], ...] = tuple((place,) for place in range(len(steps.items)))
    if rules.fuse:
        fusion = fuse(steps, static_values, observation, regions, device, refused, minimum)
        if fusion is not None:
            now = {place: at for at, members in enumerate(fusion.sources) for place in members}
            steps, sources = replace(steps, items=fusion.items), fusion.sources
            assumed = {value: now[place] for value, place in static_values.assumed.items()}
            static_values = replace(static_values, assumed=assumed)
            regions = _after_fusion(regions, fusion)
    reads = last_reads(steps, regions)
    guards = _guards(steps, static_values, observation, regions, reads)
    return Plan(steps, static_values, observation, rules, regions, sources, reads, guards, keys)


def _after_fusion(regions: Sequence[Region], fusion: Fusion) -> tuple[Region, ...]:
    """The same regions over fused steps: all members of one lie in the same segment."""
    home = {place: number for number, region in enumerate(regions) for place in region.positions}
    positions: list[list[int]] = [[] for _ in regions]
    for at, members in enumerate(fusion.sources):
        number = home.get(members[-1])
        if number is not None:
            positions[number].append(at)
    return tuple(
        replace(region, positions=tuple(now)) for region, now in zip(regions, positions, strict=True)
    )


def last_reads(steps: Steps, regions: Sequence[Region]) -> LastReads:
    """Find the last region that reads each value.

    Args:
        steps: The steps.
        regions: Their regions.
    """
    anywhere: dict[int, int] = {}
    recorded: dict[int, int] = {}
    for number, region in enumerate(regions):
        for position in region.positions:
            for value in reads(steps.items[position]):
                anywhere[value] = number
                if region.is_segment:
                    recorded[value] = number
    anywhere.update(dict.fromkeys(steps.outputs, len(regions)))
    return LastReads(anywhere, recorded)


def _guards(
    steps: Steps,
    static_values: StaticValues,
    observation: Observation,
    regions: Sequence[Region],
    last: LastReads,
) -> tuple[Specs, ...]:
    """For each step those of its results whose specs must be the observed ones."""
    guards: list[Specs] = [()] * len(steps.items)
    shapes: Collection[int] = guarded(steps, static_values)
    for number, region in enumerate(regions):
        for position in region.positions:
            guards[position] = tuple(
                (value, spec)
                for value in steps.items[position].outputs
                if (spec := observation.specs[value]) is not None
                # The shape of what neither a segment nor a constant relies on is nobody's concern.
                and (region.is_segment or value in shapes or last.recorded.get(value, -1) > number)
            )
    return tuple(guards)
