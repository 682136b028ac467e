"""What a session knows of its signatures, as numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch_ort_session.explain.explain import body_lines, explain
from torch_ort_session.plan.lowering import BodySteps
from torch_ort_session.plan.plan import Plan
from torch_ort_session.runtime.captures import replanned
from torch_ort_session.runtime.dispatch import Dispatcher, EngineState, GraphEntry
from torch_ort_session.runtime.dynamic import bodies_of, growth_cache_of


def statistics(state: EngineState) -> dict[str, int]:
    """Counters since the session was made, and what is held now.

    Returns:
        Every counter of :mod:`.counters`, then the number of signatures, of those that are captured, and of
        captured signatures of control-flow bodies, then the bytes that captures hold.
    """
    dispatcher = state.dispatcher
    entries = [entry for _, entry in dispatcher.everything()]
    bodies = list(bodies_of(state).entries())
    captures = [entry.captured for entry in (*entries, *bodies) if entry.captured is not None]
    captures += growth_cache_of(state).captures()
    held = [captured.memory for captured in captures]
    layouts = [captured.plan.memory for captured in captures]
    places = sum(entry.ready.nbytes for entry in bodies if entry.ready is not None)
    return {
        **dispatcher.counters,
        "signatures": len(entries),
        "plans": sum(entry.captured is not None for entry in entries),
        "body plans": sum(entry.captured is not None for entry in bodies),
        "arena bytes": state.arena.nbytes,
        "graph pool bytes": sum(layout.pool for layout in layouts if layout is not None),
        "packed weight bytes": state.arena.packing.nbytes,
        "static input bytes": sum(memory.static_inputs for memory in held) + places,
        "landing bytes": sum(memory.landings for memory in held),
        "crossing bytes": sum(memory.crossing for memory in held),
    }


def describe_entries(state: EngineState) -> str:
    """Every signature in words: its state, its plan where there is one, and what was declined.

    Args:
        state: What runs of a session need.
    """
    dispatcher = state.dispatcher
    parts = []
    shown: set[BodySteps] = set()

    def told(body: BodySteps) -> Mapping[str, Any]:
        shown.add(body)
        return bodies_of(state).told(body)

    for signature, entry in dispatcher.everything():
        runs = f"{entry.runs} run{'' if entry.runs == 1 else 's'}"
        lines = [f"{signature}: {entry.state} after {runs}"]
        plan = plan_of_entry(state, entry)
        if plan is not None:
            lines.append(explain(plan, told=told))
        if entry.report is not None:
            lines += ["why not captured" if entry.captured is None else "before", str(entry.report)]
        parts.append("\n".join(lines))
    others = [body for body in bodies_of(state).plans if body not in shown]
    if others:
        latched = any(entry.latched for _, entry in dispatcher.everything())
        parts += _other_bodies(state, others, latched)
    if dispatcher.rules.padding is not None:
        parts.append(_padded(dispatcher))
    if growing := str(growth_cache_of(state)):
        parts.append(growing)
    if dispatcher.demoted:
        parts.append(f"key feeds with too many values: {', '.join(sorted(dispatcher.demoted))}")
    if dispatcher.unstable:
        parts.append(f"nodes whose shapes do not settle: {', '.join(sorted(dispatcher.unstable))}")
    if dispatcher.quarantined:
        names = sorted(f"{domain or 'ai.onnx'}::{op}" for domain, op in dispatcher.quarantined)
        parts.append(f"quarantined in this session: {', '.join(names)}")
    return "\n\n".join(parts) or "nothing has run"


def _other_bodies(state: EngineState, bodies: Sequence[BodySteps], latched: bool) -> list[str]:
    """Bodies within bodies, and those of signatures without a plan; not those that were folded away."""
    found = [
        {"body": body.name, "steps": len(body.steps.items), **bodies_of(state).told(body)} for body in bodies
    ]
    worth = [body for body in found if latched or body["signatures"]]
    return ["\n".join(body_lines({"bodies": worth}))] if worth else []


def _padded(dispatcher: Dispatcher) -> str:
    lines = [str(dispatcher.rules.padding)]
    for sizes, report in dispatcher.learnt.refused.items():
        told = ", ".join(f"{symbol} to {size}" for symbol, size in sizes)
        lines += [f"not padded any more: {told}", str(report)]
    return "\n".join(lines)


def plan_of_entry(state: EngineState, entry: GraphEntry) -> Plan | None:
    """The plan of a signature that is warm or captured: of a capture with the layout of its memory."""
    if entry.captured is not None:
        return entry.captured.plan
    if entry.planned is None:
        return None
    return replanned(entry.planned, state.dispatcher.quarantined).plan
