"""What is said of bodies: in `explain()`, in `stats()`, on the page of a plan and in traces."""

from __future__ import annotations

import torch
from bodylab import CHOICE, STEADY, chosen, fed, long, looped, plans
from expecttest import assert_expected_inline
from runtime.capturelab import agree, counted, pair, same, session_on, warmed
from textmodel import wrapped

from torch_ort_session.explain.page import page


def seam(text: str) -> str:
    """The part of an explanation that is about the regions."""
    return wrapped(text[text.index("regions") : text.index("\n\nmemory")])


def bodies(text: str) -> str:
    """The part of an explanation that is about bodies which are in no plan."""
    return wrapped(text[text.index("\n\n") + 2 :])


def test_m10_explain_shows_bodies_under_their_seam() -> None:
    text = looped(
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c)"
        f" {long('s', 'a')} z = NonZero(v2) f = Cast <to = 1> (z) h = ReduceSum <keepdims = 0> (f)"
        f" a2 = Add(a, h) {long('a2', 'r', 'o')} }}",
        more=", float[m] v",
    ).replace("{ y = Loop", "{ v2 = Neg(v) y = Loop")
    session = session_on(text)
    session.run(None, {**fed(50, trips=1), "v": torch.ones(3)})
    warmed(session, {**fed(), "v": torch.ones(3)}, 4)
    assert_expected_inline(
        seam(session.explain()),
        """\
regions
  segment  1 step, 1 launch
  seam     Loop_1 (ai.onnx::Loop)
           host control flow or sequence: its body runs once for each turn
           body: 29 steps
             (i: int64[], c: bool[], s: float32[4], w (outer): float32[4], v2 (outer):
             float32[3]): captured after 20 calls
             (i: int64[], c: bool[], s: float32[50], w (outer): float32[50], v2 (outer):
             float32[3]): cold after 1 call""",
    )


def test_m10_explain_shows_bodies_of_runs_that_are_all_seams_and_bodies_within_bodies() -> None:
    inner = (
        f"q (int64 j, bool f, float[n] p) => (bool h, float[n] u) {{ h = Identity(f) {long('p', 'u', 'i')} }}"
    )
    session = session_on(
        looped(
            "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c)"
            f" r = Loop (k, , s) <body = {inner}> }}"
        )
    )
    warmed(session, fed(), 4)
    assert_expected_inline(
        bodies(session.explain()),
        """\
Loop_0/body: 2 steps; not recorded: 1 launch saves less than it takes to copy 1 tensor
Loop_0/body/Loop_1/body: 13 steps
  (j: int64[], f: bool[], p: float32[4], w (outer): float32[4]): captured after 100 calls""",
    )


def test_m9_explain_says_why_a_branch_is_not_captured() -> None:
    session = session_on(CHOICE)
    warmed(session, chosen(length=1 << 16), 3)
    warmed(session, chosen(-1.0, length=1 << 16), 2)
    assert_expected_inline(
        seam(session.explain()),
        """\
regions
  segment  2 steps, 2 launches
  seam     If_3 (ai.onnx::If)
           host control flow or sequence: which branch runs depends on data
           then_branch: 12 steps
             (x (outer): float32[65536], w (outer): float32[65536]): latched after 3 calls
               below minimum length: 12 launches save less than it takes to copy 3 tensors of
               786432 bytes
           else_branch: 13 steps
             (x (outer): float32[65536], w (outer): float32[65536]): latched after 2 calls
               below minimum length: 13 launches save less than it takes to copy 3 tensors of
               786432 bytes""",
    )


def test_explain_of_bodies_that_never_are_captured() -> None:
    session = session_on(
        "g (float[n] x, bool c) => (float[n] y, float[2] z) { n = Neg(x) y = If (c) <then_branch = t () =>"
        " (float[n] a) { a = Neg(n) }, else_branch = e () => (float[n] b) { b = Abs(n) }> m = ReduceSum"
        " <keepdims = 0> (x) zero = Constant <value_float = 0.0> () p = Less(m, zero) z = If (p)"
        " <then_branch = t () => (float[2] c) { c = Constant <value_floats = [1.0, 2.0]> () },"
        " else_branch = e () => (float[2] f) { e = Constant <value_floats = [1.0, 2.0]> () f = Neg(e) }> }"
    )
    for number in range(6):
        session.run(None, {"x": torch.ones(3) if number % 2 else -torch.ones(3), "c": torch.tensor(True)})
    assert_expected_inline(
        seam(session.explain()),
        """\
regions
  segment  5 steps, 4 launches
  seam     If_5 (ai.onnx::If)
           host control flow or sequence: which branch runs depends on data
           then_branch: 0 steps; computed once: it reads nothing
           else_branch: 1 step; computed once: it reads nothing""",
    )


def test_the_page_shows_the_same() -> None:
    session = session_on(STEADY)
    plan = session.plan(fed())
    told = session._engine.state.bodies.told
    warmed(session, fed(), 3)
    shown = page(plan, "a loop", told=told)
    assert "body: 14 steps" in shown
    assert "captured after 15 calls" in shown
    assert "body: 14 steps" in page(plan, "a loop")


