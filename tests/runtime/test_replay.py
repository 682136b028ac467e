"""Replaying: results follow the feeds, and what differs from the captured run is noticed and made right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import (
    agree,
    counted,
    entries,
    fail_alike,
    pair,
    reasons,
    regions,
    same,
    states,
    warmed,
)
from textmodel import declare, operator

import torch_ort_session as tos
from torch_ort_session.plan.partition.report import Reason

NONZERO = (
    "g (float[n] x, float[n] w) => (float[k] y, float[n] v) <int64[1] m = {-1}>"
    " { a = Exp(x) z = NonZero(x) f = Reshape(z, m) b = Mul(a, w) c = Gather(b, f) d = Neg(c) y = Abs(d)"
    " e = Neg(b) v = Sub(e, x) }"
)
BRANCH = (
    "g (float[n] x, bool c) => (float[m] y, float[n] z) { p = ReduceSum <keepdims = 0> (x)"
    " zero = Constant <value_float = 0.0> () q = Greater(p, zero) n = Neg(x)"
    " b = If (q) <then_branch = t () => (float[n] a) { a = Exp(n) },"
    " else_branch = e () => (float[k] s) { s = Concat <axis = 0> (n, n) }> y = Abs(b) z = Mul(n, x) }"
)
SAME_SHAPE = BRANCH.replace("s = Concat <axis = 0> (n, n)", "s = Sub(n, x)")


def with_zeros(count: int, length: int = 6) -> dict[str, torch.Tensor]:
    x = torch.rand(length) + 0.5
    x[torch.randperm(length)[:count]] = 0
    return {"x": x, "w": torch.randn(length)}


def signed(sign: float) -> dict[str, Any]:
    return {"x": (torch.rand(3) + 0.1) * sign, "c": True}


def test_m7_a_seam_of_another_shape_runs_the_rest_eagerly_and_retires_the_capture() -> None:
    session, eager = pair(NONZERO)
    warmed(session, with_zeros(2))
    assert regions(session) == ["1 recorded", "NonZero", "7 recorded"]
    agree(session, eager, with_zeros(2))
    agree(session, eager, with_zeros(5))
    assert states(session) == ["cold"]
    assert_expected_inline(
        str(entries(session)[0].report),
        """\
