"""Verify: every way in which a plan can be wrong is found."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from plan.planning import Seen, ids, see
from plan.walks import KERNELS, X, drawn
from tapelab import needs_extension
from textmodel import message, model, operator

import torch_ort_session as tos
from torch_ort_session.errors import PlanError
from torch_ort_session.plan.memory.layout import Evidence, MemoryLayout, Place, PlaceKind, Touch
from torch_ort_session.plan.memory.slots import Interval, Packing
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.plan.partition.segments import Region
from torch_ort_session.plan.plan import Plan
from torch_ort_session.plan.verify import verify, verify_layout
from torch_ort_session.runtime.recorders.tape import memory as memory_module

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


def ruled(plan: Plan, **changes: Any) -> Plan:
    """The plan by other rules."""
    return replace(plan, rules=replace(plan.rules, **changes))


def refused(plan: Plan) -> str:
    return message(PlanError, lambda: verify(plan))


def value(plan: Plan, name: str) -> int:
    (found,) = ids(plan.steps, name)
    return found


def test_the_plan_that_is_broken_below(plan: Plan) -> None:
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
                refused(ruled(plan, quarantined=frozenset({("", "Add")}))),
                refused(ruled(plan, device=torch.device("meta"))),
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


def test_a_shape_that_nobody_compares(plan: Plan) -> None:
    unguarded = replace(plan, guards=(*plan.guards[:2], (), *plan.guards[3:]))
    text = "g (float[4] x) => (float[?] y) { n = NonZero(x) s = Shape(n) y = ConstantOfShape(s) }"
    assumed = see(text, {"x": torch.tensor([1.0, 0.0, 2.0, 3.0])}).plan()
    verify(assumed)
    assert_expected_inline(
        "\n".join([refused(unguarded), refused(replace(assumed, guards=((), (), ())))]),
        """\
step 3 ('Add_3', ai.onnx::Add): it relies on 'c', which is not compared
step 1 ('Shape_1', ai.onnx::Shape): it relies on 'n', which is not compared""",
    )


def test_a_plan_of_thousands_of_steps_holds() -> None:
    chain = " ".join(f"v{i + 1} = Add(v{i}, v{max(0, i - 40)})" for i in range(3000))
    plan = see(f"g (float[2, 3] v0) => (float[2, 3] v3000) {{ {chain} }}", {"v0": X}).plan()
    verify(plan)
    assert len(plan.steps.items) == 3000


def held(key: int, kind: PlaceKind, offset: int, first: int, last: int, name: str = "") -> Place:
    return Place(key, kind, offset, 200, first, last, name)


SLOT, GIVEN = PlaceKind.SLOT, PlaceKind.GIVEN
PLACES = (
    held(1, SLOT, 0, 0, 2, "a"),
    held(2, SLOT, 256, 1, 2, "b"),
    held(3, SLOT, 256, 2, 4, "c"),
    held(4, SLOT, 0, 3, 4),
    held(5, GIVEN, 0, 4, 5, "y"),
)
LAYOUT = MemoryLayout(5, (0, 5), 512, 512, 768, PLACES)
EVIDENCE = Evidence(
    (
        *(Touch(place.storage, place.first, place.last, 200, True) for place in PLACES),
        Touch(3, 2, 4, 200, True, 256),
        Touch(5, 4, 5, 200, True, -1),
    ),
    frozenset({(2, 3, 2)}),
)


def broken(number: int, **changes: Any) -> str:
    """What is said of the layout with another place for one storage."""
    places = tuple(place._replace(**changes) if place.storage == number else place for place in PLACES)
    return message(PlanError, lambda: verify_layout(replace(LAYOUT, places=places), EVIDENCE))


def seen_otherwise(*touches: Touch, drop: int = 0) -> str:
    """What is said of the layout where calls touch something else as well."""
    kept = tuple(touch for touch in EVIDENCE.touches if touch.storage != drop)
    found = EVIDENCE._replace(touches=(*kept, *touches))
    return message(PlanError, lambda: verify_layout(LAYOUT, found))


def test_a_layout_that_holds() -> None:
    verify_layout(LAYOUT, EVIDENCE)


def test_m13_slots_that_overlap() -> None:
    assert_expected_inline(
        "\n".join(
            [
                broken(2, offset=0),
                broken(3, offset=0),
                broken(4, offset=256),
                message(PlanError, lambda: verify_layout(LAYOUT, EVIDENCE._replace(overwrites=frozenset()))),
                seen_otherwise(Touch(1, 3, 3, 200, True)),
            ]
        ),
        """\
