"""A plan as one page: the segments as a strip, each seam with its reason, the arena as slots over calls.

The page needs nothing from anywhere else: no script, style, font or picture is fetched.
"""

from __future__ import annotations

import html
import json
from collections.abc import Container, Iterable, Sequence
from typing import Any

from torch_ort_session.explain.drawing import KINDS, arena_drawing
from torch_ort_session.explain.explain import Told, facts, memory_rows, no_memory, op_counts, seam_lines
from torch_ort_session.explain.looks import SCRIPT, STYLE
from torch_ort_session.explain.strip import strip
from torch_ort_session.ir.text import byte_size
from torch_ort_session.plan.plan import Plan

_SHOWN_OPS = 24
"""Operators that are listed by name; the rest are counted together."""


def page(plan: Plan, title: str, told: Told | None = None) -> str:
    """A plan as one HTML document that needs nothing else.

    Args:
        plan: The plan.
        title: What it is a plan for, such as the model's name.
        told: Says what became of control-flow bodies so far.

    Returns:
        The text of the document.
    """
    known = facts(plan, told)
    regions = known["regions"]
    seams = [(number, region) for number, region in enumerate(regions) if region["kind"] == "seam"]
    data = {"regions": [_region_text(region) for region in regions], "slots": _slot_rows(plan)}
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Plan of {_text(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>Plan of {_text(title)}</h1><p>{_text(_subtitle(known))}</p>",
        _tiles(known),
        "<h2>Segments and seams, in the order in which they run</h2>",
        *_strip(regions),
        *(_seam_table(seams) if seams else _without_seams(regions)),
        "<h2>Arena: where each slot lies, from its first call to its last</h2>",
        *_arena(plan, known),
        '<div class="columns"><div><h2>Memory</h2>',
        _memory_table(known),
        "</div><div><h2>Operators</h2>",
        _ops_table(plan),
        '</div></div><div id="tip"></div>',
        f'<script type="application/json" id="data">{_json(data)}</script>',
        f"<script>{SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _text(value: object) -> str:
    return html.escape(str(value))


def _json(value: object) -> str:
    """JSON that may stand inside of a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _number(value: int) -> str:
    return f"{value:,}"


def _subtitle(known: dict[str, Any]) -> str:
    keys = ", ".join(f"{name} = {value}" for name, value in known["key_feeds"].items())
    quarantined = ", ".join(known["quarantined"])
    parts = [
        f"on {known['device']}",
        f"key feeds: {keys or 'none'}",
        *([f"quarantined: {quarantined}"] if quarantined else []),
    ]
    return "; ".join(parts)


def _tiles(known: dict[str, Any]) -> str:
    steps, memory = known["steps"], known["memory"]
    segments = sum(region["kind"] == "segment" for region in known["regions"])
    seams = len(known["regions"]) - segments
    tiles = [
        (_number(steps["recorded"]), f"steps recorded in {_plural(segments, 'segment')}"),
        (_number(steps["eager"]), f"steps run eagerly in {_plural(seams, 'seam')}"),
        (_number(steps["folded"]), "steps folded into constants"),
    ]
    if memory is None:
        tiles.append(("none", no_memory(known)))
    elif memory["graph_pool"]:
        tiles.append((byte_size(memory["graph_pool"]), "graph pool, taken by the device's allocator"))
    else:
        tiles += [
            (byte_size(memory["arena"]), f"arena; at least {byte_size(memory['lower_bound'])} needed"),
            (byte_size(memory["beside"]), "the most at once that a replay allocates beside it"),
            (byte_size(memory["saved"]), "saved by slots that are used again"),
        ]
    inner = "".join(
        f'<div class="tile"><b>{_text(big)}</b><span>{_text(small)}</span></div>' for big, small in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _strip(regions: Sequence[dict[str, Any]]) -> list[str]:
    if not regions:
        return ["<p>Nothing runs: every output is a constant or an input.</p>"]
    return [strip(regions), _strip_key({region["kind"] for region in regions})]


def _strip_key(shown: Container[str]) -> str:
    kinds = (("segment", "segment: recorded once, then replayed"), ("seam", "seam: runs eagerly in between"))
    return _key([kind for kind in kinds if kind[0] in shown])


def _key(kinds: Iterable[tuple[str, str]], more: str = "") -> str:
    spans = (f'<span><i style="background:var(--{kind})"></i>{words}</span>' for kind, words in kinds)
    return f'<div class="key">{"".join(spans)}{more}</div>'


def _without_seams(regions: Sequence[dict[str, Any]]) -> list[str]:
    return ["<p>There is no seam: a replay is one launch.</p>"] if regions else []


def _region_text(region: dict[str, Any]) -> str:
    ops = list(region["ops"].items())
    listed = ", ".join(f"{op} {count}" if count > 1 else op for op, count in ops[:8])
    more = f" and {len(ops) - 8} more" if len(ops) > 8 else ""
    first, last = region["first_step"], region["last_step"]
    where = f"step {first}" if first == last else f"steps {first} to {last}"
    if region["kind"] == "segment":
        launches = _plural(region["launches"], "launch").replace("launchs", "launches")
        return f"segment of {_plural(region['steps'], 'step')}, {launches} ({where})\n{listed}{more}"
    head = f"seam: {region['node']} ({region['op']})"
    lines = [head, f"{region['reason']}: {region['message']}", where, *seam_lines(region)]
    return "\n".join(lines)


def _seam_table(seams: Iterable[tuple[int, dict[str, Any]]]) -> list[str]:
    rows = [
        f'<tr data-r="{number}"><td class="n">{region["first_step"]}</td><td>{_text(region["node"])}</td>'
        f'<td class="op">{_text(region["op"])}</td><td>{_text(region["reason"])}</td>'
        f"<td>{'<br>'.join(map(_text, (region['message'], *seam_lines(region))))}</td></tr>"
        for number, region in seams
    ]
    head = (
        '<tr><th class="n">step</th><th>node</th><th>operator</th><th>reason</th><th>what exactly</th></tr>'
    )
    return ["<h2>Why each seam is one</h2>", f"<table>{head}{''.join(rows)}</table>"]


def _slot_rows(plan: Plan) -> list[list[Any]]:
    makers = {
        plan.steps.names[value]: step.node.qualified.removeprefix("ai.onnx::")
        for step in plan.steps.items
        for value in step.outputs
    }
    return [
        [place.name, makers.get(place.name, ""), place.nbytes, place.offset, place.first, place.last]
        for place in (() if plan.memory is None else plan.memory.slots)
    ]


def _arena(plan: Plan, known: dict[str, Any]) -> list[str]:
    layout = plan.memory
    if layout is None:
        return [f"<p>There is none: {_text(no_memory(known))}.</p>"]
    if layout.pool:
        return ["<p>There is none: the device's allocator keeps a pool for the graphs.</p>"]
    if not layout.arena:
        return ["<p>It is empty: nothing needs a slot.</p>"]
    live = '<span><i style="background:var(--live);height:2px;vertical-align:3px"></i>bytes in use</span>'
    drawing = arena_drawing(plan, layout)
    return [_key([kind for kind in KINDS if f'class="{kind[0]}"' in drawing], live), drawing]


def _memory_table(known: dict[str, Any]) -> str:
    memory = known["memory"]
    if memory is None:
        return f"<p>{_text(no_memory(known))}</p>"
    return _table((name, byte_size(nbytes), words) for name, nbytes, words in memory_rows(memory))


def _ops_table(plan: Plan) -> str:
    positions = [p for region in plan.regions for p in region.positions]
    counts = op_counts(plan.steps.items[position] for position in positions)
    seams = [p for region in plan.seams for p in region.positions]
    eager = dict(op_counts(plan.steps.items[position] for position in seams))
    rows = [
        (op, _number(n), f"{eager[op]:,} eagerly" if op in eager else "") for op, n in counts[:_SHOWN_OPS]
    ]
    rest = counts[_SHOWN_OPS:]
    if rest:
        rows.append((f"{len(rest)} others", _number(sum(n for _, n in rest)), ""))
    return _table(rows) if rows else "<p>none</p>"


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    inner = "".join(
        f'<tr><td>{_text(name)}</td><td class="n">{_text(value)}</td><td>{_text(words)}</td></tr>'
        for name, value, words in rows
    )
    return f"<table>{inner}</table>"
