"""Whether recording a body pays: what a replay saves against what it costs to get in and out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.segments import count_launches, split
from torch_ort_session.plan.steps import NOTHING, Steps
from torch_ort_session.runtime.warmup import Warm

_STEP = 2.0
"""Microseconds that a step takes less in a replay than when it is called."""

_CALL = 3.0
"""Microseconds that a replay takes beyond the steps."""

_TENSOR = 1.0
"""Microseconds that a tensor takes which is copied in or out."""

_BYTES = 8e3
"""Bytes that are copied in a microsecond."""


def hopeless(steps: Steps, formals: int) -> str:
    """Why no signature of a body can be worth a recording; empty when one may be.

    Args:
        steps: Its steps.
        formals: How many of its inputs are its own; the others are enclosing values.
    """
    if any(step.kernel.state for step in steps.items):
        return "it updates state in place"
    apart = [step for step in steps.items if step.bodies or step.kernel.seam_reason(step.node) is not None]
    most = len(steps.items) - len(apart)
    return _verdict(most, _tensors_in(steps, formals) + _tensors_out(steps), 0)


def not_worth(
    warm: Warm,
    given: Sequence[Value],
    formals: int,
    device: torch.device,
    quarantined: Collection[tuple[str, str]],
) -> str:
    """Why a signature of a body is not worth a recording; empty when it is.

    Args:
        warm: What its observed call showed.
        given: What that call was given.
        formals: How many of that are formal inputs; the others are enclosing values.
        device: The session's device.
        quarantined: (domain, operator) pairs that run as seams.
    """
    steps, observation = warm.program.steps, warm.observation
    regions = split(steps, warm.taint, observation, device, quarantined, warm.minimum, warm.loose)
    launches = sum(
        count_launches(region.positions, steps, observation) for region in regions if region.is_segment
    )
    copied = given[:formals] if formals else given
    nbytes = sum(value.nbytes for value in copied if isinstance(value, torch.Tensor))
    specs = [observation.specs[value] for value in steps.outputs]
    nbytes += sum(spec.dtype.itemsize * math.prod(spec.shape) for spec in specs if spec is not None)
    return _verdict(launches, _tensors_in(steps, formals) + _tensors_out(steps), nbytes)


def _tensors_in(steps: Steps, formals: int) -> int:
    """Inputs that a call copies; a Loop's and a Scan's enclosing values are copied once, not at each trip."""
    found = reads(steps)
    inputs = steps.inputs[:formals] if formals else steps.inputs
    return sum(value in found for value in inputs)


def reads(steps: Steps) -> frozenset[int]:
    """Values that steps, their bodies or the caller read."""
    found = set(steps.outputs)
    for step in steps.items:
        found.update(step.inputs)
        found.update(outside for body in step.bodies.values() for outside, _ in body.captured)
    return frozenset(found)


def _tensors_out(steps: Steps) -> int:
    return sum(value != NOTHING and steps.template[value] is None for value in steps.outputs)


def _verdict(launches: int, tensors: int, nbytes: int) -> str:
    saved = launches * _STEP
    cost = _CALL + tensors * _TENSOR + nbytes / _BYTES
    if saved > cost:
        return ""
    return (
        f"{launches} launch{'' if launches == 1 else 'es'} save less than it takes to copy"
        f" {tensors} tensor{'' if tensors == 1 else 's'} in and out"
        + (f" ({nbytes} bytes)" if nbytes else "")
    )
