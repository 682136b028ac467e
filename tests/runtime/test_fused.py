"""Captures of fused steps: they give what eager runs give, and fall apart where one cannot be recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import Failing, counted, entries, injected, refusal
from textmodel import model, wrapped

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.plan.partition.fuse import is_fused
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.runtime.recorders.api import Recorder

pytestmark = pytest.mark.skipif(not native.status().usable, reason="the extension is not built")

Feed = Mapping[str, torch.Tensor]
GELU = (
    "g (float[n, k] x) => (float[n, k] y) <float two = {2.0}, float[1] one = {1.0}, float half = {0.5}>"
    " { r = Sqrt(two) a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }"
)
TAIL = (
    "g (float[n, k] x, float[k] w, float[k] b, float[n, 1] m) => (float[n, k] y)"
    " { p = Softmax(x) a = Sub(p, m) c = Div(a, m) d = Mul(c, w) y = Add(d, b) }"
)
ARITHMETIC = (
    "g (float[n, k] x, float[k] w) => (float[n, k] y) <float c = {0.3}>"
    " { a = Mul(x, w) b = Sub(a, c) d = Div(b, w) e = Abs(d) f = Sqrt(e) h = Neg(f) i = Max(h, x)"
    " j = Min(i, w) l = Relu(j) y = Add(l, a) }"
)
APART = (
    "g (float[n, k] x, float[k] w) => (float[n, k] y)"
    " { a = Mul(x, w) b = Neg(a) s = Softmax(b) c = Add(s, w) y = Abs(c) }"
)


def pair(text: str, **options: Any) -> tuple[tos.Session, tos.Session]:
    proto = model(text)
    eager = tos.load(proto, options=tos.Options(capture="off"))
    return tos.load(proto, options=tos.Options(verify=True, **options)), eager


def check(session: tos.Session, eager: tos.Session, feeds: Iterator[Feed], ulps: int = 0) -> None:
    for feed in feeds:
        for ours, theirs in zip(session.run(None, feed), eager.run(None, feed), strict=True):
            # An ulp is at most this share of a number, a half of it at least.
            unit = torch.finfo(theirs.dtype).eps if theirs.dtype.is_floating_point else 0.0
            torch.testing.assert_close(ours, theirs, rtol=ulps * unit, atol=ulps * unit, equal_nan=True)


def feeds(count: int = 6, dtype: torch.dtype = torch.float32, **shapes: tuple[int, ...]) -> Iterator[Feed]:
    for seed in range(count):
        torch.manual_seed(seed)
        yield {name: torch.randn(shape).to(dtype) for name, shape in shapes.items()}


def ops(session: tos.Session) -> list[str]:
    """The operators of what is recorded and what runs as a seam, in order."""
    captured = entries(session)[-1].captured
    assert captured is not None
    return [call.step.node.op for stage in captured.regions for call in stage.calls]


@pytest.mark.parametrize("shape", [(1, 1), (1, 17), (3, 5), (33, 1024)])
def test_arithmetic_is_equal_to_the_bit(shape: tuple[int, int]) -> None:
    session, eager = pair(ARITHMETIC)
    check(session, eager, feeds(x=shape, w=shape[1:]))
    assert ops(session) == ["Fused(Mul, Sub, Div, Abs, Sqrt, Neg, Max, Min, Relu, Add)"]
    assert counted(session, "captures", "replays", "probe mismatches") == (1, 3, 0)


@pytest.mark.parametrize(
    ("text", "told", "shapes"),
    [
        (GELU, "Fused(Div, Erf, Add, Mul, Mul)", {"x": (7, 65)}),
        (TAIL, "Fused(Sub, Div, Mul, Add)", {"x": (4, 6), "w": (6,), "b": (6,), "m": (4, 1)}),
        (
            "g (float[n, c, h] x, float[c, 1] w, float[1] s) => (float[n, c, h] y)"
            " { a = Mul(x, w) b = Sigmoid(a) d = Mul(a, b) y = Add(d, s) }",
            "Fused(Mul, Sigmoid, Mul, Add)",
            {"x": (2, 3, 5), "w": (3, 1), "s": (1,)},
        ),
        (
            "g (float[n, k] x) => (float[n, k] y) { s = Softplus(x) t = Tanh(s) y = Mul(x, t) }",
            "Fused(Softplus, Tanh, Mul)",
            {"x": (5, 33)},
        ),
        (
            "g (float[n, k] x) => (float[n, k] y) <float e = {3.0}, float c = {0.044715},"
            " float r = {0.7978846}, float one = {1.0}, float half = {0.5}> { p = Pow(x, e) q = Mul(p, c)"
            " s = Add(x, q) t = Mul(s, r) u = Tanh(t) v = Add(u, one) w = Mul(x, v) y = Mul(w, half) }",
            "Fused(Pow, Mul, Add, Mul, Tanh, Add, Mul, Mul)",
            {"x": (5, 33)},
        ),
    ],
)
def test_chains_of_functions_are_equal_to_the_last_places(
    text: str, told: str, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    session, eager = pair(text)
    check(session, eager, feeds(**shapes), ulps=4)
    assert told in ops(session)
    assert counted(session, "captures", "probe mismatches") == (1, 0)


@pytest.mark.parametrize(("name", "number"), [("float16", 10), ("bfloat16", 16)])
def test_16_bits_round_at_every_step(name: str, number: int) -> None:
    session, eager = pair(
        f"g ({name}[n, k] x, {name}[k] w) => ({name}[n, k] y) <float wide = {{1.7}}>"
        f" {{ c = Cast <to = {number}> (wide) a = Mul(x, w) b = Add(a, c) d = Div(b, w) e = Sub(d, x)"
        " y = Abs(e) }"
    )
    check(session, eager, feeds(dtype=getattr(torch, name), x=(5, 33), w=(33,)))
    assert ops(session) == ["Fused(Mul, Add, Div, Sub, Abs)"]


def test_special_numbers_come_out_as_they_do_step_by_step() -> None:
    session, eager = pair(ARITHMETIC)
    numbers = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, -1e-40, 3e38, 1.0]
    x = torch.tensor(numbers).repeat(9, 1)
    check(session, eager, iter([{"x": x, "w": w} for w in (x[0], x[0].flip(0), torch.ones(9), x[0])] * 2))
    assert counted(session, "captures") == (1,)


def test_a_value_asked_for_is_made() -> None:
    session, eager = pair(ARITHMETIC)
    for feed in feeds(x=(3, 4), w=(4,)):
        for ours, theirs in zip(session.run(["y", "h"], feed), eager.run(["y", "h"], feed), strict=True):
            assert torch.equal(ours, theirs)
    assert ops(session) == ["Mul", "Fused(Sub, Div, Abs, Sqrt, Neg)", "Fused(Max, Min, Relu, Add)"]


def test_a_seam_between_leaves_two_and_what_diverges_runs_node_by_node() -> None:
    text = (
        "g (float[n] x, float[n] w) => (float[k] y) { a = Mul(x, w) b = Neg(a) z = NonZero(b)"
        " s = Squeeze(z) c = Gather(w, s) d = Abs(c) e = Sqrt(d) y = Add(e, c) }"
    )
    session, eager = pair(text)

    def with_zeros(zeros: int) -> Feed:
        x = torch.rand(6) + 0.5
        x[:zeros] = 0.0
        return {"x": x, "w": torch.rand(6) + 0.5}

    check(session, eager, (with_zeros(2) for _ in range(5)))
    assert ops(session) == ["Fused(Mul, Neg)", "NonZero", "Squeeze", "Gather", "Fused(Abs, Sqrt, Add)"]
    check(session, eager, (with_zeros(zeros) for zeros in (4, 1, 2, 2)))
    assert counted(session, "retirements") == (1,)


def test_a_constant_that_hangs_on_a_shape_is_made_again_where_that_diverges() -> None:
    text = (
        "g (float[n] x) => (float[k] y) { z = NonZero(x) s = Squeeze(z) c = Gather(x, s) h = Shape(c)"
        " m = Cast <to = 1> (h) q = Sqrt(m) d = Div(c, q) e = Neg(d) y = Mul(e, q) }"
    )
    session, eager = pair(text)
    numbers = torch.arange(6, dtype=torch.float32)
    rows = [torch.roll(numbers, n) for n in range(4)] + [numbers - 1, numbers * numbers.remainder(2), numbers]
    check(session, eager, iter([{"x": row} for row in rows]))
    assert counted(session, "captures", "retirements") == (1, 1)


def test_bodies_of_a_loop_are_fused_as_well() -> None:
    text = (
        "g (float[8, 64] x, int64 n) => (float[8, 64] y) <bool go = {1}> { y = Loop (n, go, x) <body = b"
        " (int64 i, bool c, float[8, 64] h) => (bool d, float[8, 64] r) { d = Identity(c) p = Mul(h, h)"
        " q = Add(p, h) s = Softmax(q) t = Sqrt(s) u = Neg(t) r = Abs(u) }> }"
    )
    session, eager = pair(text)
    for _ in range(6):
        feed = {"x": torch.rand(8, 64), "n": torch.tensor(5)}
        assert torch.equal(session.run(None, feed)[0], eager.run(None, feed)[0])
    bodies = [
        entry.captured for entry in session._engine.state.bodies.entries() if entry.captured is not None
    ]
    told = [call.step.node.op for held in bodies for stage in held.regions for call in stage.calls]
    assert "Fused(Mul, Add)" in told and "Fused(Sqrt, Neg, Abs)" in told


def test_bound_outputs_and_state_are_written_where_they_are() -> None:
    text = (
        "g (float[n] x, float[n] h) => (float[n] y, float[n] g)"
        " { a = Abs(h) b = Mul(a, x) c = Neg(b) d = Add(c, h) g = Sqrt(a) y = Sub(d, x) }"
    )
    eager = tos.load(model(text), options=tos.Options(capture="off"))
    binding = tos.load(model(text)).bind()
    x, h, y = torch.linspace(0, 1, 9), torch.rand(9), torch.zeros(9)
    binding.input("x", x)
    binding.state("h", "g", h)
    binding.output("y", y)
    for step in range(6):
        x.copy_(torch.randn(9))
        want = eager.run(None, {"x": x, "h": h.clone()})
        if step == 1:
            assert binding.capture() is None
        else:
            binding.run()
        assert torch.equal(y, want[0]) and torch.equal(h, want[1])


def test_runs_under_grad_and_eager_runs_are_not_fused() -> None:
    session, eager = pair(ARITHMETIC)
    check(session, eager, feeds(x=(3, 4), w=(4,)))
    x, w = torch.rand(3, 4, requires_grad=True), torch.rand(4)
    (ours,) = torch.autograd.grad(session.run(None, {"x": x, "w": w})[0].sum(), x)
    (theirs,) = torch.autograd.grad(eager.run(None, {"x": x, "w": w})[0].sum(), x)
    assert torch.equal(ours, theirs)


def once(at: int, error: Callable[[], BaseException]) -> Callable[[], Recorder]:
    """Makes recorders of which the first one fails at its ``at``-th call."""
    made: list[Recorder] = []

    def make() -> Recorder:
        made.append(Failing(at if not made else -1, error))
        return made[-1]

    return make


@pytest.mark.parametrize("error", [refusal, lambda: RuntimeError("it fails")])
def test_a_fused_step_that_cannot_be_recorded_falls_apart(error: Callable[[], BaseException]) -> None:
    session, eager = pair(APART)
    injected(session, once(3, error))
    check(session, eager, feeds(x=(3, 4), w=(4,)))
    assert ops(session) == ["Fused(Mul, Neg)", "Softmax", "Add", "Abs"]
    assert all(stage.region.is_segment for stage in entries(session)[-1].captured.regions)  # type: ignore[union-attr]
    assert counted(session, "captures", "declines", "quarantined operators") == (1, 0, 1)
    assert session.backend_report().quarantined == ("torch_ort_session::Fused(Add, Abs)",)


def test_a_member_that_cannot_be_recorded_either_becomes_a_seam() -> None:
    session, eager = pair(APART)

    class Stubborn(Failing):
        """Refuses the first call of each recording."""

        def record(self, body: Callable[[], None]) -> Any:
            self.calls = 0
            return super().record(body)

    injected(session, lambda: Stubborn(1, refusal))
    check(session, eager, feeds(x=(3, 4), w=(4,)))
    assert counted(session, "captures", "declines") == (0, 1)
    quarantined = session.backend_report().quarantined
    assert "torch_ort_session::Fused(Mul, Neg)" in quarantined and "ai.onnx::Softmax" in quarantined


def test_out_of_memory_in_a_fused_step_blames_nobody() -> None:
    session, eager = pair(APART)
    injected(session, once(1, MemoryError))
    check(session, eager, feeds(count=3, x=(3, 4), w=(4,)))
    report = entries(session)[-1].report
    assert report is not None and [row.reason for row in report.rows] == [Reason.MEMORY]
    assert session.backend_report().quarantined == ()


def test_without_the_option_captures_are_node_by_node() -> None:
    session, eager = pair(APART, fuse=False)
    check(session, eager, feeds(x=(3, 4), w=(4,)))
    assert ops(session) == ["Mul", "Neg", "Softmax", "Add", "Abs"]


def test_without_the_op_captures_are_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    has = native.has_kernel
    monkeypatch.setattr(native, "has_kernel", lambda op, on: op != "elementwise_chain" and has(op, on))
    session, eager = pair(APART)
    check(session, eager, feeds(x=(3, 4), w=(4,)))
    assert ops(session) == ["Mul", "Neg", "Softmax", "Add", "Abs"]


def test_a_trace_names_the_members() -> None:
    session, _ = pair(APART)
    for feed in feeds(x=(3, 4), w=(4,)):
        session.run(None, feed)
    plan = session.plan(next(iter(feeds(x=(3, 4), w=(4,)))))
    steps = [step for step in plan.steps.items if is_fused(step)]
    assert [(step.node.name, step.node.op) for step in steps] == [
        ("Mul_0…Neg_1", "Fused(Mul, Neg)"),
        ("Add_3…Abs_4", "Fused(Add, Abs)"),
    ]
    assert_expected_inline(
        wrapped(session.explain().partition("regions\n")[2].partition("\n\n")[0]),
        """\
  segment  3 steps, 3 launches, 4 nodes fused into 2""",
    )
