"""Capturing: a capture run gives this step's results once, and one that is declined leaves nothing behind."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import (
    CHAIN,
    STEPS,
    Failing,
    agree,
    counted,
    cpu_recorder,
    entries,
    fail_alike,
    injected,
    pair,
    reasons,
    regions,
    same,
    session_on,
    states,
    warmed,
)
from textmodel import declare, message, operator

import torch_ort_session as tos
from torch_ort_session.plan.partition.report import DeclineReport, Reason
from torch_ort_session.runtime.recorders.api import Recorder

SEAMS = (
    "g (float[n] x, float[n] w) => (float[k] y, int64[1,k] z)"
    " { a = Exp(x) z = NonZero(x) b = Mul(a, w) i = Squeeze(z) y = Gather(b, i) }"
)


def feed(length: int = 4) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(length), "w": torch.randn(length)}


def test_m2_the_run_that_captures_gives_its_results() -> None:
    session, eager = pair(SEAMS)
    for _ in range(6):
        agree(session, eager, feed())
    assert counted(session, "eager runs", "observed runs", "captures", "replays") == (1, 1, 1, 3)
    assert regions(session) == ["1 recorded", "NonZero", "3 recorded"]


def test_m2_a_signature_seen_only_twice_is_never_captured() -> None:
    session, eager = pair(CHAIN)
    for length in range(1, 20):
        agree(session, eager, feed(length))
        agree(session, eager, feed(length))
    assert counted(session, "captures", "declines") == (0, 0)


@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_m2_a_recorder_that_breaks_at_a_step_leaves_the_run_right(at: int) -> None:
    session, eager = pair(CHAIN)
    injected(session, lambda: Failing(at, lambda: OSError("the recorder is out of order")))
    for _ in range(4):
        agree(session, eager, feed())
    assert counted(session, "captures", "declines", "failed captures") == (0, 1, 1)
    assert reasons(session) == [Reason.RECORDING]
    injected(session, cpu_recorder)
    for _ in range(4):
        agree(session, eager, feed())
    assert states(session) == ["captured"]


def test_m2_captures_that_always_break_are_given_up_and_the_report_says_so() -> None:
    session, eager = pair(CHAIN)
    injected(session, lambda: Failing(3, lambda: OSError("the recorder is out of order")))
    for _ in range(20):
        agree(session, eager, feed())
    assert states(session) == ["latched"]
    assert counted(session, "failed captures", "latched signatures") == (4, 1)
    assert reasons(session) == [Reason.RECORDING, Reason.LATCHED]


@pytest.mark.parametrize("at", [1, 3, 5])
def test_m2_recordings_of_a_broken_capture_are_closed(at: int) -> None:
    made: list[Failing] = []

    def make() -> Recorder:
        made.append(Failing(at, lambda: OSError("out of order")))
        return made[-1]

    session, eager = pair(SEAMS)
    injected(session, make)
    for _ in range(3):
        agree(session, eager, feed())
    assert len(made) == 1
    for recording in made[0].recordings:
        with pytest.raises(RuntimeError, match=r"closed|retired"):
            recording.replay()


def test_failing_captures_leak_nothing() -> None:
    kept: list[weakref.ref[torch.Tensor]] = []

    @declare
    def Note(x: torch.Tensor) -> torch.Tensor:
        kept.append(weakref.ref(result := x + 1))
        return result

    with operator(Note):
        session = session_on(
            "g (float[n] x) => (float[n] y) { a = tests.Note(x) b = Exp(a) y = tests.Note(b) }"
        )
        injected(session, lambda: Failing(2, lambda: OSError("out of order")))
        for length in range(1, 9):
            for _ in range(4):
                session.run(None, {"x": torch.zeros(length)})
    gc.collect()
    assert session.stats()["failed captures"] == 8
    assert not [ref for ref in kept if ref() is not None]
    assert session.stats()["arena bytes"] == 0


def test_m3_out_of_memory_is_a_decline_and_not_a_quarantine() -> None:
    session, eager = pair(CHAIN)
    injected(session, lambda: Failing(2, lambda: torch.OutOfMemoryError("tried to allocate 1 TiB")))
    for _ in range(3):
        agree(session, eager, feed())
    assert reasons(session) == [Reason.MEMORY]
    assert session.stats()["quarantined operators"] == 0


def test_m3_an_arena_that_cannot_be_had_is_a_decline(monkeypatch: pytest.MonkeyPatch) -> None:
    session, eager = pair(CHAIN)

    def block(nbytes: int) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")

    monkeypatch.setattr(session._engine.state.arena, "block", block)
    for _ in range(3):
        agree(session, eager, feed())
    assert reasons(session) == [Reason.MEMORY]
    monkeypatch.undo()
    for _ in range(3):
        agree(session, eager, feed())
    assert states(session) == ["captured"]


def test_m3_without_a_recorder_the_session_stays_eager() -> None:
    session, eager = pair(CHAIN)
    injected(session, lambda: "extension not built")
    for _ in range(5):
        agree(session, eager, feed())
    assert states(session) == ["latched"] and reasons(session) == [Reason.OFF]


def test_m3_nothing_capturable_lists_every_region() -> None:
    session, eager = pair(
        "g (float[n] x) => (int64[1,k] y, float[1,n] z) <int64[1] a = {0}>"
        " { y = NonZero(x) z = Unsqueeze(x, a) }"
    )
    for _ in range(4):
        agree(session, eager, {"x": torch.randn(3)})
    assert reasons(session) == [Reason.NOTHING, Reason.SEAM, Reason.SHORT]


def test_m3_a_segment_below_the_minimum_runs_eagerly() -> None:
    session, eager = pair("g (float[n] x) => (int64[1,k] y, float[n] z) { z = Exp(x) y = NonZero(z) }")
    session._engine.state = dataclasses.replace(session._engine.state, minimum=2)
    for _ in range(4):
        agree(session, eager, {"x": torch.randn(3)})
    assert reasons(session) == [Reason.NOTHING, Reason.SHORT, Reason.SEAM]


def test_capture_off_never_captures() -> None:
    session = session_on(CHAIN, capture="off")
    warmed(session, feed(), 5)
    assert not entries(session) and counted(session, "captures", "replays") == (0, 0)


def test_m2_a_required_capture_that_is_declined_is_an_error_with_its_report() -> None:
    session = session_on("g (float[n] x) => (int64[1,k] y) { y = NonZero(x) }", capture="required")
    given = {"x": torch.randn(3)}
    session.run(None, given)
    session.run(None, given)
    for _ in range(2):
        with pytest.raises(tos.errors.CaptureError) as caught:
            session.run(None, given)
        assert isinstance(caught.value.report, DeclineReport)
    assert_expected_inline(
        message(tos.errors.CaptureError, lambda: session.run(None, given)),
        """\
