"""Bodies of If, Loop and Scan are warmed up, captured and replayed by signatures of their own."""

from __future__ import annotations

import pytest
import torch
from bodylab import CHOICE, STEADY, body_states, chosen, fed, long, looped, plans
from runtime.capturelab import agree, counted, pair, same, session_on
from textmodel import declare, operator

import torch_ort_session as tos

OBSERVED, CAPTURED, REPLAYED = "body calls observed", "body captures", "body replays"


def test_m10_a_loops_body_is_captured_at_its_third_trip_and_replayed_from_then_on() -> None:
    session, eager = pair(STEADY)
    agree(session, eager, fed(trips=2))
    assert counted(session, OBSERVED, CAPTURED, REPLAYED) == (1, 0, 0)
    agree(session, eager, fed(trips=3))
    assert counted(session, OBSERVED, CAPTURED, REPLAYED) == (1, 1, 2)
    for trips in (0, 1, 7, -1):
        agree(session, eager, fed(trips=trips))
    assert counted(session, OBSERVED, CAPTURED, REPLAYED) == (1, 1, 10)


def test_m9_each_branch_is_captured_apart_and_flips_keep_both() -> None:
    session, eager = pair(CHOICE)
    for sign in (1, 1, 1, -1, -1, -1, 1, -1, 1, -1, -1):
        agree(session, eager, chosen(sign))
    assert counted(session, CAPTURED, REPLAYED, "body retirements") == (2, 5, 0)


def test_m10_a_scans_body_is_captured() -> None:
    session, eager = pair(
        "g (float[n] x, float[t,n] v, float[n] w) => (float[n] y, float[t,n] z)"
        " { y, z = Scan <num_scan_inputs = 1, body = b (float[n] s, float[n] e) => (float[n] r, float[n] o)"
        f" {{ a = Add(s, e) {long('a', 'r')} o = Neg(r) }}> (x, v) }}"
    )
    for length in (6, 6, 2, 0, 9):
        given = {"x": torch.randn(3), "v": torch.randn(length, 3), "w": torch.randn(3)}
        agree(session, eager, given)
    assert counted(session, CAPTURED, REPLAYED) == (1, 20)


def test_m10_signatures_of_a_body_are_captured_apart() -> None:
    session, eager = pair(STEADY)
    for length in (3, 5, 3, 5, 2):
        agree(session, eager, fed(length))
    assert counted(session, CAPTURED) == (3,)
    assert body_states(session) == ["captured"] * 3


def test_m10_an_enclosing_value_of_another_shape_is_another_signature() -> None:
    body = (
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c) m = ReduceSum <keepdims ="
        f" 1> (v) a = Add(s, m) {long('a', 'r')} }}"
    )
    session, eager = pair(looped(body, more=", float[m] v"))
    for length in (2, 2, 7, 7, 2):
        agree(session, eager, {**fed(), "v": torch.randn(length)})
    assert counted(session, CAPTURED) == (2,)


def test_m10_enclosing_values_are_those_of_the_run() -> None:
    session, eager = pair(STEADY)
    given = fed(trips=6)
    for _ in range(5):
        given["w"] = given["w"] + 1
        agree(session, eager, given)
    given["w"].mul_(2)
    agree(session, eager, given)


def test_m10_carried_values_that_change_places() -> None:
    body = (
        "b (int64 i, bool c, float[n] s, float[n] t) => (bool d, float[n] u, float[n] v, float[n] o)"
        f" {{ d = Identity(c) u = Identity(t) a = Add(s, t) {long('a', 'v')} o = Identity(s) }}"
    )
    session, eager = pair(
        looped(
            body,
            state="float[n] x, float[n] x2",
            outputs="float[n] y, float[n] y2, float[k,n] z",
        )
    )
    for trips in (9, 4, 1):
        agree(session, eager, {**fed(trips=trips), "x2": torch.randn(4)})
    assert counted(session, CAPTURED, REPLAYED) == (1, 11)


