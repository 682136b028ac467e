"""The arena of a plan as a drawing: steps from left to right, bytes from the bottom up, a box a slot."""

from __future__ import annotations

import numpy as np

from torch_ort_session.ir.text import byte_size
from torch_ort_session.plan.memory.slots import Interval
from torch_ort_session.plan.plan import Plan

_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 8.0, 10.0, 26.0
_WIDTH, _HEIGHT = 1216.0, 380.0
_THINNEST = 0.7
"""Units to which a box is widened, so that each can be seen and pointed at."""
_FEW = 300
"""Boxes up to which each has an edge; where there are more, the edges would hide the boxes."""


def arena_drawing(plan: Plan) -> str:
    """An SVG element of the arena.

    Args:
        plan: A plan with at least one slot that has bytes.

    Returns:
        The element. Boxes carry their number among the plan's intervals as ``data-s``, the lines at seams
        the number of their region as ``data-r``.
    """
    last = max(1, len(plan.steps.items))
    across = (_WIDTH - _LEFT - _RIGHT) / last
    up = (_HEIGHT - _TOP - _BOTTOM) / max(1, plan.packing.total)
    floor = _HEIGHT - _BOTTOM
    parts = [f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="slots over steps">']
    parts += _axes(plan, across, up, floor)
    parts.append(f'<g class="slots{" few" if len(plan.intervals) < _FEW else ""}">')
    regions = _regions_of(plan)
    for number, item in enumerate(plan.intervals):
        if not item.nbytes:
            continue
        x = _LEFT + item.start * across
        width = max(_THINNEST, (min(item.stop + 1, last) - item.start) * across)
        height = max(_THINNEST, item.nbytes * up)
        y = floor - plan.packing.offsets[item.value] * up - height
        parts.append(
            f'<rect class="{_kind(plan, item, regions)}" data-s="{number}" x="{x:.1f}" y="{y:.1f}"'
            f' width="{width:.1f}" height="{height:.1f}"/>'
        )
    parts.append("</g>")
    parts += [
        f'<line class="cut" data-r="{number}" x1="{(x := _LEFT + region.positions[0] * across):.1f}"'
        f' x2="{x:.1f}" y1="{_TOP}" y2="{floor}"/>'
        for number, region in enumerate(plan.regions)
        if not region.is_segment
    ]
    parts.append(f'<polyline class="live" points="{_live(plan, across, up, floor)}"/></svg>')
    return "\n".join(parts)


def _regions_of(plan: Plan) -> dict[int, int]:
    """The number of the region of each position."""
    return {p: number for number, region in enumerate(plan.regions) for p in region.positions}


def _kind(plan: Plan, item: Interval, regions: dict[int, int]) -> str:
    """Why a value has a slot: a seam lands there, it crosses regions, or a kernel writes into it."""
    maker = regions[item.start]
    if not plan.regions[maker].is_segment:
        return "land"
    return "out" if regions[item.stop] == maker else "cross"


def _axes(plan: Plan, across: float, up: float, floor: float) -> list[str]:
    parts = []
    for tick in _ticks(plan.packing.total, 4):
        y = floor - tick * up
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{byte_size(tick)}</text>')
    for tick in _ticks(len(plan.steps.items), 8):
        label = f"step {tick:,}" if tick == 0 else f"{tick:,}"
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


def _live(plan: Plan, across: float, up: float, floor: float) -> str:
    """The bytes of slots in use at each step; one point for each unit of width, the most that it covers."""
    count = len(plan.steps.items)
    change = np.zeros(count + 2, dtype=np.int64)
    np.add.at(change, [item.start for item in plan.intervals], [item.nbytes for item in plan.intervals])
    np.subtract.at(
        change, [item.stop + 1 for item in plan.intervals], [item.nbytes for item in plan.intervals]
    )
    live = np.cumsum(change)[:count]
    every = max(1, round(1 / across))
    points = []
    for first in range(0, count, every):
        y = floor - int(live[first : first + every].max()) * up
        left, right = _LEFT + first * across, _LEFT + min(count, first + every) * across
        points.append(f"{left:.1f},{y:.1f} {right:.1f},{y:.1f}")
    return " ".join(points)
