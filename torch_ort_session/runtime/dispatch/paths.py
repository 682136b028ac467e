"""One run of a signature, recorded or replayed, with all that may come of either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from torch_ort_session.errors import SessionError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition import DeclineReport, Reason
from torch_ort_session.plan.plan import PlanRules
from torch_ort_session.plan.verify import verify
from torch_ort_session.runtime.captures import (
    CapturedGraph,
    Declined,
    Keys,
    PlannedProgram,
    Source,
    capture,
    difference,
    frame_of,
    fused_in,
    planned_program,
    replanned,
    replay,
    viewed,
    warm_up,
    watch_capture,
)
from torch_ort_session.runtime.dispatch.policy import GraphEntry
from torch_ort_session.runtime.dispatch.state import Before, EngineState, before_run, put_back
from torch_ort_session.runtime.interpreter import Program, execute
from torch_ort_session.runtime.recorders import Diverged
from torch_ort_session.runtime.validation import counts_routes, met_bad_data
from torch_ort_session.runtime.values import Delivery, own
from torch_ort_session.trace import counters


class RunRequest(NamedTuple):
    """A run that is asked for.

    Attributes:
        program: The steps for its outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds as the frame holds them.
        delivery: Where results go that are bound; None where none are.
    """

    program: Program
    outputs: tuple[str, ...]
    keys: frozenset[str]
    fed: Mapping[str, Value]
    delivery: Delivery | None = None

    @property
    def bound(self) -> tuple[Any, ...]:
        """The bound tensors' part of the signature."""
        return () if self.delivery is None else self.delivery.form


def by_steps(program: Program, fed: Mapping[str, Value]) -> list[Any]:
    """One eager run; its results may lie in anybody's memory."""
    values = frame_of(program, fed)
    execute(program, values)
    return [values[i] for i in program.steps.outputs]


def deliver(
    request: RunRequest, results: list[Any], device: torch.device, constants: frozenset[int] | None = None
) -> list[Any]:
    """Results that may lie in anybody's memory, as the caller gets them.

    Args:
        request: The run.
        results: Of it.
        device: Where results belong.
        constants: Addresses of memory that later runs read; None for the constants of the request's program.
    """
    if constants is None:
        constants = request.program.constants
    if request.delivery is None:
        return own(results, constants, request.fed.values(), device)
    return request.delivery.deliver(results, lambda rest: own(rest, constants, request.fed.values(), device))


def deliver_captured(request: RunRequest, captured: CapturedGraph, results: list[Any]) -> list[Any]:
    """Results of a capture or a replay, as the caller gets them."""
    if request.delivery is None:
        return results
    return request.delivery.deliver(results, lambda rest: captured.own_results(rest, request.fed))


def plan_rules(state: EngineState) -> PlanRules:
    """What plans of a session go by now."""
    dispatcher = state.dispatcher
    return PlanRules(
        state.device, dispatcher.quarantined, state.minimum, dispatcher.unstable, dispatcher.rules.fuse
    )


def observed(state: EngineState, request: RunRequest, keys: Keys) -> tuple[PlannedProgram, list[Any]]:
    """One eager run that is observed, and the plan that follows.

    Args:
        state: What runs need.
        request: The run.
        keys: Names and values of the key feeds.

    Returns:
        The plan of the signature, and the results, which may lie in anybody's memory.

    Raises:
        KernelError: A kernel failed.
    """
    source = Source(state.graph, state.build, request.program, request.outputs)
    warm, results = warm_up(source, keys, request.fed, state.dispatcher.unstable)
    return planned_program(warm, plan_rules(state)), results


class Refusal(NamedTuple):
    """Why nothing was recorded, and whether the next try would end the same.

    Attributes:
        report: Why.
        lasting: Whether it would.
    """

    report: DeclineReport
    lasting: bool


