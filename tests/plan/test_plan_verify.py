"""Verify: every way in which a plan can be wrong is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from plan.planning import Seen, ids, see
from plan.walks import KERNELS, X, drawn
from textmodel import message, operator

from torch_ort_session.errors import PlanError
from torch_ort_session.plan.lowering.steps import Steps
from torch_ort_session.plan.memory.slots import Packing
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.plan.partition.segments import Region
from torch_ort_session.plan.plan import Plan
from torch_ort_session.plan.verify import verify

NODES = (
    "a = tests.Into(x) b = tests.Into(a) c = tests.Cut(b) d = Add(a, c) e = tests.Make(d) s = Shape(x)"
    " f = Reshape(e, s) y = tests.Make(f)"
)


@pytest.fixture
def seen() -> Seen:
    with operator(*KERNELS):
        return see(f"g (float[2, 3] x) => (float[2, 3] y) {{ {NODES} }}", {"x": X})


@pytest.fixture
def plan(seen: Seen) -> Plan:
    made = seen.plan()
    verify(made)
    return made


def regions(plan: Plan, *positions: tuple[int, ...], seams: tuple[int, ...] = (1,)) -> Plan:
    """The plan cut at other places."""
    made = [
        Region(where, Reason.SEAM, "it cuts") if number in seams else Region(where)
        for number, where in enumerate(positions)
    ]
    return replace(plan, regions=tuple(made))


def refused(plan: Plan) -> str:
    return message(PlanError, lambda: verify(plan))


def value(plan: Plan, name: str) -> int:
    (found,) = ids(plan.steps, name)
    return found


def moved(plan: Plan, name: str, offset: int) -> Plan:
    packing = plan.packing
    return replace(plan, packing=replace(packing, offsets={**packing.offsets, value(plan, name): offset}))


def resized(plan: Plan, name: str, **changes: int) -> Plan:
    which = value(plan, name)
    kept = tuple(replace(item, **changes) if item.value == which else item for item in plan.intervals)
    return replace(plan, intervals=kept)


def test_the_plan_that_is_broken_below(plan: Plan) -> None:
    named = plan.steps.names
    assert [(named[i.value], i.start, i.stop, plan.packing.offsets[i.value]) for i in plan.intervals] == [
        ("a", 0, 3, 0),
        ("b", 1, 2, 256),
        ("c", 2, 3, 512),
        ("d", 3, 4, 256),
    ]
    assert [region.positions for region in plan.regions] == [(0, 1), (2,), (3, 4, 6, 7)]


def test_m5_regions_that_do_not_hold_every_step_once(plan: Plan) -> None:
    assert_expected_inline(
        "\n".join(
            [
                refused(regions(plan, (0, 1), (2,), (3, 4, 6))),
                refused(regions(plan, (0, 1), (2,), (3, 4, 6, 7, 7))),
                refused(regions(plan, (0, 1), (2,), (1, 3, 4, 6, 7))),
                refused(regions(plan, (1, 0), (2,), (3, 4, 6, 7))),
                refused(regions(plan, (0, 1), (2,), (3, 4, 6, 7), ())),
                refused(regions(plan, (0, 1), (2,), (3, 4, 6, 7, 8))),
                refused(regions(plan, (0,), (2,), (3, 4, 6, 7))),
            ]
        ),
        """\
step 7 ('Make_7', tests::Make): it is in no region and makes more than constants
step 7 ('Make_7', tests::Make): it is in two places
step 1 ('Into_1', tests::Into): it is in two places
step 0 ('Into_0', tests::Into): it comes after step 1
a region is empty
a region names step 8, there are 8
step 1 ('Into_1', tests::Into): it is in no region and makes more than constants""",
    )


def test_m5_segments_that_are_not_maximal(plan: Plan) -> None:
    assert_expected_inline(
        refused(regions(plan, (0, 1), (2,), (3, 4), (6, 7))),
        """step 6 ('Reshape_6', ai.onnx::Reshape): two segments could be one""",
    )


def test_m3_a_seam_without_a_reason(plan: Plan) -> None:
    cut = list(plan.regions)
    cut[1] = replace(cut[1], message="")
    assert_expected_inline(
        refused(replace(plan, regions=tuple(cut))),
        """step 2 ('Cut_2', tests::Cut): a seam does not say why""",
    )


def test_a_segment_that_cannot_be_recorded(plan: Plan) -> None:
    assert_expected_inline(
        "\n".join(
            [
                refused(regions(plan, (0, 1, 2, 3, 4, 6, 7), seams=())),
                refused(replace(plan, quarantined=frozenset({("", "Add")}))),
                refused(replace(plan, device=torch.device("meta"))),
            ]
        ),
        """\
