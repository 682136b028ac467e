"""Timelines of sessions: what spans tell, that nothing runs otherwise for it, that nothing stays behind."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import injected, pair, session_on
from textmodel import load
from tracelab import GATED, SEAM

import torch_ort_session as tos
from torch_ort_session.errors import InputError, KernelError
from torch_ort_session.trace.observer import OFF, Null
from torch_ort_session.trace.table import table
from torch_ort_session.trace.timeline import Span, Timeline

PHASES = ("setup", "resolve", "trace", "bind", "regions", "collect")


def of_kind(timeline: Timeline, kind: str) -> list[Span]:
    return [span for span in timeline.spans if span.kind == kind]


def within(inner: Span, outer: Span) -> bool:
    return outer.start <= inner.start <= inner.end <= outer.end


def test_m24_the_table_tells_decisions_phases_regions_and_operators() -> None:
    session = session_on(SEAM)
    ticks = itertools.count(step=1000)
    timeline = session._engine.state.tracer.observer = Timeline("model.onnx", clock=lambda: next(ticks))
    for turn in range(6):
        session(torch.full((4,), 1.0 + turn))
    assert_expected_inline(
        str(timeline),
        """\
model.onnx: 6 runs
                                                              count  total ms  mean us  share
eager                                                             1     0.018     18.0  19.8%
eager, and observed                                               1     0.018     18.0  19.8%
captured                                                          1     0.022     22.0  24.2%
replayed                                                          3     0.033     11.0  36.3%
  setup                                                           6     0.006      1.0   6.6%
  resolve                                                         6     0.006      1.0   6.6%
  trace                                                           9     0.009      1.0   9.9%
  bind                                                            6     0.006      1.0   6.6%
  regions                                                         6     0.058      9.7  63.7%
  collect                                                         6     0.006      1.0   6.6%
    segment 0                                                     4     0.008      2.0   8.8%
    segment 2                                                     4     0.012      3.0  13.2%
    seam NonZero: the size of the output depends on the data      4     0.004      1.0   4.4%
    Mul                                                           6     0.006      1.0   6.6%
    Tanh                                                          6     0.006      1.0   6.6%
    Cast                                                          3     0.003      1.0   3.3%
    Squeeze                                                       3     0.003      1.0   3.3%
    NonZero                                                       2     0.002      1.0   2.2%
counted: bytes copied 48, captures 1, eager runs 1, observed runs 1, replays 3""",
    )


def test_m24_operators_beyond_the_slowest_are_summed_up() -> None:
    ticks = itertools.count(step=1000)
    timeline = Timeline(clock=lambda: next(ticks))
    with timeline.run("y", {}):
        for name in ("Exp", "Neg", "Exp", "Abs"):
            with timeline.span("op", name, {}):
                pass
    assert_expected_inline(
        table(timeline, operators=1),
        """\
1 run
                      count  total ms  mean us   share
