"""Runners: they do what the policy decided, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from torch_ort_session.errors import CaptureError, SessionError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.plan import make_plan
from torch_ort_session.plan.report import DeclineReport, Reason
from torch_ort_session.plan.verify import verify
from torch_ort_session.runtime import counters
from torch_ort_session.runtime.again import shortcut_to
from torch_ort_session.runtime.capture import Captured, Declined, capture
from torch_ort_session.runtime.delivery import Delivery
from torch_ort_session.runtime.execute import Program, execute
from torch_ort_session.runtime.growing import following, run_growing
from torch_ort_session.runtime.machine import Machine, RandomState, random_state, restore_random
from torch_ort_session.runtime.policy import Decision, Entry
from torch_ort_session.runtime.probe import difference
from torch_ort_session.runtime.recording import Diverged, Recorder
from torch_ort_session.runtime.replay import replay
from torch_ort_session.runtime.results import own
from torch_ort_session.runtime.signature import Signature
from torch_ort_session.runtime.tracing import watch_capture
from torch_ort_session.runtime.warmup import Warm, frame_of, warm_up


def run_eagerly(
    program: Program, fed: Mapping[str, Value], device: torch.device, delivery: Delivery | None = None
) -> list[Any]:
    """One eager run.

    Returns:
        The results, in memory of their own, those that are not bound.
    """
    return _given(_eager(program, fed), program.constants, fed, device, delivery)


def _eager(program: Program, fed: Mapping[str, Value]) -> list[Any]:
    values = frame_of(program, fed)
    execute(program, values)
    return [values[i] for i in program.steps.outputs]


def _given(
    results: list[Any],
    constants: frozenset[int],
    fed: Mapping[str, Value],
    device: torch.device,
    delivery: Delivery | None,
) -> list[Any]:
    """Results that may lie in anybody's memory, as the caller gets them."""
    if delivery is None:
        return own(results, constants, fed.values(), device)
    return delivery.deliver(results, lambda rest: own(rest, constants, fed.values(), device))


def _delivered(
    captured: Captured, results: list[Any], fed: Mapping[str, Value], delivery: Delivery | None
) -> list[Any]:
    """What a capture or a replay gave, as the caller gets it."""
    if delivery is None:
        return results
    return delivery.deliver(results, lambda rest: captured.own_results(rest, fed))


def run(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
    delivery: Delivery | None = None,
    failed: Exception | None = None,
    padded: bool = False,
) -> list[Any]:
    """One run, made as the policy decides.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds.
        delivery: Where results go that are bound.
        failed: What the recording raised when this run was replayed at once.
        padded: Whether feeds are padded: from size to size, so that nothing grows.

    Returns:
        The results, in memory of their own, those that are not bound.

    Raises:
        CaptureError: A capture is required and cannot be had.
        KernelError: A kernel failed.
    """
    policy = machine.policy
    before = policy.recent
    signature, entry = policy.entry(outputs, fed, keys, () if delivery is None else delivery.form)
    grown = None
    if entry.captured is None and delivery is None and not (machine.required or padded):
        grown = following(machine, signature)
    much = grown is not None and machine.memo.knows_much(grown.form)
    decision = policy.decide(entry, growing=grown is not None, much=much)
    if machine.tracer.observer.on:
        machine.tracer.observer.note(decision=decision.value)
        if decision is not Decision.REPLAY:
            machine.tracer.observer.mark("bind")
    entry.runs += 1
    if decision is Decision.REPLAY:
        results = _replayed(machine, program, outputs, entry, fed, delivery, failed)
        if entry is before and delivery is None and machine.device.type == "cpu" and not machine.verify:
            policy.shortcut = shortcut_to(entry, outputs, fed)
        return results
    if decision is Decision.CAPTURE:
        return _captured(machine, program, entry, fed, delivery)
    if decision is Decision.GROW and grown is not None:
        results, lasting = run_growing(machine, program, outputs, grown, fed)
        return _given(results, lasting, fed, machine.device, delivery)
    if decision is Decision.OBSERVE:
        policy.count(counters.OBSERVED)
        parts = machine.graph, machine.build, program, outputs, signature.keys, fed
        entry.warm, results = warm_up(*parts, machine.minimum, policy.loose)
        return _given(results, entry.warm.program.constants, fed, machine.device, delivery)
    if machine.required and entry.latched and not entry.unlisted:
        raise _refusal(entry.report)
    policy.count(counters.EAGER)
    return run_eagerly(program, fed, machine.device, delivery)


