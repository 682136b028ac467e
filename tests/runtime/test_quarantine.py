"""Quarantine: an operator whose recording fails becomes a seam, for the session, and capture goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from runtime.capturelab import (
    CHAIN,
    STEPS,
    Failing,
    agree,
    counted,
    cpu_recorder,
    entries,
    injected,
    pair,
    reasons,
    refusal,
    regions,
    states,
    warmed,
)
from textmodel import declare, operator

from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.runtime.recorders.api import Recorder, Recording, Refused

OPS = ("Exp", "Mul", "Neg", "Add", "Abs", "Sub")


def feed(length: int = 4) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(length), "w": torch.randn(length)}


def once(at: int) -> Callable[[], Recorder]:
    """Makes recorders of which the first one refuses its ``at``-th call."""
    made: list[Recorder] = []

    def make() -> Recorder:
        made.append(Failing(at if not made else -1, refusal))
        return made[-1]

    return make


@declare
def Reads(x: torch.Tensor) -> torch.Tensor:
    """Says that it can be captured, and reads data."""
    return x * float(x.sum().item())


@declare
def Converts(x: torch.Tensor) -> torch.Tensor:
    """Leaves the dispatcher's sight."""
    return torch.from_numpy(x.numpy() * 2)


@declare
def Counts(x: torch.Tensor) -> torch.Tensor:
    """Its result's shape depends on data."""
    return x[x > 0].sum().reshape(1) + x


@declare
def Swallows(x: torch.Tensor) -> torch.Tensor:
    """Hides that it was refused."""
    try:
        return x * x.max().item()
    except RuntimeError:
        return x * 0


@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_m8_the_operator_that_cannot_be_recorded_becomes_a_seam(at: int) -> None:
    session, eager = pair(CHAIN)
    injected(session, once(at))
    for _ in range(6):
        agree(session, eager, feed())
    assert session._engine.state.dispatcher.quarantined == {("", OPS[at - 1])}
    assert OPS[at - 1] in regions(session)
    assert counted(session, "captures", "replays", "declines", "quarantined operators") == (1, 3, 0, 1)


@pytest.mark.parametrize("kernel", [Reads, Converts, Counts])
def test_m8_a_kernel_that_lies_about_being_capturable_runs_eagerly(kernel: Any) -> None:
    with operator(kernel):
        text = f"g (float[n] x) => (float[n] y) {{ a = Exp(x) b = tests.{kernel.__name__}(a) y = Neg(b) }}"
        session, eager = pair(text)
        for _ in range(6):
            agree(session, eager, {"x": torch.randn(4)})
    assert regions(session) == ["1 recorded", kernel.__name__, "1 recorded"]
    assert session._engine.state.dispatcher.quarantined == {("tests", kernel.__name__)}


def test_m8_a_refusal_that_no_node_can_be_blamed_for_declines() -> None:
    with operator(Swallows):
        session, eager = pair(
            "g (float[n] x) => (float[n] y) { a = Exp(x) b = tests.Swallows(a) y = Neg(b) }"
        )
        for _ in range(5):
            agree(session, eager, {"x": torch.randn(4)})
    assert states(session) == ["latched"] and reasons(session) == [Reason.RECORDING]
    assert not session._engine.state.dispatcher.quarantined


def test_m8_retries_end_when_every_operator_is_quarantined() -> None:
    session, eager = pair(CHAIN)
    injected(session, lambda: Failing(1, refusal))
    for _ in range(5):
        agree(session, eager, feed())
    assert session._engine.state.dispatcher.quarantined == {("", op) for op in OPS}
    assert states(session) == ["latched"]
    assert reasons(session) == [Reason.NOTHING] + [Reason.RECORDING] * len(OPS)
    assert counted(session, "declines", "quarantined operators") == (1, len(OPS))


def test_m8_an_operator_refused_in_spite_of_its_quarantine_declines() -> None:
    class Stubborn:
        def record(self, body: Callable[[], None]) -> Recording:
            raise Refused("nothing can be recorded")

    session, eager = pair(CHAIN)
    injected(session, Stubborn)
    for _ in range(5):
        agree(session, eager, feed())
    assert states(session) == ["latched"] and not session._engine.state.dispatcher.quarantined


def test_m8_the_set_is_the_sessions_own_and_outlives_its_captures() -> None:
    session, eager = pair(CHAIN)
    other, _ = pair(CHAIN)
    injected(session, once(3))
    warmed(session, feed())
    injected(session, cpu_recorder)
    session.release_memory()
    for length in (4, 7):
        warmed(session, feed(length))
        assert regions(session) == ["2 recorded", "Neg", "3 recorded"]
        agree(session, eager, feed(length))
    warmed(other, feed())
    assert regions(other) == ["6 recorded"]


def test_m8_captures_made_before_stay() -> None:
    session, eager = pair(CHAIN)
    warmed(session, feed(3))
    injected(session, once(2))
    warmed(session, feed(4))
    for _ in range(3):
        agree(session, eager, feed(3))
        agree(session, eager, feed(4))
    assert [len(entry.captured.regions) for entry in entries(session) if entry.captured] == [1, 3]


def test_m8_random_state_is_restored_before_a_retry() -> None:
    text = "g (float[n] x) => (float[n] y) { r = RandomNormalLike(x) a = Add(r, x) b = Exp(a) y = Neg(b) }"
    session, eager = pair(text)
    for step in range(6):
        given = {"x": torch.randn(3)}
        results = []
        for runs in (session, eager):
            torch.manual_seed(step)
            results.append((runs.run(None, given)[0], torch.randn(2)))
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert regions(session) == ["RandomNormalLike", "3 recorded"]


def test_m8_explain_names_what_is_quarantined() -> None:
    session, _ = pair(CHAIN)
    injected(session, once(3))
    warmed(session, feed())
    assert "quarantined in this session: ai.onnx::Neg" in session.explain()
    assert "recording ai.onnx::Neg failed before" in session.explain()