run                       1     0.009      9.0  100.0%
  setup                   1     0.001      1.0   11.1%
  regions                 1     0.007      7.0   77.8%
  collect                 1     0.001      1.0   11.1%
    Exp                   2     0.002      1.0   22.2%
    2 more operators      2     0.002      1.0   22.2%""",
    )


def test_m24_without_a_run_the_table_says_so() -> None:
    with session_on(SEAM).trace() as timeline:
        pass
    assert_expected_inline(str(timeline), """<proto>: no run""")


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_m24_phases_follow_one_another_and_fill_the_run_and_steps_lie_in_regions(capture: str) -> None:
    session = session_on(SEAM, capture=capture)
    with session.trace() as timeline:
        for turn in range(5):
            session(torch.full((4,), 1.0 + turn))
    runs = of_kind(timeline, "run")
    assert len(runs) == 5
    for run in runs:
        phases = [span for span in of_kind(timeline, "phase") if within(span, run)]
        assert phases[0].start == run.start
        assert phases[-1].end == run.end
        assert all(a.end == b.start for a, b in itertools.pairwise(phases))
        order = [PHASES.index(span.name) for span in phases if span.name != "trace"]
        assert order == sorted(order)
        (regions,) = (span for span in phases if span.name == "regions")
        steps = [s for k in ("segment", "seam", "op") for s in of_kind(timeline, k) if within(s, run)]
        assert steps
        assert all(within(step, regions) for step in steps)
        assert regions.start == min(step.start for step in steps)
        assert regions.end == max(step.end for step in steps)


def test_m24_decisions_are_told_in_order() -> None:
    session = session_on(SEAM)
    with session.trace() as timeline:
        for turn in range(4):
            session(torch.full((4,), 1.0 + turn))
    told = [span.facts["decision"] for span in of_kind(timeline, "run")]
    assert told == ["eager", "eager, and observed", "captured", "replayed"]
    assert timeline.counters == {
        name: count for name, count in session.stats().items() if name in timeline.counters
    }
    assert timeline.counters["replays"] == 1


def test_m24_a_step_tells_its_node_and_its_segment_or_its_seam_and_reason() -> None:
    session = session_on(SEAM)
    x = torch.ones(4)
    session(x)
    session(x)
    with session.trace() as captured:
        session(x)
    with session.trace() as replayed:
        session(x)
    assert [(s.name, s.facts["region"]) for s in of_kind(captured, "op")] == [
        ("Mul", 0),
        ("Tanh", 0),
        ("Cast", 2),
        ("Squeeze", 2),
        ("Mul", 2),
        ("Tanh", 2),
    ]
    assert not of_kind(replayed, "op")
    for timeline in (captured, replayed):
        assert [(s.name, s.facts["region"]) for s in of_kind(timeline, "segment")] == [
            ("segment 0", 0),
            ("segment 2", 2),
        ]
        (seam,) = of_kind(timeline, "seam")
        assert seam.facts["node"]
    assert_expected_inline(
        "\n".join(f"{name}: {fact}" for name, fact in seam.facts.items() if name != "node"),
        """\
