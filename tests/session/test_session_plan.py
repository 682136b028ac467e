"""The plan of a feed: asked for at any time, and without a trace in what the session does."""

from __future__ import annotations

import pytest
import torch
from tapelab import needs_extension
from textmodel import load, message, model, operator

import torch_ort_session as tos
from torch_ort_session.explain.explain import explain, facts
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.plan.verify import verify

TEXT = (
    "g (float[n, 4] x, int64 k) => (float[?, ?] y) <int64 zero = {0}> { c = Greater(k, zero) a = Neg(x)"
    " b = If (c) <then_branch = t () => (float[?, 4] p) { p = Exp(a) }, else_branch = e () => (float[?, 4] q)"
    " { n2 = NonZero(a) q = Cast <to = 1> (n2) }> y = Neg(b) }"
)
FEED = {"x": torch.ones(3, 4), "k": 2}


def test_m6_a_key_feed_folds_the_branch_that_hangs_on_it() -> None:
    session = load(TEXT)
    taken = session.plan(FEED)
    assert taken.keys == (("k", 2),)
    assert [step.node.op for step in taken.steps.items] == ["Fused(Neg, Exp)", "Identity", "Neg"]
    assert (len(taken.segments), len(taken.seams)) == (1, 0)
    other = session.plan({**FEED, "k": 0})
    assert other.keys == (("k", 0),)
    assert (len(other.segments), len(other.seams)) == (2, 1)
    verify(taken)
    verify(other)


def test_asking_for_a_plan_changes_nothing() -> None:
    session = load(TEXT)
    expected = session.run(None, FEED)[0]
    before = session.stats()
    for _ in range(5):
        session.plan(FEED)
    assert session.stats() == before
    assert torch.equal(session.run(None, FEED)[0], expected)
    for _ in range(4):
        assert torch.equal(session.run(None, FEED)[0], expected)
    captured = session.stats()
    session.plan({**FEED, "x": torch.zeros(3, 4)})
    assert session.stats() == captured
    assert torch.equal(session.run(None, FEED)[0], expected)


def test_the_plan_of_chosen_outputs() -> None:
    plan = load(TEXT).plan(FEED, ["a"])
    assert [step.node.op for step in plan.steps.items] == ["Neg"]


def test_the_plan_knows_sizes() -> None:
    session = load(TEXT)
    peaks = [facts(session.plan({**FEED, "x": torch.ones(rows, 4)}))["memory"]["arena"] for rows in (64, 640)]
    assert peaks[1] == 10 * peaks[0] > 0


def test_m13_a_plan_without_a_recording_says_why() -> None:
    text = "g (float[n] x) => (int64[1, k] y) { y = NonZero(x) }"
    plans = [
        tos.load(model(TEXT), options=tos.Options(capture="off")).plan(FEED),
        load(text).plan({"x": torch.ones(2)}),
    ]
    assert [(plan.memory, plan.failure) for plan in plans] == [
        (None, "capture is off"),
        (None, "nothing capturable: no segment is left to record"),
    ]
    assert "memory: nothing is recorded: capture is off" in explain(plans[0])


@needs_extension
def test_m8_what_a_recording_refuses_is_a_seam_of_the_plan_and_of_no_session() -> None:
    @kernel("Reads", since=(1,), domain="tests")
    def reads(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum())

    with operator(reads):
        session = load("g (float[n] x) => (float[n] y) { a = Neg(x) b = tests.Reads(a) y = Exp(b) }")
        plan = session.plan({"x": torch.ones(4)})
    assert [region.is_segment for region in plan.regions] == [True, False, True]
    assert plan.memory is not None
    assert session._engine.state.dispatcher.quarantined == frozenset()
    assert not any(session.stats().values())


@needs_extension
def test_m22_asking_for_a_plan_draws_what_one_run_draws() -> None:
    text = "g (float[n] x) => (float[n] y) { a = Neg(x) r = RandomNormalLike(a) y = Add(a, r) }"
    session, feed, after = load(text), {"x": torch.ones(4)}, []
    for act in (session.plan, lambda feed: session.run(None, feed)):
        torch.manual_seed(0)
        act(feed)
        after.append(torch.get_rng_state())
    assert torch.equal(*after)


def test_a_feed_that_does_not_fit() -> None:
    with pytest.raises(tos.InputError):
        load(TEXT).plan({"x": torch.ones(3, 4)})
    text = message(
        tos.KernelError,
        lambda: load("g (float[n] x, float[m] w) => (float[?] y) { y = Add(x, w) }").plan(
            {"x": torch.ones(2), "w": torch.ones(3)}
        ),
    )
    assert text.startswith("node 'Add_0' (ai.onnx::Add) failed")


def test_a_feed_that_requires_grad_is_planned_as_one_that_does_not() -> None:
    session = load("g (float[n] x) => (float[n] y) { a = Neg(x) y = Exp(a) }")
    plan = session.plan({"x": torch.ones(4, requires_grad=True)})
    assert len(plan.segments) == 1
