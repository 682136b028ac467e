"""M14: growing runs replay what does not grow, and are never wrong, however feeds come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from ortsession import ort_session
from runtime.keptlab import kept
from textmodel import model

import torch_ort_session as tos
from benchmarks.decoder import Size, first_feed, make_decoder, next_feed
from torch_ort_session import Options
from torch_ort_session.plan.partition.report import DeclineReport, Reason
from torch_ort_session.runtime.captures.capture import CapturedGraph
from torch_ort_session.runtime.dispatch.policy import Dispatcher
from torch_ort_session.runtime.recorders.api import Diverged
from torch_ort_session.trace import counters

Feed = dict[str, torch.Tensor]
SIZE = Size(layers=2)
NAMES = ["logits", *(f"present.{layer}.{part}" for layer in range(2) for part in ("key", "value"))]


@pytest.fixture(scope="module")
def proto() -> Any:
    return make_decoder(SIZE)


def both(proto: Any, **options: Any) -> tuple[tos.Session, tos.Session]:
    return tos.load(proto, options=Options(**options)), tos.load(proto, options=Options(capture="off"))


def decode(session: tos.Session, eager: tos.Session, feed: Feed, tokens: int) -> Iterator[Feed]:
    """Runs whose results must be those of an eager run; the caches go on as the session gave them."""
    for _ in range(tokens):
        before = {name: value.clone() for name, value in feed.items()}
        got = session.run(None, feed)
        assert all(torch.equal(feed[name], value) for name, value in before.items())
        for one, other in zip(got, eager.run(None, feed), strict=True):
            assert one.shape == other.shape
            # A fused function may differ in its last place, and the caches carry that on.
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        feed = next_feed(feed, dict(zip(NAMES, got, strict=True)))
        yield feed


def run(session: tos.Session, eager: tos.Session, feed: Feed, tokens: int) -> Feed:
    for last in decode(session, eager, feed, tokens):
        feed = last
    return feed


def captured(session: tos.Session) -> CapturedGraph:
    entry = kept(session).entry
    assert entry is not None and entry.captured is not None
    return entry.captured


def growth(session: tos.Session) -> dict[str, int]:
    names = (counters.PRIMED, counters.REBUILT, counters.GROWN, counters.INELIGIBLE, counters.CAPTURES)
    stats = session.stats()
    return {name.rpartition(" ")[2]: stats[name] for name in names if stats[name]}


def test_m14_a_decode_of_1000_tokens_is_that_of_onnxruntime() -> None:
    size = Size(layers=1, heads=2, groups=1, width=4, words=20, longest=1100)
    proto = make_decoder(size)
    session = tos.load(proto)
    other = ort_session(proto.SerializeToString())
    names = [port.name for port in session.outputs]
    feed = first_feed(size, past=1)
    for _ in range(1000):
        got = session.run(None, feed)
        want = other.run(None, {name: value.numpy() for name, value in feed.items()})
        for one, two in zip(got, want, strict=True):
            torch.testing.assert_close(one, torch.from_numpy(two), rtol=1e-4, atol=1e-4)
        feed = next_feed(feed, dict(zip(names, got, strict=True)))
    assert feed["past.0.key"].shape[2] == 1001
    assert growth(session) == {"primed": 2, "replayed": 996, "captures": 1}


def test_m14_what_does_not_grow_is_recorded_once_and_what_grows_says_so(proto: Any) -> None:
    session, eager = both(proto)
    run(session, eager, first_feed(SIZE, past=5), 12)
    regions = captured(session).regions
    segments = [stage for stage in regions if stage.region.is_segment]
    # One before the first layer's attention, and one behind each layer's.
    assert len(segments) == 3
    recorded = " ".join(call.step.kernel.op for stage in segments for call in stage.calls)
    assert all(op in recorded for op in ("MatMul", "ReduceMean", "Sigmoid", "Gather"))
    seams = [stage for stage in regions if not stage.region.is_segment]
    assert {stage.region.reason for stage in seams} <= {Reason.GROWTH, Reason.SHORT}
    messages = {stage.region.message for stage in seams if stage.region.reason is Reason.GROWTH}
    assert "'past.1.key' grows from run to run" in messages
    grows = {call.step.kernel.op for stage in seams for call in stage.calls}
    assert {"Softmax", "Concat", "MatMul"} <= grows and "ReduceMean" not in grows
    assert growth(session) == {"primed": 2, "replayed": 8, "captures": 1}


def test_m14_results_that_grow_are_given_without_a_copy(proto: Any) -> None:
    session, eager = both(proto)
    feed = run(session, eager, first_feed(SIZE, past=5), 12)
    made: set[int] = set()
    weave = kept(session).tape
    assert weave is not None
    for stage in weave.regions:
        for call in stage.calls if stage.recording is None else ():
            _note(call, weave.steps.outputs[1:], made)
    got = session.run(None, feed)
    assert made == {one.data_ptr() for one in got[1:]}


def _note(call: Any, outputs: tuple[int, ...], made: set[int]) -> None:
    inner = call.call

    def noting(values: list[Any]) -> None:
        inner(values)
        made.update(values[output].data_ptr() for output in outputs if values[output] is not None)

    object.__setattr__(call, "call", noting)


def test_m14_results_are_their_owners(proto: Any) -> None:
    session, eager = both(proto)
    feed = first_feed(SIZE, past=5)
    for _ in range(12):
        got = session.run(None, feed)
        want = eager.run(None, feed)
        for one, other in zip(got, want, strict=True):
            # A fused function may differ in its last place, and the caches carry that on.
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        feed = next_feed(feed, dict(zip(NAMES, want, strict=True)))
        for one in got:
            one.fill_(float("nan"))


@pytest.mark.parametrize("verify", [False, True])
def test_m14_two_decodes_that_take_turns_share_what_is_known(proto: Any, verify: bool) -> None:
    session, eager = both(proto, verify=verify)
    first = decode(session, eager, first_feed(SIZE, past=4), 14)
    second = decode(session, eager, first_feed(SIZE, past=40, seed=1), 14)
    for _ in zip(first, second, strict=True):
        pass
    found = growth(session)
    # The longer decode is seen first, and the shorter one begins anew: both go on from there.
    assert found["captures"] == 2 and "ineligible" not in found
    assert found["replayed"] >= 16
    assert session.stats()[counters.MISMATCHES] == 0


@pytest.mark.parametrize("verify", [False, True])
def test_m14_a_decode_that_begins_anew_with_a_shorter_prompt(proto: Any, verify: bool) -> None:
    session, eager = both(proto, verify=verify)
    run(session, eager, first_feed(SIZE, past=20), 10)
    assert growth(session) == {"primed": 2, "replayed": 6, "captures": 1}
    run(session, eager, first_feed(SIZE, past=3, seed=2), 10)
    found = growth(session)
    assert found["rebuilt"] == 1 and found["captures"] == 2 and "ineligible" not in found
    assert found["primed"] + found["rebuilt"] + found["replayed"] >= 17
    # A longer one goes on with what is there.
    run(session, eager, first_feed(SIZE, past=9, seed=3), 5)
    assert growth(session)["captures"] == 2


@pytest.mark.parametrize("verify", [False, True])
def test_m14_a_batch_that_changes_is_another_form(proto: Any, verify: bool) -> None:
    session, eager = both(proto, verify=verify)
    run(session, eager, first_feed(SIZE, 1, past=5), 8)
    run(session, eager, first_feed(SIZE, 3, past=5), 8)
    run(session, eager, first_feed(SIZE, 1, past=13), 8)
    found = growth(session)
    assert found["captures"] == 2 and "ineligible" not in found and "rebuilt" not in found
    assert len(session._engine.state.growth._entries) == 2
    assert session.stats()[counters.MISMATCHES] == 0


def test_m14_memory_does_not_grow_beyond_the_caches(proto: Any) -> None:
    session, eager = both(proto)
    feed = run(session, eager, first_feed(SIZE, past=5), 12)
    held = {id(one) for one in captured(session).frame if isinstance(one, torch.Tensor)}
    stats = session.stats()
    sizes = {name: value for name, value in stats.items() if name.endswith("bytes")}
    feed = run(session, eager, feed, 100)
    frame = captured(session).frame
    assert {id(one) for one in frame if isinstance(one, torch.Tensor)} == held
    after = session.stats()
    assert {name: after[name] for name in sizes} == sizes
    assert all(one is None or one.shape.count(feed["past.0.key"].shape[2]) == 0 for one in _tensors(frame))
    assert after["signatures"] == stats["signatures"]


def _tensors(frame: list[Any]) -> list[torch.Tensor]:
    return [one for one in frame if isinstance(one, torch.Tensor)]


def test_m14_stats_count_what_growing_captures_hold_and_release_gives_it_back(proto: Any) -> None:
    session, eager = both(proto)
    feed = run(session, eager, first_feed(SIZE, past=5), 12)
    assert session.stats()["static input bytes"] > 0 and session.stats()["landing bytes"] > 0
    session.release_memory()
    assert session.stats()["static input bytes"] == session.stats()["landing bytes"] == 0
    run(session, eager, feed, 10)
    assert growth(session)["captures"] == 2


LIMIT = (
    "g (float[n, 2] x, float[1, 2] q) => (float[a, b] y, float[c, d] z)"
    " <int64[1] zero = {0}, int64[1] ten = {10}, int64[1] axis = {0}, float[1, 1] w = {7}>"
    " { h = Slice(x, zero, ten, axis) m = ReduceMax <keepdims = 1> (x) e = Add(q, m) f = Exp(e)"
    " t = Mul(h, f) y = Neg(t) s = Shape(x) z = Expand(w, s) }"
)


def limited(numbers: Iterator[int] | range) -> list[Feed]:
    return [{"x": torch.randn(n, 2), "q": torch.randn(1, 2)} for n in numbers]


def test_m14_a_dim_wrongly_taken_to_stay_is_told_and_recorded_no_more() -> None:
    """Two runs with 12 rows or more show a slice of 10; one with fewer shows that it grows."""
    session = tos.load(model(LIMIT), options=Options(fuse=False))
    eager = tos.load(model(LIMIT), options=Options(capture="off"))

    def check(feeds: list[Feed]) -> None:
        for feed in feeds:
            for one, other in zip(session.run(None, feed), eager.run(None, feed), strict=True):
                assert one.shape == other.shape
                torch.testing.assert_close(one, other)

    check(limited(range(12, 20)))
    wrong = captured(session)
    assert any(
        call.step.kernel.op == "Mul" for stage in wrong.regions if stage.recording for call in stage.calls
    )
    check(limited(range(2, 20)))
    assert growth(session)["rebuilt"] > 0
    assert not any(
        call.step.kernel.op == "Mul"
        for stage in captured(session).regions
        if stage.recording
        for call in stage.calls
    )


FAILURES: dict[Reason, Callable[[], Exception]] = {
    Reason.DIVERGED: lambda: Diverged("aten::add", 0, "size"),
    Reason.RECORDING: lambda: RuntimeError("broken"),
    Reason.MEMORY: lambda: torch.OutOfMemoryError("no more"),
}


@pytest.mark.parametrize("reason", FAILURES)
def test_m14_a_recording_that_fails_is_retired_and_costs_no_result(
    reason: Reason, proto: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, eager = both(proto)
    feed = run(session, eager, first_feed(SIZE, past=5), 12)
    stage = next(stage for stage in captured(session).regions if stage.recording is not None)

    def fail(_: object) -> None:
        raise FAILURES[reason]()

    told: list[Reason] = []
    retire = Dispatcher.retire

    def seen(self: Dispatcher, entry: Any, report: DeclineReport) -> None:
        told.extend(row.reason for row in report.rows)
        retire(self, entry, report)

    monkeypatch.setattr(Dispatcher, "retire", seen)
    monkeypatch.setattr(type(stage.recording), "replay", fail)
    feed = run(session, eager, feed, 1)
    monkeypatch.undo()
    assert told == [reason]
    assert session.stats()[counters.RETIREMENTS] == 1 and growth(session)["captures"] == 1
    run(session, eager, feed, 5)
    assert growth(session)["captures"] == 2 and "ineligible" not in growth(session)


def test_m14_where_nothing_may_be_recorded_steps_run_one_by_one(proto: Any) -> None:
    eager = tos.load(proto, options=Options(capture="off"))
    session = tos.load(proto, options=Options(capture_only=({"batch": 7},)))
    run(session, eager, first_feed(SIZE, past=5), 12)
    assert growth(session) == {"primed": 2, "replayed": 8}


def test_m14_only_one_shape_stays_the_same_twice(proto: Any) -> None:
    """Feeds that come again are captured whole, as those of any other run."""
    session, eager = both(proto)
    feed = run(session, eager, first_feed(SIZE, past=5), 12)
    for _ in range(6):
        session.run(None, feed)
    assert session.stats()[counters.REPLAYS] > 0
    run(session, eager, feed, 5)
    assert growth(session)["captures"] == 2


def told(session: tos.Session) -> str:
    found = [part for part in session.explain().split("\n\n") if part.startswith("growing ")]
    return "\n\n".join(found)


def test_m14_explain_tells_what_is_replayed_and_what_grows() -> None:
    session = tos.load(model(LIMIT), options=Options(fuse=False))
    for feed in limited(range(12, 20)):
        session.run(None, feed)
    assert_expected_inline(
        told(session),
        """\
growing (x: float32[grows, 2], q: float32[1, 2]) -> (y, z)
  1 of 8 steps are known beforehand
  4 are replayed, in 1 segment
  3 steps from 'Slice_0': disqualified by growth, 'x' grows from run to run""",
    )


def test_m14_explain_tells_why_nothing_is_recorded() -> None:
    text = "g (float[n, 2] x) => (float[a, b] y) <float[1, 1] w = {7}> { s = Shape(x) y = Expand(w, s) }"
    session = tos.load(model(text))
    for n in range(3, 9):
        session.run(None, {"x": torch.zeros(n, 2)})
    assert_expected_inline(
        told(session),
        """\
growing (x: float32[grows, 2]) -> (y)
  1 of 2 steps are known beforehand
  the others run one by one: none of them can be recorded apart from what grows""",
    )
