"""A body whose recording or replay fails: results, state and random numbers are those of eager runs."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from bodylab import CHOICE, STEADY, body_entries, body_states, chosen, fed, long, looped
from runtime.capturelab import Failing, agree, counted, injected, pair, refusal, same, session_on
from textmodel import declare, operator

import torch_ort_session as tos
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.runtime.recorders.api import Recorder

CAPTURED, REPLAYED = "body captures", "body replays"
MIXED = (
    "b (int64 i, bool c, float[n] s) => (bool d, float[n] r, float[n] o) { d = Identity(c)"
    f" {long('s', 'a')} e = RandomNormalLike(a) f = Add(a, e) {long('f', 'r', 'o')} o = Neg(e) }}"
)
STEPS = 13


def failing(at: int, error: Callable[[], BaseException], times: int = 1) -> Callable[[], Recorder]:
    """Makes recorders of which the first ones raise at their ``at``-th call."""
    made: list[Recorder] = []

    def make() -> Recorder:
        made.append(Failing(at if len(made) < times else -1, error))
        return made[-1]

    return make


def draws(sessions: tuple[tos.Session, ...], given: dict[str, torch.Tensor], seed: int) -> None:
    """Sessions must draw the same random numbers, and give the same results."""
    results = []
    for runs in sessions:
        torch.manual_seed(seed)
        results.append((*runs.run(None, given), torch.get_rng_state()))
    same(*results)


@pytest.mark.parametrize("at", range(1, STEPS + 2))
@pytest.mark.parametrize("error", [refusal, lambda: RuntimeError("broken"), lambda: torch.OutOfMemoryError()])
def test_m8_a_recording_that_fails_at_any_call_advances_no_state_twice(
    at: int, error: Callable[[], BaseException]
) -> None:
    session, eager = pair(STEADY)
    injected(session, failing(at, error))
    for trips in (2, 2, 5, 5):
        agree(session, eager, fed(trips=trips))
    assert counted(session, CAPTURED)[0] >= 1 or body_states(session) == ["latched"]


@pytest.mark.parametrize("times", [1, 2, 50])
@pytest.mark.parametrize("at", [1, 7, 20])
def test_m8_random_numbers_in_a_body_are_drawn_as_eager_runs_draw_them(at: int, times: int) -> None:
    session, eager = pair(looped(MIXED, outputs="float[n] y, float[k,n] z"))
    injected(session, failing(at, refusal, times))
    for seed in range(5):
        draws((session, eager), fed(trips=4), seed)


def test_a_replay_that_raises_is_retired_and_the_call_is_made_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, eager = pair(STEADY)
    agree(session, eager, fed())
    (entry,) = body_entries(session)
    assert entry.captured is not None and entry.captured.whole is not None
    recording = type(entry.captured.whole)

    def fail(*_: object) -> None:
        raise RuntimeError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(recording, "replay", fail)
        agree(session, eager, fed(trips=3))
    assert counted(session, "body retirements")[0] >= 1
    for _ in range(3):
        agree(session, eager, fed())


@pytest.mark.parametrize("at", range(1, 9))
def test_a_replay_that_raises_once_it_has_written_costs_no_result(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    session, eager = pair(STEADY)
    for _ in range(3):
        agree(session, eager, fed(trips=8))
    (entry,) = body_entries(session)
    assert entry.captured is not None and entry.captured.whole is not None
    recording, calls = type(entry.captured.whole), iter(range(1, 1000))
    replay = recording.replay

    def fail(self: Any, *word: Any) -> None:
        replay(self, *word)
        if next(calls) == at:
            raise RuntimeError("the device is gone")

    monkeypatch.setattr(recording, "replay", fail)
    agree(session, eager, fed(trips=8))
    assert counted(session, "body retirements")[0] == 1


def test_a_recorder_that_is_missing_leaves_bodies_eager() -> None:
    session, eager = pair(STEADY)
    injected(session, lambda: "extension not built")
    for _ in range(3):
        agree(session, eager, fed())
    (entry,) = body_entries(session)
    assert entry.latched and entry.report is not None
    assert [row.reason for row in entry.report.rows] == [Reason.OFF]


def test_an_interrupt_in_a_body_leaves_the_session_usable() -> None:
    interrupt: list[bool] = []

    @declare
    def Interrupts(x: torch.Tensor) -> torch.Tensor:
        if interrupt:
            raise KeyboardInterrupt
        return x + float(x.sum().item())

    with operator(Interrupts):
        body = (
            "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c)"
            f" {long('s', 'a')} e = tests.Interrupts(a) {long('e', 'r', 'o')} }}"
        )
        session, eager = pair(looped(body))
        agree(session, eager, fed())
        interrupt.append(True)
        with pytest.raises(KeyboardInterrupt):
            session.run(None, fed())
        interrupt.clear()
        for _ in range(3):
            agree(session, eager, fed())


def test_release_gives_back_what_bodies_hold() -> None:
    session, eager = pair(STEADY)
    for length in (3, 50):
        agree(session, eager, fed(length))
    stats = session.stats()
    # The state, w, and the condition, which is passed through; the trip number is not read.
    assert stats["static input bytes"] == 4 * (3 + 50) * 2 + 2
    assert stats["body plans"] == 2 and stats["arena bytes"] > 0
    held = [
        weakref.ref(place)
        for entry in body_entries(session)
        if entry.ready is not None
        for place in entry.ready.places
        if place is not None
    ]
    assert len(held) == 6
    session.release_memory()
    assert [ref for ref in held if ref() is not None] == []
    names = ("body plans", "plans", "arena bytes", "static input bytes", "landing bytes", "crossing bytes")
    assert counted(session, *names) == (0,) * 6
    for _ in range(2):
        agree(session, eager, fed(3))
    assert counted(session, "body plans") == (1,)


def test_a_session_that_goes_takes_what_bodies_hold_with_it() -> None:
    for text, feed in ((STEADY, fed), (CHOICE, chosen)):
        session = session_on(text)
        for _ in range(5):
            session.run(None, feed())
        captured = [entry.captured for entry in body_entries(session)]
        frames = [
            weakref.ref(value)
            for one in captured
            if one is not None
            for value in one.frame[1:]
            if value is not None
        ]
        assert frames
        gc.collect()
        gc.disable()
        try:
            del session, captured
            weights = [ref for ref in frames if ref() is not None]
        finally:
            gc.enable()
        assert weights == []


def test_copies_of_a_session_have_captures_of_their_own() -> None:
    session, eager = pair(STEADY)
    agree(session, eager, fed())
    for other in (deepcopy(session), pickle.loads(pickle.dumps(session))):
        assert counted(other, "body plans") == (0,)
        agree(other, eager, fed())
        agree(session, eager, fed())


def test_two_threads_with_two_sessions() -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            session, eager = pair(STEADY)
            generator = torch.Generator().manual_seed(seed)
            for number in range(20):
                given = {
                    "x": torch.randn(3 + number % 3, generator=generator),
                    "k": torch.tensor(6),
                    "w": torch.randn(3 + number % 3, generator=generator),
                }
                agree(session, eager, given)
            assert counted(session, CAPTURED) == (3,)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_captures_of_bodies_share_the_arena_with_those_of_runs() -> None:
    text = (
        "g (float[n] x, int64 k, float[n] w) => (float[n] y) {"
        f" {long('x', 'a', 'p')} b = Loop (k, , a) <body = b (int64 i, bool c, float[n] s) => (bool d,"
        f" float[n] r) {{ d = Identity(c) {long('s', 'r')} }}> {long('b', 'y', 'q')} }}"
    )
    session, eager = pair(text, verify=True)
    for _ in range(3):
        for trips in (4, 4, 4, 4, 6):
            agree(session, eager, fed(300, trips=trips))
    assert counted(session, "probe mismatches") == (0,)
    # The trip count is a key feed: it has two values.
    assert counted(session, "plans", "body plans") == (2, 1)


@pytest.mark.parametrize("trips", [2, 4])
def test_m11_a_body_whose_constant_is_bad_is_told_in_every_run(trips: int) -> None:
    session = session_on(
        "g (float[n] x, int64 m, bool c) => (float[n] y) { y = Loop (m, c, x) <body ="
        " b (int64 i, bool ci, float[n] a) => (bool co, float[n] r)"
        " <float[3] w = {1, 2, 3}, int64[1] k = {7}> {"
        f" co = Identity(ci) [pick] p = Gather(w, k) s = Add(a, p) {long('s', 'r')} }}> }}"
    )
    feed = {"x": torch.zeros(3), "m": torch.tensor(trips), "c": torch.tensor(True)}
    for _ in range(6):
        with pytest.raises(tos.DeviceIndexError, match=r"pick.*index 7"):
            session.run(None, feed)
