"""Padded runs: made on feeds of a bucket's size, checked where that was asked for, with results cut back."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch

from torch_ort_session.errors import SessionError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition.report import DeclineReport, Reason
from torch_ort_session.runtime.captures.compare import difference
from torch_ort_session.runtime.dispatch.state import Before, Machine, before_run, put_back
from torch_ort_session.runtime.engine.run import run, run_eagerly
from torch_ort_session.runtime.interpreter.program import Program
from torch_ort_session.runtime.values.shapes import Stretch, cut, pad, told
from torch_ort_session.trace import counters

_ROUNDING = 1e-4
"""How far a padded run may be from an unpadded one, as a share of the largest magnitude: sums of other
lengths are made in another order."""


def completed(machine: Machine, feed: Mapping[str, Any]) -> Mapping[str, Any]:
    """A feed with the masks of buckets that it leaves out."""
    padding = machine.policy.rules.padding
    return feed if padding is None or not isinstance(feed, Mapping) else padding.completed(feed)


def as_run(machine: Machine, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> Mapping[str, Value]:
    """Feeds as a run is made on them."""
    return pad(fed, _stretches(machine, outputs, fed))


class PaddedRun:
    """One run, on padded feeds where the session has buckets and one of them takes it.

    As a context around all of the run it adds to whatever error comes of it how the feeds were padded.

    Attributes:
        machine: What runs need.
        outputs: Requested output names.
        fed: Feeds as they came.
        padded: The feeds of the run; None as long as nothing was padded.
    """

    __slots__ = ("fed", "machine", "outputs", "padded")

    def __init__(self, machine: Machine, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> None:
        self.machine = machine
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
        machine, outputs, fed = self.machine, self.outputs, self.fed
        stretches = _stretches(machine, outputs, fed)
        if not stretches:
            return run(machine, program, outputs, keys, fed, failed=failed)
        policy, bucket = machine.policy, bucket_of(stretches)
        checking = machine.verify and bucket not in policy.learnt.proven
        state = before_run(machine.device, program.validation) if checking else None
        self.padded = padded = pad(fed, stretches)
        if machine.tracer.observer.on:
            machine.tracer.observer.note(padded=told(fed, padded))
        results = run(machine, program, outputs, keys, padded, padded=True)
        policy.count(counters.PADDED_RUNS)
        policy.count(counters.PADDED, _bytes(padded) - _bytes(fed))
        try:
            results = cut(outputs, results, stretches)
        except ValueError as error:
            policy.refuse_bucket(bucket, DeclineReport.of(Reason.BUCKET, str(error)))
            self.padded = None
            return run(machine, program, outputs, keys, fed)
        if state is None:
            return results
        return _checked(machine, program, outputs, fed, results, bucket, state)


def _checked(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    fed: Mapping[str, Value],
    results: list[Any],
    bucket: tuple[tuple[str, int], ...],
    state: Before,
) -> list[Any]:
    """Run the feeds as they came, eagerly, from the same random state; a bucket that differs is refused."""
    policy = machine.policy
    policy.count(counters.PROBES)
    put_back(machine.device, state)

    def refuse(wrong: str) -> None:
        policy.count(counters.MISMATCHES)
        message = f"a padded run differs from an unpadded one: {wrong}"
        policy.refuse_bucket(bucket, DeclineReport.of(Reason.BUCKET, message))

    # An interrupt is no answer: the next run asks again.
    try:
        eager = run_eagerly(program, fed, machine.device)
    except Exception:
        refuse("the unpadded run failed on what the padded one accepted")
        raise
    wrong = difference(outputs, results, eager, rounding=_ROUNDING, what="padded run")
    if wrong:
        refuse(wrong)
        return eager
    policy.learnt.proven.add(bucket)
    return results


def bucket_of(stretches: tuple[Stretch, ...]) -> tuple[tuple[str, int], ...]:
    """Which padded size of each symbol a run has: what is proven or refused together."""
    return tuple([(rule.bucket.symbol, size) for rule, _, size in stretches])


def _stretches(machine: Machine, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> tuple[Stretch, ...]:
    policy = machine.policy
    padding = policy.rules.padding
    stretches = () if padding is None else padding.stretches(outputs, fed)
    return () if bucket_of(stretches) in policy.learnt.refused else stretches


def _bytes(fed: Mapping[str, Value]) -> int:
    return sum(value.nbytes for value in fed.values() if isinstance(value, torch.Tensor))