the slots of 'a' and 'b' overlap at 1, while both are needed
'c' should lie at 0 and lies at 256
the slots of 'c' and a storage of 200 bytes overlap at 3, while both are needed
the slots of 'b' and 'c' overlap at 2, while both are needed
'a' has 200 bytes from 0 to 2, and needs 200 from 0 to 3""",
    )


def test_slots_that_leave_the_arena_or_lie_askew() -> None:
    assert_expected_inline(
        "\n".join(
            [
                broken(4, offset=8),
                broken(4, offset=-256),
                broken(4, offset=512),
                message(PlanError, lambda: verify_layout(replace(LAYOUT, arena=1024), EVIDENCE)),
                message(PlanError, lambda: verify_layout(replace(LAYOUT, bound=1024), EVIDENCE)),
            ]
        ),
        """\
the slot of a storage of 200 bytes is not aligned or leaves the arena
the slot of a storage of 200 bytes is not aligned or leaves the arena
the slot of a storage of 200 bytes is not aligned or leaves the arena
the arena of 1024 bytes is not what its slots take
the arena of 512 bytes is not what its slots take""",
    )


def test_places_that_are_too_small_or_given_up_too_early() -> None:
    assert_expected_inline(
        "\n".join(
            [
                broken(1, nbytes=100),
                broken(1, last=1),
                broken(2, first=2),
                seen_otherwise(Touch(4, 3, 5, 200, True)),
                seen_otherwise(Touch(4, 3, 4, 300, True)),
            ]
        ),
        """\
'a' has 100 bytes from 0 to 2, and needs 200 from 0 to 2
'a' has 200 bytes from 0 to 1, and needs 200 from 0 to 2
'b' has 200 bytes from 2 to 2, and needs 200 from 1 to 2
a storage of 200 bytes has 200 bytes from 3 to 4, and needs 200 from 3 to 5
a storage of 200 bytes has 200 bytes from 3 to 4, and needs 300 from 3 to 4""",
    )


def test_slots_of_storages_that_must_have_none_or_lie_elsewhere() -> None:
    assert_expected_inline(
        "\n".join(
            [
                seen_otherwise(Touch(1, 0, 2, 200, False)),
                broken(5, kind=SLOT),
                broken(3, kind=GIVEN),
                seen_otherwise(Touch(4, 3, 4, 200, True, 256)),
                seen_otherwise(Touch(6, 3, 4, 200, True)),
                seen_otherwise(drop=4),
            ]
        ),
        """\
'a' has a slot, and must have none
'y' should lie at 0 and lies at -1
'c' should lie at -1 and lies at 256
a storage of 200 bytes should lie at 0 and lies at 256
a storage of 200 bytes that calls touch has no place
a place is of a storage that no call touches, or comes twice""",
    )


@pytest.mark.parametrize("seed", range(12))
@needs_extension
def test_a_slot_moved_onto_another_that_lives_is_found(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = drawn(seed)
    if not seen.plan().segments:
        return
    found: list[tuple[MemoryLayout, Evidence]] = []
    # By name: its room offers a function that is called as the file is.
    module = importlib.import_module("torch_ort_session.runtime.captures.capture")
    monkeypatch.setattr(module, "verify_layout", lambda *given: found.append(given))
    seen.captured({"x": X, "c": torch.tensor(True)}).close()
    ((layout, evidence),) = found
    verify_layout(layout, evidence)
    for one in layout.slots:
        for other in layout.slots:
            if one.offset != other.offset and one.first < other.last and other.first < one.last:
                places = [p._replace(offset=other.offset) if p is one else p for p in layout.places]
                with pytest.raises(PlanError, match=r"overlap|should lie at"):
                    verify_layout(replace(layout, places=tuple(places)), evidence)


@needs_extension
def test_verify_finds_a_layout_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere_at_once(intervals: Sequence[Interval], placements: int = 0) -> Packing:
        return Packing({item.value: 0 for item in intervals}, 512, 256)

    monkeypatch.setattr(memory_module, "pack", everywhere_at_once)
    text = (
        "g (float[2, 3] x) => (float[2, 3] y) { a = Softmax(x) b = Softmax(a) c = Softmax(b) y = Add(a, c) }"
    )
    session = tos.load(model(text), options=tos.Options(verify=True))
    for _ in range(4):
        session.run(None, {"x": X})
    assert "overlap" in session.explain()
