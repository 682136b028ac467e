"""Runners: they do what the policy decided, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from torch_ort_session.errors import CaptureError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition.report import DeclineReport, Reason
from torch_ort_session.runtime.captures.warmup import warm_up
from torch_ort_session.runtime.dispatch.paths import Refused, by_steps, delivered, given, record, replayed
from torch_ort_session.runtime.dispatch.policy import Decision, Entry
from torch_ort_session.runtime.dispatch.state import Machine, before_run, put_back
from torch_ort_session.runtime.dynamic.growing import following, ongoing, run_growing
from torch_ort_session.runtime.engine.fast_path import shortcut_to
from torch_ort_session.runtime.interpreter.program import Program
from torch_ort_session.runtime.interpreter.views import Views
from torch_ort_session.runtime.validation.tickets import met_bad_data
from torch_ort_session.runtime.values.delivery import Delivery
from torch_ort_session.runtime.values.signature import Signature
from torch_ort_session.trace import counters


def run_eagerly(
    program: Program, fed: Mapping[str, Value], device: torch.device, delivery: Delivery | None = None
) -> list[Any]:
    """One eager run.

    Returns:
        The results, in memory of their own, those that are not bound.
    """
    return given(by_steps(program, fed), program.constants, fed, device, delivery)


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
    bound = () if delivery is None else delivery.form
    if not (machine.required or padded or failed):
        going = ongoing(machine, outputs, keys, fed, bound)
        if going is not None:
            return run_growing(machine, program, outputs, going, fed, delivery, recording=False)
    before = policy.recent
    signature, entry = policy.entry(outputs, fed, keys, bound)
    grown = None
    if entry.captured is None and not (machine.required or padded):
        grown = following(machine, signature, new=not entry.runs)
    much = grown is not None and machine.memo.knows_much(grown.form)
    decision = policy.decide(entry, growing=grown is not None, much=much)
    if machine.tracer.observer.on:
        machine.tracer.observer.note(decision=decision.value)
        if decision is not Decision.REPLAY:
            machine.tracer.observer.mark("bind")
    entry.runs += 1
    if decision is Decision.REPLAY:
        results = replayed(machine, program, outputs, entry, fed, delivery, failed)
        plain = delivery is None and not (padded or machine.verify) and machine.device.type == "cpu"
        if entry is before and plain:
            usual = outputs == tuple(info.name for info in machine.graph.outputs)
            policy.shortcut = shortcut_to(entry, outputs, fed, usual)
        return results
    if decision is Decision.CAPTURE:
        return _captured(machine, program, entry, fed, delivery)
    if decision is Decision.GROW and grown is not None:
        recording = not entry.unlisted
        return run_growing(machine, program, outputs, grown, fed, delivery, recording=recording)
    if decision is Decision.OBSERVE:
        policy.count(counters.OBSERVED)
        parts = machine.graph, machine.build, program, outputs, signature.keys, fed
        warm, results = warm_up(*parts, machine.minimum, policy.loose)
        entry.warm = replace(warm, ready=policy.rules.ready)
        return given(results, warm.program.constants, fed, machine.device, delivery)
    if machine.required and entry.latched and not entry.unlisted:
        raise _refusal(entry.report)
    policy.count(counters.EAGER)
    if delivery is None or machine.tracer.observer.on:
        return run_eagerly(program, fed, machine.device, delivery)
    results = _bound_steps(machine, program, fed, delivery)
    return given(results, program.constants, fed, machine.device, delivery)


def _bound_steps(
    machine: Machine, program: Program, fed: Mapping[str, Value], delivery: Delivery
) -> list[Any]:
    """One eager run, less the steps that would make the same views of bound tensors again."""
    inputs = (form for form in delivery.form if form.role != "output" and form.shape == form.logical)
    views = functools.partial(Views, machine.policy.counters, verify=machine.verify)
    kept = machine.memo.bound(program, frozenset(form.name for form in inputs), views)
    try:
        results = by_steps(kept.program, fed)
    except BaseException:
        kept.views.drop()
        raise
    kept.views.done()
    return results


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
        None when the run was made, or met bad data; else why not, and then nothing has happened.

    Raises:
        KernelError: A kernel failed in the warm run.
    """
    policy = machine.policy
    signature, entry = policy.entry(outputs, fed, keys, delivery.form)
    if entry.unlisted:
        return entry.report
    if entry.captured is None:
        if entry.warm is None:
            state = before_run(machine.device, program.validation)
            try:
                policy.count(counters.OBSERVED)
                parts = machine.graph, machine.build, program, outputs, signature.keys, fed
                warm, _ = warm_up(*parts, machine.minimum, policy.loose)
                entry.warm = replace(warm, ready=policy.rules.ready)
            finally:
                put_back(machine.device, state)
            if met_bad_data(program):
                # What is static would stay as this data made it, and no replay would look at it again.
                entry.warm = None
                return None
        found = record(machine, entry, fed, delivery)
        if isinstance(found, Refused):
            if not met_bad_data(program):
                policy.declined(entry, found.report, lasting=found.lasting)
            return found.report
        entry.runs += 1
        delivered(*found, fed, delivery)
        return None
    entry.runs += 1
    replayed(machine, program, outputs, entry, fed, delivery)
    return None


def replay_now(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
    delivery: Delivery,
) -> bool | tuple[Signature, Signature] | DeclineReport | None:
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
        where the last capture is of another signature, that one and the one asked for, and it is retired;
        where it was made with something else than the session runs with, a report, and it is retired too.

    Raises:
        KernelError: A kernel failed.
    """
    policy = machine.policy
    signature, entry = policy.entry(outputs, fed, keys, delivery.form)
    if entry.captured is not None:
        entry.runs += 1
        replayed(machine, program, outputs, entry, fed, delivery)
        return entry.captured is not None
    if entry.report is not None and entry.report.rows[0].reason is Reason.NOT_WARMED:
        return entry.report
    latest = policy.latest_capture()
    if latest is None:
        return None
    policy.retire(
        latest[1], DeclineReport.of(Reason.NO_CAPTURE, "a replay was asked for of another signature")
    )
    return latest[0], signature


def _captured(
    machine: Machine, program: Program, entry: Entry, fed: Mapping[str, Value], delivery: Delivery | None
) -> list[Any]:
    """Record; else run eagerly."""
    state = before_run(machine.device, program.validation)
    found = record(machine, entry, fed, delivery)
    if not isinstance(found, Refused):
        return delivered(*found, fed, delivery)
    # Where this step's data is at fault the eager run says so in its own words, and nothing was declined.
    results = by_steps(program, fed)
    if met_bad_data(program):
        return given(results, program.constants, fed, machine.device, delivery)
    machine.policy.declined(entry, found.report, lasting=found.lasting)
    if machine.required:
        put_back(machine.device, state)
        raise _refusal(found.report)
    return given(results, program.constants, fed, machine.device, delivery)


def _refusal(report: DeclineReport | None) -> CaptureError:
    return CaptureError(f"the run could not be captured:\n{report}", report=report)
