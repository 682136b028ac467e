"""Liveness: which values get a slot, from where to where, and what never may."""

from __future__ import annotations

import torch
from expecttest import assert_expected_inline
from plan.planning import CPU, Seen, see
from plan.walks import KERNELS
from textmodel import operator

from torch_ort_session.plan.memory.liveness import Liveness, dense_bytes, intervals
from torch_ort_session.plan.plan import Plan

X = torch.arange(6.0).reshape(2, 3)


def plan(nodes: str, outputs: str = "y", **kwargs: object) -> tuple[Seen, Plan]:
    declared = ", ".join(f"float[2, 3] {name}" for name in outputs.split())
    text = f"g (float[2, 3] x) => ({declared}) <float[3] w = {{1, 2, 3}}> {{ {nodes} }}"
    with operator(*KERNELS):
        seen = see(text, {"x": X})
    return seen, seen.plan(**kwargs)


def listing(seen: Seen, made: Plan) -> str:
    """Slots as ``name start-stop``, then what else has bytes, then views, by name."""
    found = intervals(made.steps, made.regions, made.static_values, made.observation, CPU)
    assert found.slotted == made.intervals
    named = seen.steps.names

    def spans(items: object) -> str:
        return " ".join(f"{named[i.value]} {i.start}-{i.stop}" for i in items) or "none"

    views = " ".join(f"{named[a]}<{named[b]}" for a, b in found.views) or "none"
    unknown = " ".join(named[value] for value in found.unknown)
    lines = [f"slots {spans(found.slotted)}", f"results {spans(found.results)}"]
    lines += [f"others {spans(found.others)}", f"views {views}"]
    return "\n".join(lines + ([f"unknown {unknown}"] if unknown else []))


def check(nodes: str, outputs: str = "y") -> str:
    return listing(*plan(nodes, outputs))


def test_results_of_kernels_with_out_have_slots_and_others_do_not() -> None:
    assert_expected_inline(
        check("a = tests.Into(x) b = tests.Make(a) c = tests.Into(b) d = tests.Make(c) y = tests.Into(d)"),
        """\
slots a 0-1 c 2-3
results y 4-5
others b 1-2 d 3-4
views none""",
    )


def test_results_and_what_they_are_views_of_have_none() -> None:
    assert_expected_inline(
        check(
            "a = tests.Into(x) b = tests.View(a) c = tests.Into(b) y = tests.View(c) d = tests.Into(c)"
            " z = tests.Make(d)",
            "y z",
        ),
        """\
slots a 0-2 d 4-5
results c 2-6 z 5-6
others none
views b<a y<c""",
    )


def test_a_view_keeps_its_owner_alive() -> None:
    assert_expected_inline(
        check(
            "a = tests.Into(x) v = tests.View(a) b = tests.Into(x) w2 = tests.View(v) c = Add(b, b)"
            " y = tests.Make(w2) z = tests.Make(c)",
            "y z",
        ),
        """\
slots a 0-5 b 2-4 c 4-6
results y 5-7 z 6-7
others none
views v<a w2<a""",
    )


def test_feeds_constants_and_static_values_have_none() -> None:
    assert_expected_inline(
        check("v = tests.View(x) k = tests.Into(w) a = tests.Into(v) b = Add(a, k) y = tests.Make(b)"),
        """\
slots a 2-3 b 3-4
results y 4-5
others none
views v<x""",
    )


def test_what_crosses_from_a_segment_has_a_slot() -> None:
    assert_expected_inline(
        check("a = tests.Make(x) b = tests.Make(a) c = tests.Cut(b) d = tests.Make(c) y = Add(a, d)"),
        """\
slots a 0-4 b 1-2 c 2-3
results y 4-5
others d 3-4
views none""",
    )


def test_a_seam_lands_where_segments_read_it() -> None:
    assert_expected_inline(
        check("a = tests.Cut(x) b = tests.Cut(a) c = tests.Make(b) d = tests.Cut(c) y = tests.Cut(d)"),
        """\
slots b 1-2 c 2-3
results y 4-5
others a 0-1 d 3-4
views none""",
    )


def test_what_a_seam_hands_on_lives_as_long_as_what_it_got() -> None:
    """b is a view of a here, or was a copy: a stays until the last reader of b."""
    assert_expected_inline(
        check(
            "a = tests.Into(x) b = tests.CutView(a) c = tests.Into(x) d = tests.Cut(b) e = tests.Cut(d)"
            " f = Add(c, e) y = tests.Make(f)"
        ),
        """\
slots a 0-3 c 2-5 e 4-5 f 5-6
results y 6-7
others d 3-4
views b<a""",
    )


def test_no_slot_for_what_a_result_of_a_seam_may_be_a_view_of() -> None:
    assert_expected_inline(
        check("a = tests.Into(x) y = tests.CutView(a) b = tests.Into(a) z = tests.Make(b)", "y z"),
        """\
slots b 2-3
results a 0-4 z 3-4
others none
views y<a""",
    )


def test_a_segments_view_of_a_landed_value_lies_in_the_landing() -> None:
    assert_expected_inline(
        check(
            "a = tests.Into(x) b = tests.CutView(a) v = tests.View(b) c = tests.Into(v) d = tests.Into(c)"
            " y = tests.Make(d)"
        ),
        """\
slots a 0-1 b 1-3 c 3-4 d 4-5
results y 5-6
others none
views b<a v<a""",
    )


def test_m21_what_a_sequence_holds_stays() -> None:
    assert_expected_inline(
        check(
            "a = tests.Into(x) s = tests.Pack(a) b = tests.Into(x) c = tests.Cut(b) t = tests.Unpack(s)"
            " d = Add(t, c) y = tests.Make(d)"
        ),
        """\
slots a 0-4 b 2-3 c 3-5 t 4-5 d 5-6
results y 6-7
others none
views t<a
unknown s""",
    )


def test_values_that_bodies_read_are_read_by_the_step() -> None:
    text = (
        "g (float[2, 3] x, bool c) => (float[2, 3] y) { a = tests.Into(x) b = tests.Into(x) r = If (c)"
        " <then_branch = t () => (float[2, 3] p) { p = Neg(a) }, else_branch = e () => (float[2, 3] q)"
        " { q = Abs(a) }> d = Add(r, b) y = tests.Make(d) }"
    )
    with operator(*KERNELS):
        seen = see(text, {"x": X, "c": torch.tensor(True)})
    assert_expected_inline(
        listing(seen, seen.plan()),
        """\
slots a 0-2 b 1-3 r 2-3 d 3-4
results y 4-5
others none
views none""",
    )


def test_a_slot_is_as_large_as_what_lies_in_it() -> None:
    seen, made = plan("a = tests.Into(x) b = tests.Cut(a) c = tests.Make(b) y = tests.Make(c)")
    assert {item.nbytes for item in made.intervals} == {24}
    spec = seen.spec("a")
    assert dense_bytes(spec) == 24
    assert dense_bytes(spec._replace(shape=(2, 0))) == 0
    assert dense_bytes(spec._replace(shape=(), dtype=torch.float64)) == 8
    assert dense_bytes(spec._replace(shape=(5, 3), stride=(0, 1))) == 60


def test_values_on_another_device_have_no_slot() -> None:
    seen, made = plan("a = tests.Into(x) y = tests.Make(a)")
    elsewhere = torch.device("meta")
    found = intervals(seen.steps, made.regions, seen.static_values, seen.observation, elsewhere)
    assert isinstance(found, Liveness)
    assert found.slotted == ()
    assert len(found.others) == len(found.results) == 1