node       op                reason    message
---------  ----------------  --------  ----------------------------------------------------------
NonZero_1  ai.onnx::NonZero  diverged  'z' was int64[1, 4] in the warm run and is now int64[1, 1]""",
    )
    for _ in range(4):
        agree(session, eager, with_zeros(2))
    assert counted(session, "captures", "retirements", "replays") == (2, 1, 4)


def test_m7_after_too_many_divergences_what_hangs_on_the_shape_runs_eagerly() -> None:
    session, eager = pair(NONZERO)
    for zeros in (2, 2, 2, 5) * 4:
        agree(session, eager, with_zeros(zeros))
    assert counted(session, "captures", "retirements", "loosened nodes") == (4, 4, 1)
    for _ in range(3):
        for zeros in range(6):
            agree(session, eager, with_zeros(zeros))
    assert regions(session) == ["1 recorded", "NonZero", "1 recorded", "Gather", "2 recorded"]
    assert counted(session, "captures", "retirements", "latched signatures") == (5, 4, 0)
    text = session.explain()
    assert "nodes whose shapes do not settle: NonZero_1" in text
    assert "the shape of its result changed too often from run to run" in text
    assert "unresolved input shape: the shape of 'f' changes from run to run" in text


def test_m7_shapes_that_never_settle_before_the_capture_are_loosened_too() -> None:
    session, eager = pair(NONZERO)
    for number in range(40):
        agree(session, eager, with_zeros(number % 6))
    assert counted(session, "failed captures", "captures", "loosened nodes") == (4, 1, 1)
    assert states(session) == ["captured"]


def test_m9_a_branch_that_flips_its_shape_too_often_keeps_the_rest_recorded() -> None:
    session, eager = pair(BRANCH)
    for number in range(60):
        agree(session, eager, signed(1 if number % 5 else -1))
    assert regions(session) == ["3 recorded", "If", "1 recorded"]
    assert counted(session, "loosened nodes", "latched signatures") == (1, 0)


def test_m7_the_rest_of_a_diverged_run_follows_this_runs_feeds() -> None:
    """Host inputs that were bound once are static under the signature, so that they still hold."""
    text = (
        "g (float[a,b] x, int64 k) => (float[c] y, float[d] u) <int64[1] one = {1}, int64[1] m = {-1}>"
        " { s = Shape(x) t = Gather <axis = 0> (s, one) f = Flatten(x) r = Expand(f, t) z = NonZero(x)"
        " q = Reshape(z, m) h = Unsqueeze(k, one0) p = Tile(q, h) w = Cast <to = 1> (p) y = Neg(w)"
        " v = Reshape(r, m) o = Exp(v) u = Tile(o, h) }"
    ).replace("<int64[1] one", "<int64[1] one0 = {0}, int64[1] one")
    session, eager = pair(text)

    def draw(zeros: int, k: int) -> dict[str, Any]:
        x = torch.rand(3, 4) + 1
        x.reshape(-1)[torch.randperm(12)[:zeros]] = 0
        return {"x": x, "k": torch.tensor(k)}

    for k in (1, 2, 3):
        for _ in range(4):
            agree(session, eager, draw(2, k))
    for zeros in (0, 2, 7, 2, 12, 2):
        for k in (1, 2, 3, 2):
            agree(session, eager, draw(zeros, k))


def test_m9_a_branch_that_flips_between_equal_shapes_keeps_the_capture() -> None:
    session, eager = pair(SAME_SHAPE)
    for sign in (1, 1, 1, -1, 1, -1, -1, 1):
        agree(session, eager, signed(sign))
    assert regions(session) == ["3 recorded", "If", "2 recorded"]
    assert counted(session, "captures", "retirements", "replays") == (1, 0, 5)


def test_m9_a_branch_that_flips_to_another_shape_retires_the_capture() -> None:
    session, eager = pair(BRANCH)
    for sign in (1, 1, 1, 1, -1):
        agree(session, eager, signed(sign))
    assert states(session) == ["cold"] and reasons(session) == [Reason.DIVERGED]
    for sign in (-1, -1, -1, 1, -1, -1):
        agree(session, eager, signed(sign))
    assert counted(session, "retirements") == (2,)


def test_m9_a_branch_that_gives_its_outer_value_uncopied() -> None:
    text = SAME_SHAPE.replace("{ a = Exp(n) }", "{ a = Identity(n) }")
    session, eager = pair(text)
    held = []
    for sign in (1, 1, 1, 1, -1, 1, 1):
        given = signed(sign)
        results = session.run(["b", "y", "z"], given)
        same(results, eager.run(["b", "y", "z"], given))
        held.append(([r.clone() for r in results], results))
    for then, now in held:
        same(now, then)


@declare
def Sometimes(x: torch.Tensor) -> torch.Tensor:
    if float(x.max().item()) > 100:
        raise ValueError("more than a hundred")
    return x + 1


@declare
def Late(x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 7:
        raise ValueError("seven")
    return x * 2


def test_m7_an_exception_in_a_seam_names_the_node_and_keeps_the_capture() -> None:
    with operator(Sometimes):
        session, eager = pair(
            "g (float[n] x) => (float[n] y) { a = Abs(x) b = tests.Sometimes(a) y = Neg(b) }"
        )
        warmed(session, {"x": torch.randn(3)})
        for _ in range(6):
            agree(session, eager, {"x": torch.randn(3)})
            told = fail_alike(session, eager, {"x": torch.randn(3) + 200})
        agree(session, eager, {"x": torch.randn(3)})
    assert_expected_inline(
        told,
        """\