domain: ai.onnx
region: 1
reason: kernel declares a seam
why: the size of the output depends on the data""",
    )


def test_m24_bytes_of_feeds_are_copied_by_replays_and_borrowed_by_eager_runs() -> None:
    session = session_on("g (float[n] x, int64[k] i) => (float[k] y) { y = Gather(x, i) }")
    feed = {"x": torch.ones(4), "i": torch.zeros(3, dtype=torch.int64)}
    with session.trace() as timeline:
        for _ in range(4):
            session.run(None, feed)
    binds = [span.facts for span in of_kind(timeline, "phase") if span.name == "bind"]
    assert binds == [
        {"copied bytes": 0, "borrowed bytes": 40},
        {"copied bytes": 0, "borrowed bytes": 40},
        {"copied bytes": 40, "borrowed bytes": 40},
        {"copied bytes": 40, "borrowed bytes": 0},
    ]
    assert timeline.counters["bytes copied"] == 40


def drive(session: tos.Session, feeds: list[dict[str, Any]]) -> list[Any]:
    return [session.run(None, feed) for feed in feeds]


SHAPES = [{"x": torch.arange(1.0, n + 1) * (turn + 1)} for turn in range(4) for n in (3, 5, 3)]
KEYS = [{"x": torch.arange(4.0) + turn, "k": torch.tensor([turn // 5 % 2])} for turn in range(20)]


@pytest.mark.parametrize(("text", "feeds"), [(SEAM, SHAPES), (GATED, KEYS)], ids=["seam", "gated"])
@pytest.mark.parametrize("options", [{}, {"verify": True}, {"capture": "off"}], ids=str)
def test_m24_a_traced_session_decides_counts_and_gives_the_same(
    text: str, feeds: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    plain, traced = session_on(text, **options), session_on(text, **options)
    expected = drive(plain, feeds)
    with traced.trace() as timeline:
        given = drive(traced, feeds)
    for got, want in zip(given, expected, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert traced.stats() == plain.stats()
    assert traced.explain() == plain.explain()
    assert len(of_kind(timeline, "run")) == len(feeds)


def test_m24_a_declined_capture_is_declined_for_the_same_reason_when_traced() -> None:
    sessions = [injected(session, lambda: "not today") for session in pair(SEAM)]
    plain, traced = sessions[0], injected(session_on(SEAM), lambda: "not today")
    feeds = [{"x": torch.ones(4)}] * 4
    drive(plain, feeds)
    with traced.trace():
        drive(traced, feeds)
    assert traced.explain() == plain.explain()
    assert traced.stats()["declines"] == 1


def test_m24_nothing_that_was_put_around_a_call_outlives_the_trace() -> None:
    session = session_on(SEAM)
    with session.trace():
        for turn in range(5):
            session(torch.full((4,), 1.0 + turn))
    machine = session._engine.state
    (entry,) = machine.dispatcher.entries.values()
    assert entry.captured is not None
    assert entry.planned is not None
    own = set(map(id, entry.planned.program.calls))
    for stage in entry.captured.regions:
        assert {id(call) for call in stage.calls} <= own
        if stage.recording is not None:
            assert type(stage.recording).__name__ == "TapeRecording"
    assert not any("told" in call.call.__qualname__ for call in entry.planned.program.calls)
    assert machine.tracer.observer is OFF
    assert not machine.tracer.memo


def test_m24_while_nobody_watches_nobody_is_told() -> None:
    class Deaf(Null):
        def _never(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("told of a run")

        run = mark = _never

    session = session_on(SEAM)
    session._engine.state.tracer.observer = Deaf()
    for turn in range(5):
        session(torch.full((4,), 1.0 + turn))
    assert session.stats()["replays"] == 2


def test_m24_a_run_that_fails_is_told_with_its_error() -> None:
    session = load("g (float[n] x, float[m] w) => (float[k] y) { a = Exp(x) y = MatMul(a, w) }")
    with session.trace() as timeline:
        with pytest.raises(KernelError):
            session(torch.ones(3), torch.ones(4))
        with pytest.raises(InputError):
            session(torch.ones(3))
        session(torch.ones(3), torch.ones(3))
    assert [span.facts.get("error") for span in of_kind(timeline, "run")] == [
        "KernelError",
        "InputError",
        None,
    ]
    assert [(s.name, s.facts.get("error")) for s in of_kind(timeline, "op")][:2] == [
        ("Exp", None),
        ("MatMul", "RuntimeError"),
    ]


def test_m24_one_trace_at_a_time_which_ends_with_its_block() -> None:
    session = session_on(SEAM)
    with pytest.raises(ZeroDivisionError), session.trace() as first:
        with pytest.raises(RuntimeError, match="the session is being traced; end that block first"):
            session.trace().__enter__()
        session(torch.ones(4))
        _ = 1 / 0
    session(torch.ones(4))
    with session.trace() as second:
        session(torch.ones(4))
    assert [len(of_kind(timeline, "run")) for timeline in (first, second)] == [1, 1]


def test_m24_the_runs_of_a_binding_are_traced_too() -> None:
    session = session_on("g (float[3] x) => (float[3] y) { a = Exp(x) y = Neg(a) }")
    binding = session.bind()
    x, y = torch.zeros(3), torch.empty(3)
    binding.input("x", x)
    binding.output("y", y)
    with session.trace() as timeline:
        binding.run()
        assert binding.capture() is None
        x.fill_(1)
        assert binding.replay()
    assert torch.equal(y, -torch.exp(x))
    assert [span.name for span in of_kind(timeline, "run")] == ["binding"] * 3
    assert [span.name for span in of_kind(timeline, "segment")] == ["segment 0"] * 2


def test_m24_runs_under_grad_are_traced_and_differentiable() -> None:
    session = session_on("g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }")
    x = torch.zeros(3, requires_grad=True)
    with session.trace() as timeline:
        session(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), -1.0))
    assert [span.name for span in of_kind(timeline, "op")] == ["Exp", "Neg"]
