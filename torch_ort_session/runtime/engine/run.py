"""Runners: they do what the policy decided, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch

from torch_ort_session.errors import CaptureError, SessionError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition.report import DeclineReport, Reason
from torch_ort_session.runtime.captures.compare import difference
from torch_ort_session.runtime.dispatch.paths import (
    Refused,
    by_steps,
    delivered,
    given,
    observed,
    record,
    replayed,
)
from torch_ort_session.runtime.dispatch.policy import Decision, GraphEntry
from torch_ort_session.runtime.dispatch.state import Before, EngineState, before_run, put_back
from torch_ort_session.runtime.dynamic.growing import following, memo_of, ongoing, run_growing
from torch_ort_session.runtime.interpreter.program import Program
from torch_ort_session.runtime.interpreter.views import Views
from torch_ort_session.runtime.validation.validator import met_bad_data
from torch_ort_session.runtime.values.results import Delivery
from torch_ort_session.runtime.values.shapes import Stretch, cut, pad, told
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
    state: EngineState,
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
        state: What runs need.
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
    dispatcher = state.dispatcher
    bound = () if delivery is None else delivery.form
    if not (state.required or padded or failed):
        going = ongoing(state, outputs, keys, fed, bound)
        if going is not None:
            return run_growing(state, program, outputs, going, fed, delivery, recording=False)
    signature, entry = dispatcher.entry(outputs, fed, keys, bound)
    grown = None
    if entry.captured is None and not (state.required or padded):
        grown = following(state, signature, new=not entry.runs)
    much = grown is not None and memo_of(state).knows_much(grown.form)
    decision = dispatcher.decide(entry, growing=grown is not None, much=much)
    if state.tracer.observer.on:
        state.tracer.observer.note(decision=decision.value)
        if decision is not Decision.REPLAY:
            state.tracer.observer.mark("bind")
    entry.runs += 1
    if decision is Decision.REPLAY:
        return replayed(state, program, outputs, entry, fed, delivery, failed)
    if decision is Decision.CAPTURE:
        return _captured(state, program, entry, fed, delivery)
    if decision is Decision.GROW and grown is not None:
        recording = not entry.unlisted
        return run_growing(state, program, outputs, grown, fed, delivery, recording=recording)
    if decision is Decision.OBSERVE:
        dispatcher.count(counters.OBSERVED)
        entry.planned, results = observed(state, program, outputs, signature.keys, fed)
        return given(results, entry.planned.program.constants, fed, state.device, delivery)
    if state.required and entry.latched and not entry.unlisted:
        raise _refusal(entry.report)
    dispatcher.count(counters.EAGER)
    if delivery is None or state.tracer.observer.on:
        return run_eagerly(program, fed, state.device, delivery)
    results = _bound_steps(state, program, fed, delivery)
    return given(results, program.constants, fed, state.device, delivery)


def _bound_steps(
    state: EngineState, program: Program, fed: Mapping[str, Value], delivery: Delivery
) -> list[Any]:
    """One eager run, less the steps that would make the same views of bound tensors again."""
    inputs = (form for form in delivery.form if form.role != "output" and form.shape == form.logical)
    views = functools.partial(Views, state.dispatcher.counters, verify=state.verify)
    kept = memo_of(state).bound(program, frozenset(form.name for form in inputs), views)
    try:
        results = by_steps(kept.program, fed)
    except BaseException:
        kept.views.drop()
        raise
    kept.views.done()
    return results


def capture_now(
    state: EngineState,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
    delivery: Delivery,
) -> DeclineReport | None:
    """One run that is captured, or replayed where that was done; it warms up first where that was not done.

    Args:
        state: What runs need.
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
    dispatcher = state.dispatcher
    signature, entry = dispatcher.entry(outputs, fed, keys, delivery.form)
    if entry.unlisted:
        return entry.report
    if entry.captured is None:
        if entry.planned is None:
            before = before_run(state.device, program.validation)
            try:
                dispatcher.count(counters.OBSERVED)
                entry.planned, _ = observed(state, program, outputs, signature.keys, fed)
            finally:
                put_back(state.device, before)
            if met_bad_data(program.validation):
                # What is static would stay as this data made it, and no replay would look at it again.
                entry.planned = None
                return None
        found = record(state, entry, fed, delivery)
        if isinstance(found, Refused):
            if not met_bad_data(program.validation):
                dispatcher.declined(entry, found.report, lasting=found.lasting)
            return found.report
        entry.runs += 1
        delivered(*found, fed, delivery)
        return None
    entry.runs += 1
    replayed(state, program, outputs, entry, fed, delivery)
    return None


