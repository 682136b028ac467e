"""Control flow beyond single cases: scope, state, sequences, gradients and what goes wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import load, message

import torch_ort_session as tos

X = torch.tensor([1.0, 2.0])


def loop(
    body: str, *, trips: str = "k", cond: str = "c", outputs: str = "y", state: str = ", x", head: str = ""
) -> str:
    return (
        f"g (float[n] x, int64 k, bool c{head}) => (float[a] {outputs.replace(', ', ', float[b] ')})"
        f" {{ {outputs} = Loop ({trips}, {cond}{state}) <body = {body}> }}"
    )


def test_a_condition_read_from_data() -> None:
    session = load(
        loop(
            "b (int64 i, bool d, float[n] s) => (bool e, float[n] o) <float limit = {100}>"
            " { o = Add(s, s) m = ReduceMax <keepdims = 0> (o) e = Less(m, limit) }"
        )
    )
    assert session(X, 1000, True).tolist() == [64, 128]
    assert session(X, 2, True).tolist() == [4, 8]
    assert session(X, 1000, False).tolist() == [1, 2]
    assert session(X, 0, True).tolist() == [1, 2]
    assert session(X, -1, True).tolist() == [1, 2]


def test_the_trip_number_and_the_condition_as_data() -> None:
    session = load(
        loop(
            "b (int64 i, bool d, float[n] s) => (bool e, float[n] o, float q) { e = Identity(d)"
            " f = Cast <to = 1> (i) g = Cast <to = 1> (d) h = Add(f, g) o = Add(s, h) q = Identity(h) }",
            outputs="y, z",
        )
    )
    y, z = session(X, 3, True)
    assert y.tolist() == [7, 8]
    assert z.tolist() == [1, 2, 3]


def test_state_may_change_its_shape() -> None:
    session = load(
        loop(
            "b (int64 i, bool d, float[n] s) => (bool e, float[m] o) { e = Identity(d) o = Concat <axis"
            " = 0> (s, s) }"
        )
    )
    assert session(X, 3, True).tolist() == [1, 2] * 8


def test_state_that_swaps() -> None:
    session = load(
        loop(
            "b (int64 i, bool d, float[n] s, float[n] t) => (bool e, float[n] u, float[n] v)"
            " { e = Identity(d) u = Identity(t) v = Identity(s) }",
            outputs="y, z",
            state=", x, w",
            head=", float[n] w",
        )
    )
    y, z = session(X, 3, True, [5.0, 6.0])
    assert (y.tolist(), z.tolist()) == ([5, 6], [1, 2])
    y.zero_()
    assert z.tolist() == [1, 2]


def test_scan_outputs_after_no_trip_are_typed_and_empty() -> None:
    session = load(
        "g (float[n] x, int64 k) => (float[n] y, int64[?] i, bool[?, 2] f, float16[?, 3, 4] h) <bool[2]"
        " t = {1, 0}>"
        " { y, i, f, h = Loop (k, , x) <body = b (int64 j, bool d, float[n] s) => (bool e, float[n] o,"
        " int64 p,"
        " bool[2] q, float16[3, 4] r) <int64[2] dims = {3, 4}> { e = Identity(d) o = Add(s, s) p ="
        " Identity(j)"
        " q = Identity(t) w = ConstantOfShape(dims) r = Cast <to = 10> (w) }> }"
    )
    out = session(X, 0)
    assert out.y.tolist() == [1, 2]
    assert (tuple(out.i.shape), out.i.dtype) == ((0,), torch.int64)
    assert (tuple(out.f.shape), out.f.dtype) == ((0, 2), torch.bool)
    assert (tuple(out.h.shape), out.h.dtype) == ((0, 3, 4), torch.float16)
    out = session(X, 2)
    assert out.i.tolist() == [0, 1]
    assert tuple(out.h.shape) == (2, 3, 4)


def test_a_sequence_as_state() -> None:
    session = load(
        "g (float[n] x, int64 k) => (float[m] y, int64 n) { e = SequenceEmpty () s = Loop (k, , e) <body ="
        " b (int64 i, bool d, seq(float[n]) q) => (bool f, seq(float[n]) r) { f = Identity(d)"
        " c = Cast <to = 1> (i) v = Mul(x, c) r = SequenceInsert(q, v) }>"
        " y = ConcatFromSequence <axis = 0> (s) n = SequenceLength(s) }"
    )
    out = session(X, 3)
    assert out.y.tolist() == [0, 0, 1, 2, 2, 4]
    assert out.n.item() == 3


def test_strings_through_a_branch() -> None:
    session = load(
        'g (string[n] x, bool c) => (string[m] y) <string[1] w = {"!"}> { y = If (c) <then_branch = t () =>'
        " (string[m] a) { a = Concat <axis = 0> (x, w) }, else_branch = e () => (string[m] b)"
        " { b = Identity(w) }> }"
    )
    assert session(["a"], True).tolist() == ["a", "!"]
    result = session(["a"], False)
    result[0] = "changed"
    assert session(["a"], False).tolist() == ["!"]


def test_branches_of_different_shapes() -> None:
    session = load(
        "g (float[n] x, bool c) => (float[?] y) { y = If (c) <then_branch = t () => (float[2, 1] a)"
        " <int64[1] o ="
        " {1}> { a = Unsqueeze(x, o) }, else_branch = e () => (float b) { b = ReduceSum <keepdims = 0>"
        " (x) }> }"
    )
    assert session(X, True).tolist() == [[1], [2]]
    assert session(X, False).tolist() == 3


def test_only_the_branch_that_is_taken_runs() -> None:
    session = load(
        "g (float[n] x, float[m] z, bool c) => (float[?] y) { y = If (c) <then_branch = t () => (float[n] a)"
        " { a = Add(x, z) }, else_branch = e () => (float[n] b) { b = Identity(x) }> }"
    )
    assert session(X, torch.ones(3), False).tolist() == [1, 2]
    with pytest.raises(tos.KernelError):
        session(X, torch.ones(3), True)


def test_nested_three_deep() -> None:
    session = load(
        "g (float[n] x, int64 k, bool c) => (float[n] y) <float[1] w = {1}> { y = Loop (k, , x) <body ="
        " b (int64 i, bool d, float[n] s) => (bool e, float[n] o) { e = Identity(d) o = If (c) <then_branch ="
        " t () => (float[n] a) { a = Loop (k, , s) <body = q (int64 j, bool f, float[n] p) => (bool g,"
        " float[n] r)"
        " { g = Identity(f) h = Add(i, j) l = CastLike(h, x) m = Add(p, l) r = Add(m, w) }> },"
        " else_branch = u () => (float[n] z) { z = Sub(s, w) }> }> }"
    )
    expected = X.clone()
    for i in range(3):
        for j in range(3):
            expected = expected + i + j + 1
    assert torch.equal(session(X, 3, True), expected)
    assert torch.equal(session(X, 3, False), X - 3)


GRADIENTS = {
    "captured value": (
        "g (double[n] x, double[n] w) => (double[n] y) <int64 k = {3}> { v = Mul(w, w) y = Loop (k, , x)"
        " <body ="
        " b (int64 i, bool d, double[n] s) => (bool e, double[n] o) { e = Identity(d) o = Mul(s, v) }> }"
    ),
    "branch": (
        "g (double[n] x, double[n] w) => (double[n] y) <bool c = {1}> { y = If (c) <then_branch = t () =>"
        " (double[n] a) { m = Mul(x, w) a = Sin(m) }, else_branch = e () => (double[n] b) { b ="
        " Identity(x) }> }"
    ),
    "scan": (
        "g (double[n] x, double[t, n] w) => (double[n] y, double[t, n] z) { y, z = Scan <num_scan_inputs = 1,"
        " body = b (double[n] s, double[n] v) => (double[n] o, double[n] p) { q = Mul(s, v) o = Sin(q)"
        " p = Add(o, v) }> (x, w) }"
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    session = load(GRADIENTS[name])
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    w = torch.rand((4, 3) if name == "scan" else (3,), dtype=torch.float64, requires_grad=True)

    def call(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(session.run(None, {"x": x, "w": w}))

    assert torch.autograd.gradcheck(call, (x, w))


def test_results_of_a_loop_are_not_its_inputs() -> None:
    session = load(
        loop("b (int64 i, bool d, float[n] s) => (bool e, float[n] o) { e = Identity(d) o = Identity(s) }")
    )
    y = session(X, 2, True)
    y.zero_()
    assert X.tolist() == [1, 2]


def refused(text: str, *feeds: Any) -> str:
    return message(tos.KernelError, lambda: load(text)(*feeds))


def test_what_goes_wrong() -> None:
    uneven = (
        "g (float[t, n] x, float[u, n] w) => (float[t, n] z) { z = Scan <num_scan_inputs = 2, body ="
        " b (float[n] v, float[n] r) => (float[n] o) { o = Add(v, r) }> (x, w) }"
    )
    assert_expected_inline(
        refused(uneven, torch.ones(3, 2), torch.ones(4, 2)),
        """\
