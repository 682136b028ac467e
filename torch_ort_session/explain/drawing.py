"""The arena of a plan as a drawing: calls from left to right, bytes from the bottom up, a box a slot."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from torch_ort_session.ir.text import byte_size
from torch_ort_session.plan.memory import MemoryLayout, Place
from torch_ort_session.plan.plan import Plan

_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 8.0, 10.0, 26.0
_WIDTH, _HEIGHT = 1216.0, 380.0
_THINNEST = 0.7
"""Units to which a box is widened, so that each can be seen and pointed at."""
_FEW = 300
"""Boxes up to which each has an edge; where there are more, the edges would hide the boxes."""


KINDS = (
    ("feed", "a feed is copied here"),
    ("out", "a result of a step"),
    ("cross", "crosses regions"),
    ("land", "a seam lands here"),
    ("inner", "a kernel's own"),
)
"""Kinds of boxes, and what they are."""


def arena_drawing(plan: Plan, layout: MemoryLayout) -> str:
    """An SVG element of the arena.

    Args:
        plan: A plan.
        layout: The layout of its memory, with at least one slot.

    Returns:
        The element. Boxes carry their number among the layout's slots as ``data-s``, the lines at seams the
        number of their region as ``data-r``.
    """
    last = max(1, layout.starts[-1])
    across = (_WIDTH - _LEFT - _RIGHT) / last
    up = (_HEIGHT - _TOP - _BOTTOM) / max(1, layout.arena)
    floor = _HEIGHT - _BOTTOM
    parts = [f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="slots over calls">']
    parts += _axes(layout, across, up, floor)
    slots = layout.slots
    parts.append(f'<g class="slots{" few" if len(slots) < _FEW else ""}">')
    kinds = kinds_of(plan, layout)
    for number, (place, kind) in enumerate(zip(slots, kinds, strict=True)):
        x = _LEFT + place.first * across
        width = max(_THINNEST, (min(place.last + 1, last) - place.first) * across)
        height = max(_THINNEST, place.nbytes * up)
        y = floor - place.offset * up - height
        parts.append(
            f'<rect class="{kind}" data-s="{number}" x="{x:.1f}" y="{y:.1f}"'
            f' width="{width:.1f}" height="{height:.1f}"/>'
        )
    parts.append("</g>")
    parts += [
        f'<line class="cut" data-r="{number}" x1="{(x := _LEFT + layout.starts[number] * across):.1f}"'
        f' x2="{x:.1f}" y1="{_TOP}" y2="{floor}"/>'
        for number, region in enumerate(plan.regions)
        if not region.is_segment
    ]
    parts.append(f'<polyline class="live" points="{_live(layout, across, up, floor)}"/></svg>')
    return "\n".join(parts)


def kinds_of(plan: Plan, layout: MemoryLayout) -> list[str]:
    """Why each slot is one: see :data:`KINDS`."""
    makers = {
        plan.steps.names[value]: number
        for number, region in enumerate(plan.regions)
        for position in region.positions
        for value in plan.steps.items[position].outputs
    }
    return [_kind(plan, layout, place, makers) for place in layout.slots]


def _kind(plan: Plan, layout: MemoryLayout, place: Place, makers: Mapping[str, int]) -> str:
    if not place.name:
        return "inner"
    maker = makers.get(place.name)
    if maker is None:
        return "feed"
    if not plan.regions[maker].is_segment:
        return "land"
    return "out" if place.last < layout.starts[maker + 1] else "cross"


def _axes(layout: MemoryLayout, across: float, up: float, floor: float) -> list[str]:
    parts = []
    for tick in _ticks(layout.arena, 4):
        y = floor - tick * up
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{byte_size(tick)}</text>')
    for tick in _ticks(layout.starts[-1], 8):
        label = f"call {tick:,}" if tick == 0 else f"{tick:,}"
        parts.append(f'<text x="{_LEFT + tick * across:.1f}" y="{_HEIGHT - 8:.0f}">{label}</text>')
    return parts


def _ticks(most: int, about: int) -> list[int]:
    """Round numbers from 0 to ``most``, about ``about`` of them."""
    if most <= 0:
        return [0]
    rough = most / about
    power = 10 ** (len(str(int(rough))) - 1)
    distance = max(1, next((m * power for m in (1, 2, 5) if m * power >= rough), 10 * power))
    return list(range(0, most + 1, int(distance)))


def _live(layout: MemoryLayout, across: float, up: float, floor: float) -> str:
    """The bytes of slots in use at each call; one point for each unit of width, the most that it covers."""
    count, slots = max(1, layout.starts[-1]), layout.slots
    taken = np.zeros(count + 2, dtype=np.int64)
    np.add.at(taken, [place.first for place in slots], [place.nbytes for place in slots])
    np.subtract.at(taken, [place.last + 1 for place in slots], [place.nbytes for place in slots])
    live = np.minimum(np.cumsum(taken)[:count], layout.arena)
    every = max(1, round(1 / across))
    points = []
    for first in range(0, count, every):
        y = floor - int(live[first : first + every].max()) * up
        left, right = _LEFT + first * across, _LEFT + min(count, first + every) * across
        points.append(f"{left:.1f},{y:.1f} {right:.1f},{y:.1f}")
    return " ".join(points)