def replay_now(
    state: EngineState,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
    delivery: Delivery,
) -> bool | tuple[Signature, Signature] | DeclineReport | None:
    """One run that replays a capture, and is not made where there is none.

    Args:
        state: What runs need.
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
    dispatcher = state.dispatcher
    signature, entry = dispatcher.entry(outputs, fed, keys, delivery.form)
    if entry.captured is not None:
        entry.runs += 1
        replayed(state, program, outputs, entry, fed, delivery)
        return entry.captured is not None
    if entry.report is not None and entry.report.rows[0].reason is Reason.NOT_WARMED:
        return entry.report
    latest = dispatcher.latest_capture()
    if latest is None:
        return None
    dispatcher.retire(
        latest[1], DeclineReport.of(Reason.NO_CAPTURE, "a replay was asked for of another signature")
    )
    return latest[0], signature


def _captured(
    state: EngineState,
    program: Program,
    entry: GraphEntry,
    fed: Mapping[str, Value],
    delivery: Delivery | None,
) -> list[Any]:
    """Record; else run eagerly."""
    before = before_run(state.device, program.validation)
    found = record(state, entry, fed, delivery)
    if not isinstance(found, Refused):
        return delivered(*found, fed, delivery)
    # Where this step's data is at fault the eager run says so in its own words, and nothing was declined.
    results = by_steps(program, fed)
    if met_bad_data(program.validation):
        return given(results, program.constants, fed, state.device, delivery)
    state.dispatcher.declined(entry, found.report, lasting=found.lasting)
    if state.required:
        put_back(state.device, before)
        raise _refusal(found.report)
    return given(results, program.constants, fed, state.device, delivery)


def _refusal(report: DeclineReport | None) -> CaptureError:
    return CaptureError(f"the run could not be captured:\n{report}", report=report)


_ROUNDING = 1e-4
"""How far a padded run may be from an unpadded one, as a share of the largest magnitude: sums of other
lengths are made in another order."""


def completed(state: EngineState, feed: Mapping[str, Any]) -> Mapping[str, Any]:
    """A feed with the masks of buckets that it leaves out."""
    padding = state.dispatcher.rules.padding
    return feed if padding is None or not isinstance(feed, Mapping) else padding.completed(feed)


def as_run(state: EngineState, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> Mapping[str, Value]:
    """Feeds as a run is made on them."""
    return pad(fed, _stretches(state, outputs, fed))


class PaddedRun:
    """One run, on padded feeds where the session has buckets and one of them takes it.

    As a context around all of the run it adds to whatever error comes of it how the feeds were padded.

    Attributes:
        state: What runs need.
        outputs: Requested output names.
        fed: Feeds as they came.
        padded: The feeds of the run; None as long as nothing was padded.
    """

    __slots__ = ("fed", "outputs", "padded", "state")

    def __init__(self, state: EngineState, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> None:
        self.state = state
        self.outputs = outputs
        self.fed = fed
        self.padded: Mapping[str, Value] | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.padded is not None and isinstance(error, SessionError):
            error.args = (f"{error}\n  padded: {told(self.fed, self.padded)}", *error.args[1:])

    def run(self, program: Program, keys: frozenset[str], failed: Exception | None = None) -> list[Any]:
        """Make it.

        Args:
            program: The steps for these outputs, whatever the signature.
            keys: Names of feeds whose value may be part of the signature.
            failed: What the recording raised when this run was replayed at once.

        Returns:
            The results, in memory of their own and of the sizes that the feeds ask for.

        Raises:
            CaptureError: A capture is required and cannot be had.
            KernelError: A kernel failed.
        """
        state, outputs, fed = self.state, self.outputs, self.fed
        stretches = _stretches(state, outputs, fed)
        if not stretches:
            return run(state, program, outputs, keys, fed, failed=failed)
        dispatcher, bucket = state.dispatcher, bucket_of(stretches)
        checking = state.verify and bucket not in dispatcher.learnt.proven
        before = before_run(state.device, program.validation) if checking else None
        self.padded = padded = pad(fed, stretches)
        if state.tracer.observer.on:
            state.tracer.observer.note(padded=told(fed, padded))
        results = run(state, program, outputs, keys, padded, padded=True)
        dispatcher.count(counters.PADDED_RUNS)
        dispatcher.count(counters.PADDED, _bytes(padded) - _bytes(fed))
        try:
            results = cut(outputs, results, stretches)
        except ValueError as error:
            dispatcher.refuse_bucket(bucket, DeclineReport.of(Reason.BUCKET, str(error)))
            self.padded = None
            return run(state, program, outputs, keys, fed)
        if before is None:
            return results
        return _checked(state, program, outputs, fed, results, bucket, before)


def _checked(
    state: EngineState,
    program: Program,
    outputs: tuple[str, ...],
    fed: Mapping[str, Value],
    results: list[Any],
    bucket: tuple[tuple[str, int], ...],
    before: Before,
) -> list[Any]:
    """Run the feeds as they came, eagerly, from the same random state; a bucket that differs is refused."""
    dispatcher = state.dispatcher
    dispatcher.count(counters.PROBES)
    put_back(state.device, before)

    def refuse(wrong: str) -> None:
        dispatcher.count(counters.MISMATCHES)
        message = f"a padded run differs from an unpadded one: {wrong}"
        dispatcher.refuse_bucket(bucket, DeclineReport.of(Reason.BUCKET, message))

    # An interrupt is no answer: the next run asks again.
    try:
        eager = run_eagerly(program, fed, state.device)
    except Exception:
        refuse("the unpadded run failed on what the padded one accepted")
        raise
    wrong = difference(outputs, results, eager, rounding=_ROUNDING, what="padded run")
    if wrong:
        refuse(wrong)
        return eager
    dispatcher.learnt.proven.add(bucket)
    return results


def bucket_of(stretches: tuple[Stretch, ...]) -> tuple[tuple[str, int], ...]:
    """Which padded size of each symbol a run has: what is proven or refused together."""
    return tuple([(rule.bucket.symbol, size) for rule, _, size in stretches])


def _stretches(state: EngineState, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> tuple[Stretch, ...]:
    dispatcher = state.dispatcher
    padding = dispatcher.rules.padding
    stretches = () if padding is None else padding.stretches(outputs, fed)
    return () if bucket_of(stretches) in dispatcher.learnt.refused else stretches


def _bytes(fed: Mapping[str, Value]) -> int:
    return sum(value.nbytes for value in fed.values() if isinstance(value, torch.Tensor))