the run could not be captured:
node       op                reason                  message
---------  ----------------  ----------------------  ------------------------------------------
(run)                        nothing capturable      no segment is left to record
NonZero_0  ai.onnx::NonZero  kernel declares a seam  the size of the output depends on the data""",
    )


def test_m2_a_required_capture_leaves_the_random_state_alone() -> None:
    session = session_on("g (float[n] x) => (float[n] y) { y = RandomNormalLike(x) }", capture="required")
    given = {"x": torch.randn(3)}
    session.run(None, given)
    session.run(None, given)
    before = torch.get_rng_state()
    with pytest.raises(tos.errors.CaptureError):
        session.run(None, given)
    assert torch.equal(torch.get_rng_state(), before)


def test_m2_a_required_capture_that_breaks_is_an_error_and_is_tried_again() -> None:
    session = session_on(CHAIN, capture="required")
    working = session._engine.state.recorder
    injected(session, lambda: Failing(2, lambda: OSError("out of order")))
    session.run(None, feed())
    session.run(None, feed())
    with pytest.raises(tos.errors.CaptureError, match="out of order"):
        session.run(None, feed())
    injected(session, working)
    warmed(session, feed())
    assert states(session) == ["captured"]


@pytest.mark.parametrize("capture", ["auto", "required"])
def test_m2_bad_data_in_the_run_that_captures_is_the_data_s_own_error(capture: str) -> None:
    text = "g (float[n] x, int64[k] i) => (float[k] y) { a = Exp(x) y = Gather(a, i) }"
    session, eager = session_on(text, capture=capture), session_on(text, capture="off")
    good = {"x": torch.randn(3), "i": torch.tensor([0, 2])}
    bad = {"x": torch.randn(3), "i": torch.tensor([0, 9])}
    warmed(session, good, 2)
    for _ in range(6):
        fail_alike(session, eager, bad)
    assert counted(session, "declines", "failed captures") == (0, 0)
    agree(session, eager, good)
    assert states(session) == ["captured"]


@pytest.mark.parametrize("at", range(1, STEPS + 1))
def test_an_interrupt_in_a_capture_leaves_the_session_usable(at: int) -> None:
    session, eager = pair(CHAIN)
    working = session._engine.state.recorder
    warmed(session, feed(), 2)
    injected(session, lambda: Failing(at, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        session.run(None, feed())
    assert torch._C._len_torch_dispatch_stack() == 0 and torch.is_grad_enabled()
    injected(session, working)
    for _ in range(3):
        agree(session, eager, feed())
    assert states(session) == ["captured"]


def test_m7_a_shape_that_is_another_one_in_the_capture_run_declines_and_warms_up_again() -> None:
    session, eager = pair(SEAMS)
    ones = {"x": torch.ones(4), "w": torch.randn(4)}
    warmed(session, ones, 2)
    agree(session, eager, {"x": torch.tensor([1.0, 0, 0, 0]), "w": torch.randn(4)})
    assert states(session) == ["cold"] and reasons(session) == [Reason.DIVERGED]
    report = entries(session)[0].report
    assert_expected_inline(
        str(report),
        """\
