"""What a session knows of its signatures: as numbers under names that are given once, and in words."""

from __future__ import annotations

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import session_on, warmed
from textmodel import wrapped

import torch_ort_session as tos
from torch_ort_session.explain import entries as module
from torch_ort_session.trace import counters

TEXT = (
    "g (float[n] x, bool c, int64 k) => (float[n] y, int64[1,m] z)"
    " { a = Exp(x) b = If (c) <then_branch = t () => (float[n] s) { s = Neg(a) },"
    " else_branch = e () => (float[n] s) { s = Abs(a) }> d = Cast <to = 1> (k) y = Mul(b, d) z = NonZero(y) }"
)


def feed(c: bool, length: int = 3) -> dict[str, torch.Tensor]:
    return {"x": torch.ones(length), "c": torch.tensor(c), "k": torch.tensor(2)}


def test_every_counter_is_there_before_the_first_run() -> None:
    session = session_on(TEXT)
    stats = session.stats()
    assert set(counters.MEANING) < set(stats)
    assert not any(stats.values())
    assert list(stats)[: len(counters.MEANING)] == list(counters.MEANING)


def test_explain_before_the_first_run() -> None:
    assert session_on(TEXT).explain() == "nothing has run"


def test_explain_with_capture_off() -> None:
    session = session_on(TEXT, capture="off")
    session.run(None, feed(True))
    assert session.explain() == "capture is off: every run is eager"


def test_explain_lists_signatures_the_most_recent_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "explain", lambda plan, told: f"(a plan of {len(plan.regions)} regions)")
    session = session_on(TEXT)
    warmed(session, feed(False), 4)
    warmed(session, feed(True), 2)
    warmed(session, feed(True, 5), 1)
    assert_expected_inline(
        session.explain(),
        """\
(x: float32[5], c: bool[] = True, k: int64[]) -> (y, z): cold after 1 run

(x: float32[3], c: bool[] = True, k: int64[]) -> (y, z): warm after 2 runs
(a plan of 2 regions)

(x: float32[3], c: bool[] = False, k: int64[]) -> (y, z): captured after 4 runs
(a plan of 2 regions)""",
    )


def test_explain_shows_the_plan_of_a_signature() -> None:
    session = session_on(TEXT)
    warmed(session, feed(False), 4)
    text = session.explain()
    assert "6 steps on cpu: 5 in 1 segment, 1 in 1 seam" in text
    assert "kernel declares a seam: the size of the output depends on the data" in text


def test_m3_explain_says_why_a_signature_is_not_captured() -> None:
    session = session_on("g (float[n] x) => (int64[1,k] y) { a = Exp(x) y = NonZero(x) }")
    warmed(session, {"x": torch.ones(2)}, 4)
    assert_expected_inline(
        wrapped(session.explain()),
        """\
(x: float32[2]) -> (y): latched after 4 runs
why not captured
node       op                reason                  message
---------  ----------------  ----------------------  ------------------------------------------
(run)                        nothing capturable      no segment is left to record
NonZero_1  ai.onnx::NonZero  kernel declares a seam  the size of the output depends on the data""",
    )


def test_m3_explain_keeps_why_a_capture_was_retired() -> None:
    session = session_on("g (float[n] x) => (int64[1,k] y) { a = Exp(x) z = NonZero(a) y = Neg(z) }")
    warmed(session, {"x": torch.zeros(2)})
    session.run(None, {"x": torch.tensor([0.0, -1000.0])})
    assert_expected_inline(
        wrapped(session.explain()),
        """\
(x: float32[2]) -> (y): cold after 4 runs
why not captured
node       op                reason    message
---------  ----------------  --------
----------------------------------------------------------
NonZero_1  ai.onnx::NonZero  diverged  'z' was int64[1, 2] in the warm run and is now int64[1,
1]""",
    )


def test_explain_of_a_feed_captures_nothing() -> None:
    session = session_on(TEXT)
    text = session.explain(feed(True))
    assert "1 segment" in text and "key feeds: c = True" in text
    assert session.stats()["signatures"] == 0


def test_explain_of_a_model_that_only_fails_to_be_required() -> None:
    session = session_on("g (float[n] x) => (int64[1,k] y) { y = NonZero(x) }", capture="required")
    warmed(session, {"x": torch.ones(2)}, 2)
    try:
        session.run(None, {"x": torch.ones(2)})
    except tos.errors.CaptureError as error:
        assert str(error.report) in session.explain()
    else:
        raise AssertionError("it was captured")
