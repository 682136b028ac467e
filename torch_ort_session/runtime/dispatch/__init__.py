"""Decides how a run is made; owns entries and session state."""

from torch_ort_session.runtime.dispatch.paths import (
    Refusal,
    RunRequest,
    breakage,
    by_steps,
    deliver,
    deliver_captured,
    observed,
    plan_rules,
    record,
    replay_entry,
)
from torch_ort_session.runtime.dispatch.policy import Decision, Dispatcher, GraphEntry, Learnt, Rules
from torch_ort_session.runtime.dispatch.state import (
    Before,
    EngineState,
    Reentrancy,
    before_run,
    put_back,
    reset_after_fork,
)

__all__ = [
    "Before",
    "Decision",
    "Dispatcher",
    "EngineState",
    "GraphEntry",
    "Learnt",
    "Reentrancy",
    "Refusal",
    "Rules",
    "RunRequest",
    "before_run",
    "breakage",
    "by_steps",
    "deliver",
    "deliver_captured",
    "observed",
    "plan_rules",
    "put_back",
    "record",
    "replay_entry",
    "reset_after_fork",
]