step 2 ('Cut_2', tests::Cut): it is recorded, and its kernel is a seam: it cuts
step 3 ('Add_3', ai.onnx::Add): it is recorded in spite of its quarantine
step 0 ('Into_0', tests::Into): it reads 'x' on cpu""",
    )


def test_a_number_that_a_recording_would_keep(plan: Plan) -> None:
    s = value(plan, "s")
    loose = replace(plan.static_values, data=plan.static_values.data - {s})
    whole = regions(plan, (0, 1), (2,), (3, 4, 5, 6, 7))
    assert_expected_inline(
        refused(replace(whole, static_values=loose)),
        """step 6 ('Reshape_6', ai.onnx::Reshape): a recording would keep the number 's'""",
    )


def test_a_body_that_is_recorded() -> None:
    text = (
        "g (float[2, 3] x, bool c) => (float[2, 3] y) { y = If (c) <then_branch = t () => (float[2, 3] p)"
        " { p = Neg(x) }, else_branch = e () => (float[2, 3] q) { q = Abs(x) }> }"
    )
    made = see(text, {"x": X, "c": torch.tensor(True)}).plan()
    verify(made)
    assert_expected_inline(
        refused(replace(made, regions=(Region((0,)),))),
        """step 0 ('If_0', ai.onnx::If): its bodies cannot be recorded""",
    )


def test_constants_that_nobody_kept(plan: Plan) -> None:
    lost = replace(plan.observation, static={})
    assert_expected_inline(
        refused(replace(plan, observation=lost)),
        """step 6 ('Reshape_6', ai.onnx::Reshape): it reads 's' before that is made""",
    )
    text = "g (float[2, 3] x) => (float[2, 3] y, int64[2] s) { y = Neg(x) s = Shape(y) }"
    made = see(text, {"x": X}).plan()
    verify(made)
    assert_expected_inline(
        refused(replace(made, observation=replace(made.observation, static={}))),
        """nothing makes the output 's'""",
    )


def test_what_is_assumed_follows_from_shapes_alone_and_from_the_ones_that_are_noted() -> None:
    text = (
        "g (float[4] x) => (float[?] y, float[?] z) <int64[1] one = {1}> { n = NonZero(x) a = Neg(n)"
        " s = Shape(a) k = Gather(s, one) y = ConstantOfShape(k) r = RandomNormalLike(y) z = Neg(r) }"
    )
    made = see(text, {"x": torch.tensor([1.0, 0.0, 2.0, 3.0])}).plan()
    verify(made)

    def having(drop: str = "", **more: int) -> Plan:
        noted = {value(made, name): since for name, since in more.items()}
        kept = {v: since for v, since in made.static_values.assumed.items() if made.steps.names[v] != drop}
        return replace(made, static_values=replace(made.static_values, assumed={**kept, **noted}))

    kinds = replace(made.observation, kinds={value(made, "a"): "strings"})
    assert_expected_inline(
        "\n".join(
            [
                refused(having("k")),
                refused(having("s")),
                refused(having(s=0)),
                refused(having(k=2)),
                refused(having(a=0)),
                refused(having(r=1)),
                refused(replace(made, observation=kinds)),
            ]
        ),
        """\
step 3 ('Gather_3', ai.onnx::Gather): it is in no region and makes more than constants
step 2 ('Shape_2', ai.onnx::Shape): it is in no region and makes more than constants
step 2 ('Shape_2', ai.onnx::Shape): what it makes follows from the shape made by step 1, not by
0
step 3 ('Gather_3', ai.onnx::Gather): what it makes follows from the shape made by step 1, not
by 2
step 1 ('Neg_1', ai.onnx::Neg): only some of what it makes is assumed
step 5 ('RandomNormalLike_5', ai.onnx::RandomNormalLike): only some of what it makes is assumed
step 2 ('Shape_2', ai.onnx::Shape): 'a' has no shape that could be compared""",
    )
    assert_expected_inline(
        "\n".join(
            [
                refused(replace(having(r=1), regions=regions(made, (0,), (1, 6), seams=(0,)).regions)),
                refused(replace(having(a=0), regions=regions(made, (0,), (5, 6), seams=(0,)).regions)),
            ]
        ),
        """\
step 5 ('RandomNormalLike_5', ai.onnx::RandomNormalLike): what it makes is assumed, and follows
from more than shapes
step 1 ('Neg_1', ai.onnx::Neg): what it makes is assumed, and follows from the data of 'n'""",
    )


def with_outputs(steps: Steps, *outputs: int) -> Steps:
    return replace(steps, outputs=outputs)


def test_slots_that_overlap(plan: Plan) -> None:
    assert_expected_inline(
        "\n".join(
            [
                refused(moved(plan, "b", 0)),
                refused(moved(plan, "c", 0)),
                refused(moved(plan, "c", 256)),
                refused(moved(plan, "d", 512)),
            ]
        ),
        """\
