"""Steps made from a graph: nodes bound to kernels, what no kernel serves lowered."""

from torch_ort_session.plan.lowering.build import build_steps, reads, with_release
from torch_ort_session.plan.lowering.gradients import runs_alike
from torch_ort_session.plan.lowering.inline import inline, static_branches
from torch_ort_session.plan.lowering.lists import growing_lists
from torch_ort_session.plan.lowering.lower import lower
from torch_ort_session.plan.lowering.placement import is_small
from torch_ort_session.plan.lowering.specialise import specialise
from torch_ort_session.plan.lowering.steps import (
    NOTHING,
    BodyRuns,
    BodySteps,
    Setting,
    Step,
    Steps,
    input_params,
)

__all__ = [
    "NOTHING",
    "BodyRuns",
    "BodySteps",
    "Setting",
    "Step",
    "Steps",
    "build_steps",
    "growing_lists",
    "inline",
    "input_params",
    "is_small",
    "lower",
    "reads",
    "runs_alike",
    "specialise",
    "static_branches",
    "with_release",
]
