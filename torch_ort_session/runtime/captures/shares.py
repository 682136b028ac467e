"""Shares: what regions of a capture hand to one another, and how long each of it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.plan.lowering.steps import NOTHING, Steps
from torch_ort_session.plan.memory.liveness import may_alias, reads
from torch_ort_session.plan.partition.segments import Region
from torch_ort_session.runtime.interpreter.program import Values
from torch_ort_session.runtime.recorders.api import Shared, Use


def shares(
    steps: Steps,
    observation: Observation,
    regions: Sequence[Region],
    frame: Values,
    last: Mapping[int, int],
    inputs: Iterable[int],
    landed: Mapping[int, int],
    *,
    give: bool,
) -> list[Shared]:
    """List the memory that others than recorded calls read or write.

    Args:
        steps: The steps.
        observation: What the warm run showed.
        regions: Their regions.
        frame: Values as the capture's run left them.
        last: By value, the number of the last region that reads it; the number of regions for a result.
        inputs: Values that are fed, in copies of the capture's own.
        landed: Values that seams hand to segments, with the number of the seam's region.
        give: Whether results may leave without a copy.
    """
    needed = _needed(steps, observation, regions, landed, last)
    made = dict.fromkeys(
        value
        for region in regions
        if region.is_segment
        for position in region.positions
        for value in steps.items[position].outputs
    )
    leaving = _leaving(steps, regions, frame) if give else set()
    found: list[Shared] = []
    for value in inputs:
        found.append(Shared(frame[value], Use.INPUT, 0, needed.get(value, 0)))
    for value, number in landed.items():
        found.append(Shared(frame[value], Use.SHARED, number, max(number, needed.get(value, number))))
    for value in made:
        held = frame[value]
        if isinstance(held, torch.Tensor) and value in needed:
            use = Use.GIVEN if value in leaving else Use.SHARED
            found.append(Shared(held, use, None, needed[value]))
    return found


def _needed(
    steps: Steps,
    observation: Observation,
    regions: Sequence[Region],
    landed: Mapping[int, int],
    last: Mapping[int, int],
) -> dict[int, int]:
    """By value, the last region that reads its memory, through what a seam handed on of it as well."""
    needed = dict(last)
    behind: dict[int, set[int]] = {}
    for region in regions:
        if region.is_segment:
            continue
        inside: dict[int, set[int]] = {}
        for position in region.positions:
            step = steps.items[position]
            roots: set[int] = set()
            for value in may_alias(step, observation):
                roots |= {value} | inside.get(value, set()) | behind.get(value, set())
            for value in step.outputs:
                if value != NOTHING:
                    inside[value] = roots
        behind.update((value, roots) for value, roots in inside.items() if value not in landed)
    for value, roots in behind.items():
        for root in roots:
            needed[root] = max(needed.get(root, 0), last.get(value, 0))
    return needed


def _leaving(steps: Steps, regions: Sequence[Region], frame: Values) -> set[int]:
    """Results that fill a storage of their own, which no seam reads and which no other result lies in."""
    lent = {
        _storage(frame[value])
        for region in regions
        if not region.is_segment
        for position in region.positions
        for value in reads(steps.items[position])
    }
    owners = [_storage(frame[value]) for value in steps.outputs]
    return {
        value
        for value, owner in zip(steps.outputs, owners, strict=True)
        if owner and owner not in lent and owners.count(owner) == 1 and _fills(frame[value])
    }


def _storage(held: object) -> int:
    return held.untyped_storage()._cdata if isinstance(held, torch.Tensor) else 0


def _fills(held: torch.Tensor) -> bool:
    return (
        held.is_contiguous()
        and held.storage_offset() == 0
        and held.nbytes == held.untyped_storage().nbytes() > 0
        and not held.is_conj()
        and not held.is_neg()
    )
