"""Calls and recordings that tell of themselves while somebody watches; the ones within are as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering import Step
from torch_ort_session.plan.partition import Region
from torch_ort_session.runtime.interpreter.program import BoundStep, Call, Frame, Program
from torch_ort_session.trace.observer import OP, SEAM, Facts, Observer
from torch_ort_session.trace.tracer import Tracer


def watch_program(program: Program, fed: Mapping[str, Value], tracer: Tracer) -> Program:
    """A program that tells of every step, for eager runs; feeds are borrowed by those."""
    observer = tracer.observer
    observer.note(decision="eager", **{"copied bytes": 0, "borrowed bytes": fed_bytes(fed)})
    if not observer.ops:
        return program
    observer.mark("trace")
    watched: Program | None = tracer.memo.get(program)
    if watched is None:
        calls = tuple(_watched(bound, observer, OP, _facts(bound.step)) for bound in program.calls)
        watched = tracer.memo[program] = replace(program, calls=calls)
    observer.mark("resolve")
    return watched


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
    """The facts of a region's span: which it is, and a seam's reason."""
    if region.reason is None:
        return {"region": number}
    return {"region": number, "reason": region.reason.value, "why": region.message}


def segment_name(number: int) -> str:
    """The name of a segment's span."""
    return f"segment {number}"


def _watched(bound: BoundStep, observer: Observer, kind: str, facts: Facts) -> BoundStep:
    return BoundStep(
        _telling(bound.call, observer, kind, bound.step.node.op, facts), bound.release, bound.step
    )


def _telling(call: Call, observer: Observer, kind: str, name: str, facts: Facts) -> Call:
    def watched(values: Frame) -> None:
        with observer.span(kind, name, facts):
            call(values)

    return watched


def _facts(step: Step) -> dict[str, object]:
    """The facts of a step without a plan: a seam that its kernel declares."""
    why = step.kernel.seam_reason(step.node)
    return _node(step) if why is None else {**_node(step), "why": why}


def _node(step: Step) -> dict[str, object]:
    return {"node": step.node.name, "domain": step.node.domain or "ai.onnx"}


def fed_bytes(fed: Mapping[str, Any]) -> int:
    """Bytes of the tensors among feeds."""
    return sum(value.nbytes for value in fed.values() if isinstance(value, torch.Tensor))
