"""Files that Perfetto opens, and labels that torch's profiler shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from runtime.capturelab import session_on
from torch.profiler import ProfilerActivity, profile
from tracelab import SEAM

from torch_ort_session.trace.timeline import Timeline

REQUIRED = {
    "X": {"name": str, "cat": str, "ts": float, "dur": float, "pid": int, "tid": int, "args": dict},
    "C": {"name": str, "ts": float, "pid": int, "args": dict},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
}
"""Fields of the phases of the Trace Event Format that are written, and what they hold."""


def test_m24_a_saved_timeline_fits_the_trace_event_format(tmp_path: Path) -> None:
    session = session_on(SEAM)
    with session.trace() as timeline:
        for turn in range(5):
            session(torch.full((4,), 1.0 + turn))
    timeline.save(tmp_path / "trace.json")
    found: dict[str, Any] = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    assert found["displayTimeUnit"] in ("ms", "ns")
    events = found["traceEvents"]
    for event in events:
        fields = REQUIRED[event["ph"]]
        for name, kind in fields.items():
            assert isinstance(event[name], kind), (name, event)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(timeline.spans)
    nested(complete)
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"torch_ort_session <proto>"}
    assert {event["tid"] for event in complete} == {
        event["tid"] for event in events if event["name"] == "thread_name"
    }
    replays = [
        event["args"]["replays"] for event in events if event["ph"] == "C" and event["name"] == "replays"
    ]
    assert replays == [1, 2]
    reasons = [event["args"].get("why") for event in complete if event["cat"] == "seam"]
    assert reasons == ["the size of the output depends on the data"] * 3


def nested(events: list[dict[str, Any]]) -> None:
    """Events of one thread contain one another or are apart, as the format demands."""
    open_until: list[float] = []
    for event in events:
        end = event["ts"] + event["dur"]
        while open_until and open_until[-1] <= event["ts"] + 1e-6:
            open_until.pop()
        assert not open_until or end <= open_until[-1] + 1e-6, event
        open_until.append(end)


def test_m24_facts_that_json_does_not_know_are_written_as_text(tmp_path: Path) -> None:
    ticks = iter(range(0, 10_000, 1_000))
    timeline = Timeline("t", clock=lambda: next(ticks))
    with timeline.span("op", "Add", {"node": "a", "place": torch.device("cpu")}):
        pass
    timeline.save(tmp_path / "trace.json")
    event = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"][-1]
    assert event["args"] == {"node": "a", "place": "cpu"}
    assert (event["ts"], event["dur"]) == (1.0, 1.0)


@pytest.mark.parametrize("traced", [False, True])
def test_m24_torchs_profiler_shows_regions_and_seams_by_name(traced: bool) -> None:
    session = session_on(SEAM)
    for turn in range(2):
        session(torch.full((4,), 1.0 + turn))
    for _ in range(2):  # captured, then replayed
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            if traced:
                with session.trace():
                    session(torch.ones(4))
            else:
                session(torch.ones(4))
        shown = [event.key for event in profiler.key_averages() if event.key.startswith("torch_ort_session")]
        assert sorted(shown) == [
            "torch_ort_session: NonZero (the size of the output depends on the data)",
            "torch_ort_session: segment 0",
            "torch_ort_session: segment 2",
        ]
    assert session.stats()["replays"] == 1
    assert not session._engine.state.tracer.observer.on
