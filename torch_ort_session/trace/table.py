"""Timelines as a short table: where the time of the runs went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch_ort_session.trace.observer import OP, PHASE, RUN, SEAM, SEGMENT, Span, Spans

_OPERATORS = 10
_PHASES = ("setup", "resolve", "trace", "bind", "regions", "collect")


def table(timeline: Spans, operators: int = _OPERATORS) -> str:
    """Runs, their phases, segments and seams with reasons, and the operators that took the longest.

    Args:
        timeline: The timeline.
        operators: How many operators to list.
    """
    spans = timeline.spans
    runs = [span for span in spans if span.kind == RUN]
    whole = sum(span.duration for span in runs)
    if not runs:
        return f"{timeline.title}: no run".lstrip(": ")
    rows: list[tuple[str, str, str, str, str]] = []
    for head, kind, named in (
        ("", RUN, _decision),
        ("  ", PHASE, _name),
        ("    ", SEGMENT, _name),
        ("    ", SEAM, _seam),
    ):
        grouped = _grouped(spans, kind, named)
        if kind == PHASE:
            grouped.sort(key=lambda item: _PHASES.index(item[0]))
        rows += [_row(head + name, group, whole) for name, group in grouped]
    ranked = _grouped(spans, OP, _name)
    ranked.sort(key=lambda item: (-sum(span.duration for span in item[1]), item[0]))
    rows += [_row(f"    {name}", group, whole) for name, group in ranked[:operators]]
    if len(ranked) > operators:
        rest = [span for _, group in ranked[operators:] for span in group]
        rows.append(_row(f"    {len(ranked) - operators} more operators", rest, whole))
    title = f"{timeline.title}: {_count(len(runs), 'run')}".lstrip(": ")
    parts = [title, _columns(("", "count", "total ms", "mean us", "share"), rows)]
    if timeline.counters:
        counted = sorted(timeline.counters.items())
        parts.append("counted: " + ", ".join(f"{name} {value:,}" for name, value in counted))
    return "\n".join(parts)


def _name(span: Span) -> str:
    return span.name


def _decision(span: Span) -> str:
    return str(span.facts.get("decision", "run"))


def _seam(span: Span) -> str:
    why = span.facts.get("why")
    return f"seam {span.name}: {why}" if why else f"seam {span.name}"


def _grouped(spans: Iterable[Span], kind: str, named: Callable[[Span], str]) -> list[tuple[str, list[Span]]]:
    groups: dict[str, list[Span]] = {}
    for span in spans:
        if span.kind == kind:
            groups.setdefault(named(span), []).append(span)
    return list(groups.items())


def _row(name: str, spans: Sequence[Span], whole: int) -> tuple[str, str, str, str, str]:
    total = sum(span.duration for span in spans)
    share = total / whole if whole else 0.0
    return (
        name,
        f"{len(spans)}",
        f"{total / 1e6:.3f}",
        f"{total / 1e3 / len(spans):.1f}",
        f"{share:.1%}",
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in (heads, *rows)) for column in range(len(heads))]
    lines = []
    for line in (heads, *rows):
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