node       op                reason    message
---------  ----------------  --------  ----------------------------------------------------------
NonZero_1  ai.onnx::NonZero  diverged  'z' was int64[1, 4] in the warm run and is now int64[1, 1]""",
    )
    for _ in range(3):
        agree(session, eager, ones)
    assert states(session) == ["captured"]


def test_m7_shapes_that_no_segment_reads_may_be_any() -> None:
    session, eager = pair("g (float[n] x) => (int64[1,k] y, float[n] z) { z = Exp(x) y = NonZero(x) }")
    for _ in range(10):
        agree(session, eager, {"x": torch.randint(0, 2, (6,)).float()})
    assert counted(session, "captures", "retirements", "declines") == (1, 0, 0)


def test_m21_sequences_and_strings_are_seams_around_segments() -> None:
    session, eager = pair(
        "g (float[n] x, string[m] s) => (float[k] y, string[m] t, seq(float[n]) q)"
        " { a = Exp(x) q = SequenceConstruct(a, x) c = ConcatFromSequence <axis = 0> (q) y = Neg(c)"
        " t = StringConcat(s, s) }"
    )
    for step in range(6):
        agree(session, eager, {"x": torch.randn(3), "s": np.array(["a", str(step)], dtype=object)})
    assert states(session) == ["captured"]


def test_m21_sequences_and_optionals_that_are_fed() -> None:
    session, eager = pair(
        "g (seq(float[n]) q, optional(float[n]) o, float[n] x) => (float[k] y, bool h, float[n] z)"
        " { c = ConcatFromSequence <axis = 0> (q) y = Exp(c) h = OptionalHasElement(o) z = Neg(x) }"
    )
    for step in range(12):
        optional = None if step % 2 else torch.randn(3)
        agree(session, eager, {"q": [torch.randn(3), torch.randn(3)], "o": optional, "x": torch.randn(3)})
    assert set(states(session)) == {"captured"}


@pytest.mark.parametrize("mode", ["inference", "autocast", "no_grad", "grad", "default device"])
def test_captures_do_not_depend_on_the_callers_modes(mode: str) -> None:
    modes: dict[str, Any] = {
        "inference": torch.inference_mode,
        "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
        "no_grad": torch.no_grad,
        "grad": torch.enable_grad,
        "default device": lambda: torch.device("meta"),
    }
    text = "g (float[n,n] x, float[n,n] w) => (float[n,n] y) { a = MatMul(x, w) b = Exp(a) y = Sub(b, x) }"
    session, eager = pair(text)
    draws = [{"x": torch.randn(3, 3), "w": torch.randn(3, 3)} for _ in range(8)]
    for step, given in enumerate(draws):
        want = eager.run(None, given)
        with modes[mode]() if step in (0, 1, 2, 5, 6) else contextlib.nullcontext():
            got = session.run(None, given)
        assert not got[0].is_inference() and not got[0].requires_grad
        same(got, want)
    assert counted(session, "captures", "replays") == (1, 5)


def test_runs_with_grad_between_replays_are_eager_and_differentiable() -> None:
    session = session_on("g (float[n] x) => (float[n] y) { a = Sin(x) b = Mul(a, a) y = Neg(b) }")
    warmed(session, {"x": torch.randn(3)})
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        (y,) = session.run(None, {"x": x})
        held = y.detach().clone()
        (z,) = session.run(None, {"x": torch.randn(3)})
        assert not z.requires_grad
        y.sum().backward()
        torch.testing.assert_close(x.grad, -(2 * x).sin().detach())
        assert torch.equal(y, held)
    assert counted(session, "captures", "replays") == (1, 3)
