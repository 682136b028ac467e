"""The plan of a feed: what runs like it would do, from an eager run and a recording that is dropped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.plan import Plan
from torch_ort_session.runtime.captures import PlannedProgram
from torch_ort_session.runtime.dispatch import (
    Dispatcher,
    EngineState,
    GraphEntry,
    Learnt,
    Refusal,
    RunRequest,
    before_run,
    observed,
    put_back,
    record,
)
from torch_ort_session.runtime.recorders import Arena
from torch_ort_session.runtime.validation import met_bad_data
from torch_ort_session.runtime.values import signature_of
from torch_ort_session.trace.tracer import Tracer


def plan_of(state: EngineState, request: RunRequest, off: str = "") -> Plan:
    """Run once, eagerly, plan what was seen, and record it; nothing of that is kept.

    Args:
        state: What runs need.
        request: The run.
        off: Why nothing is to be recorded; empty where it is.

    Returns:
        The plan for the signature of these feeds, with the memory that a capture of it would allocate; where
        nothing can be recorded without that, and with the reason. Operators of which a recording fails, or
        failed in the session before, are seams.

    Raises:
        KernelError: A kernel failed.
    """
    program, outputs, fed = request.program, request.outputs, request.fed
    dispatcher = state.dispatcher
    signature = signature_of(outputs, fed, dispatcher.active(request.keys))
    allowed = dispatcher.rules.allowed
    off = off or ("" if allowed is None else allowed.refusal(fed))
    with _bodies_by_steps(state):
        planned, _ = observed(state, request, signature.keys)
        # Whoever asked is told of bad data, and gets no plan.
        if off or met_bad_data(program.validation):
            return replace(planned.plan, failure=off)
        before = before_run(state.device, program.validation)
        try:
            return _recorded(state, planned, fed)
        finally:
            put_back(state.device, before)


def _recorded(state: EngineState, planned: PlannedProgram, fed: Mapping[str, Value]) -> Plan:
    """The plan with the layout of its memory, from a capture in an arena of its own that is dropped again."""
    known = state.dispatcher
    dispatcher = Dispatcher(known.rules)
    dispatcher.learnt = Learnt(quarantined=set(known.quarantined), unstable=set(known.unstable))
    trial = replace(
        state,
        dispatcher=dispatcher,
        arena=Arena(state.device, state.arena.packing),
        growth=state.growth.renewed(),
        bodies=state.bodies.without_captures(),
        tracer=Tracer(),
    )
    entry = GraphEntry(planned=planned)
    outcome = record(trial, entry, fed, None)
    assert entry.planned is not None
    if isinstance(outcome, Refusal):
        cause = outcome.report.rows[0]
        return replace(entry.planned.plan, failure=f"{cause.reason.value}: {cause.message}")
    captured, _ = outcome
    captured.close()
    return captured.plan


@contextlib.contextmanager
def _bodies_by_steps(state: EngineState) -> Iterator[None]:
    """Control-flow bodies neither record nor count what runs in here: it is a run within another one."""
    state.reentrancy.depth += 1
    try:
        yield
    finally:
        state.reentrancy.depth -= 1