def capture_now(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
    delivery: Delivery,
) -> DeclineReport | None:
    """One run that is captured, or replayed where that was done; it warms up first where that was not done.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds.
        delivery: Where the results go.

    Returns:
        None when the run was made; else why not, and then nothing has happened.

    Raises:
        KernelError: A kernel failed in the warm run.
    """
    policy = machine.policy
    signature, entry = policy.entry(outputs, fed, keys, delivery.form)
    if entry.unlisted:
        return entry.report
    if entry.captured is None:
        if entry.warm is None:
            state = random_state(machine.device)
            try:
                policy.count(counters.OBSERVED)
                parts = machine.graph, machine.build, program, outputs, signature.keys, fed
                entry.warm, _ = warm_up(*parts, machine.minimum, policy.loose)
            finally:
                restore_random(machine.device, state)
                delivery.undo()
        found = _record(machine, entry, fed, delivery)
        if isinstance(found, _Refused):
            policy.declined(entry, found.report, lasting=found.lasting)
            return found.report
        entry.runs += 1
        _delivered(*found, fed, delivery)
        return None
    entry.runs += 1
    _replayed(machine, program, outputs, entry, fed, delivery)
    return None


def replay_now(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
    delivery: Delivery,
) -> bool | tuple[Signature, Signature] | None:
    """One run that replays a capture, and is not made where there is none.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds.
        delivery: Where the results go.

    Returns:
        Whether the capture is still valid after the run. Instead of a run: None where nothing is captured;
        where the last capture is of another signature, that one and the one asked for, and it is retired.

    Raises:
        KernelError: A kernel failed.
    """
    policy = machine.policy
    signature, entry = policy.entry(outputs, fed, keys, delivery.form)
    if entry.captured is not None:
        entry.runs += 1
        _replayed(machine, program, outputs, entry, fed, delivery)
        return entry.captured is not None
    latest = policy.latest_capture()
    if latest is None:
        return None
    policy.retire(
        latest[1], DeclineReport.of(Reason.NO_CAPTURE, "a replay was asked for of another signature")
    )
    return latest[0], signature


class _Refused(NamedTuple):
    """Why nothing was recorded, and whether the next try would end the same."""

    report: DeclineReport
    lasting: bool


def _captured(
    machine: Machine, program: Program, entry: Entry, fed: Mapping[str, Value], delivery: Delivery | None
) -> list[Any]:
    """Record; else run eagerly."""
    state = random_state(machine.device)
    found = _record(machine, entry, fed, delivery)
    if not isinstance(found, _Refused):
        return _delivered(*found, fed, delivery)
    # Where this step's data is at fault the eager run says so in its own words, and nothing was declined.
    results = _eager(program, fed)
    machine.policy.declined(entry, found.report, lasting=found.lasting)
    if machine.required:
        restore_random(machine.device, state)
        raise _refusal(found.report)
    return _given(results, program.constants, fed, machine.device, delivery)