def test_bodies_are_counted_apart_from_runs() -> None:
    session, eager = pair(STEADY)
    for _ in range(4):
        agree(session, eager, fed())
    assert counted(session, "captures", "replays", "observed runs", "declines") == (0, 0, 1, 1)
    names = ("body calls observed", "body captures", "body replays", "body declines", "body plans")
    assert counted(session, *names) == (1, 1, 17, 0, 1)


def test_m24_a_trace_shows_calls_of_bodies_and_changes_none() -> None:
    session, eager = pair(STEADY)
    agree(session, eager, fed(trips=4))
    with session.trace() as timeline:
        agree(session, eager, fed(trips=3))
    spans = [span for span in timeline.spans if span.name == "body"]
    assert len(spans) == 3
    assert timeline.counters["body replays"] == 3
    agree(session, eager, fed(trips=3))


CONSTANT = (
    "g (float[n] x) => (float[3] y, float[3] z, float[2] v) <float[2] w = {5, 6}> { p = ReduceSum <keepdims ="
    " 0> (x) zero = Constant <value_float = 0.0> () q = Greater(p, zero)"
    " y, z, v = If (q) <then_branch = t () => (float[3] a, float[3] b, float[2] c) { d = Constant"
    " <value_floats = [1.0, 2.0, 3.0]> () a = Exp(d) b = Identity(d) c = Identity(w) },"
    " else_branch = e () => (float[3] f, float[3] h, float[2] k) { i = Constant <value_floats ="
    " [4.0, 5.0, 6.0]> () f = Neg(i) h = Abs(i) k = Identity(w) }> }"
)


def test_m9_a_branch_that_reads_nothing_is_computed_once_and_nobody_can_write_what_is_kept() -> None:
    session, eager = pair(CONSTANT)
    for number in range(8):
        given = {"x": torch.ones(2) if number % 3 else -torch.ones(2)}
        results, want = session.run(None, given), eager.run(None, given)
        same(results, want)
        for value in results:
            value.fill_(-7)
    kept = [plan.kept for plan in plans(session)]
    assert len(kept) == 2 and all(kept)
    session.release_memory()
    assert [plan.kept for plan in plans(session)] == [None, None]
    agree(session, eager, {"x": torch.ones(2)})


def test_m9_what_is_kept_is_computed_anew_when_a_run_is_captured() -> None:
    session, eager = pair(CONSTANT.replace("{ p = ReduceSum", "{ e2 = Exp(x) p = ReduceSum"))
    for _ in range(2):
        agree(session, eager, {"x": torch.ones(2)})
    (first,) = [plan.kept for plan in plans(session) if plan.kept is not None]
    agree(session, eager, {"x": torch.ones(2)})
    (second,) = [plan.kept for plan in plans(session) if plan.kept is not None]
    assert first is not second
    agree(session, eager, {"x": torch.ones(2)})
    (third,) = [plan.kept for plan in plans(session) if plan.kept is not None]
    assert third is second


def test_m9_a_branch_that_draws_random_numbers_or_reads_enclosing_values_is_never_kept() -> None:
    session, _ = pair(
        "g (float[n] x) => (float[3] y) { p = ReduceSum <keepdims = 0> (x)"
        " zero = Constant <value_float = 0.0> () q = Greater(p, zero) y = If (q)"
        " <then_branch = t () => (float[3] a) { a = RandomNormal <shape = [3]> () },"
        " else_branch = e () => (float[3] b) { i = Constant <value_floats = [1.0, 1.0, 1.0]> ()"
        " b = Mul(i, p) }> }"
    )
    first = session.run(None, {"x": torch.ones(2)})[0]
    assert not torch.equal(first, session.run(None, {"x": torch.ones(2)})[0])
    for number in (1.0, 2.0, 3.0):
        assert session.run(None, {"x": torch.full((2,), -number)})[0].tolist() == [-2 * number] * 3
    assert [plan.kept for plan in plans(session)] == [None, None]


def test_m9_a_branch_without_names_outside_that_fails_says_so_each_time() -> None:
    session, eager = pair(
        "g (float[n] x) => (float[m] y) { p = ReduceSum <keepdims = 0> (x)"
        " zero = Constant <value_float = 0.0> () q = Greater(p, zero) y = If (q)"
        " <then_branch = t () => (float[m] a) { i = Constant <value_floats = [1.0]> ()"
        " j = Constant <value_ints = [5]> () a = Gather(i, j) },"
        " else_branch = e () => (float[m]"
        " b) { b = Constant <value_floats = [2.0]> () }> }"
    )
    for _ in range(3):
        told = []
        for runs in (session, eager):
            try:
                runs.run(None, {"x": torch.ones(1)})
            except Exception as error:
                told.append(str(error))
        assert len(told) == 2 and told[0] == told[1] and "Gather" in told[0]
        agree(session, eager, {"x": -torch.ones(1)})
