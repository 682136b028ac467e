"""Runs that are begun within a run of the same session and thread, as a signal handler may."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import session_on
from textmodel import operator, wrapped

import torch_ort_session as tos
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.runtime.dispatch.state import Reentrancy
from torch_ort_session.runtime.validation.validator import ValidationScope, ValidationWord

TEXT = (
    "g (float[n] x) => (float[n] y, float[n] z) { a = Exp(x) b = Neg(a) c = tests.Call(b)"
    " d = Add(c, a) y = Abs(d) z = Mul(b, c) }"
)


class Inside:
    """What the kernel ``Call`` does in the midst of a run, as whoever interrupts it might."""

    def __init__(self) -> None:
        self.act: Callable[[], None] = lambda: None


@pytest.fixture
def inside() -> Iterator[Inside]:
    here = Inside()

    @kernel("Call", since=(1,), domain="tests", seam="it calls back")
    def call(x: torch.Tensor) -> torch.Tensor:
        act, here.act = here.act, lambda: None
        act()
        return x * 2

    with operator(call):
        yield here


def expected(x: torch.Tensor) -> list[torch.Tensor]:
    a = x.exp()
    return [(a - 2 * a).abs(), 2 * a * a]


def right(session: tos.Session, x: torch.Tensor) -> None:
    for got, want in zip(session.run(None, {"x": x}), expected(x), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("traced", [False, True])
def test_m19_a_run_within_a_run_changes_nothing_of_the_outer_one(inside: Inside, traced: bool) -> None:
    session = session_on(TEXT)
    for step in range(10):
        other = torch.randn(5)

        def again(other: torch.Tensor = other) -> None:
            right(session, other)

        inside.act = again
        if traced and step > 4:
            with session.trace():
                right(session, torch.randn(5))
        else:
            right(session, torch.randn(5))
    stats = session.stats()
    assert (stats["captures"], stats["retirements"]) == (1, 0)
    assert stats["replays"] >= 7


def test_a_run_within_a_run_within_a_run(inside: Inside) -> None:
    session = session_on(TEXT)
    depth = 0

    def deeper() -> None:
        nonlocal depth
        depth += 1
        inside.act = deeper if depth % 4 else (lambda: None)
        right(session, torch.randn(3))

    for _ in range(6):
        inside.act = deeper
        right(session, torch.randn(3))
    assert depth == 24


def test_memory_is_released_at_the_end_of_the_run_that_asks(inside: Inside) -> None:
    session = session_on(TEXT)
    for _ in range(5):
        right(session, torch.randn(3))
    inside.act = session.release_memory
    right(session, torch.randn(3))
    assert (session.stats()["arena bytes"], session.stats()["signatures"]) == (0, 0)
    right(session, torch.randn(3))


def test_bindings_and_plans_refuse(inside: Inside) -> None:
    session = session_on(TEXT)
    binding = session.bind()
    binding.input("x", torch.randn(3))
    found: list[str] = []

    def both() -> None:
        for act in (binding.run, lambda: session.plan({"x": torch.randn(3)})):
            with pytest.raises(tos.SessionError) as info:
                act()
            found.append(str(info.value))

    inside.act = both
    right(session, torch.randn(3))
    binding.run()
    assert_expected_inline(
        wrapped("\n".join(found)),
        """\
a run of a binding was asked for within a run of the same session, by a signal handler, a
finalizer, a hook or a kernel; do it after that run, or with another session
a plan was asked for within a run of the same session, by a signal handler, a finalizer, a hook
or a kernel; do it after that run, or with another session""",
    )


def test_a_failure_leaves_the_session_for_the_next_run(inside: Inside) -> None:
    session = session_on(TEXT)

    def stop() -> None:
        raise KeyboardInterrupt

    for _ in range(5):
        inside.act = stop
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"x": torch.randn(3)})
        right(session, torch.randn(3))
    assert session.stats()["replays"] > 0


@pytest.mark.parametrize("validate", ["run", "deferred"])
def test_m11_bad_data_of_a_run_within_a_run_is_told(inside: Inside, validate: Any) -> None:
    text = (
        "g (float[n] x, int64[k] i) => (float[k] y)"
        " { a = Exp(x) b = tests.Call(a) c = Neg(b) y = Gather(c, i) }"
    )
    session = session_on(text, validate=validate)
    x, good = torch.arange(4.0), torch.tensor([3, 0])
    told: list[str] = []

    def bad() -> None:
        with pytest.raises(tos.errors.DeviceIndexError) as info:
            session.run(None, {"x": x, "i": torch.tensor([4])})
        told.append(info.value.args[0])

    for _ in range(6):
        inside.act = lambda: torch.testing.assert_close(session(x, good), -2 * x.exp()[good])
        torch.testing.assert_close(session(x, good), -2 * x.exp()[good])
        inside.act = bad
        # The word tells nobody which of the two runs it was.
        with pytest.raises(tos.errors.DeviceIndexError):
            session.run(None, {"x": x, "i": good})
    assert len(told) == 6
    torch.testing.assert_close(session(x, good), -2 * x.exp()[good])


def test_m16_bodies_of_a_run_within_a_run_are_not_those_of_the_outer_one(inside: Inside) -> None:
    text = (
        "g (float[n] x) => (float[n] y) <int64 m = {12}> { y, s = Loop (m, , x) <body = b (int64 i, bool c,"
        " float[n] u) => (bool d, float[n] v, float[n] w) { d = Identity(c) e = Tanh(u) f = Neg(e) g = Abs(f)"
        " h = Add(g, x) j = Sub(h, e) k = Mul(j, j) l = Sqrt(k) o = tests.Call(l) p = Sin(o) q = Cos(p)"
        " r = Add(q, x) t = Neg(r) v = Sigmoid(t) w = Neg(v) }> }"
    )
    session, eager = session_on(text), session_on(text, capture="off")
    for _ in range(8):
        x, other = torch.randn(5), torch.randn(5)
        want, wanted = eager(x), eager(other)

        def again(other: torch.Tensor = other, wanted: torch.Tensor = wanted) -> None:
            torch.testing.assert_close(session(other), wanted)

        inside.act = again
        torch.testing.assert_close(session(x), want)


@pytest.mark.parametrize(
    "place", [(ValidationWord, "begin"), (ValidationScope, "__exit__"), (Reentrancy, "settle")]
)
@pytest.mark.parametrize("bound", [False, True])
def test_m11_an_interrupt_anywhere_leaves_the_session_usable(
    monkeypatch: pytest.MonkeyPatch, place: tuple[type, str], bound: bool
) -> None:
    session = session_on(
        "g (float[n] x, int64[k] i) => (float[k] y) { a = Exp(x) b = Neg(a) y = Gather(b, i) }"
    )
    x, i = torch.randn(4), torch.tensor([3, 0])
    binding = session.bind()
    binding.input("x", x)

    def call() -> object:
        return binding.run({"i": i}) if bound else session.run(None, {"x": x, "i": i})

    for _ in range(6):
        kind, name = place
        plain = getattr(kind, name)

        def interrupted(*args: Any, plain: Any = plain, before: bool = name != "begin") -> Any:
            if not before:
                plain(*args)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(kind, name, interrupted)
            session._engine.state.reentrancy.due = session.release_memory if name == "settle" else None
            with contextlib.suppress(KeyboardInterrupt):
                call()
        call()
        torch.testing.assert_close(session(x, i), -x.exp()[i])
    assert session._engine.state.reentrancy.depth == 0
