"""The regions of a plan as a strip: segments and seams side by side, and what each seam is below it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

_MARKED = 6
"""Seams up to which each is marked in words; the words of more would hide one another."""
_RIGHT = 0.6
"""Share of the strip from which on words stand to the left of their seam."""
_LINE = 19
"""Height of a line of words, in pixels."""


def strip(regions: Sequence[dict[str, Any]]) -> str:
    """The strip as HTML. Widths go by steps; a seam stays wide enough to be pointed at while there is room.

    Args:
        regions: What :func:`.explain.facts` says of them; at least one.
    """
    least = max(1.0, min(9.0, 900 / len(regions)))
    total = sum(region["steps"] for region in regions)
    cells, widths = [], []
    for number, region in enumerate(regions):
        wide = region["kind"] == "segment" and region["steps"] / total > 0.06
        label = f"{region['steps']:,} step{'' if region['steps'] == 1 else 's'}" if wide else ""
        widths.append(f"flex:{region['steps']} 1 0;min-width:{least:.1f}px")
        cells.append(f'<div class="{region["kind"]}" data-r="{number}" style="{widths[-1]}">{label}</div>')
    return f'<div class="strip">{"".join(cells)}</div>{_marks(regions, widths, total)}'


def _marks(regions: Sequence[dict[str, Any]], widths: Sequence[str], total: int) -> str:
    """A line of words for each seam, the first one lowest, so that words cross no other one's line."""
    seams = [number for number, region in enumerate(regions) if region["kind"] == "seam"]
    if not 0 < len(seams) <= _MARKED:
        return ""
    cells, before = [], 0
    for number, (region, width) in enumerate(zip(regions, widths, strict=True)):
        inner = ""
        if number in seams:
            line = len(seams) - 1 - seams.index(number)
            side = "right" if before / total > _RIGHT else "left"
            op = html.escape(region["op"].removeprefix("ai.onnx::"))
            words = f"<b>{op}</b> {html.escape(region['reason'])}"
            inner = (
                f'<i style="height:{line * _LINE + 8}px"></i>'
                f'<span style="top:{line * _LINE}px;{side}:4px">{words}</span>'
            )
        cells.append(f'<div style="{width}">{inner}</div>')
        before += region["steps"]
    return f'<div class="marks" style="height:{len(seams) * _LINE + 2}px">{"".join(cells)}</div>'
