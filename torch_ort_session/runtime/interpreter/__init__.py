"""Runs steps one by one on a frame, and can watch them."""

from torch_ort_session.runtime.interpreter.observe import observe
from torch_ort_session.runtime.interpreter.profile import (
    fed_bytes,
    region_facts,
    segment_name,
    watch_calls,
    watch_program,
)
from torch_ort_session.runtime.interpreter.program import (
    BoundStep,
    Builder,
    Call,
    Frame,
    Program,
    bind_steps,
    builder,
    check_formals,
    execute,
    raise_failure,
)
from torch_ort_session.runtime.interpreter.symbolic import execute_traced, is_traced
from torch_ort_session.runtime.interpreter.views import (
    BoundProgram,
    View,
    Views,
    bound_program,
    find_views,
    view_difference,
)

__all__ = [
    "BoundProgram",
    "BoundStep",
    "Builder",
    "Call",
    "Frame",
    "Program",
    "View",
    "Views",
    "bind_steps",
    "bound_program",
    "builder",
    "check_formals",
    "execute",
    "execute_traced",
    "fed_bytes",
    "find_views",
    "is_traced",
    "observe",
    "raise_failure",
    "region_facts",
    "segment_name",
    "view_difference",
    "watch_calls",
    "watch_program",
]
