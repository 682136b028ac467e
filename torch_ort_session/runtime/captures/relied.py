"""What recordings, and constants that hang on shapes, rely on: results that must be as in the warm run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ort_session.plan.analysis.specs import Spec, fits
from torch_ort_session.plan.lowering.steps import Step, Steps
from torch_ort_session.plan.partition.fuse import last_name
from torch_ort_session.plan.partition.report import Decline, Reason
from torch_ort_session.plan.partition.segments import Region
from torch_ort_session.runtime.interpreter.program import Values

Specs = tuple[tuple[int, Spec], ...]
"""Values with what each was in the warm run."""


@dataclass(frozen=True, slots=True, eq=False)
class LastReads:
    """The place of the last region that reads each value.

    Attributes:
        anywhere: In any region; the number of regions for results.
        recorded: In a segment.
        shapes: Values whose shapes constants of the capture follow from.
    """

    anywhere: dict[int, int]
    recorded: dict[int, int]
    shapes: frozenset[int]


def last_reads(steps: Steps, regions: Sequence[Region], shapes: frozenset[int]) -> LastReads:
    """Find the last region that reads each value.

    Args:
        steps: The steps.
        regions: Their regions.
        shapes: Values whose shapes constants of the capture follow from.
    """
    found = LastReads({}, {}, shapes)
    for number, region in enumerate(regions):
        for position in region.positions:
            step = steps.items[position]
            outside = [value for body in step.bodies.values() for value, _ in body.captured]
            for value in (*step.inputs, *outside):
                found.anywhere[value] = number
                if region.is_segment:
                    found.recorded[value] = number
    found.anywhere.update(dict.fromkeys(steps.outputs, len(regions)))
    return found


def unlike(step: Step, relied: Specs, frame: Values, names: Sequence[str]) -> tuple[Decline, ...]:
    """Compare results of a step with what they were in the warm run.

    Args:
        step: The step.
        relied: Those of its results on which others rely, with their specs in the warm run.
        frame: The values as they are.
        names: Their names.

    Returns:
        One row for each that has another dtype, shape or device, or is no tensor.
    """
    rows: tuple[Decline, ...] = ()
    for value, spec in relied:
        held = frame[value]
        if not (isinstance(held, torch.Tensor) and fits(spec, held)):
            message = f"{names[value]!r} was {described(spec)} in the warm run and is now {described(held)}"
            node = step.node
            rows += (Decline(last_name(step), node.op, node.domain, Reason.DIVERGED, message),)
    return rows


def described(held: Any) -> str:
    """The dtype and dims of a spec or a tensor, or what else there is, in a message."""
    if hasattr(held, "dtype") and hasattr(held, "shape") and isinstance(held.dtype, torch.dtype):
        return f"{str(held.dtype).removeprefix('torch.')}{list(held.shape)}"
    return "absent" if held is None else "a sequence" if isinstance(held, tuple) else "strings"
