"""Memory: what captures hold is counted, goes back on release, and does not grow."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import Any

import torch
from runtime.capturelab import CHAIN, agree, counted, entries, pair, session_on, states, warmed
from textmodel import load

SEAMS = (
    "g (float[n] x, float[n] w) => (float[n] y, float[k] v)"
    " { a = Exp(x) b = Mul(a, w) z = NonZero(b) f = Cast <to = 1> (z) c = Neg(b) y = Sub(c, a) i = Squeeze(z)"
    " v = Gather(c, i) }"
)


def feed(length: int = 4) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(length), "w": torch.rand(length) + 1}


def held_by(session: Any) -> list[weakref.ref[torch.Tensor]]:
    """Everything that captures of a session hold and that is not a constant of the model."""
    found = []
    for entry in entries(session):
        if entry.captured is not None:
            constants = {id(value) for value in entry.captured.planned.program.steps.template}
            found += [
                weakref.ref(value)
                for value in entry.captured.frame
                if isinstance(value, torch.Tensor) and id(value) not in constants
            ]
    return found


def test_release_gives_everything_back_and_runs_are_right_afterwards() -> None:
    session, eager = pair(SEAMS)
    for length in (4, 8, 16):
        warmed(session, feed(length))
    held = held_by(session)
    assert len(held) > 6
    session.release_memory()
    gc.collect()
    assert [ref for ref in held if ref() is not None] == []
    names = ("signatures", "plans", "arena bytes", "static input bytes", "landing bytes", "crossing bytes")
    assert counted(session, *names) == (0,) * 6
    for _ in range(5):
        agree(session, eager, feed(8))
    assert states(session) == ["captured"]


def test_bytes_are_counted() -> None:
    session, _ = pair(SEAMS)
    warmed(session, feed(100))
    stats = session.stats()
    assert stats["static input bytes"] == 2 * 400
    assert stats["landing bytes"] == 800
    # b and a, c and y: what seams, later segments or the user read.
    assert stats["crossing bytes"] >= 3 * 400
    before = stats["bytes copied"]
    session.run(None, feed(100))
    assert session.stats()["bytes copied"] == before + 800


def test_a_retired_capture_holds_nothing() -> None:
    session, _ = pair(SEAMS)
    warmed(session, feed(6))
    held = held_by(session)
    zeros = feed(6)
    zeros["w"] = torch.zeros(6)
    session.run(None, zeros)
    gc.collect()
    assert states(session) == ["cold"]
    assert [ref for ref in held if ref() is not None] == []
    assert session.stats()["arena bytes"] == 0


def test_an_evicted_capture_holds_nothing() -> None:
    session = session_on(CHAIN, max_plans=1)
    warmed(session, feed(5))
    held = held_by(session)
    warmed(session, feed(6))
    gc.collect()
    assert [ref for ref in held if ref() is not None] == []
    assert counted(session, "plans", "evictions") == (1, 1)


def test_blocks_are_shared_by_captures_of_one_session() -> None:
    session = session_on(CHAIN)
    warmed(session, feed(1000))
    before = session.stats()["arena bytes"]
    for length in (10, 100, 500):
        warmed(session, feed(length))
    assert session.stats()["arena bytes"] == before > 0


def test_a_session_that_goes_takes_its_captures_with_it() -> None:
    session = session_on(CHAIN)
    warmed(session, feed())
    held = held_by(session)
    del session
    gc.collect()
    assert [ref for ref in held if ref() is not None] == []


def test_replays_hold_no_more_than_the_first_one() -> None:
    session = session_on(SEAMS)
    given = feed(50)
    warmed(session, given, 6)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(20):
            session.run(None, given)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(200):
            session.run(None, given)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4096


def test_capture_and_release_over_and_over_hold_no_more() -> None:
    session = session_on(SEAMS)
    given = feed(50)

    def objects() -> int:
        for _ in range(10):
            warmed(session, given, 4)
            session.release_memory()
        gc.collect()
        return len(gc.get_objects())

    objects()
    assert abs(objects() - objects()) < 10


def test_a_result_outlives_the_session_and_its_captures() -> None:
    session = load(CHAIN)
    given = feed()
    warmed(session, given)
    (y,) = session.run(None, given)
    then = y.clone()
    session.release_memory()
    del session
    gc.collect()
    junk = [torch.full((4,), 7.0) for _ in range(200)]
    assert torch.equal(y, then) and len(junk) == 200
