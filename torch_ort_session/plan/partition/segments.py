"""Regions: stretches of steps that are recorded, and seams that run eagerly between them, with reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch

from torch_ort_session.plan.analysis import Observation, StaticValues
from torch_ort_session.plan.lowering import NOTHING, Step, Steps, input_params, runs_alike
from torch_ort_session.plan.partition.regroup import growth_reason
from torch_ort_session.plan.partition.report import Reason


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of steps that is recorded, or one that runs eagerly.

    Attributes:
        positions: Places in ``Steps.items``, in order; never empty.
        reason: Why it is a seam; None for a segment.
        message: What exactly makes it a seam.
    """

    positions: tuple[int, ...]
    reason: Reason | None = None
    message: str = ""

    @property
    def is_segment(self) -> bool:
        """Whether it is recorded."""
        return self.reason is None


def split(
    steps: Steps,
    static_values: StaticValues,
    observation: Observation,
    device: torch.device,
    quarantined: Collection[tuple[str, str]] = (),
    minimum: int = 1,
    unstable: Collection[str] = (),
) -> tuple[Region, ...]:
    """Cut the steps into regions.

    A step whose outputs are all static, or assumed to be, is in none: they are constants of the plan.
    Segments are maximal; one with fewer launches than ``minimum`` runs eagerly.

    Args:
        steps: The steps.
        static_values: What is static; nothing of it is assumed of the shapes of ``unstable`` nodes.
        observation: What the warm run showed.
        device: The session's device.
        quarantined: (domain, operator) pairs whose recording failed before.
        minimum: Launches (steps that are no views) from which on recording is worth it.
        unstable: Names of nodes whose results change their shape from run to run: neither they nor what hangs
            on those shapes can be recorded.

    Returns:
        The regions in order; every step that is not folded is in exactly one.
    """
    regions: list[Region] = []
    stretch: list[int] = []
    # Many steps may hang on one shape that does not settle: they are one region, whose first step says why.
    shifting: list[int] = []
    unsettled: set[int] = set()
    cause: tuple[Reason, str] | None = None

    def close() -> None:
        if stretch:
            regions.append(_stretch(tuple(stretch), steps, observation, minimum))
        if shifting and cause is not None:
            regions.append(Region(tuple(shifting), *cause))
        stretch.clear()
        shifting.clear()

    for position, step in enumerate(steps.items):
        if is_folded(step, static_values):
            continue
        shift = growth_reason(step, static_values.growing) if static_values.growing else None
        if shift is None and unstable:
            shift = _unsettled(step, static_values, unstable, unsettled)
        why = seam_reason(step, static_values, observation, device, quarantined)
        if shift is not None:
            if not shifting:
                close()
                cause = shift
            shifting.append(position)
        elif why is None:
            if shifting:
                close()
            stretch.append(position)
        else:
            close()
            regions.append(Region((position,), *why))
    close()
    return tuple(regions)


def _unsettled(
    step: Step, static_values: StaticValues, unstable: Collection[str], unsettled: set[int]
) -> tuple[Reason, str] | None:
    """Why a step whose shapes do not settle is no part of a segment; notes which of its outputs do not."""
    if step.node.name in unstable:
        unsettled.update(value for value in step.outputs if value != NOTHING)
        return Reason.OUTPUT_SHAPE, "the shape of its result changed too often from run to run"
    found = next((value for value in (*step.inputs, *_outside(step)) if value in unsettled), None)
    if found is None:
        return None
    unsettled.update(value for value in step.outputs if value != NOTHING and value not in static_values.shape)
    return Reason.INPUT_SHAPE, f"the shape of {steps_name(step, found)} changes from run to run"


def is_folded(step: Step, static_values: StaticValues) -> bool:
    """Whether a step makes nothing but constants of the plan."""
    return all(static_values.constant(value) for value in step.outputs)


def is_assumed(step: Step, static_values: StaticValues) -> bool:
    """Whether what a step makes is constant as long as shapes that are not static stay as they were."""
    return any(value in static_values.assumed for value in step.outputs)


def kept_constants(steps: Steps, static_values: StaticValues) -> frozenset[int]:
    """Constants of the plan that an observed run must keep.

    Args:
        steps: The steps.
        static_values: What of them is static, or assumed to be.

    Returns:
        The ids of what steps outside of the fold, or the user, read; and of what steps read that run again
        when a shape turns out to be another one than assumed.
    """
    read = set(steps.outputs)
    for step in steps.items:
        if all(value in static_values.data for value in step.outputs):
            continue
        since = max((static_values.assumed.get(value, -1) for value in step.outputs), default=-1)
        for value in (*step.inputs, *_outside(step)):
            # What hangs on the same shape is made again together.
            if since < 0 or static_values.assumed.get(value, -1) != since:
                read.add(value)
    return frozenset(value for value in read if value != NOTHING and static_values.constant(value))