def test_m10_values_that_swap_and_values_that_stay() -> None:
    body = (
        "b (int64 i, bool c, float[n] s, float[n] t, float[n] q) => (bool d, float[n] u, float[n] v,"
        f" float[n] r, float[n] o) {{ d = Identity(c) u = Identity(t) v = Identity(s) r = Identity(q)"
        f" a = Sub(s, t) {long('a', 'o')} }}"
    )
    session, eager = pair(
        looped(
            body,
            state="float[n] x, float[n] x2, float[n] x3",
            outputs="float[n] y, float[n] y2, float[n] y3, float[k,n] z",
        )
    )
    for trips in (9, 4, 1, 8):
        agree(session, eager, {**fed(trips=trips), "x2": torch.randn(4), "x3": torch.randn(4)})
    assert counted(session, CAPTURED) == (1,)


def test_m10_results_that_the_user_holds_are_never_written_again() -> None:
    for text, feed in ((STEADY, fed), (CHOICE, chosen)):
        session, eager = pair(text)
        held = []
        for _ in range(6):
            given = feed()
            results = session.run(None, given)
            same(results, eager.run(None, given))
            held.append((results, [value.clone() for value in results]))
        for results, then in held:
            same(results, then)
        for value in held[-1][0]:
            value.fill_(7)
        agree(session, eager, feed())


def test_m10_a_condition_that_follows_from_data_ends_a_replayed_loop() -> None:
    session, eager = pair(
        "g (float[n] x, float[n] w) => (float[n] y) { one = Constant <value_float = 3.0> ()"
        " y = Loop ( , , x) <body = b (int64 i, bool c, float[n] s) => (bool d, float[n] r)"
        f" {{ {long('s', 'q')} h = Abs(q) g1 = Add(s, h) r = Add(g1, half) m = ReduceMax <keepdims = 0> (r)"
        " d = Less(m, one) }> }".replace("half", "one")
    )
    for low in (-90.0, -40.0, 0.0, -70.0, 2.0):
        agree(session, eager, {"x": torch.full((3,), low), "w": torch.rand(3)})
    assert counted(session, CAPTURED) == (1,)


def test_m10_shapes_that_grow_from_trip_to_trip_are_not_tried_again_and_again() -> None:
    session, eager = pair(
        "g (float[n] x, int64 k, float w) => (float[m] y) { y = Loop (k, , x) <body = b (int64 i, bool c,"
        " float[a] s) => (bool d, float[e] r) { d = Identity(c) one = Constant <value_floats = [1.0]> ()"
        f" a = Concat <axis = 0> (s, one) {long('a', 'r')} }}> }}"
    )
    given = {"x": torch.randn(2), "k": torch.tensor(100), "w": torch.tensor(0.5)}
    for _ in range(5):
        agree(session, eager, given)
    assert counted(session, OBSERVED, CAPTURED) == (0, 0)
    # What comes again is captured after all, once the body was left alone for a while.
    for _ in range(300):
        session.run(None, {**given, "k": torch.tensor(1)})
    assert counted(session, OBSERVED, CAPTURED) == (1, 1)


def test_m10_a_few_shapes_that_come_again_and_again_do_not_push_one_another_out() -> None:
    session, eager = pair(STEADY)
    for _ in range(12):
        for length in range(2, 12):
            agree(session, eager, fed(length, trips=2))
    observed, captured, evicted = counted(session, OBSERVED, CAPTURED, "evictions")
    assert (captured, evicted) == (4, 0) and observed <= 10
    # When those four are gone for good others take their places.
    for _ in range(40):
        agree(session, eager, fed(50, trips=1))
    assert counted(session, CAPTURED, "evictions") == (5, 1)


def test_a_body_that_is_too_short_is_not_recorded() -> None:
    short = looped(
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c) r = Add(s, w) }"
    )
    session, eager = pair(short)
    for _ in range(3):
        agree(session, eager, fed(trips=9))
    assert counted(session, OBSERVED, CAPTURED) == (0, 0)
    assert plans(session)[0].facts.hopeless
    session, eager = pair(CHOICE)
    for _ in range(5):
        agree(session, eager, chosen(length=1 << 16))
    assert counted(session, OBSERVED, CAPTURED, "body declines", "latched body signatures") == (1, 0, 1, 1)