def record(
    state: EngineState, entry: GraphEntry, fed: Mapping[str, Value], delivery: Delivery | None
) -> tuple[CapturedGraph, list[Any]] | Refusal:
    """Record, quarantining what cannot be recorded, at most once an operator; a refusal has no effects.

    Args:
        state: What runs need.
        entry: The entry of a signature that has a plan; one of its own for each operator that is quarantined.
        fed: Feeds.
        delivery: Where results go that are bound.

    Returns:
        The capture and this step's results; or why there is none.
    """
    dispatcher, planned = state.dispatcher, entry.planned
    assert planned is not None
    before = before_run(state.device, planned.program.validation)
    report, lasting = DeclineReport(()), False
    # Each fused step may be blamed, and then each of its members.
    for _ in range(2 * len(planned.warm.steps.items) + 1):
        state.bodies.forget_constants()
        recorder = state.recorder()
        if isinstance(recorder, str):
            report, lasting = DeclineReport.of(Reason.OFF, recorder), True
            break
        blamed = None
        try:
            planned = entry.planned = replanned(planned, dispatcher.quarantined)
            if state.verify:
                verify(planned.plan)
            observer = state.tracer.observer
            captured, results = capture(planned, fed, recorder, state.arena, delivery, observer)
        except Declined as declined:
            report, blamed = declined.report, declined.quarantine
            lasting = all(row.reason is not Reason.DIVERGED for row in report.rows)
        except Exception as error:
            report, lasting = breakage(error), False
            memory = report.rows[0].reason is Reason.MEMORY
            blamed = None if memory else fused_in(error)
        else:
            captured = viewed(captured, dispatcher.counters, verify=state.verify)
            captured = replace(captured, stamp=dispatcher.rules.stamp)
            dispatcher.captured(entry, captured)
            return captured, results
        put_back(state.device, before)
        if blamed is None or not dispatcher.quarantine(*blamed):
            break
    return Refusal(report, lasting)


def replay_entry(
    state: EngineState, request: RunRequest, entry: GraphEntry, failed: Exception | None = None
) -> list[Any]:
    """Replay; what comes of it decides what becomes of the capture, and the results are right in any case.

    Args:
        state: What runs need.
        request: The run.
        entry: The entry of its signature, which is captured.
        failed: What the recording raised when it was replayed already.

    Returns:
        The results, in memory of their own, those that are not bound.

    Raises:
        KernelError: A kernel failed.
    """
    dispatcher, captured = state.dispatcher, entry.captured
    program, fed = request.program, request.fed
    assert captured is not None
    probing = state.verify and not entry.proven and (request.delivery is not None or captured.differs(fed))
    repeats = probing or captured.varies or counts_routes(program.validation)
    before = before_run(state.device, program.validation) if repeats else None
    try:
        if failed is not None:
            raise failed
        if captured.stamp != dispatcher.rules.stamp:
            raise Declined(DeclineReport.of(Reason.NOT_WARMED, "the capture was made with something else"))
        observer = state.tracer.observer
        watched = watch_capture(captured, fed, observer) if observer.on else captured
        results, diverged = replay(watched, fed, request.delivery)
    except SessionError:
        raise
    except Exception as error:
        dispatcher.retire(entry, breakage(error))
        if before is not None:
            put_back(state.device, before)
        try:
            results = by_steps(program, fed)
        except SessionError:
            dispatcher.excuse(entry)
            raise
        if met_bad_data(program.validation):
            dispatcher.excuse(entry)
        return deliver(request, results, state.device)
    dispatcher.count(counters.REPLAYS)
    dispatcher.count(counters.COPIED, captured.memory.static_inputs)
    if diverged and met_bad_data(program.validation):
        pass  # Nobody gets these results, and on other data the recordings are right.
    elif diverged:
        dispatcher.retire(entry, DeclineReport(diverged))
    elif probing and before is not None:
        eager = _probed(state, request, entry, results, before)
        if eager is not None:
            return deliver(request, eager, state.device)
    return deliver_captured(request, captured, results)


def _probed(
    state: EngineState, request: RunRequest, entry: GraphEntry, replayed: list[Any], before: Before
) -> list[Any] | None:
    """Run the same feeds eagerly, from the same random state; what differs is not replayed again."""
    dispatcher = state.dispatcher
    dispatcher.count(counters.PROBES)
    put_back(state.device, before)

    def refuse(wrong: str) -> None:
        entry.proven = True
        dispatcher.count(counters.MISMATCHES)
        message = f"a replay on other feeds differs from an eager run: {wrong}"
        dispatcher.refuse(entry, DeclineReport.of(Reason.PROBE, message))

    # An interrupt is no answer: the next replay asks again.
    try:
        eager = by_steps(request.program, request.fed)
    except Exception:
        refuse("the eager run failed on what the replay accepted")
        raise
    wrong = difference(request.outputs, replayed, eager)
    if wrong:
        refuse(wrong)
        return eager
    entry.proven = True
    return None


def breakage(error: Exception) -> DeclineReport:
    """Why a recording or a capture broke off."""
    if isinstance(error, Diverged):
        return DeclineReport.of(Reason.DIVERGED, str(error))
    if isinstance(error, Declined):
        return error.report
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    for cause in causes:
        # The CPU's allocator has no exception of its own.
        if isinstance(cause, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(cause):
            return DeclineReport.of(Reason.MEMORY, str(cause).strip())
    return DeclineReport.of(Reason.RECORDING, str(error).strip() or type(error).__name__)
