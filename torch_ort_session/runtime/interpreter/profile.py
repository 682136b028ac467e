"""What is put around calls and recordings while somebody watches; the ones within are as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering.steps import Step
from torch_ort_session.plan.partition.segments import Region
from torch_ort_session.runtime.interpreter.program import BoundStep, Call, Program, Values
from torch_ort_session.runtime.recorders.api import Finished, Recording, RecordingStats, Shared
from torch_ort_session.trace.observer import OP, SEAM, SEGMENT, Facts, Observer
from torch_ort_session.trace.tracer import Tracer

if TYPE_CHECKING:
    from torch_ort_session.runtime.captures.capture import Captured, Stage


def watch_program(program: Program, fed: Mapping[str, Value], tracer: Tracer) -> Program:
    """A program that tells of every step, for eager runs; feeds are borrowed by those."""
    observer = tracer.observer
    observer.note(decision="eager", **{"copied bytes": 0, "borrowed bytes": _nbytes(fed)})
    if not observer.ops:
        return program
    observer.mark("trace")
    known = tracer.memo.get(program)
    if known is None:
        calls = tuple(_watched(bound, observer, OP, _facts(bound.step)) for bound in program.calls)
        known = tracer.memo[program] = replace(program, calls=calls)
    observer.mark("resolve")
    found: Program = known
    return found


def watch_capture(captured: Captured, fed: Mapping[str, Value], observer: Observer) -> Captured:
    """A capture that tells of its regions, for one replay."""
    observer.mark("trace")
    copied = captured.memory.static_inputs
    observer.note(**{"copied bytes": copied, "borrowed bytes": max(0, _nbytes(fed) - copied)})
    stages = tuple(_stage(stage, number, observer) for number, stage in enumerate(captured.stages))
    whole = None if captured.whole is None else stages[0].recording
    rest = list(captured.warm.unassuming)
    for number, stage in enumerate(stages if whole is None else ()):
        positions = stage.region.positions
        told = watch_calls(tuple([rest[p] for p in positions]), stage.region, number, observer)
        for position, bound in zip(positions, told, strict=True):
            rest[position] = bound
    warm = replace(captured.warm, unassuming=tuple(rest))
    observer.mark("bind")
    return replace(captured, warm=warm, stages=stages, whole=whole)


def watch_calls(
    calls: tuple[BoundStep, ...], region: Region, number: int, observer: Observer
) -> tuple[BoundStep, ...]:
    """A region's calls that tell of themselves: each of a seam's by its reason."""
    if region.is_segment and not observer.ops:
        return calls
    kind = OP if region.is_segment else SEAM
    return tuple(
        _watched(bound, observer, kind, {**_node(bound.step), **region_facts(region, number)})
        for bound in calls
    )


def region_facts(region: Region, number: int) -> dict[str, object]:
    """What a span tells of a region: which it is, and a seam's reason."""
    if region.reason is None:
        return {"region": number}
    return {"region": number, "reason": region.reason.value, "why": region.message}


def segment_name(number: int) -> str:
    """What a span of a segment is called."""
    return f"segment {number}"


def _stage(stage: Stage, number: int, observer: Observer) -> Stage:
    calls = watch_calls(stage.calls, stage.region, number, observer)
    if stage.recording is None:
        return replace(stage, calls=calls)
    size = {"nodes": len(stage.calls), "calls": stage.recording.stats.calls}
    facts = {**size, **region_facts(stage.region, number)}
    return replace(stage, calls=calls, recording=_Watched(stage.recording, number, facts, observer))


class _Watched:
    """A recording that tells of its replays."""

    def __init__(self, inner: Recording, number: int, facts: Facts, observer: Observer) -> None:
        self.inner = inner
        self.number = number
        self.facts = facts
        self.observer = observer

    @property
    def stats(self) -> RecordingStats:
        """What it holds."""
        return self.inner.stats

    def finish(
        self,
        keep: Iterable[torch.Tensor],
        foreign: Iterable[torch.Tensor] = (),
        block: Callable[[int], torch.Tensor] | None = None,
        inputs: Sequence[torch.Tensor] | None = None,
    ) -> None:
        """Pass it on."""
        self.inner.finish(keep, foreign, block, inputs)

    def finish_all(
        self,
        stages: Sequence[Recording | None],
        shared: Sequence[Shared],
        block: Callable[[int], torch.Tensor],
    ) -> Finished:
        """Pass it on."""
        return self.inner.finish_all(stages, shared, block)

    def give(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Pass it on."""
        return self.inner.give(results)

    def replay(self, word: torch.Tensor | None = None) -> bool:
        """Make every call again, and tell how long that took."""
        with self.observer.span(SEGMENT, segment_name(self.number), self.facts):
            return self.inner.replay(word)

    def close(self) -> None:
        """Pass it on."""
        self.inner.close()


def _watched(bound: BoundStep, observer: Observer, kind: str, facts: Facts) -> BoundStep:
    return BoundStep(
        _telling(bound.call, observer, kind, bound.step.node.op, facts), bound.release, bound.step
    )


def _telling(call: Call, observer: Observer, kind: str, name: str, facts: Facts) -> Call:
    def told(values: Values) -> None:
        with observer.span(kind, name, facts):
            call(values)

    return told


def _facts(step: Step) -> dict[str, object]:
    """What is known of a step without a plan: a seam that its kernel declares."""
    why = step.kernel.seam_reason(step.node)
    return _node(step) if why is None else {**_node(step), "why": why}


def _node(step: Step) -> dict[str, object]:
    return {"node": step.node.name, "domain": step.node.domain or "ai.onnx"}


def _nbytes(fed: Mapping[str, Any]) -> int:
    return sum(value.nbytes for value in fed.values() if isinstance(value, torch.Tensor))