def test_m10_bodies_within_bodies_are_captured_apart() -> None:
    inner = (
        "q (int64 j, bool f, float[n] p) => (bool h, float[n] u) { h = Identity(f) v = Add(p, s)"
        f" {long('v', 'u', 'i')} }}"
    )
    body = (
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r, float[n] o) { d = Identity(c)"
        f" {long('s', 'a')} l = Loop (k, , a) <body = {inner}> z = Add(l, w) {long('z', 'r', 'k')}"
        " o = Identity(l) }"
    )
    session, eager = pair(looped(body, outputs="float[n] y, float[k,n] z"))
    for trips in (4, 2, 5):
        agree(session, eager, fed(trips=trips))
    assert counted(session, CAPTURED) == (2,)
    assert body_states(session) == ["captured", "captured"]


def test_m10_a_branch_within_a_loop_that_follows_the_carried_value() -> None:
    body = (
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c)"
        f" {long('s', 'a')} m = ReduceSum <keepdims = 0> (a) z = Constant <value_float = 0.0> ()"
        " p = Greater(m, z)"
        f" r = If (p) <then_branch = t () => (float[n] u) {{ na = Neg(a) {long('na', 'u', 't')} }},"
        f" else_branch = e () => (float[n] v) {{ nb = Neg(a) {long('nb', 'v', 'e')} }}> }}"
    )
    session, eager = pair(looped(body))
    for _ in range(4):
        # Each trip turns the sign round.
        agree(session, eager, {**fed(trips=8), "w": torch.zeros(4)})
    assert counted(session, CAPTURED) == (3,)


def test_m10_a_sequence_that_a_body_carries() -> None:
    session, eager = pair(
        "g (float[n] x, int64 k, float[n] w) => (float[m] y) { e = SequenceEmpty () s, z = Loop (k, , e, x)"
        " <body = b (int64 i, bool d, seq(float[n]) q, float[n] v) => (bool f, seq(float[n]) r, float[n] u)"
        f" {{ f = Identity(d) {long('v', 'u')} r = SequenceInsert(q, u) }}> y = ConcatFromSequence <axis = 0>"
        " (s) }"
    )
    for trips in (6, 6, 3):
        agree(session, eager, fed(trips=trips))


def test_m7_a_seam_of_another_shape_within_a_body_retires_its_capture_and_results_are_right() -> None:
    body = (
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c)"
        f" {long('s', 'a')} z = NonZero(v) f = Cast <to = 1> (z) g = Mul(f, f) h = ReduceSum <keepdims = 0>"
        f" (g) a2 = Add(a, h) {long('a2', 'r', 'o')} }}"
    )
    session, eager = pair(looped(body, more=", float[m] v"))
    zeros = [torch.tensor(v) for v in ([1.0, 2, 3], [1.0, 0, 3], [0.0, 0, 0])]
    for v in (*zeros, *zeros, *zeros):
        agree(session, eager, {**fed(trips=4), "v": v})
    retired, loosened = counted(session, "body retirements", "loosened nodes")
    assert retired and loosened == 1


def test_m8_what_a_body_cannot_record_is_quarantined_for_the_session() -> None:
    @declare
    def Reads(x: torch.Tensor) -> torch.Tensor:
        return x + float(x.sum().item())

    with operator(Reads):
        body = (
            "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c)"
            f" {long('s', 'a')} e = tests.Reads(a) {long('e', 'r', 'o')} }}"
        )
        session, eager = pair(looped(body))
        for _ in range(4):
            agree(session, eager, fed(trips=4))
    assert counted(session, CAPTURED, "quarantined operators") == (1, 1)
    assert "quarantined in this session: tests::Reads" in session.explain()


def test_bodies_run_step_by_step_with_capture_off_and_in_grad_mode() -> None:
    session = session_on(STEADY, capture="off")
    for _ in range(4):
        session.run(None, fed())
    assert counted(session, OBSERVED, CAPTURED) == (0, 0)
    session = session_on(STEADY)
    given = fed()
    given["w"].requires_grad_()
    for _ in range(4):
        y, _ = session.run(None, given)
    assert y.grad_fn is not None
    assert counted(session, OBSERVED, CAPTURED) == (0, 0)
    with torch.no_grad():
        y, _ = session.run(None, given)
    assert counted(session, CAPTURED) == (1,)
    assert not y.requires_grad


