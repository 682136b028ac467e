"""Explain: what a plan does and why, as facts for programs and as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from torch_ort_session.ir.text import byte_size
from torch_ort_session.plan.analysis import eager_peak
from torch_ort_session.plan.lowering import BodySteps, Step
from torch_ort_session.plan.memory import Place, PlaceKind
from torch_ort_session.plan.partition import (
    Region,
    count_launches,
    fused_nodes,
    guarded,
    is_assumed,
    is_fused,
)
from torch_ort_session.plan.plan import Plan

_LARGEST = 5
"""Slots that are shown by name."""

Told: TypeAlias = Callable[[BodySteps], Mapping[str, Any]]
"""Says what became of a control-flow body so far: ``note``, a text that may be empty, and ``signatures``: of
each its ``signature``, its ``state``, the number of ``calls`` and ``why``, a text that may be empty."""


def facts(plan: Plan, told: Told | None = None) -> dict[str, Any]:
    """What there is to say of a plan, in plain records that JSON can carry.

    Args:
        plan: The plan.
        told: Says what became of control-flow bodies so far.

    Returns:
        Steps, key feeds, regions, memory and the largest slots. ``memory`` is None where nothing is recorded;
        ``failure`` says why, where that was tried.
    """
    recorded_steps = (plan.steps.items[p] for region in plan.segments for p in region.positions)
    shapes = {
        value for step in recorded_steps for value in step.inputs if value not in plan.static_values.shape
    }
    shapes |= guarded(plan.steps, plan.static_values)
    recorded = sum(len(region.positions) for region in plan.segments)
    eager = sum(len(region.positions) for region in plan.seams)
    return {
        "device": str(plan.rules.device),
        "steps": {
            "total": len(plan.steps.items),
            "recorded": recorded,
            "eager": eager,
            "folded": len(plan.steps.items) - recorded - eager,
            "assumed": sum(is_assumed(step, plan.static_values) for step in plan.steps.items),
        },
        "key_feeds": dict(plan.keys),
        "quarantined": sorted(f"{domain or 'ai.onnx'}::{op}" for domain, op in plan.rules.quarantined),
        "regions": [region_facts(plan, region, shapes, told) for region in plan.regions],
        "memory": memory_facts(plan),
        "failure": plan.failure,
        "largest_slots": [
            {
                "value": place.name,
                "bytes": place.nbytes,
                "offset": place.offset,
                "first_call": place.first,
                "last_call": place.last,
            }
            for place in _largest_slots(plan)
        ],
    }


def _largest_slots(plan: Plan) -> list[Place]:
    slots = () if plan.memory is None else plan.memory.slots
    return sorted(slots, key=lambda place: (-place.nbytes, place.first, place.offset))[:_LARGEST]


def region_facts(
    plan: Plan, region: Region, shapes: Collection[int] = (), told: Told | None = None
) -> dict[str, Any]:
    """What there is to say of one region: its steps, and the node, reason, message and bodies of a seam.

    ``fused`` has a number for each of its fused steps: how many nodes of the graph it computes.

    Args:
        plan: The plan.
        region: One of its regions.
        shapes: Values whose shapes others rely on, though not static: a replay compares those seams make.
        told: Says what became of control-flow bodies so far.
    """
    inside = [plan.steps.items[position] for position in region.positions]
    found: dict[str, Any] = {
        "kind": "segment" if region.is_segment else "seam",
        "first_step": region.positions[0],
        "last_step": region.positions[-1],
        "steps": len(region.positions),
        "launches": count_launches(region.positions, plan.steps, plan.observation),
        "fused": [fused_nodes(step) for step in inside if is_fused(step)],
        "ops": dict(op_counts(inside)),
    }
    if region.reason is not None:
        nodes = [step.node for step in inside]
        found["node"] = nodes[0].name if len(nodes) == 1 else f"{nodes[0].name} to {nodes[-1].name}"
        found["op"] = nodes[0].qualified if len(nodes) == 1 else f"{len(nodes)} steps"
        found["reason"] = region.reason.value
        found["message"] = region.message
        made = (value for position in region.positions for value in plan.steps.items[position].outputs)
        found["compared"] = [plan.steps.names[value] for value in made if value in shapes]
        bodies = [
            {"body": name, "steps": len(body.steps.items), **({} if told is None else told(body))}
            for position in region.positions
            for name, body in plan.steps.items[position].bodies.items()
        ]
        found |= {"bodies": bodies} if bodies else {}
    return found


def seam_lines(region: Mapping[str, Any]) -> list[str]:
    """What there is to say of a seam beside its reason: which shapes are compared, and its bodies."""
    names = ", ".join(repr(name) for name in region["compared"])
    return [*([f"every replay compares the shape of {names}"] if names else ()), *body_lines(region)]


def body_lines(region: Mapping[str, Any]) -> list[str]:
    """The bodies of a seam in words: how long each is, and what became of its signatures."""
    lines = []
    for body in region.get("bodies", ()):
        note = body.get("note", "")
        lines.append(f"{body['body']}: {_count(body['steps'], 'step')}" + (f"; {note}" if note else ""))
        for call in body.get("signatures", ()):
            lines.append(f"  {call['signature']}: {call['state']} after {_count(call['calls'], 'call')}")
            lines += [f"    {call['why']}"] if call["why"] else []
    return lines


def memory_facts(plan: Plan) -> dict[str, int] | None:
    """The numbers of a plan's memory; None where it is not laid out."""
    layout = plan.memory
    if layout is None:
        return None
    slotted = layout.nbytes(PlaceKind.SLOT)
    return {
        "calls": layout.calls,
        "arena": layout.arena,
        "lower_bound": layout.bound,
        "slots": len(layout.slots),
        "slotted": slotted,
        "storages": len(layout.places),
        "written": layout.nbytes(),
        "beside": layout.beside,
        "given": layout.nbytes(PlaceKind.GIVEN),
        "held": layout.nbytes(PlaceKind.HELD),
        "graph_pool": layout.pool,
        "needed_at_once": layout.live,
        "eager_peak": eager_peak(plan.steps, plan.observation),
        "saved": max(0, slotted - layout.arena),
    }