node 'Sometimes_1' (tests::Sometimes) failed: more than a hundred
  inputs: a: float32[3] cpu""",
    )
    assert counted(session, "captures", "replays", "retirements") == (1, 7, 0)


def test_m7_an_exception_after_a_divergence_leaves_the_capture_as_it_was() -> None:
    text = (
        "g (float[n] x) => (float[k] y, float[n] v) <int64[1] m = {-1}>"
        " { a = Exp(x) z = NonZero(x) f = Reshape(z, m) v = Neg(a) c = Gather(v, f) y = tests.Late(c) }"
    )
    with operator(Late):
        session, eager = pair(text)
        warmed(session, {"x": torch.ones(9)})
        seven = torch.ones(9)
        seven[:2] = 0
        with pytest.raises(tos.errors.KernelError, match="seven"):
            session.run(None, {"x": seven})
        for _ in range(3):
            agree(session, eager, {"x": torch.rand(9) + 1})
    assert counted(session, "captures", "replays") == (1, 3)


def test_m7_a_bad_index_at_replay_names_the_node_and_the_next_run_is_right() -> None:
    session, eager = pair(
        "g (float[n] x, int64[k] i) => (float[k] y) { a = Exp(x) b = Gather(a, i) y = Neg(b) }"
    )

    def draw(index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(4), "i": torch.tensor([0, index])}

    warmed(session, draw(1))
    for _ in range(12):
        fail_alike(session, eager, draw(9))
        for _ in range(3):
            agree(session, eager, draw(2))
    assert counted(session, "latched signatures") == (0,)
    assert states(session) == ["captured"]


def test_m7_an_interrupt_in_a_replay_leaves_the_session_usable() -> None:
    interrupt = []

    @declare
    def Interrupts(x: torch.Tensor) -> torch.Tensor:
        if interrupt:
            raise KeyboardInterrupt
        return x + float(x.sum().item())

    with operator(Interrupts):
        text = (
            "g (float[n] x) => (float[n] y) { a = Abs(x) b = tests.Interrupts(a) c = Exp(b) y = Sub(c, a) }"
        )
        session, eager = pair(text)
        warmed(session, {"x": torch.randn(3)})
        interrupt.append(True)
        with pytest.raises(KeyboardInterrupt):
            session.run(None, {"x": torch.randn(3)})
        interrupt.clear()
        for _ in range(3):
            agree(session, eager, {"x": torch.randn(3)})
    assert counted(session, "captures", "replays", "retirements") == (1, 3, 0)


@pytest.mark.parametrize("error", [RuntimeError("the device is gone"), torch.OutOfMemoryError("no memory")])
def test_a_recording_that_fails_is_retired_and_the_run_is_made_eagerly(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "g (float[n] x) => (float[n] y) { r = RandomNormalLike(x) a = Abs(x) y = Add(a, r) }"
    session, eager = pair(text)
    warmed(session, {"x": torch.randn(3)})
    captured = entries(session)[0].captured
    assert captured is not None

    def fail() -> None:
        raise error

    recording = next(stage.recording for stage in captured.regions if stage.recording is not None)
    monkeypatch.setattr(type(recording), "replay", lambda *_: fail())
    given = {"x": torch.randn(3)}
    results = []
    for runs in (session, eager):
        torch.manual_seed(7)
        results.append((*runs.run(None, given), torch.get_rng_state()))
    same(*results)
    monkeypatch.undo()
    assert states(session) == ["cold"] and counted(session, "retirements") == (1,)
    with pytest.raises(RuntimeError, match="retired"):
        recording.replay()


def test_random_steps_draw_once_a_run_and_as_eager_runs_do() -> None:
    text = (
        "g (float[n] x) => (float[n] y, float[n] s) { a = Exp(x) r = RandomNormalLike(x)"
        " b = Add(a, r) u = RandomUniformLike <seed = 3.0> (x) c = Mul(b, u) d = Abs(c)"
        " e = Bernoulli(u) y = Sub(d, e) s = Neg(u) }"
    )
    session, eager = pair(text)
    for step in range(8):
        given = {"x": torch.randn(5)}
        results = []
        for runs in (session, eager):
            torch.manual_seed(step)
            results.append((*runs.run(None, given), torch.get_rng_state()))
        same(*results)
    assert counted(session, "captures", "replays") == (1, 5)
