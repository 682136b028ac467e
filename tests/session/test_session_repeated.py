"""Run again and again, whatever a session keeps between runs: results follow the feeds and stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from networks import Cnn, Transformer, cnn_model, transformer_model
from session.test_session_results import ALIASES, tensors
from textmodel import load, model

import torch_ort_session as tos

RUNS = 9


def check(session: tos.Session, eager: tos.Session, draws: list[dict[str, Any]]) -> None:
    """Every run gives what an eager session gives, and no run changes what an earlier one gave."""
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for draw in draws:
        before = {name: value.clone() for name, value in draw.items() if isinstance(value, torch.Tensor)}
        expected = list(tensors(eager.run(None, draw)))
        results = list(tensors(session.run(None, draw)))
        assert len(results) == len(expected)
        for got, want in zip(results, expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
        for got in results:
            if got.is_floating_point():
                got.add_(1)  # the result is the caller's to change
            held.append((got, got.clone()))
        for name, value in before.items():
            assert torch.equal(draw[name], value)
    for got, then in held:
        assert torch.equal(got, then)


def pair(proto: Any) -> tuple[tos.Session, tos.Session]:
    return tos.load(proto), tos.load(proto, options=tos.Options(capture="off"))


@pytest.mark.parametrize("case", ALIASES)
def test_aliases(case: str) -> None:
    check(*pair(model(ALIASES[case])), [{"x": torch.randn(2, 3)} for _ in range(RUNS)])


def test_one_feed_changed_in_place() -> None:
    session, eager = pair(model(ALIASES["two views of one value"]))
    x = torch.zeros(2, 3)
    for step in range(RUNS):
        x.fill_(step)
        for got, want in zip(session(x), eager(x), strict=True):
            assert torch.equal(got, want)


def test_results_fed_back() -> None:
    session = load("g (float[n] x, float[n] w) => (float[n] y) { a = Mul(x, w) b = Add(a, w) y = Tanh(b) }")
    x, w = torch.zeros(3), torch.tensor([0.5, -0.25, 0.125])
    expected = x
    for _ in range(RUNS):
        x, expected = session(x, w), torch.tanh(expected * w + w)
        assert torch.equal(x, expected)


@pytest.mark.parametrize("order", ["in turn", "in blocks"])
def test_shapes_dtypes_and_outputs_that_change(order: str) -> None:
    torch.manual_seed(0)
    session, eager = pair(transformer_model(Transformer()))
    shapes = [(1, 3), (2, 5), (2, 5), (3, 1)] * 3
    if order == "in blocks":
        shapes.sort()
    for number, (batch, length) in enumerate(shapes):
        feed = {"ids": torch.randint(0, 20, (batch, length)), "mask": torch.randn(batch, length)}
        names = ["y"] if number % 3 else ["y", "mask"]
        got, want = session.run(names, feed), eager.run(names, feed)
        for ours, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_layouts_that_change() -> None:
    torch.manual_seed(0)
    session, eager = pair(cnn_model(Cnn().eval()))
    x = torch.randn(2, 3, 16, 16)
    layouts = [x, x.to(memory_format=torch.channels_last), x.transpose(2, 3), x.flip(3), x[:, :, ::2, ::2]]
    for step in range(2 * RUNS):
        fed = layouts[step % len(layouts)] + step if step % 2 else layouts[step % len(layouts)]
        torch.testing.assert_close(session(fed), eager(fed), rtol=1e-5, atol=1e-5)


def test_a_branch_that_flips() -> None:
    text = (
        "g (float[n] x, bool c) => (float[m] y) { n = Neg(x) y = If (c) <then_branch = t () => (float[n] a)"
        " { a = Exp(n) }, else_branch = e () => (float[m] b) { b = Concat <axis = 0> (n, n) }> }"
    )
    session, eager = pair(model(text))
    for step in range(3 * RUNS):
        feed = {"x": torch.randn(3), "c": torch.tensor(step % 4 == 0 or 10 < step < 15)}
        assert torch.equal(session.run(None, feed)[0], eager.run(None, feed)[0])


def test_a_shape_that_depends_on_data() -> None:
    text = "g (float[n] x) => (int64[1, m] y, float[k] z) { z = Exp(x) a = Relu(x) y = NonZero(a) }"
    session, eager = pair(model(text))
    for step in range(3 * RUNS):
        feed = {"x": torch.randn(4) * (0 if step == 7 else 1)}
        for ours, theirs in zip(session.run(None, feed), eager.run(None, feed), strict=True):
            assert torch.equal(ours, theirs)


def test_random_numbers_differ_from_run_to_run() -> None:
    session = load("g (float[n] x) => (float[n] y) { r = RandomNormalLike(x) y = Add(r, x) }")
    seen = [tuple(session(torch.zeros(4)).tolist()) for _ in range(RUNS)]
    assert len(set(seen)) == RUNS


def test_a_failure_between_runs_changes_nothing() -> None:
    text = "g (float[n] x, int64[k] i) => (float[k] y) { a = Exp(x) b = Neg(a) y = Gather(b, i) }"
    session, eager = pair(model(text))
    for step in range(2 * RUNS):
        feed = {"x": torch.randn(4), "i": torch.tensor([0, 9 if step % 5 == 4 else 1])}
        if step % 5 == 4:
            with pytest.raises(tos.SessionError):
                session.run(None, feed)
        else:
            assert torch.equal(session.run(None, feed)[0], eager.run(None, feed)[0])


def test_grad_between_captured_runs() -> None:
    session = load("g (float[n] x) => (float[n] y) { a = Sin(x) b = Mul(a, a) y = Neg(b) }")
    for step in range(2 * RUNS):
        x = torch.randn(3, requires_grad=step % 3 == 0)
        y = session(x)
        torch.testing.assert_close(y, -(x.sin() ** 2))
        assert y.requires_grad == x.requires_grad
        if x.requires_grad:
            y.sum().backward()
            torch.testing.assert_close(x.grad, -(2 * x).sin().detach())