step 1 ('Into_1', tests::Into): the slots of 'a' and 'b' overlap while both are needed
step 2 ('Cut_2', tests::Cut): the slots of 'a' and 'c' overlap while both are needed
step 2 ('Cut_2', tests::Cut): the slots of 'b' and 'c' overlap while both are needed
step 3 ('Add_3', ai.onnx::Add): the slots of 'c' and 'd' overlap while both are needed""",
    )


def test_slots_that_leave_the_arena_or_lie_askew(plan: Plan) -> None:
    assert_expected_inline(
        "\n".join(
            [
                refused(moved(plan, "c", 513)),
                refused(moved(plan, "c", 768)),
                refused(moved(plan, "c", -256)),
            ]
        ),
        """\
the slot of 'c' at 513 is not aligned or leaves the arena
the slot of 'c' at 768 is not aligned or leaves the arena
the slot of 'c' at -256 is not aligned or leaves the arena""",
    )


def test_slots_that_are_too_small_or_given_up_too_early(plan: Plan) -> None:
    assert_expected_inline(
        "\n".join(
            [
                refused(resized(plan, "a", nbytes=20)),
                refused(resized(plan, "c", nbytes=0)),
                refused(resized(plan, "a", stop=2)),
                refused(resized(plan, "a", start=1)),
            ]
        ),
        """\
the slot of 'a' has 20 bytes, fewer than it takes
the slot of 'c' has 0 bytes, fewer than it takes
the slot of 'a' is kept from 0 to 2, not from 0 to 3
the slot of 'a' is kept from 1 to 3, not from 0 to 3""",
    )


def test_slots_of_values_that_must_have_none(plan: Plan) -> None:
    def extra(name: str, start: int, stop: int) -> Plan:
        item = replace(plan.intervals[0], value=value(plan, name), start=start, stop=stop)
        offsets = {**plan.packing.offsets, item.value: 768}
        packing = Packing(offsets, 1024, plan.packing.bound, plan.packing.naive)
        return replace(plan, intervals=(*plan.intervals, item), packing=packing)

    results = replace(plan, steps=with_outputs(plan.steps, value(plan, "d"), value(plan, "y")))
    assert_expected_inline(
        "\n".join(
            [
                refused(extra("x", 0, 7)),
                refused(extra("s", 5, 7)),
                refused(extra("f", 6, 7)),
                refused(extra("y", 7, 8)),
                refused(results),
            ]
        ),
        """\
'x' has a slot, and no step of a region writes its memory
's' has a slot, and no step of a region writes its memory
'f' has a slot, and no step of a region writes its memory
'y' has a slot, and a result may lie in it
'd' has a slot, and a result may lie in it""",
    )


def test_slots_and_intervals_of_different_values(plan: Plan) -> None:
    assert_expected_inline(
        refused(replace(plan, intervals=plan.intervals[1:])),
        """slots and intervals are not of the same values""",
    )


def test_a_value_that_crosses_without_a_slot(seen: Seen, plan: Plan) -> None:
    def without(name: str) -> Plan:
        gone = value(plan, name)
        kept = tuple(item for item in plan.intervals if item.value != gone)
        offsets = {v: o for v, o in plan.packing.offsets.items() if v != gone}
        packing = Packing(offsets, plan.packing.total, bound=512, naive=768)
        assert plan.stats is not None
        stats = replace(plan.stats, assignments=3, bound=512, slotted=768)
        return replace(plan, intervals=kept, packing=packing, stats=stats)

    assert_expected_inline(
        "\n".join([refused(without("a")), refused(without("c"))]),
        """\
'a' crosses regions and has no slot
'c' crosses regions and has no slot""",
    )


def test_numbers_that_do_not_add_up(plan: Plan) -> None:
    assert plan.stats is not None
    wrong: list[dict[str, Any]] = [
        {"peak": 0},
        {"bound": 256},
        {"slotted": 256},
        {"assignments": 3},
        {"unknown": 1},
        {"complete": False},
    ]
    for change in wrong:
        with pytest.raises(PlanError):
            verify(replace(plan, stats=replace(plan.stats, **change)))
    with pytest.raises(PlanError, match="no reason"):
        verify(replace(plan, stats=None))
    with pytest.raises(PlanError, match="the numbers"):
        verify(replace(plan, packing=replace(plan.packing, bound=256)))


@pytest.mark.parametrize("seed", range(40))
def test_a_slot_moved_onto_another_that_lives_is_found(seed: int) -> None:
    plan = drawn(seed).plan()
    at = {item.value: plan.packing.offsets[item.value] for item in plan.intervals}
    for item in plan.intervals:
        for other in plan.intervals:
            if item is not other and item.start <= other.stop and other.start <= item.stop:
                packing = replace(plan.packing, offsets={**at, item.value: at[other.value]})
                with pytest.raises(PlanError, match="overlap"):
                    verify(replace(plan, packing=packing))


def test_a_plan_of_thousands_of_steps_holds() -> None:
    chain = " ".join(f"v{i + 1} = Add(v{i}, v{max(0, i - 40)})" for i in range(3000))
    plan = see(f"g (float[2, 3] v0) => (float[2, 3] v3000) {{ {chain} }}", {"v0": X}).plan()
    verify(plan)
    assert len(plan.steps.items) == 3000
