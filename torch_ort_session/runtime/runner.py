"""Runners: they do what the policy decided, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch_ort_session.errors import CaptureError, SessionError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.plan import make_plan
from torch_ort_session.plan.report import DeclineReport, Reason
from torch_ort_session.plan.verify import verify
from torch_ort_session.runtime import counters
from torch_ort_session.runtime.capture import Captured, Declined, capture
from torch_ort_session.runtime.execute import Program, execute
from torch_ort_session.runtime.machine import Machine, RandomState, random_state, restore_random
from torch_ort_session.runtime.policy import Decision, Entry
from torch_ort_session.runtime.probe import difference
from torch_ort_session.runtime.recording import Diverged, Recorder
from torch_ort_session.runtime.replay import replay
from torch_ort_session.runtime.results import own
from torch_ort_session.runtime.warmup import Warm, frame_of, warm_up


def run_eagerly(program: Program, fed: Mapping[str, Value], device: torch.device) -> list[Any]:
    """One eager run.

    Returns:
        The results, in memory of their own.
    """
    values = frame_of(program, fed)
    execute(program, values)
    return own([values[i] for i in program.steps.outputs], program.constants, fed.values(), device)


def run(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
) -> list[Any]:
    """One run, made as the policy decides.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds.

    Returns:
        The results, in memory of their own.

    Raises:
        CaptureError: A capture is required and cannot be had.
        KernelError: A kernel failed.
    """
    policy = machine.policy
    signature, entry = policy.entry(outputs, fed, keys)
    decision = policy.decide(entry)
    entry.runs += 1
    if decision is Decision.REPLAY:
        return _replayed(machine, program, outputs, entry, fed)
    if decision is Decision.CAPTURE:
        return _captured(machine, program, entry, fed)
    if decision is Decision.OBSERVE:
        policy.count(counters.OBSERVED)
        warm, results = warm_up(
            machine.graph, machine.build, program, outputs, signature.keys, fed, machine.minimum
        )
        entry.warm = warm
        return own(results, warm.program.constants, fed.values(), machine.device)
    if machine.required and entry.latched:
        raise _refusal(entry.report)
    policy.count(counters.EAGER)
    return run_eagerly(program, fed, machine.device)


def _captured(machine: Machine, program: Program, entry: Entry, fed: Mapping[str, Value]) -> list[Any]:
    """Record, quarantining what cannot be recorded, at most once an operator; else run eagerly."""
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
            captured, results = _attempt(machine, warm, recorder, fed)
        except Declined as declined:
            report, blamed = declined.report, declined.quarantine
            lasting = all(row.reason is not Reason.DIVERGED for row in report.rows)
        except Exception as error:
            report, lasting = _breakage(error), False
        else:
            policy.captured(entry, captured)
            return results
        restore_random(machine.device, state)
        if blamed is None or not policy.quarantine(*blamed):
            break
    # Where this step's data is at fault the eager run says so in its own words, and nothing was declined.
    results = run_eagerly(program, fed, machine.device)
    policy.declined(entry, report, lasting=lasting)
    if machine.required:
        restore_random(machine.device, state)
        raise _refusal(report)
    return results


def _attempt(
    machine: Machine, warm: Warm, recorder: Recorder, fed: Mapping[str, Value]
) -> tuple[Captured, list[Any]]:
    quarantined = frozenset(machine.policy.quarantined)
    if machine.verify:
        parts = warm.program.steps, warm.taint, warm.observation, machine.device
        verify(make_plan(*parts, quarantined, warm.minimum, warm.keys))
    return capture(warm, fed, recorder, machine.arena, quarantined)


def _replayed(
    machine: Machine, program: Program, outputs: tuple[str, ...], entry: Entry, fed: Mapping[str, Value]
) -> list[Any]:
    policy, captured = machine.policy, entry.captured
    assert captured is not None
    probing = machine.verify and not entry.proven and captured.differs(fed)
    state = random_state(machine.device) if probing or captured.varies else None
    try:
        results, divergence = replay(captured, fed)
    except SessionError:
        raise
    except Exception as error:
        policy.retire(entry, _breakage(error))
        if state is not None:
            restore_random(machine.device, state)
        try:
            return run_eagerly(program, fed, machine.device)
        except SessionError:
            policy.excuse(entry)
            raise
    policy.count(counters.REPLAYS)
    policy.count(counters.COPIED, captured.memory.static_inputs)
    if divergence is not None:
        policy.retire(entry, DeclineReport((divergence,)))
    elif probing and state is not None:
        return _probed(machine, program, outputs, entry, fed, results, state)
    return results


def _probed(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    entry: Entry,
    fed: Mapping[str, Value],
    replayed: list[Any],
    state: RandomState,
) -> list[Any]:
    """Run the same feeds eagerly, from the same random state; what differs is not replayed again."""
    policy = machine.policy
    policy.count(counters.PROBES)
    restore_random(machine.device, state)
    wrong = "the eager run failed on what the replay accepted"
    try:
        eager = run_eagerly(program, fed, machine.device)
        wrong = difference(outputs, replayed, eager)
    finally:
        entry.proven = True
        if wrong:
            policy.count(counters.MISMATCHES)
            message = f"a replay on other feeds differs from an eager run: {wrong}"
            policy.refuse(entry, DeclineReport.of(Reason.PROBE, message))
    return eager if wrong else replayed


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
