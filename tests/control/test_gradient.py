"""Gradient nodes: what autograd says of the part of the graph that they name, eager and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import message
from torch import Tensor
from torch.autograd import forward_ad

import torch_ort_session as tos
from torch_ort_session import Options, Session

P = "ai.onnx.preview.training.Gradient"
RUNS = 5


def loaded(text: str, *, capture: str = "auto", **weights: Tensor) -> Session:
    header = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1, "local" : 1]>\n'
    proto = onnx.parser.parse_model(header + text)
    for name, value in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(value.numpy(), name))
    return tos.load(proto, options=Options(capture=capture))  # type: ignore[arg-type]


def check(
    session: Session, shapes: list[tuple[int, ...]], expected: Callable[..., tuple[Tensor, ...]], **kind: Any
) -> None:
    """Runs of a session, eager, captured and replayed, each with data of its own, beside torch itself."""
    for draw in range(RUNS):
        torch.manual_seed(draw)
        feeds = [torch.randn(shape, **kind) for shape in shapes]
        got = session.run(None, dict(zip([port.name for port in session.inputs], feeds, strict=True)))
        for ours, theirs in zip(got, expected(*feeds), strict=True):
            assert not ours.requires_grad
            torch.testing.assert_close(ours, theirs)


def slope(fn: Callable[..., Tensor], *by: int) -> Callable[..., tuple[Tensor, ...]]:
    """The derivatives of the sum of a function by some of its arguments."""

    def found(*values: Tensor) -> tuple[Tensor, ...]:
        fresh = [value.clone().requires_grad_() for value in values]
        return torch.autograd.grad(fn(*fresh).sum(), [fresh[place] for place in by], materialize_grads=True)

    return found


def recorded(session: Session) -> bool:
    stats = session.stats()
    return stats["captures"] == 1 and stats["replays"] > 0 and stats["failed captures"] == 0


def test_derivatives_by_several_values_are_recorded_and_replayed() -> None:
    session = loaded(
        "g (float[2,3] w, float[3] x, float[2] b) => (float[2,3] dw, float[2] db) {"
        " h = MatMul(w, x) k = Add(h, b) s = Sigmoid(k) t = Mul(s, k) u = Mul(t, h) y = Add(u, k)"
        f' dw, db = {P} <xs = ["w", "b"], zs = ["x"], y = "y"> (w, b, x) }}'
    )

    def fn(w: Tensor, x: Tensor, b: Tensor) -> Tensor:
        k = w @ x + b
        return k.sigmoid() * k * (w @ x) + k

    check(session, [(2, 3), (3,), (2,)], slope(fn, 0, 2))
    assert recorded(session)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (5,)])
def test_every_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    kind = {torch.float16: "float16", torch.float32: "float", torch.float64: "double"}[dtype]
    dims = f"[{','.join(map(str, shape))}]" if shape else ""
    session = loaded(
        f'g ({kind}{dims} x) => ({kind}{dims} dx) {{ y = Tanh(x) dx = {P} <xs = ["x"], y = "y"> (x) }}'
    )
    check(session, [shape], slope(torch.tanh, 0), dtype=dtype)


def test_a_value_in_the_middle_is_independent_and_may_be_another_one() -> None:
    session = loaded(
        "g (float[3] x, float[3] z, float[3] other) => (float[3] dh, float[3] dz, float[3] doh) {"
        " h = Exp(x) k = Mul(h, z) y = Sin(k)"
        f' dh, dz = {P} <xs = ["h", "z"], y = "y"> (h, z)'
        f' doh = {P} <xs = ["h"], zs = ["z"], y = "y"> (other, z) }}'
    )

    def expected(x: Tensor, z: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        at = slope(lambda h, z: (h * z).sin(), 0, 1)
        return (*at(x.exp(), z), at(other, z)[0])

    check(session, [(3,)] * 3, expected)
    assert recorded(session)


def test_one_value_given_for_two_names_has_two_derivatives() -> None:
    session = loaded(
        "g (float[3] a, float[3] b) => (float[3] da, float[3] db) { y = Mul(a, b)"
        f' da, db = {P} <xs = ["a", "b"], y = "y"> (a, a) }}'
    )
    check(session, [(3,), (3,)], lambda a, b: (a, a))


def test_a_node_that_makes_more_than_is_listed() -> None:
    """The half that xs names is given, the other one follows from x."""
    session = loaded(
        "g (float[4] x, float[2] given) => (float[2] dl) { l, r = Split <num_outputs = 2> (x) y = Mul(l, l)"
        f' dl = {P} <xs = ["l"], y = "y"> (given) }}'
    )
    check(session, [(4,), (2,)], lambda x, given: (2 * given,))


def test_second_derivatives() -> None:
    session = loaded(
        "g (float[3] w, float[3] x) => (float[3] dw, float[3] dww, float[3] dwx) {"
        " k = Mul(w, x) s = Sin(k) y = Mul(s, w)"
        f' dw = {P} <xs = ["w"], zs = ["x"], y = "y"> (w, x)'
        f' dww, dwx = {P} <xs = ["w", "x"], y = "dw"> (w, x) }}'
    )

    def expected(w: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        w, x = w.clone().requires_grad_(), x.clone().requires_grad_()
        (dw,) = torch.autograd.grad(((w * x).sin() * w).sum(), w, create_graph=True)
        return (dw.detach(), *torch.autograd.grad(dw.sum(), (w, x)))

    check(session, [(3,), (3,)], expected)
    assert recorded(session)


def test_what_does_not_change_has_no_slope() -> None:
    """The derivative of a sum is constant; so is, nearly everywhere, what is rounded."""
    session = loaded(
        "g (float[3] a, float[3] b) => (float[3] daa, float[3] dr, float[3] db) {"
        " c = Add(a, b) i = Cast <to = 7> (a) f = Cast <to = 1> (i) m = Add(f, b)"
        f' da = {P} <xs = ["a"], zs = ["b"], y = "c"> (a, b)'
        f' daa = {P} <xs = ["a"], zs = ["b"], y = "da"> (a, b)'
        f' dr, db = {P} <xs = ["a", "b"], y = "m"> (a, b) }}'
    )
    zero, one = torch.zeros(3), torch.ones(3)
    check(session, [(3,), (3,)], lambda a, b: (zero, zero, one))


def test_weights_on_the_way_and_weights_as_variables() -> None:
    w, v = torch.randn(3), torch.randn(3)
    text = (
        "g (float[3] x) => (float[3] dx, float[3] dw) { k = Mul(x, w) s = Tanh(k) y = Mul(s, v)"
        f' dx = {P} <xs = ["x"], y = "y"> (x)'
        f' dw = {P} <xs = ["w"], zs = ["x"], y = "y"> (w, x) }}'
    )
    session = loaded(text, w=w, v=v)

    def expected(x: Tensor) -> tuple[Tensor, ...]:
        at = slope(lambda x, w: (x * w).tanh() * v, 0, 1)
        return at(x, w)

    check(session, [(3,)], expected)
    assert recorded(session)


def test_a_penalty_on_a_slope_trains() -> None:
    """Under grad mode derivatives can be differentiated, by feeds and by the weights of a module."""
    w = torch.randn(3, 3)
    text = (
        "g (float[2,3] x) => (float p) { k = MatMul(x, w) y = Tanh(k)"
        f' dx = {P} <xs = ["x"], y = "y"> (x) q = Mul(dx, dx) p = ReduceSum <keepdims = 0> (q) }}'
    )
    session = loaded(text, w=w)
    x = torch.randn(2, 3, requires_grad=True)
    session(x).backward()
    module = session.module(trainable=True)
    module(x.detach()).backward()
    twin, weight = x.detach().clone().requires_grad_(), w.clone().requires_grad_()
    (dx,) = torch.autograd.grad((twin @ weight).tanh().sum(), twin, create_graph=True)
    (dx * dx).sum().backward()
    torch.testing.assert_close(x.grad, twin.grad)
    torch.testing.assert_close(module.w.grad, weight.grad)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own, inside of jvp
def test_forward_mode_goes_through_it() -> None:
    session = loaded(
        f'g (float[3] x) => (float[3] dx) {{ s = Sin(x) y = Mul(s, x) dx = {P} <xs = ["x"], y = "y"> (x) }}'
    )
    x, along = torch.randn(3), torch.randn(3)
    for _ in range(RUNS):
        with forward_ad.dual_level():
            got = forward_ad.unpack_dual(session(forward_ad.make_dual(x, along)))
        torch.testing.assert_close(got.primal, x.sin() + x * x.cos())
        torch.testing.assert_close(got.tangent, along * (2 * x.cos() - x * x.sin()))


def test_under_inference_mode() -> None:
    with torch.inference_mode():
        w = torch.tensor([2.0])
        session = loaded(
            "g (float[1] x) => (float[1] dx) { a = Mul(x, x) y = Mul(a, w)"
            f' dx = {P} <xs = ["x"], y = "y"> (x) }}',
            w=w,
        )
        for value in range(RUNS):
            assert session(torch.tensor([float(value)])).tolist() == [4.0 * value]


def test_an_output_that_nobody_wants_is_not_made() -> None:
    session = loaded(
        "g (float[2] a, float[2] b) => (float[2] db) { y = Mul(a, b)"
        f' da, db = {P} <xs = ["a", "b"], y = "y"> (a, b) }}'
    )
    check(session, [(2,), (2,)], lambda a, b: (a,))


def test_what_y_follows_from_may_stand_after_the_node() -> None:
    session = loaded(
        f'g (float[2] a) => (float[2] da, float[2] y) {{ da = {P} <xs = ["a"], y = "y"> (a) y = Mul(a, a) }}'
    )
    check(session, [(2,)], lambda a: (2 * a, a * a))


FUNCTION = (
    "g (float[2] p, float[2] q) => (float[2] dp, float[2] dq) { dp = local.slope(p) dq = local.slope(q) }"
    ' <domain: "local", opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>'
    f' slope (x) => (dx) {{ t = Exp(x) y = Mul(t, x) dx = {P} <xs = ["x"], y = "y"> (x) }}'
)


def test_in_a_function_that_is_called_twice() -> None:
    """The names in the attributes are those of the function, and become those of each call."""
    at = slope(lambda x: x.exp() * x, 0)
    check(loaded(FUNCTION), [(2,), (2,)], lambda p, q: (*at(p), *at(q)))


@pytest.mark.parametrize("flag", [True, False])
def test_in_a_branch_of_what_is_outside(flag: bool) -> None:
    session = loaded(
        "g (float[2] x, float[2] s) => (float[2] d) { y = Mul(x, x) m = ReduceSum <keepdims = 0> (s)"
        " zero = Constant <value_float = 0.0> () c = Greater(m, zero)"
        f' d = If (c) <then_branch = t () => (float[2] a) {{ a = {P} <xs = ["x"], y = "y"> (x) }},'
        " else_branch = e () => (float[2] b) { b = Neg(x) }> }"
    )
    sign = torch.ones(2) if flag else -torch.ones(2)
    for draw in range(RUNS):
        x = torch.tensor([1.0 + draw, -2.0])
        assert session(x, sign).tolist() == (2 * x if flag else -x).tolist()


def test_in_a_loop() -> None:
    """Five steps down the slope of a square."""
    session = loaded(
        "g (float[2] start, int64 n) => (float[2] last) { go = Constant <value = bool {1}> ()"
        " last = Loop (n, go, start) <body = b (int64 i, bool c, float[2] x) => (bool c2, float[2] next) {"
        f' c2 = Identity(c) y = Mul(x, x) d = {P} <xs = ["x"], y = "y"> (x)'
        " rate = Constant <value_float = 0.25> () s = Mul(d, rate) next = Sub(x, s) }> }"
    )
    for draw in range(1, RUNS):
        assert session(torch.tensor([32.0, -64.0]) * draw, 5).tolist() == [1.0 * draw, -2.0 * draw]


def test_through_a_loop_it_is_a_seam() -> None:
    session = loaded(
        "g (float[2] x, int64 n) => (float[2] dx) { go = Constant <value = bool {1}> ()"
        " y = Loop (n, go, x) <body = b (int64 i, bool c, float[2] a) => (bool c2, float[2] next) {"
        " c2 = Identity(c) next = Mul(a, a) }>"
        f' dx = {P} <xs = ["x"], zs = ["n"], y = "y"> (x, n) }}'
    )
    for draw in range(1, RUNS):
        x = torch.tensor([1.0, 2.0]) / draw
        torch.testing.assert_close(session(x, 3), 8 * x**7)
    reasons = [region.message for region in session.plan({"x": x, "n": 3}).regions if not region.is_segment]
    assert reasons == ["it differentiates what cannot be recorded"]


def test_through_numbers_that_are_fed_it_is_right_and_not_recorded() -> None:
    session = loaded(
        "g (float[4] x, int64[2] shape, float[2] f) => (float[4] dx) { r = Reshape(x, shape) y = Mul(r, f)"
        f' dx = {P} <xs = ["x"], zs = ["shape", "f"], y = "y"> (x, shape, f) }}'
    )
    f = torch.tensor([1.0, 10.0])
    for _ in range(RUNS):
        assert session(torch.ones(4), torch.tensor([2, 2]), f).tolist() == [1, 10, 1, 10]
    assert session(torch.ones(4), torch.tensor([-1, 2]), 2 * f).tolist() == [2, 20, 2, 20]


def test_what_draws_at_random_is_a_seam() -> None:
    session = loaded(
        "g (float[64] x) => (float[64] dx) { r = RandomUniformLike(x) y = Mul(x, r)"
        f' dx = {P} <xs = ["x"], y = "y"> (x) }}'
    )
    seen = {tuple(session(torch.ones(64)).tolist()) for _ in range(RUNS)}
    assert len(seen) == RUNS
    assert not session.plan({"x": torch.ones(64)}).segments


def refusal(outputs: str, nodes: str) -> str:
    return message(
        tos.ModelError, lambda: loaded(f"g (float[2] a, float[2] b) => (float[2] {outputs}) {{ {nodes} }}")
    )


def test_what_is_no_function_of_the_graph_is_refused() -> None:
    told = "\n".join(
        refusal("d", f"c = Mul(a, b) y = Exp(c) e = Neg(a) {node}")
        for node in (
            f'd = {P} <xs = ["a"], y = "y"> (a)',
            f'd = {P} <xs = ["a", "b"], y = "nothing"> (a, b)',
            f'd = {P} <xs = ["a", "b"], y = "e"> (a, b)',
            f'd = {P} <xs = ["a", "d"], y = "y"> (a, b)',
            f'd = {P} <xs = ["a", "b"], zs = ["a"], y = "y"> (a, b, a)',
            f'd = {P} <xs = ["a", "b"], y = "y"> (a)',
            f'd = {P} <xs = ["c", "b"], y = "y"> (c, b)',
            f'd = {P} <xs = ["a"], zs = ["b"], y = "d"> (a, b)',
            f'd = {P} <xs = ["a", "b"]> (a, b)',
            f'd = {P} <xs = ["c"], y = "y", ys = ["y"]> (c)',
            f'd, more = {P} <xs = ["c"], y = "y"> (c)',
        )
    )
    assert_expected_inline(
        told,
        """\
