"""Runs on padded feeds: what buckets add to a run, and how it is found out whether they may."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch

from torch_ort_session.errors import SessionError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition import DeclineReport, Reason
from torch_ort_session.runtime.captures import difference
from torch_ort_session.runtime.dispatch import Before, EngineState, RunRequest, before_run, put_back
from torch_ort_session.runtime.engine.run import run, run_eagerly
from torch_ort_session.runtime.interpreter import Program
from torch_ort_session.runtime.values import Stretch, cut, pad, padding_text
from torch_ort_session.trace import counters

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
