"""Whether recording a body pays: what a replay saves against what it costs to get in and out.

It is told from the steps and the bytes alone, never by a clock, so that the same model is recorded the same
way everywhere. The numbers for the CPU were measured with bodies of 1 to 16 pointwise steps over 1 to 4
tensors of 64 bytes to 4 MB: a step takes 1.1 microseconds less in a replay, a call 3.5 more, and a tensor
that is copied 0.4 more; memory for a large tensor an eager step gets from the system anew, page by page,
while a replay has a slot. Those for CUDA are about what a launch takes there: a replay is one, and so is
every copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torch_ort_session.plan.lowering import NOTHING, Steps
from torch_ort_session.plan.partition import count_launches
from torch_ort_session.runtime.captures import PlannedProgram


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds.

    Attributes:
        step: What a step takes less in a replay.
        call: What a replay takes beyond its steps.
        tensor: What a tensor takes that is copied in or out, whatever its size.
        large: Bytes from which on a tensor's memory comes from the system.
        copied: A byte that is copied, of a small tensor and of a large one.
        made: A byte of a result that a step does not have to get memory for, of a large tensor.
    """

    step: float
    call: float
    tensor: float
    large: int
    copied: tuple[float, float]
    made: float

    def of_copy(self, nbytes: int) -> float:
        """What copying a tensor takes."""
        return self.tensor + nbytes * self.copied[nbytes >= self.large]

    def of_result(self, nbytes: int) -> float:
        """What a step is spared whose result has a slot."""
        return nbytes * self.made if nbytes >= self.large else 0.0


_CPU = Costs(step=1.1, call=3.5, tensor=0.4, large=1 << 19, copied=(3e-5, 1.8e-4), made=1.1e-4)
_DEVICE = Costs(step=8.0, call=12.0, tensor=6.0, large=1 << 62, copied=(1e-6, 1e-6), made=0.0)


def costs_on(device: torch.device) -> Costs:
    """The numbers for a device."""
    return _CPU if device.type == "cpu" else _DEVICE


def hopeless(steps: Steps, formals: int, device: torch.device) -> str:
    """Why no signature of a body can be worth a recording; empty when one may be.

    Args:
        steps: Its steps.
        formals: How many of its inputs are its own; the others are enclosing values.
        device: The session's device.
    """
    costs = costs_on(device)
    apart = sum(bool(step.bodies) or step.kernel.seam_reason(step.node) is not None for step in steps.items)
    launches, tensors = len(steps.items) - apart, len(_copied(steps, formals))
    return _verdict(launches, tensors, launches * costs.step, costs.call + tensors * costs.tensor)


def not_worth(planned: PlannedProgram, formals: int) -> str:
    """Why a signature of a body is not worth a recording; empty when it is.

    Args:
        planned: The plan after its observed call.
        formals: How many of its inputs are its own; the others are enclosing values.
    """
    plan, steps = planned.plan, planned.warm.steps
    specs, costs = plan.observation.specs, costs_on(plan.rules.device)
    # Node by node: what fusing saves on top is not counted on.
    recorded = [p for region in plan.segments for at in region.positions for p in plan.sources[at]]
    launches = count_launches(recorded, steps, plan.observation)
    saved = launches * costs.step
    for value in (output for position in recorded for output in steps.items[position].outputs):
        spec = specs[value]
        if spec is not None and spec.owner == value:
            saved += costs.of_result(spec.nbytes)
    copied = _copied(steps, formals)
    nbytes = [math.prod(spec.shape) * spec.dtype.itemsize for v in copied if (spec := specs[v]) is not None]
    cost = costs.call + sum(map(costs.of_copy, nbytes))
    return _verdict(launches, len(copied), saved, cost, sum(nbytes))


def read_inputs(steps: Steps) -> frozenset[int]:
    """Values that steps, their bodies or the caller read."""
    inputs_read = set(steps.outputs)
    for step in steps.items:
        inputs_read.update(step.inputs)
        inputs_read.update(outside for body in step.bodies.values() for outside, _ in body.captured)
    return frozenset(inputs_read)


def steady(steps: Steps) -> frozenset[int]:
    """Inputs that come out as they are: a Loop gives them to its body again, unless they change places."""
    sources = {value: value for value in steps.inputs}
    for step in steps.items:
        if step.node.op == "Identity" and step.node.domain == "" and step.inputs[0] in sources:
            sources[step.outputs[0]] = sources[step.inputs[0]]
    return frozenset(sources[value] for value in steps.outputs if value in sources)


def varies(steps: Steps) -> bool:
    """Whether a call may differ from the one before by itself."""
    return any(
        step.kernel.varies or any(varies(body.steps) for body in step.bodies.values()) for step in steps.items
    )


def _copied(steps: Steps, formals: int) -> Sequence[int]:
    """What each call copies.

    Of a Loop's or a Scan's body that is each input which may be another one at each trip: enclosing values
    are copied once for all, and results are lent to the next trip. Of a branch it is the enclosing values and
    the results.
    """
    copied = read_inputs(steps) - (steady(steps) if formals else frozenset())
    inside = [value for value in steps.inputs[: formals or None] if value in copied]
    if formals:
        return inside
    return [
        *inside,
        *(value for value in steps.outputs if value != NOTHING and steps.template[value] is None),
    ]


def _verdict(launches: int, tensors: int, saved: float, cost: float, nbytes: int = 0) -> str:
    if saved > cost:
        return ""
    return (
        f"{launches} launch{' saves' if launches == 1 else 'es save'} less than it takes to copy"
        f" {tensors} tensor{'' if tensors == 1 else 's'}" + (f" of {nbytes} bytes" if nbytes else "")
    )
