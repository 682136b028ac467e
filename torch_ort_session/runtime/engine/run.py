"""A run made as was decided: eagerly, observed, captured, replayed or growing, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch

from torch_ort_session.errors import CaptureError, SessionError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition import DeclineReport, Reason
from torch_ort_session.runtime.captures import difference
from torch_ort_session.runtime.dispatch import (
    Before,
    Decision,
    EngineState,
    GraphEntry,
    Refusal,
    RunRequest,
    before_run,
    by_steps,
    deliver,
    deliver_captured,
    observed,
    put_back,
    record,
    replay_entry,
)
from torch_ort_session.runtime.dynamic import following, growth_cache_of, ongoing, run_growing
from torch_ort_session.runtime.interpreter import Program, Views
from torch_ort_session.runtime.validation import met_bad_data
from torch_ort_session.runtime.values import Delivery, Signature, Stretch, cut, own, pad, padding_text
from torch_ort_session.trace import counters


def run_eagerly(program: Program, fed: Mapping[str, Value], device: torch.device) -> list[Any]:
    """One eager run.

    Returns:
        The results, in memory of their own.
    """
    return own(by_steps(program, fed), program.constants, fed.values(), device)


def run(
    state: EngineState, request: RunRequest, *, failed: Exception | None = None, padded: bool = False
) -> list[Any]:
    """One run, made as the dispatcher decides.

    Args:
        state: What runs need.
        request: The run.
        failed: What the recording raised when this run was replayed at once.
        padded: Whether feeds are padded: from size to size, so that nothing grows.

    Returns:
        The results, in memory of their own, those that are not bound.

    Raises:
        CaptureError: A capture is required and cannot be had.
        KernelError: A kernel failed.
    """
    dispatcher = state.dispatcher
    if not (state.required or padded or failed):
        growth = ongoing(state, request)
        if growth is not None:
            return run_growing(state, request, growth, recording=False)
    signature, entry = dispatcher.entry(request.outputs, request.fed, request.keys, request.bound)
    growth = None
    if entry.captured is None and not (state.required or padded):
        growth = following(state, signature, new=not entry.runs)
    much = growth is not None and growth_cache_of(state).knows_much(growth.form)
    decision = dispatcher.decide(entry, growing=growth is not None, much=much)
    if state.tracer.observer.on:
        state.tracer.observer.note(decision=decision.value)
        if decision is not Decision.REPLAY:
            state.tracer.observer.mark("bind")
    entry.runs += 1
    if decision is Decision.REPLAY:
        return replay_entry(state, request, entry, failed)
    if decision is Decision.CAPTURE:
        return _capture(state, request, entry)
    if decision is Decision.GROW and growth is not None:
        return run_growing(state, request, growth, recording=not entry.unlisted)
    if decision is Decision.OBSERVE:
        results = _warm_up(state, request, signature, entry)
        assert entry.planned is not None
        return deliver(request, results, state.device, entry.planned.program.constants)
    if state.required and entry.latched and not entry.unlisted:
        raise _refusal(entry.report)
    dispatcher.count(counters.EAGER)
    if request.delivery is None or state.tracer.observer.on:
        return deliver(request, by_steps(request.program, request.fed), state.device)
    return deliver(request, _bound_steps(state, request, request.delivery), state.device)


def capture_now(state: EngineState, request: RunRequest) -> DeclineReport | None:
    """One run that is captured, or replayed where that was done; it warms up first where that was not done.

    Args:
        state: What runs need.
        request: The run.

    Returns:
        None when the run was made, or met bad data; else why not, and then nothing has happened.

    Raises:
        KernelError: A kernel failed in the warm run.
    """
    validation = request.program.validation
    signature, entry = state.dispatcher.entry(request.outputs, request.fed, request.keys, request.bound)
    if entry.unlisted:
        return entry.report
    if entry.captured is not None:
        entry.runs += 1
        replay_entry(state, request, entry)
        return None
    if entry.planned is None:
        before = before_run(state.device, validation)
        try:
            _warm_up(state, request, signature, entry)
        finally:
            put_back(state.device, before)
        if met_bad_data(validation):
            # What is static would stay as this data made it, and no replay would look at it again.
            entry.planned = None
            return None
    recorded = record(state, entry, request.fed, request.delivery)
    if isinstance(recorded, Refusal):
        _decline(state, request, entry, recorded)
        return recorded.report
    entry.runs += 1
    deliver_captured(request, *recorded)
    return None


def replay_now(state: EngineState, request: RunRequest) -> bool | tuple[Signature, Signature] | None:
    """One run that replays a capture, and is not made where there is none.

    Args:
        state: What runs need.
        request: The run.

    Returns:
        Whether the capture is still valid after the run. Instead of a run: None where nothing is captured;
        where the last capture is of another signature, that one and the one asked for, and it is retired.

    Raises:
        KernelError: A kernel failed.
    """
    dispatcher = state.dispatcher
    signature, entry = dispatcher.entry(request.outputs, request.fed, request.keys, request.bound)
    if entry.captured is not None:
        entry.runs += 1
        replay_entry(state, request, entry)
        return entry.captured is not None
    latest = dispatcher.latest_capture()
    if latest is None:
        return None
    dispatcher.retire(
        latest[1], DeclineReport.of(Reason.NO_CAPTURE, "a replay was asked for of another signature")
    )
    return latest[0], signature


def _warm_up(state: EngineState, request: RunRequest, signature: Signature, entry: GraphEntry) -> list[Any]:
    """The observed run of an entry; its results may lie in anybody's memory."""
    state.dispatcher.count(counters.OBSERVED)
    entry.planned, results = observed(state, request, signature.keys)
    return results


