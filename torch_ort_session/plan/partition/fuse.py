"""Fused steps: elementwise steps of one segment computed in one pass, with nothing stored between them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.fused import DOMAIN, FUSED, fused
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.native.chain import DTYPES
from torch_ort_session.plan.analysis import Observation, Spec, StaticValues
from torch_ort_session.plan.lowering import Step, Steps, reads, with_release
from torch_ort_session.plan.partition.chains import Draft, is_member
from torch_ort_session.plan.partition.segments import Region, count_launches

BETWEEN = "…"
"""What stands in a fused step's name between those of its first and its last node."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Steps that become one.

    Attributes:
        members: Their places, in order; the last one makes the result.
        draft: What they compute.
    """

    members: tuple[int, ...]
    draft: Draft


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """Steps some of which are fused.

    Attributes:
        items: The steps, each with what is released after it.
        sources: For each of them the places of the steps that it was made of.
    """

    items: tuple[Step, ...]
    sources: tuple[tuple[int, ...], ...]


def is_fused(step: Step) -> bool:
    """Whether a step was made of others."""
    return step.kernel.fn is fused


def fused_nodes(step: Step) -> int:
    """How many nodes a fused step computes."""
    return step.node.op.count(", ") + 1


def last_name(step: Step) -> str:
    """The name of a step's node; of a fused one, that of the node whose result it makes."""
    name = step.node.name
    return name.rpartition(BETWEEN)[2] if is_fused(step) else name


def fuse(
    steps: Steps,
    static_values: StaticValues,
    observation: Observation,
    regions: Sequence[Region],
    device: torch.device,
    refused: Collection[tuple[str, str]] = (),
    minimum: int = 1,
) -> Fusion | None:
    """Fuse what lies in one segment and is read nowhere else.

    Args:
        steps: The steps.
        static_values: What of them is static.
        observation: What the warm run showed.
        regions: Their regions.
        device: The session's device.
        refused: (domain, operator) pairs that are not recorded; fused steps of those are not made.
        minimum: Launches from which on a segment is worth recording: none is fused below.

    Returns:
        The steps with fused ones at the place of their last member; None where nothing is fused.
    """
    search = _Search(steps, static_values, observation, device)
    groups: dict[int, Group] = {}
    for region in regions:
        if not region.is_segment:
            continue
        found = [group for group in search.region(region) if (DOMAIN, _op(steps, group)) not in refused]
        left = count_launches(region.positions, steps, observation)
        if left - sum(len(group.members) - 1 for group in found) >= minimum:
            groups.update((group.members[-1], group) for group in found)
    if not groups:
        return None
    gone = {place for group in groups.values() for place in group.members[:-1]}
    items: list[Step] = []
    sources: list[tuple[int, ...]] = []
    for place, step in enumerate(steps.items):
        if place in gone:
            continue
        group = groups.get(place)
        items.append(step if group is None else _fused_step(steps, group))
        sources.append((place,) if group is None else group.members)
    return Fusion(tuple(with_release(items, steps.outputs, steps.template)), tuple(sources))


def _op(steps: Steps, group: Group) -> str:
    return f"Fused({', '.join(steps.items[place].node.op for place in group.members)})"


def _fused_step(steps: Steps, group: Group) -> Step:
    first, last = (steps.items[group.members[at]] for at in (0, -1))
    inputs, op = tuple(group.draft.inputs), _op(steps, group)
    node = Node(
        f"{first.node.name}{BETWEEN}{last.node.name}",
        op,
        DOMAIN,
        1,
        tuple(steps.names[value] for value in inputs),
        last.node.outputs[:1],
        {"program": group.draft.program, "constants": tuple(group.draft.constants)},
    )
    ctx = KernelContext(node, last.ctx.device, (True,))
    return Step(node, replace(FUSED, op=op), ctx, inputs, last.outputs)