def op_counts(steps: Iterable[Step]) -> list[tuple[str, int]]:
    """Operators by how often they come, the most frequent first."""
    counts = Counter(f"{s.node.domain}::{s.node.op}" if s.node.domain else s.node.op for s in steps)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def explain(plan: Plan, title: str = "", told: Told | None = None) -> str:
    """A plan in words: its regions with their reasons, what is folded, and its memory.

    Args:
        plan: The plan.
        title: What the plan is for, such as its signature; stands above it.
        told: Says what became of control-flow bodies so far.

    Returns:
        Several lines.
    """
    known = facts(plan, told)
    steps = known["steps"]
    lines = [title] if title else []
    lines.append(
        f"{_count(steps['total'], 'step')} on {known['device']}: {steps['recorded']} in"
        f" {_count(len(plan.segments), 'segment')}, {steps['eager']} in {_count(len(plan.seams), 'seam')},"
        f" {steps['folded']} folded into constants"
    )
    if steps["assumed"]:
        lines.append(
            f"{steps['assumed']} of these hold as long as shapes that depend on data stay as they are"
        )
    keys = ", ".join(f"{name} = {value}" for name, value in known["key_feeds"].items())
    lines.append(f"key feeds: {keys or 'none'}")
    if known["quarantined"]:
        lines.append(f"quarantined: {', '.join(known['quarantined'])}")
    if known["regions"]:
        lines += ["", "regions", *(line for region in known["regions"] for line in _region(region))]
    lines += ["", *_memory(known)]
    return "\n".join(lines)


def explain_all(plans: Iterable[tuple[str, Plan]]) -> str:
    """Several plans in words, one a signature, with a blank line and the signature between them."""
    return "\n\n".join(explain(plan, title) for title, plan in plans) or "no plan"


def _region(region: dict[str, Any]) -> list[str]:
    if region["kind"] == "segment":
        launches = f"{region['launches']} launch{'' if region['launches'] == 1 else 'es'}"
        nodes = region["fused"]
        fused = f", {sum(nodes)} nodes fused into {len(nodes)}" if nodes else ""
        return [f"  segment  {_count(region['steps'], 'step')}, {launches}{fused}"]
    why = f"{region['reason']}: {region['message']}"
    head = f"  seam     {region['node']} ({region['op']})"
    return [head, *(f"           {line}" for line in (why, *seam_lines(region)))]


def memory_rows(memory: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """What there is to say of a plan's memory: of each number its name, its bytes and what it counts.

    Args:
        memory: What :func:`memory_facts` says.
    """
    if memory["graph_pool"]:
        graphs = _count(memory["calls"], "graph")
        return [
            ("graph pool", memory["graph_pool"], f"taken by the device's allocator for {graphs}"),
            ("eager peak", memory["eager_peak"], "the most that an eager run holds at once"),
        ]
    slots, calls = _count(memory["slots"], "storage"), _count(memory["calls"], "recorded call")
    leaving = f", {byte_size(memory['given'])} of results leave with it" if memory["given"] else ""
    rows = [
        ("arena", memory["arena"], f"{slots} in it, at least {byte_size(memory['lower_bound'])} needed"),
        ("beside", memory["beside"], f"the most at once that a replay allocates{leaving}"),
        ("held", memory["held"], "in bytes of their own from replay to replay"),
        ("written", memory["written"], f"{_count(memory['storages'], 'storage')} of {calls}"),
        ("at once", memory["needed_at_once"], "the most that has to be there at one call"),
        ("eager peak", memory["eager_peak"], "the most that an eager run holds at once"),
        ("saved", memory["saved"], "by slots that are used again"),
    ]
    return [row for row in rows if row[1] or row[0] != "held"]


def no_memory(known: Mapping[str, Any]) -> str:
    """Why the memory of a plan is not laid out."""
    if known["failure"]:
        return f"nothing is recorded: {known['failure']}"
    return "laid out when the segments are recorded" if known["steps"]["recorded"] else "nothing is recorded"


def _memory(known: dict[str, Any]) -> list[str]:
    memory = known["memory"]
    if memory is None:
        return [f"memory: {no_memory(known)}"]
    rows = [(name, byte_size(nbytes), words) for name, nbytes, words in memory_rows(memory)]
    lines = ["memory", *_aligned(rows)]
    if known["largest_slots"]:
        largest = [
            (
                slot["value"] or "(within a kernel)",
                byte_size(slot["bytes"]),
                f"calls {slot['first_call']} to {slot['last_call']}",
            )
            for slot in known["largest_slots"]
        ]
        lines += ["largest slots", *_aligned(largest)]
    return lines


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