def guarded(steps: Steps, static_values: StaticValues) -> frozenset[int]:
    """Values whose shapes constants of the plan follow from, so that each must be as in the warm run."""
    return frozenset(
        value
        for step in steps.items
        if is_assumed(step, static_values)
        for value in step.inputs
        if not static_values.constant(value)
    )


def _outside(step: Step) -> Iterator[int]:
    """Values that the bodies of a step read from outside."""
    return (outside for body in step.bodies.values() for outside, _ in body.captured)


def seam_reason(
    step: Step,
    static_values: StaticValues,
    observation: Observation,
    device: torch.device,
    quarantined: Collection[tuple[str, str]] = (),
) -> tuple[Reason, str] | None:
    """Why a step cannot be recorded; None when it can."""
    node, kernel = step.node, step.kernel
    if step.bodies and not runs_alike(step):
        return Reason.CONTROL_FLOW, _flow(step, static_values)
    declared = kernel.seam_reason(node)
    if declared is not None:
        return Reason.SEAM, declared
    if (kernel.domain, kernel.op) in quarantined:
        return Reason.RECORDING, f"recording {node.qualified} failed before"
    for value in (*step.inputs, *step.outputs):
        kind = observation.kinds.get(value)
        if value != NOTHING and kind is not None:
            return Reason.CONTROL_FLOW, f"{steps_name(step, value)} is no tensor ({kind})"
    for param, value in zip(input_params(kernel, len(step.inputs)), step.inputs, strict=True):
        if param.read and not static_values.constant(value):
            return Reason.INPUT_SHAPE, f"its input {param.name!r} is a number that follows from data"
        spec = observation.specs[value]
        if spec is not None and spec.device != device and not static_values.constant(value):
            # A recording would keep what this run found there.
            return Reason.SEAM, f"its input {param.name!r} lies on {spec.device}"
    for value in step.outputs:
        spec = observation.specs[value]
        if spec is not None and spec.device != device:
            return Reason.SEAM, f"it runs on {spec.device}"
    return None


def _flow(step: Step, static_values: StaticValues) -> str:
    """What a step with bodies decides in a run."""
    if "then_branch" in step.bodies:
        if static_values.constant(step.inputs[0]):
            return "which branch runs follows from a shape that depends on data"
        return "which branch runs depends on data"
    if "y" in step.node.attributes:
        return "it differentiates what cannot be recorded"
    if step.node.op != "Loop":
        return step.kernel.seam_reason(step.node) or "its body runs once for each element"
    if not all(static_values.constant(value) for value in step.inputs[:2]):
        return "how often its body runs depends on data"
    body = step.bodies["body"].steps
    goes_on, made = body.outputs[0], {value: inner for inner in body.items for value in inner.outputs}
    while goes_on in made and made[goes_on].node.op == "Identity":
        goes_on = made[goes_on].inputs[0]
    told = goes_on == body.inputs[1] or body.template[goes_on] is not None
    return "its body runs once for each turn" if told else "its body says after each turn whether to go on"


def steps_name(step: Step, value: int) -> str:
    """The name under which a step reads or makes a value."""
    names = dict(zip(step.inputs, step.node.inputs, strict=False))
    names.update(zip(step.outputs, step.node.outputs, strict=False))
    return repr(names.get(value, ""))


def _stretch(positions: tuple[int, ...], steps: Steps, observation: Observation, minimum: int) -> Region:
    launches = count_launches(positions, steps, observation)
    if launches >= max(1, minimum):
        return Region(positions)
    what = "only views" if launches == 0 else f"{launches} launch(es), fewer than {minimum}"
    return Region(positions, Reason.SHORT, f"{len(positions)} step(s) with {what}")


def count_launches(positions: Collection[int], steps: Steps, observation: Observation) -> int:
    """How many of these steps compute something rather than view memory that is there."""
    return sum(not _is_view(steps.items[position], observation) for position in positions)


def _is_view(step: Step, observation: Observation) -> bool:
    """Whether all outputs of a step lie in memory that another value made."""
    specs = [(value, observation.specs[value]) for value in step.outputs if value != NOTHING]
    return all(spec is not None and spec.owner != value for value, spec in specs)