def _record(
    machine: Machine, entry: Entry, fed: Mapping[str, Value], delivery: Delivery | None
) -> tuple[Captured, list[Any]] | _Refused:
    """Record, quarantining what cannot be recorded, at most once an operator; a refusal has no effects."""
    policy, warm = machine.policy, entry.warm
    assert warm is not None
    state = random_state(machine.device)
    report, lasting = DeclineReport(()), False
    for _ in range(len(warm.program.steps.items) + 1):
        recorder = machine.recorder()
        if isinstance(recorder, str):
            report, lasting = DeclineReport.of(Reason.OFF, recorder), True
            break
        blamed = None
        try:
            captured, results = _attempt(machine, warm, recorder, fed, delivery)
        except Declined as declined:
            report, blamed = declined.report, declined.quarantine
            lasting = all(row.reason is not Reason.DIVERGED for row in report.rows)
        except Exception as error:
            report, lasting = _breakage(error), False
        else:
            policy.captured(entry, captured)
            return captured, results
        restore_random(machine.device, state)
        if delivery is not None:
            delivery.undo()
        if blamed is None or not policy.quarantine(*blamed):
            break
    return _Refused(report, lasting)


def _attempt(
    machine: Machine, warm: Warm, recorder: Recorder, fed: Mapping[str, Value], delivery: Delivery | None
) -> tuple[Captured, list[Any]]:
    quarantined = frozenset(machine.policy.quarantined)
    if machine.verify:
        parts = warm.program.steps, warm.taint, warm.observation, machine.device
        verify(make_plan(*parts, quarantined, warm.minimum, warm.keys, warm.loose))
    return capture(warm, fed, recorder, machine.arena, quarantined, delivery, machine.tracer.observer)


def _replayed(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    entry: Entry,
    fed: Mapping[str, Value],
    delivery: Delivery | None = None,
    failed: Exception | None = None,
) -> list[Any]:
    policy, captured = machine.policy, entry.captured
    assert captured is not None
    probing = machine.verify and not entry.proven and (delivery is not None or captured.differs(fed))
    state = random_state(machine.device) if probing or captured.varies else None
    try:
        if failed is not None:
            raise failed
        observer = machine.tracer.observer
        watched = watch_capture(captured, fed, observer) if observer.on else captured
        results, diverged = replay(watched, fed, delivery)
    except SessionError:
        raise
    except Exception as error:
        policy.retire(entry, _breakage(error))
        if state is not None:
            restore_random(machine.device, state)
        if delivery is not None:
            delivery.undo()
        try:
            results = _eager(program, fed)
        except SessionError:
            policy.excuse(entry)
            raise
        return _given(results, program.constants, fed, machine.device, delivery)
    counted = policy.counters
    counted[counters.REPLAYS] += 1
    counted[counters.COPIED] += captured.memory.static_inputs
    if diverged:
        policy.retire(entry, DeclineReport(diverged))
    elif probing and state is not None:
        eager = _probed(machine, program, outputs, entry, fed, results, state)
        if eager is not None:
            return _given(eager, program.constants, fed, machine.device, delivery)
    return _delivered(captured, results, fed, delivery)


def _probed(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    entry: Entry,
    fed: Mapping[str, Value],
    replayed: list[Any],
    state: RandomState,
) -> list[Any] | None:
    """Run the same feeds eagerly, from the same random state; what differs is not replayed again."""
    policy = machine.policy
    policy.count(counters.PROBES)
    restore_random(machine.device, state)
    wrong = "the eager run failed on what the replay accepted"
    try:
        eager = _eager(program, fed)
        wrong = difference(outputs, replayed, eager)
    finally:
        entry.proven = True
        if wrong:
            policy.count(counters.MISMATCHES)
            message = f"a replay on other feeds differs from an eager run: {wrong}"
            policy.refuse(entry, DeclineReport.of(Reason.PROBE, message))
    return eager if wrong else None


def _breakage(error: Exception) -> DeclineReport:
    """Why a recording or a capture broke off."""
    if isinstance(error, Diverged):
        return DeclineReport.of(Reason.DIVERGED, str(error))
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    for cause in causes:
        # The CPU's allocator has no exception of its own.
        if isinstance(cause, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(cause):
            return DeclineReport.of(Reason.MEMORY, str(cause).strip())
    return DeclineReport.of(Reason.RECORDING, str(error).strip() or type(error).__name__)


def _refusal(report: DeclineReport | None) -> CaptureError:
    return CaptureError(f"the run could not be captured:\n{report}", report=report)