node 'Scan_0' (ai.onnx::Scan) failed: the scan inputs have different lengths: [3, 4]
  inputs: x: float32[3, 2] cpu; w: float32[4, 2] cpu""",
    )
    condition = (
        "g (float[n] x, bool[m] c) => (float[n] y) { y = If (c) <then_branch = t () => (float[n] a)"
        " { a = Neg(x) }, else_branch = e () => (float[n] b) { b = Identity(x) }> }"
    )
    assert_expected_inline(
        refused(condition, X, [True, False]),
        """\
node 'If_0' (ai.onnx::If) failed: a single number is expected, not a tensor of shape [2]
  inputs: c: bool[2] cpu""",
    )
    wide = loop("b (int64 i, bool d, float[n] s) => (bool[m] e, float[n] o) { e = Greater(s, s) o = Neg(s) }")
    assert_expected_inline(
        refused(wide, X, 3, True),
        """\
node 'Loop_0' (ai.onnx::Loop) failed: the condition must be a single bool
  inputs: k: int64[] cpu; c: bool[] cpu; x: float32[2] cpu""",
    )
    ragged = loop(
        "b (int64 i, bool d, float[n] s) => (bool e, float[n] o, float[m] q) { e = Identity(d)"
        " o = Concat <axis = 0> (s, s) q = Identity(o) }",
        outputs="y, z",
    )
    assert_expected_inline(
        refused(ragged, X, 3, True),
        """\
node 'Loop_0' (ai.onnx::Loop) failed: stack expects each tensor to be equal size, but got [4] at
entry 0 and [8] at entry 1
  inputs: k: int64[] cpu; c: bool[] cpu; x: float32[2] cpu""",
    )


def test_bodies_that_do_not_fit_their_node() -> None:
    few = loop("b (int64 i, bool d) => (bool e) { e = Identity(d) }")
    many = loop(
        "b (int64 i, bool d, float[n] s, float[n] u) => (bool e, float[n] o) { e = Identity(d) o = Neg(s) }"
    )
    assert_expected_inline(
        refused(few, X, 3, True),
        """\
node 'Loop_0' (ai.onnx::Loop) failed: the body takes 2 inputs, 3 were given
  inputs: k: int64[] cpu; c: bool[] cpu; x: float32[2] cpu""",
    )
    assert_expected_inline(
        refused(many, X, 3, True),
        """\
node 'Loop_0' (ai.onnx::Loop) failed: the body takes 4 inputs, 3 were given
  inputs: k: int64[] cpu; c: bool[] cpu; x: float32[2] cpu""",
    )