class _Search:
    """What is asked of values while groups grow.

    Attributes:
        steps: The steps.
        static_values: What of them is static.
        specs: What the values were.
        device: The session's device.
        readers: By value, the places of the steps that read it.
        makers: By value, the place of the step that makes it.
        taken: Places of steps that are in a group.
    """

    def __init__(
        self, steps: Steps, static_values: StaticValues, observation: Observation, device: torch.device
    ) -> None:
        self.steps = steps
        self.static_values = static_values
        self.specs = observation.specs
        self.device = device
        self.readers: dict[int, list[int]] = {}
        self.makers: dict[int, int] = {}
        self.taken: set[int] = set()
        for place, step in enumerate(steps.items):
            for value in reads(step):
                self.readers.setdefault(value, []).append(place)
            for value in step.outputs:
                self.makers[value] = place

    def region(self, region: Region) -> list[Group]:
        """The groups of a segment, which has none of its steps taken; the last one first."""
        inside = {place for place in region.positions if self.is_candidate(place)}
        found = []
        for place in reversed(region.positions):
            if place in inside and place not in self.taken:
                group = self.grown(place, inside)
                if group is not None:
                    self.taken.update(group.members)
                    found.append(group)
        return found

    def is_candidate(self, place: int) -> bool:
        """Whether a step may be a member: it makes one new float tensor on the device."""
        step = self.steps.items[place]
        if not is_member(step) or len(step.outputs) != 1 or BETWEEN in step.node.name:
            return False
        spec = self.specs[step.outputs[0]]
        return (
            spec is not None
            and spec.owner == step.outputs[0]
            and spec.dtype in DTYPES
            and spec.device == self.device
            and 0 not in spec.shape
        )

    def grown(self, root: int, inside: Collection[int]) -> Group | None:
        """The largest group that ends at a step; None where it would be that step alone."""
        result = self.spec(self.steps.items[root].outputs[0])
        if not _is_dense(result):
            return None
        members = {root}
        best = self.drafted(members, result)
        if best is None:
            return None
        refused: set[int] = set()
        while True:
            ahead = self.ahead(members, inside, result) - refused
            if not ahead:
                break
            place = max(ahead)
            wider = {*members, place}
            draft = self.drafted(wider, result)
            if draft is not None and self.may_wait(wider, draft, place, root):
                members, best = wider, draft
            else:
                refused.add(place)
        if len(members) < 2 or not self.is_whole(best, result):
            return None
        return Group(tuple(sorted(members)), best)

    def ahead(self, members: Collection[int], inside: Collection[int], result: Spec) -> set[int]:
        """Steps whose result members alone read."""
        found = set()
        for value in {value for place in members for value in self.steps.items[place].inputs}:
            place = self.makers.get(value, -1)
            if place not in inside or place in members or place in self.taken:
                continue
            spec = self.spec(value)
            if spec.shape != result.shape or spec.dtype != result.dtype or value in self.steps.outputs:
                continue
            if all(reader in members for reader in self.readers[value]):
                found.add(place)
        return found

    def drafted(self, members: Collection[int], result: Spec) -> Draft | None:
        """What steps compute together; None where no program of the op does."""
        draft = Draft(self.number, result.dtype)
        if not all(draft.add(self.steps.items[place]) for place in sorted(members)) or not draft.fits:
            return None
        return draft if all(self.is_readable(value, result) for value in draft.inputs) else None

    def is_readable(self, value: int, result: Spec) -> bool:
        spec = self.specs[value]
        return (
            spec is not None
            and spec.dtype == result.dtype
            and spec.device == self.device
            and _runs(spec) in (0, 1)
        )

    def is_whole(self, draft: Draft, result: Spec) -> bool:
        """Whether the inputs alone have the shape of the result: constants are numbers without dims."""
        shapes = [self.spec(value).shape for value in draft.inputs]
        if max(map(len, shapes), default=-1) != len(result.shape):
            return False
        # Each of them broadcasts to the result, since each member's did.
        return all(
            size == 1 or any(len(shape) >= back and shape[-back] == size for shape in shapes)
            for back, size in enumerate(reversed(result.shape), 1)
        )

    def may_wait(self, members: Collection[int], draft: Draft, place: int, root: int) -> bool:
        """Whether what a member reads, kept until the last one runs, is no more than its result would be."""
        if all(other in members for other in range(place + 1, root)):
            return True
        # What is kept for longer must not be more than the result that is not kept any more.
        result = self.spec(self.steps.items[place].outputs[0])
        longer = [
            value
            for value in set(self.steps.items[place].inputs)
            if value in draft.inputs
            and value in self.makers
            and all(
                reader == place or (reader < root and reader not in members) for reader in self.readers[value]
            )
            and 2 * math.prod(self.spec(value).shape) > math.prod(result.shape)
        ]
        return len(longer) <= 1

    def number(self, value: int) -> float | None:
        """The number that a constant of one element holds; None for everything else."""
        if value not in self.static_values.data or value in self.steps.inputs:
            return None
        held = self.steps.template[value]
        if not isinstance(held, Tensor) or held.numel() != 1 or held.is_complex():
            return None
        return float(held)

    def spec(self, value: int) -> Spec:
        found = self.specs[value]
        assert found is not None
        return found


def _runs(spec: Spec) -> int:
    """How far the elements of a row are from one another; 1 where there is one in each."""
    pairs = zip(reversed(spec.shape), reversed(spec.stride), strict=True)
    return next((stride for size, stride in pairs if size != 1), 1)


def _is_dense(spec: Spec) -> bool:
    """Whether elements lie one behind the other, each once."""
    step = 1
    for size, stride in zip(reversed(spec.shape), reversed(spec.stride), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
