"""Timelines as files of the Trace Event Format, which Perfetto and chrome://tracing open.

Source: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch_ort_session.trace.observer import RUN, Spans


def events(timeline: Spans) -> list[dict[str, Any]]:
    """A timeline's spans as complete events, its counters as counter events, times in microseconds."""
    process = os.getpid()
    name = f"torch_ort_session {timeline.title}".rstrip()
    listed: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    ]
    for thread in dict.fromkeys(span.thread for span in timeline.spans):
        label = {"name": f"runs on thread {thread}"}
        listed.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": label})
    totals: dict[str, int] = {}
    for span in timeline.spans:
        place: dict[str, Any] = {"pid": process, "tid": span.thread}
        listed.append(
            {
                "ph": "X",
                "name": span.name,
                "cat": span.kind,
                "ts": span.start / 1e3,
                "dur": span.duration / 1e3,
                **place,
                "args": {key: _plain(value) for key, value in span.facts.items()},
            }
        )
        if span.kind == RUN:
            for key, value in span.facts.items():
                if key in timeline.counters and isinstance(value, int):
                    totals[key] = totals.get(key, 0) + value
                    args = {key: totals[key]}
                    listed.append({"ph": "C", "name": key, "ts": span.end / 1e3, **place, "args": args})
    return listed


def write(timeline: Spans, path: str | os.PathLike[str]) -> None:
    """Write a timeline as one JSON object.

    Args:
        timeline: The timeline.
        path: Where to; a file that is there is replaced.
    """
    text = json.dumps({"traceEvents": events(timeline), "displayTimeUnit": "ns"})
    Path(path).write_text(text, encoding="utf-8")


def _plain(value: object) -> object:
    return value if isinstance(value, (str, int, float)) else str(value)