def _capture(state: EngineState, request: RunRequest, entry: GraphEntry) -> list[Any]:
    """Record; else run eagerly."""
    before = before_run(state.device, request.program.validation)
    recorded = record(state, entry, request.fed, request.delivery)
    if not isinstance(recorded, Refusal):
        return deliver_captured(request, *recorded)
    # Where this step's data is at fault the eager run says so in its own words.
    results = by_steps(request.program, request.fed)
    if _decline(state, request, entry, recorded) and state.required:
        put_back(state.device, before)
        raise _refusal(recorded.report)
    return deliver(request, results, state.device)


def _decline(state: EngineState, request: RunRequest, entry: GraphEntry, refused: Refusal) -> bool:
    """Note a declined capture; False, and nothing is noted, where this step's data is at fault."""
    if met_bad_data(request.program.validation):
        return False
    state.dispatcher.declined(entry, refused.report, lasting=refused.lasting)
    return True


def _refusal(report: DeclineReport | None) -> CaptureError:
    return CaptureError(f"the run could not be captured:\n{report}", report=report)


def _bound_steps(state: EngineState, request: RunRequest, delivery: Delivery) -> list[Any]:
    """One eager run, less the steps that would make the same views of bound tensors again."""
    inputs = (form for form in delivery.form if form.role != "output" and form.shape == form.logical)
    views = functools.partial(Views, state.dispatcher.counters, verify=state.verify)
    bound = growth_cache_of(state).bound(request.program, frozenset(form.name for form in inputs), views)
    try:
        results = by_steps(bound.program, request.fed)
    except BaseException:
        bound.views.drop()
        raise
    bound.views.done()
    return results


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
    """One run, on padded feeds where the session has buckets and one of them takes it; it lives as long.

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
            error.args = (f"{error}\n  padded: {padding_text(self.fed, self.padded)}", *error.args[1:])

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
        request = RunRequest(program, outputs, keys, fed)
        stretches = _stretches(state, outputs, fed)
        if not stretches:
            return run(state, request, failed=failed)
        dispatcher, bucket = state.dispatcher, bucket_of(stretches)
        checking = state.verify and bucket not in dispatcher.learnt.proven
        before = before_run(state.device, program.validation) if checking else None
        self.padded = padded = pad(fed, stretches)
        if state.tracer.observer.on:
            state.tracer.observer.note(padded=padding_text(fed, padded))
        results = run(state, RunRequest(program, outputs, keys, padded), padded=True)
        dispatcher.count(counters.PADDED_RUNS)
        dispatcher.count(counters.PADDED, _bytes(padded) - _bytes(fed))
        try:
            results = cut(outputs, results, stretches)
        except ValueError as error:
            dispatcher.refuse_bucket(bucket, DeclineReport.of(Reason.BUCKET, str(error)))
            self.padded = None
            return run(state, request)
        if before is None:
            return results
        return _checked(state, request, results, bucket, before)


def _checked(
    state: EngineState,
    request: RunRequest,
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
        eager = run_eagerly(request.program, request.fed, state.device)
    except Exception:
        refuse("the unpadded run failed on what the padded one accepted")
        raise
    wrong = difference(request.outputs, results, eager, rounding=_ROUNDING, what="padded run")
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
