"""What Loop, Scan and If refuse, each with the node's name: at load where it is known then, else in runs."""

from __future__ import annotations

import pytest
import torch
from bodylab import fed, long, looped
from expecttest import assert_expected_inline
from runtime.capturelab import agree, counted, pair
from textmodel import load, message

import torch_ort_session as tos

X = torch.tensor([1.0, 2.0])
CAPTURED = "body captures"


def refused(text: str, *feeds: object) -> str:
    return message(tos.KernelError, lambda: load(text)(*feeds))


def test_m10_an_enclosing_name_that_nothing_makes_is_an_error_at_load() -> None:
    text = (
        "g (float[n] x, int64 k) => (float[n] y) { y = Loop (k, , x) <body = b (int64 i, bool c, float[n] s)"
        " => (bool d, float[n] r) { d = Identity(c) r = If (d) <then_branch = t () => (float[n] a)"
        " { a = Add(s, nowhere) }, else_branch = e () => (float[n] b) { b = Neg(s) }> }> }"
    )
    assert_expected_inline(
        message(tos.ModelError, lambda: load(text)),
        """\
graph 'g' / node 'Loop_0' / body 'b' / node 'If_1' / then_branch 't' / node 'Add_0': its input
'nowhere' is made by no node and is no input or initializer: the file is damaged""",
    )


def test_m10_a_name_that_is_made_later_is_an_error_at_load() -> None:
    text = (
        "g (float[n] x, bool c) => (float[n] z) { y = If (c) <then_branch = t () => (float[n] a)"
        " { a = Add(x, z) }, else_branch = e () => (float[n] b) { b = Neg(x) }> z = Exp(y) }"
    )
    assert_expected_inline(
        message(tos.ModelError, lambda: load(text)),
        """\
graph 'g': nodes wait for each other in a circle: 'Exp_1' -> 'If_0' -> 'Exp_1'; a model must not
have one""",
    )


def test_m10_a_value_that_only_a_body_within_a_body_reads_is_kept_until_then() -> None:
    text = (
        "g (float[n] x, int64 k, float[n] w) => (float[n] y) { v = Exp(x) u = Neg(x) a = Abs(u)"
        " b2 = Sub(a, u) y = Loop (k, , b2) <body = b (int64 i, bool c, float[n] s) => (bool d, float[n] r)"
        f" {{ d = Identity(c) {long('s', 'q')} one = Constant <value_int = 1> () p = Less(i, one)"
        " r = If (p) <then_branch = t () => (float[n] e) { e = Add(q, v) },"
        " else_branch = f () => (float[n] h) { h = Sub(q, v) }> }> }"
    )
    session, eager = pair(text)
    for _ in range(5):
        agree(session, eager, fed())
    assert counted(session, CAPTURED) == (1,)


def test_m10_a_carried_value_keeps_its_dtype() -> None:
    text = (
        "g (float[n] x, int64 k) => (float[n] y) { y = Loop (k, , x) <body = b (int64 i, bool c, s)"
        " => (bool d, r) { d = Identity(c) h = CastLike(s, i) r = Add(h, h) }> }"
    )
    assert_expected_inline(
        refused(text, X, torch.tensor(3)),
        """\
node 'Loop_0' (ai.onnx::Loop) failed: the carried value 's' was float32[2] and became int64[2];
only its data and its dims may change
  inputs: k: int64[] cpu; (absent): absent; x: float32[2] cpu""",
    )


def test_m10_a_carried_value_keeps_its_rank_where_the_body_declares_one() -> None:
    body = "{ d = Identity(c) one = Constant <value_ints = [0]> () r = Unsqueeze(s, one) }> }"
    declared = (
        "g (float[n] x, int64 k) => (float[?] y) { y = Loop (k, , x) <body = b (int64 i, bool c, float[n] s)"
        f" => (bool d, r) {body}"
    )
    assert_expected_inline(
        refused(declared, X, torch.tensor(3)),
        """\
node 'Loop_0' (ai.onnx::Loop) failed: the carried value 's' was float32[2] and became float32[1,
2]; only its data and its dims may change
  inputs: k: int64[] cpu; (absent): absent; x: float32[2] cpu""",
    )
    free = declared.replace("float[n] s", "s")
    assert load(free)(X, torch.tensor(3)).shape == (1, 1, 1, 2)


def test_m10_a_state_of_a_scan_keeps_its_dims() -> None:
    text = (
        "g (float[n] x, float[t] w) => (float[m] y) { y = Scan <num_scan_inputs = 1, body = b (float[n] s,"
        " float v) => (float[m] r) { r = Concat <axis = 0> (s, s) }> (x, w) }"
    )
    assert_expected_inline(
        refused(text, X, torch.ones(3)),
        """\
node 'Scan_0' (ai.onnx::Scan) failed: the carried value 's' was float32[2] and became
float32[4]; only its data may change
  inputs: x: float32[2] cpu; w: float32[3] cpu""",
    )


def test_m10_scan_inputs_of_different_lengths_name_the_node_in_replays_too() -> None:
    text = (
        "g (float[n] x, float[t,n] v, float[u,n] v2, float[n] w) => (float[n] y, float[t,n] z) { y, z = Scan"
        " <num_scan_inputs = 2, body = b (float[n] s, float[n] e, float[n] e2) => (float[n] r, float[n] o)"
        f" {{ a = Add(s, e) a2 = Sub(a, e2) {long('a2', 'r')} o = Neg(r) }}> (x, v, v2) }}"
    )
    session, eager = pair(text)

    def draw(length: int, other: int) -> dict[str, torch.Tensor]:
        return {
            "x": torch.randn(3),
            "v": torch.randn(length, 3),
            "v2": torch.randn(other, 3),
            "w": torch.randn(3),
        }

    for length in (5, 5, 1, 0):
        agree(session, eager, draw(length, length))
    assert counted(session, CAPTURED) == (1,)
    for runs in (session, eager):
        with pytest.raises(tos.KernelError, match=r"Scan_0.*different lengths: \[2, 5\]"):
            runs.run(None, draw(5, 2))


@pytest.mark.parametrize("trips", [0, -1, -(2**40)])
def test_m10_no_trip_gives_typed_empty_outputs_before_and_after_the_body_is_captured(trips: int) -> None:
    session, eager = pair(
        looped(
            "b (int64 i, bool c, float[n] s) => (bool d, float[n] r, float16[2,3] o, int64 p)"
            f" {{ d = Identity(c) {long('s', 'r')} dims = Constant <value_ints = [2, 3]> ()"
            " f = ConstantOfShape(dims)"
            " o = Cast <to = 10> (f) p = Identity(i) }",
            outputs="float[n] y, float16[k,2,3] z, int64[k] q",
        )
    )
    for _ in range(2):
        agree(session, eager, fed(trips=trips))
        agree(session, eager, fed(trips=5))
    _, z, q = session.run(None, fed(trips=trips))
    assert (tuple(z.shape), z.dtype, tuple(q.shape), q.dtype) == ((0, 2, 3), torch.float16, (0,), torch.int64)
    assert counted(session, CAPTURED) == (1,)


def test_m10_the_trip_count_is_a_single_number_which_is_checked_before_it_is_read() -> None:
    text = looped("b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c) r = Neg(s) }")
    many = text.replace("int64 k", "int64[m] k")
    assert_expected_inline(
        refused(many, X, torch.zeros(1 << 20, dtype=torch.int64), X),
        """\
node 'Loop_0' (ai.onnx::Loop) failed: a single number is expected, not a tensor of shape
[1048576]
  inputs: k: int64[1048576] cpu; (absent): absent; x: float32[2] cpu""",
    )
