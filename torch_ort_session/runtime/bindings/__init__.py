"""Caller-owned tensors as inputs, outputs, states."""

from torch_ort_session.runtime.bindings.attached import (
    Attached,
    Prepared,
    Snapshot,
    switched_off,
    undelivered,
)
from torch_ort_session.runtime.bindings.bound import (
    Bound,
    bind_input,
    bind_output,
    bind_state,
    check_name,
    fitting,
)
from torch_ort_session.runtime.bindings.delivery import Recipients, defers
from torch_ort_session.runtime.bindings.shared_caches import Caches

__all__ = [
    "Attached",
    "Bound",
    "Caches",
    "Prepared",
    "Recipients",
    "Snapshot",
    "bind_input",
    "bind_output",
    "bind_state",
    "check_name",
    "defers",
    "fitting",
    "switched_off",
    "undelivered",
]