@pytest.mark.parametrize("text", [STEADY, CHOICE], ids=["loop", "branch"])
def test_verify_poisons_and_compares_replays_of_bodies(text: str) -> None:
    session, eager = pair(text, verify=True)
    for _ in range(6):
        agree(session, eager, fed() if text is STEADY else chosen())
    assert counted(session, "probe mismatches") == (0,)
    assert counted(session, "probes")[0] >= 1


def test_m10_a_body_that_lies_is_found_out_by_verify() -> None:
    calls = []

    @declare
    def Counts(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + len(calls)

    with operator(Counts):
        body = (
            "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c)"
            f" {long('s', 'a')} r = tests.Counts(a) }}"
        )
        session = session_on(looped(body), verify=True)
        for _ in range(3):
            session.run(None, fed(trips=4))
    assert counted(session, "probe mismatches", "body plans") == (1, 0)
    assert body_states(session) == ["latched"]


def test_m10_what_is_wrong_with_data_in_a_replayed_body_names_its_node() -> None:
    body = (
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r) { d = Identity(c)"
        f" {long('s', 'a')} g = Gather(v, j) r = Add(a, g) }}"
    )
    session, eager = pair(looped(body, more=", float[m] v, int64 j"))
    given = {**fed(), "v": torch.randn(3), "j": torch.tensor(1)}
    for _ in range(3):
        agree(session, eager, given)
    for runs in (session, eager):
        with pytest.raises(tos.errors.SessionError, match="Gather"):
            runs.run(None, {**given, "j": torch.tensor(9)})
    for _ in range(4):
        agree(session, eager, given)
    assert counted(session, "latched body signatures") == (0,)


def test_m10_what_a_loop_hands_on_unchanged_is_copied_once_and_is_right_when_it_is_not_the_same() -> None:
    """A carried value that stays for some trips, and changes its place with another one in others."""
    body = (
        "b (int64 i, bool c, float[n] s, float[n] p, float[n] q) => (bool d, float[n] r, float[n] u,"
        " float[n] v) { d = Identity(c) a = Add(s, p) e = Sub(a, q)"
        f" {long('e', 'r')} u = Identity(p) v = Identity(q) }}"
    )
    twice = body.replace("u = Identity(p) v = Identity(q)", "u = Identity(q) v = Identity(p)")
    # The state itself, handed on in place of what stays: it is lent, and another one at each trip.
    thrice = body.replace("u = Identity(p)", "u = Identity(r)").replace("v = Identity(q)", "v = Identity(p)")
    for text in (body, twice, thrice):
        session, eager = pair(
            looped(
                text,
                state="float[n] x, float[n] x2, float[n] x3",
                outputs="float[n] y, float[n] y2, float[n] y3",
            )
        )
        for trips in (7, 5, 1, 6):
            agree(session, eager, {**fed(trips=trips), "x2": torch.randn(4), "x3": torch.randn(4)})
        assert counted(session, CAPTURED) == (1,)


def test_m16_values_of_a_body_that_outlive_a_body_within_it_are_not_overwritten() -> None:
    inner = (
        "q (int64 j, bool f, float[n] p) => (bool h, float[n] u) { h = Identity(f)"
        " ax = Constant <value_ints = [0]> () p1 = Unsqueeze(p, ax)"
        " p8 = Concat <axis = 0> (p1, p1, p1, p1, p1, p1, p1, p1) p9 = Tanh(p8) p10 = Sin(p9)"
        f" p11 = ReduceMean <keepdims = 0> (p10, ax) {long('p11', 'u', 'i')} }}"
    )
    body = (
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r, float[n] o) { d = Identity(c)"
        f" {long('s', 'a')} e = Exp(a) l = Loop (k, , a) <body = {inner}> z = Mul(l, e) {long('z', 'r', 'k')}"
        " o = Sub(e, l) }"
    )
    text = looped(body, outputs="float[n] y, float[k,n] z")
    for verify in (False, True):
        session, eager = pair(text, verify=verify)
        for trips in (4, 4, 4, 4, 5):
            agree(session, eager, fed(500, trips=trips))
        assert counted(session, CAPTURED, "probe mismatches") == (2, 0)