node 'Gradient_3' (ai.onnx.preview.training::Gradient): 'y' depends on the input 'b', which
neither xs nor zs names
node 'Gradient_3' (ai.onnx.preview.training::Gradient): the graph has no value 'nothing', which
y names
node 'Gradient_3' (ai.onnx.preview.training::Gradient): 'e' does not depend on 'b', which xs
names
node 'Gradient_3' (ai.onnx.preview.training::Gradient): 'd' follows from 'a', and xs and zs name
both
node 'Gradient_3' (ai.onnx.preview.training::Gradient): 'a' is named twice in xs and zs
node 'Gradient_3' (ai.onnx.preview.training::Gradient): xs and zs name 2 value(s), and it has 1
input(s)
node 'Gradient_3' (ai.onnx.preview.training::Gradient): 'c' follows from 'b', and xs and zs name
both
node 'Gradient_3' (ai.onnx.preview.training::Gradient): it differentiates what follows from
itself: Gradient_3 -> Gradient_3
graph 'g' / node 'Gradient_3': ai.onnx.preview.training::Gradient needs the attribute 'y': the
file is damaged
node 'Gradient_3' (ai.onnx.preview.training::Gradient revision 1): unknown attribute 'ys'; this
operator has: xs, y, zs
node 'Gradient_3' (ai.onnx.preview.training::Gradient): xs names 1 value(s), and it has 2
output(s)""",
    )


def test_derivatives_have_an_order() -> None:
    nodes = ["d0 = Exp(a)"]
    nodes += [f'd{n + 1} = {P} <xs = ["a"], y = "d{n}"> (a)' for n in range(8)]
    session = loaded(f"g (float[2] a) => (float[2] d8) {{ {' '.join(nodes)} }}", capture="off")
    x = torch.tensor([0.0, 1.0])
    torch.testing.assert_close(session(x), x.exp())
    told = refusal("d9", " ".join([*nodes, f'd9 = {P} <xs = ["a"], y = "d8"> (a)']))
    assert_expected_inline(
        told,
        """\
