"""Gradients through a session: when a run records, and when it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from textmodel import load
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ort_session.errors import DeviceIndexError

X = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5]])
TEXT = (
    "g (float[a, 3] x, float[3, b] w, int64[k] i) => (float[?, b] y, int64[?] s, float[?, b] c)"
    " { m = MatMul(x, w) t = Tanh(m) y = Gather(t, i) s = Shape(y) c = Identity(y) }"
)
INDEX = torch.tensor([1, 0, 1])


def feeds(*grads: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    fed = {"x": X.clone(), "w": torch.randn(3, 4)}
    for name in grads:
        fed[name].requires_grad_()
    return {**fed, "i": INDEX}


def test_gradients_reach_every_feed_that_asks() -> None:
    session = load(TEXT)
    for grads in (["x"], ["w"], ["x", "w"]):
        fed = feeds(*grads)
        out = session(fed)
        assert out.y.requires_grad
        assert out.c.requires_grad
        assert not out.s.requires_grad
        (out.y.square().sum() + out.c.sum()).backward()
        mine = feeds(*grads)
        y = torch.tanh(mine["x"] @ mine["w"])[INDEX]
        (y.square().sum() + y.sum()).backward()
        for name in ("x", "w"):
            if name in grads:
                torch.testing.assert_close(fed[name].grad, mine[name].grad)
            else:
                assert fed[name].grad is None


def test_nothing_is_recorded_without_need() -> None:
    session = load(TEXT)
    assert not session(feeds()).y.requires_grad
    with torch.no_grad():
        assert not session(feeds("x")).y.requires_grad
    with torch.inference_mode():
        out = session(feeds("x"))
    assert not out.y.requires_grad
    assert not out.y.is_inference()
    assert torch.is_grad_enabled()


def test_a_run_leaves_the_grad_mode_of_the_caller() -> None:
    session = load(TEXT)
    with torch.no_grad():
        session(feeds())
        assert not torch.is_grad_enabled()
    session(feeds())
    assert torch.is_grad_enabled()


def test_an_input_passed_through_keeps_its_gradient() -> None:
    session = load("g (float[n] x) => (float[n] x, float[n] y) { y = Identity(x) }")
    x = torch.ones(3, requires_grad=True)
    same, y = session(x)
    assert same is not x
    (same.sum() + 2 * y.sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3, 3]


def test_intermediates_have_gradients() -> None:
    session = load(TEXT)
    fed = feeds("x")
    (m,) = session.run(["m"], fed)
    (grad,) = torch.autograd.grad(m.sum(), fed["x"])
    torch.testing.assert_close(grad, fed["w"].sum(1).expand(2, 3))


def test_sequences_have_gradients() -> None:
    session = load("g (seq(float[n]) x) => (float[m] y) { y = ConcatFromSequence <axis = 0> (x) }")
    a, b = torch.ones(2, requires_grad=True), torch.ones(3)
    (session([a, b]) * torch.arange(5.0)).sum().backward()
    assert a.grad is not None
    assert a.grad.tolist() == [0, 1]


def test_inference_tensors_beside_ones_that_require_grad() -> None:
    session = load(TEXT)
    with torch.inference_mode():
        frozen = torch.ones(3, 4)
    fed = {**feeds("x"), "w": frozen}
    session(fed).y.sum().backward()
    mine = feeds("x")["x"]
    torch.tanh(mine @ torch.ones(3, 4))[INDEX].sum().backward()
    torch.testing.assert_close(fed["x"].grad, mine.grad)


def test_higher_derivatives() -> None:
    session = load("g (double[n] x) => (double[n] y) { s = Sin(x) y = Mul(s, x) }")
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(session, (x,))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own, inside of jvp
@pytest.mark.parametrize("kind", ["vmap", "jvp", "grad"])
def test_function_transforms(kind: str) -> None:
    session = load("g (float[n] x) => (float[n] y) { s = Sin(x) y = Mul(s, x) }")
    x = torch.tensor([0.3, 0.7])

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * x

    if kind == "vmap":
        batch = torch.stack([x, 2 * x])
        torch.testing.assert_close(torch.func.vmap(session)(batch), plain(batch))
    elif kind == "jvp":
        got = torch.func.jvp(session, (x,), (torch.ones(2),))
        torch.testing.assert_close(got, torch.func.jvp(plain, (x,), (torch.ones(2),)))
    else:
        got = torch.func.grad(lambda x: session(x).sum())(x)
        torch.testing.assert_close(got, torch.func.grad(lambda x: plain(x).sum())(x))


def test_transforms_between_plain_runs() -> None:
    session = load("g (float[n] x) => (float[n] y) { s = Sin(x) t = Mul(s, x) u = Neg(t) y = Neg(u) }")
    for step in range(8):
        batch = torch.rand(4, 3) + step
        expected = batch.sin() * batch
        torch.testing.assert_close(torch.func.vmap(session)(batch), expected)
        torch.testing.assert_close(session(batch[0]), expected[0])


def test_a_dispatch_mode_of_the_caller_sees_every_call() -> None:
    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += func is torch.ops.aten.sin.default
            return func(*args, **(kwargs or {}))

    session = load("g (float[n] x) => (float[n] y) { s = Sin(x) t = Sin(s) y = Sin(t) }")
    x = torch.rand(3)
    for _ in range(5):
        session(x)
    with Count() as mode:
        session(x)
        session(x)
    assert mode.calls == 6


def test_forward_mode_gradients_are_never_lost_in_a_replay() -> None:
    session = load("g (float[n] x) => (float[n] y) { t = Tanh(x) y = Mul(t, x) }")
    x = torch.randn(3)
    t = torch.tanh(x)
    for dual in (True, True, True, True, False, False, False, False, True, True, False):
        with forward_ad.dual_level():
            given = forward_ad.make_dual(x, torch.full((3,), 2.0)) if dual else None
            if given is not None:
                primal, tangent = forward_ad.unpack_dual(session(given))
                torch.testing.assert_close(primal, t * x)
                torch.testing.assert_close(tangent, 2 * ((1 - t * t) * x + t))
        if given is None:
            torch.testing.assert_close(session(x), t * x)
    stats = session.stats()
    # Nothing was recorded, replayed or blamed for a recording while gradients flowed.
    assert (stats["captures"], stats["quarantined operators"], stats["replays"]) == (1, 0, 2)


def test_bad_indices_are_told_while_gradients_flow_forward() -> None:
    session = load(TEXT)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, torch.ones_like(X))
        with pytest.raises(DeviceIndexError):
            session({"x": x, "w": torch.randn(3, 4), "i": torch.tensor([7])})
