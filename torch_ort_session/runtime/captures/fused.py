"""Captures of fused steps: the steps of a warm run, those that one native op computes made one step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from torch_ort_session.errors import KernelError
from torch_ort_session.ops import native
from torch_ort_session.ops.fused import DOMAIN
from torch_ort_session.plan.lowering.steps import Step
from torch_ort_session.plan.partition.fuse import Fusion, fuse
from torch_ort_session.plan.partition.segments import split
from torch_ort_session.runtime.captures.warmup import Warm
from torch_ort_session.runtime.interpreter.program import BoundStep, Call, Values, bind_steps


def with_fused(
    warm: Warm, device: torch.device, quarantined: Collection[tuple[str, str]], on: bool = True
) -> Warm:
    """Fuse what can be fused.

    Args:
        warm: What a capture starts from.
        device: The session's device.
        quarantined: (domain, operator) pairs that are not recorded; a fused step of those falls apart.
        on: Whether anything is fused.

    Returns:
        What the capture starts from instead. What runs eagerly because a shape turned out to be another one
        runs node by node as before.
    """
    if not on or not native.has_kernel("elementwise_chain", device.type):
        return warm
    parts = warm.program.steps, warm.taint, warm.observation
    regions = split(*parts, device, quarantined, warm.minimum, warm.loose)
    found = fuse(*parts, regions, device, quarantined, warm.minimum)
    if found is None:
        return warm
    return _bound(warm, found)


def fused_in(error: Exception) -> tuple[str, str] | None:
    """The fused step that failed, as a (domain, operator) pair; None where something else did.

    Its members ran well by themselves in the warm run.
    """
    domain, _, op = error.op.partition("::") if isinstance(error, KernelError) else ("", "", "")
    return (domain, op) if domain == DOMAIN and op.startswith("Fused(") else None


def _bound(warm: Warm, found: Fusion) -> Warm:
    steps = replace(warm.program.steps, items=found.items)
    fresh = [step for step, sources in zip(found.items, found.sources, strict=True) if len(sources) > 1]
    bound = iter(bind_steps(replace(steps, items=tuple(fresh))).calls)
    calls: list[BoundStep] = []
    unassuming: list[BoundStep] = []
    for step, sources in zip(found.items, found.sources, strict=True):
        if len(sources) > 1:
            calls.append(next(bound))
            unassuming.append(_one_by_one([warm.unassuming[place] for place in sources], step))
        else:
            (place,) = sources
            calls.append(BoundStep(warm.program.calls[place].call, step.release, step))
            unassuming.append(BoundStep(warm.unassuming[place].call, step.release, step))
    now = {place: at for at, sources in enumerate(found.sources) for place in sources}
    assumed = {value: now[place] for value, place in warm.taint.assumed.items()}
    return replace(
        warm,
        program=replace(warm.program, steps=steps, calls=tuple(calls)),
        unassuming=tuple(unassuming),
        taint=replace(warm.taint, assumed=assumed),
    )


def _one_by_one(members: Sequence[BoundStep], step: Step) -> BoundStep:
    """The members of a fused step, for shapes that it was not made for."""
    calls: list[Call] = [member.call for member in members]
    inner = [member.step.outputs[0] for member in members[:-1]]

    def call(values: Values) -> None:
        for each in calls:
            each(values)
        for value in inner:
            values[value] = None

    return BoundStep(call, step.release, step)