node 'Gradient_1' (ai.onnx.preview.training::Gradient): derivatives of more than order 8 are not
supported""",
    )


def test_only_floats_have_derivatives() -> None:
    session = loaded(f'g (int64[2] a) => (d) {{ y = Mul(a, a) d = {P} <xs = ["a"], y = "y"> (a) }}')
    assert_expected_inline(
        message(tos.KernelError, lambda: session(torch.tensor([1, 2]))),
        """\
node 'Gradient_1' (ai.onnx.preview.training::Gradient) failed: 'a' is int64, and only floats
have derivatives
  inputs: a: int64[2] cpu""",
    )


def test_a_fault_on_the_way_names_the_node_that_is_repeated() -> None:
    session = loaded(
        "g (float[n] a, float[m] b) => (d) { y = Mul(a, b)"
        f' d = {P} <xs = ["a"], zs = ["b"], y = "y"> (a, b) }}'
    )
    assert_expected_inline(
        message(tos.KernelError, lambda: session(torch.ones(2), torch.ones(3))),
        """\
node 'Gradient_1/Mul_0' (ai.onnx::Mul) failed: The size of tensor a (2) must match the size of
tensor b (3) at non-singleton dimension 0
  inputs: a: float32[2] cpu; b: float32[3] cpu""",
    )
