"""Within a body an If whose predicate is static under the signature gives way to the branch that it takes."""

from __future__ import annotations

import torch
from bodylab import body_entries, fed, long, looped
from runtime.capturelab import agree, counted, pair

import torch_ort_session as tos

CAPTURED = "body captures"
HEAD = (
    "sh = Shape(s) zero = Constant <value_int = 0> () n = Gather(sh, zero)"
    " three = Constant <value_int = 3> () p = Equal(n, three)"
)


def captured_whole(session: tos.Session) -> list[bool]:
    """Of each captured signature of a body, whether it is one recording."""
    return [entry.captured.whole is not None for entry in body_entries(session) if entry.captured is not None]


def body(branches: str, rest: str, results: str = "float[n] r") -> str:
    return (
        f"b (int64 i, bool c, float[n] s) => (bool d, {results}) {{ d = Identity(c) {HEAD}"
        f" {long('s', 'a')} {branches} {rest} }}"
    )


def test_a_branch_that_hangs_on_a_shape_is_part_of_the_recording() -> None:
    session, eager = pair(
        looped(
            body(
                f"e = If (p) <then_branch = t () => (float[n] u) {{ u = Neg(a) }}, else_branch = f () =>"
                f" (float[n] v) {{ {long('a', 'v', 'f')} }}>",
                "r = Add(e, w)",
            )
        )
    )
    for length in (3, 5, 3, 5):
        agree(session, eager, fed(length))
    assert captured_whole(session) == [True, True]
    assert counted(session, CAPTURED) == (2,)


def test_branches_within_branches_and_what_they_hand_on() -> None:
    """Outer values, constants and results of one step come out of a branch, twice one and the same."""
    inner = (
        "g1, g2, g3, g4 = If (p) <then_branch = t2 () => (float[n] u1, float[n] u2, float[2] u3, float[n] u4)"
        " { u1 = Identity(a) u4 = Sin(x1) u2 = Identity(u4) u3 = Constant <value_floats = [1.0, 2.0]> () },"
        " else_branch = f2 () => (float[n] v1, float[n] v2, float[2] v3, float[n] v4) { v1 = Neg(a)"
        " v2 = Neg(x1) v3 = Constant <value_floats = [3.0, 4.0]> () v4 = Cos(x1) }>"
    )
    branches = (
        f"o1, o2, o3, o4 = If (p) <then_branch = t () => (float[n] g1, float[n] g2, float[2] g3, float[n] g4)"
        f" {{ x1 = Mul(a, w) {inner} }}, else_branch = f () => (float[n] k1, float[n] k2, float[2] k3,"
        " float[n] k4) { k1 = Identity(w) k2 = Identity(s) k3 = Constant <value_floats = [5.0, 6.0]> ()"
        " k4 = Exp(a) }>"
    )
    text = looped(
        body(branches, "q1 = Add(o1, o2) r = Add(q1, o4)", "float[n] r, float[2] z, float[n] v, float[n] v2"),
        outputs="float[n] y, float[k,2] z2, float[k,n] z3, float[k,n] z4",
    ).replace("q1 = Add", "z = Identity(o3) v = Identity(o1) v2 = Identity(o2) q1 = Add")
    session, eager = pair(text, verify=True)
    for length in (3, 5, 3, 5):
        agree(session, eager, fed(length, trips=8))
    assert captured_whole(session) == [True, True]
    assert counted(session, "probe mismatches") == (0,)


def test_a_loop_within_such_a_branch_reads_the_values_around_it() -> None:
    inner = (
        "l = Loop (k, , x1) <body = q (int64 j, bool f, float[n] z) => (bool h, float[n] m)"
        f" {{ h = Identity(f) y1 = Add(z, a) y2 = Sub(y1, x1) {long('y2', 'm', 'q')} }}>"
    )
    session, eager = pair(
        looped(
            body(
                f"e = If (p) <then_branch = t () => (float[n] l) {{ x1 = Mul(a, s) {inner} }}, else_branch ="
                " f () => (float[n] v) { v = Exp(a) }>",
                long("e", "r", "g"),
            )
        )
    )
    for length in (3, 3, 5, 3):
        agree(session, eager, fed(length))
    # Where the loop is taken it is a seam; its body was recorded before that as well.
    assert sorted(captured_whole(session)) == [False, True, True, True]


def test_a_predicate_that_follows_from_data_is_left_alone() -> None:
    session, eager = pair(
        looped(
            body(
                "ms = ReduceSum <keepdims = 0> (a) nul = Constant <value_float = 0.0> ()"
                " p2 = Greater(ms, nul) e = If (p2) <then_branch = t () => (float[n] u) { u = Neg(a) },"
                " else_branch = f () => (float[n] v) { v = Abs(a) }>",
                long("e", "r", "g"),
            )
        )
    )
    for _ in range(4):
        agree(session, eager, {**fed(trips=8), "w": torch.zeros(4)})
    assert captured_whole(session) == [False]
