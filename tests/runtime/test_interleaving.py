"""Interleaving: other shapes, other sessions and other threads between two replays change nothing."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import Transformer, transformer_model
from runtime.capturelab import (
    CHAIN,
    agree,
    counted,
    cpu_recorder,
    injected,
    pair,
    same,
    states,
    warmed,
)
from textmodel import declare, model, operator

import torch_ort_session as tos

MIXED = (
    "g (float[n] x, float[n] w) => (float[n] y, int64[1,k] z, float[n] v)"
    " { a = Exp(x) b = Mul(a, w) z = NonZero(b) v = Neg(b) c = Abs(v) y = Sub(c, x) }"
)


def feed(length: int = 4, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(length).to(dtype), "w": torch.rand(length).to(dtype) + 1}


@pytest.mark.parametrize("order", ["AAABABBA", "ABABABAB", "AABBAABB", "ABCABCABCABC"])
def test_m16_shapes_that_alternate(order: str) -> None:
    session, eager = pair(MIXED)
    for letter in order * 3:
        agree(session, eager, feed({"A": 4, "B": 5, "C": 1000}[letter]))
    assert set(states(session)) == {"captured"}


def test_m6_dtypes_that_alternate() -> None:
    text = "g (x) => (y) { a = Add(x, x) b = Mul(a, x) y = Sub(b, a) }"
    proto = model(text)
    session = injected(tos.load(proto), cpu_recorder)
    eager = tos.load(proto, options=tos.Options(capture="off"))
    dtypes = (torch.float32, torch.int64, torch.float64, torch.float16)
    for step in range(24):
        agree(session, eager, {"x": (torch.randn(4) * 10).to(dtypes[step % len(dtypes)])})
    assert states(session) == ["captured"] * 4


def test_m16_eager_runs_of_other_shapes_between_replays() -> None:
    session, eager = pair(MIXED)
    warmed(session, feed(6))
    for length in range(7, 30):
        agree(session, eager, feed(length))
        agree(session, eager, feed(6))


def test_m6_a_hundred_prompt_lengths_hold_no_more_than_their_cap() -> None:
    torch.manual_seed(0)
    proto = transformer_model(Transformer(layers=1))
    session, eager = tos.load(proto), tos.load(proto, options=tos.Options(capture="off"))
    injected(session, cpu_recorder)
    most = 0
    for number in range(100):
        length, batch = 1 + number % 10, 1 + number // 10
        given = {"ids": torch.randint(0, 20, (batch, length)), "mask": torch.randn(batch, length)}
        torch.testing.assert_close(session.run(None, given), eager.run(None, given), rtol=1e-5, atol=1e-5)
        often = {"ids": torch.randint(0, 20, (1, 11)), "mask": torch.randn(1, 11)}
        torch.testing.assert_close(session.run(None, often), eager.run(None, often), rtol=1e-5, atol=1e-5)
        stats = session.stats()
        most = max(most, stats["plans"])
    assert (most, stats["captures"], stats["replays"]) == (1, 1, 97)
    assert stats["signatures"] <= 8 * 5
    for length in range(1, 13):
        given = {"ids": torch.randint(0, 20, (20, length)), "mask": torch.randn(20, length)}
        for _ in range(4):
            session.run(None, given)
    stats = session.stats()
    assert (stats["plans"], stats["captures"], stats["evictions"]) == (8, 13, 5)


def test_two_sessions_of_one_model_share_nothing_that_runs_write() -> None:
    first, eager = pair(MIXED)
    second, _ = pair(MIXED)
    for _ in range(8):
        a, b = feed(), feed()
        one, two = first.run(None, a), second.run(None, b)
        same(one, eager.run(None, a))
        same(two, eager.run(None, b))


def test_one_session_is_released_while_another_replays() -> None:
    first, eager = pair(MIXED)
    second, _ = pair(MIXED)
    for _ in range(4):
        agree(first, eager, feed())
        agree(second, eager, feed())
    first.release_memory()
    for _ in range(4):
        agree(second, eager, feed())
        agree(first, eager, feed())


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_of_a_session_with_captures_start_afresh(clone: Callable[[tos.Session], tos.Session]) -> None:
    session, eager = pair(MIXED)
    warmed(session, feed())
    other = clone(session)
    assert counted(other, "captures", "plans") == (0, 0) and other.options == session.options
    for _ in range(5):
        agree(other, eager, feed())
        agree(session, eager, feed())


def in_threads(*bodies: Callable[[], None]) -> None:
    """Run bodies at once; what one raises is raised here."""
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                body()
            except BaseException as error:
                errors.append(error)

        return run

    threads = [threading.Thread(target=guarded(body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


def test_two_sessions_that_capture_at_once() -> None:
    barrier = threading.Barrier(2)

    @declare
    def Meet(x: torch.Tensor) -> torch.Tensor:
        if torch._C._len_torch_dispatch_stack():
            barrier.wait(30)
        return x + 1

    with operator(Meet):
        text = "g (float[n] x) => (float[n] y) { a = Exp(x) b = tests.Meet(a) c = Neg(b) y = tests.Meet(c) }"
        pairs = [pair(text), pair(text)]

        def runs(session: tos.Session, eager: tos.Session) -> Callable[[], None]:
            def body() -> None:
                for _ in range(20):
                    agree(session, eager, {"x": torch.randn(5)})

            return body

        in_threads(*(runs(*both) for both in pairs))
    for session, _ in pairs:
        assert counted(session, "captures", "replays", "declines") == (1, 17, 0)


def test_another_thread_allocates_and_runs_while_one_captures() -> None:
    working = threading.Event()
    done = threading.Event()

    @declare
    def Wait(x: torch.Tensor) -> torch.Tensor:
        if torch._C._len_torch_dispatch_stack():
            working.clear()
            assert working.wait(30)
        return x * 2

    with operator(Wait):
        session, eager = pair("g (float[n] x) => (float[n] y) { a = Exp(x) b = tests.Wait(a) y = Neg(b) }")

        def captures() -> None:
            try:
                for _ in range(10):
                    agree(session, eager, {"x": torch.randn(5)})
            finally:
                done.set()

        def allocates() -> None:
            held: list[Any] = []
            while not done.is_set():
                held = [torch.randn(100).exp() for _ in range(20)]
                assert held[0].sum().item() > 0
                working.set()

        in_threads(captures, allocates)
    assert counted(session, "captures", "replays", "declines") == (1, 7, 0)


def test_runs_of_one_session_from_many_threads_serialise() -> None:
    session, eager = pair(CHAIN)

    def body() -> None:
        for length in (3, 4, 3, 4, 3, 4, 3, 4):
            agree(session, eager, feed(length))

    in_threads(*[body] * 4)
    assert counted(session, "captures", "replays") == (2, 32 - 6)


def test_a_thread_that_releases_between_replays() -> None:
    session, eager = pair(CHAIN)
    done = threading.Event()

    def replays() -> None:
        try:
            for _ in range(60):
                agree(session, eager, feed())
        finally:
            done.set()

    def releases() -> None:
        while not done.is_set():
            session.release_memory()
            session.stats()
            session.explain()

    in_threads(replays, releases)


def test_a_session_that_runs_another_one_of_its_kind_inside_a_kernel() -> None:
    inner, inner_eager = pair("g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }")
    warmed(inner, {"x": torch.randn(3)})

    @declare
    def Nested(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = inner.run(None, {"x": x})[0]
        return result

    with operator(Nested):
        session, eager = pair("g (float[n] x) => (float[n] y) { a = Abs(x) b = tests.Nested(a) y = Abs(b) }")
        for _ in range(6):
            given = {"x": torch.randn(3)}
            want = inner_eager.run(None, {"x": given["x"].abs()})[0].abs()
            assert torch.equal(session.run(None, given)[0], want)
            agree(session, eager, given)
