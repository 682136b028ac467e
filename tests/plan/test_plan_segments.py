"""Regions: segments are maximal and never empty, every step runs once, and each seam says why it is one."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch
from expecttest import assert_expected_inline
from plan.planning import CPU, Seen, cut, see
from textmodel import operator
from torch import Tensor

from torch_ort_session.ops.kernel import TensorSequence, kernel
from torch_ort_session.plan.analysis.specs import Spec
from torch_ort_session.plan.partition.segments import (
    count_launches,
    is_folded,
    kept_constants,
    seam_reason,
    split,
)

X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 0.0, 6.0]])


def test_m5_without_a_seam_everything_is_one_segment() -> None:
    seen = see(
        "g (float[2, 3] x) => (float[2, 3] y) { a = Neg(x) b = Transpose(a) y = Transpose(b) }", {"x": X}
    )
    assert_expected_inline(cut(seen.plan()), """segment  Neg Transpose Transpose""")


def test_m5_a_seam_cuts_where_it_stands() -> None:
    text = (
        "g (float[2, 3] x) => (float[?] y) { a = Neg(x) b = Abs(a) n = NonZero(b) c = Cast <to = 1> (n)"
        " d = Neg(c) m = NonZero(d) e = Cast <to = 1> (m) s = ReduceSum(e) y = Neg(s) }"
    )
    assert_expected_inline(
        cut(see(text, {"x": X}).plan()),
        """\
segment  Neg Abs
seam     NonZero  (kernel declares a seam: the size of the output depends on the data)
segment  Cast Neg
seam     NonZero  (kernel declares a seam: the size of the output depends on the data)
segment  Cast ReduceSum Neg""",
    )


def test_m3_a_number_that_follows_from_data_is_a_seam() -> None:
    text = "g (float[2, 3] x, int64[2] s) => (float[?, ?] y) { a = Neg(x) r = Reshape(a, s) y = Neg(r) }"
    feed = {"x": X, "s": torch.tensor([3, 2])}
    assert_expected_inline(
        cut(see(text, feed).plan()),
        """\
segment  Neg
seam     Reshape  (unresolved input shape: its input 'shape' is a number that follows from data)
segment  Neg""",
    )
    assert_expected_inline(cut(see(text, feed, keys=["s"]).plan()), """segment  Neg Reshape Neg""")


def test_m3_control_flow_is_a_seam() -> None:
    text = (
        "g (float[2, 3] x, bool c) => (float[2, 3] y) { a = Neg(x) b = If (c) <then_branch = t () =>"
        " (float[2, 3] p) { p = Neg(a) }, else_branch = e () => (float[2, 3] q) { q = Abs(a) }> y = Neg(b) }"
    )
    assert_expected_inline(
        cut(see(text, {"x": X, "c": torch.tensor(True)}).plan()),
        """\
segment  Neg
seam     If  (host control flow or sequence: which branch runs depends on data)
segment  Neg""",
    )


def flow(text: str, **feed: torch.Tensor) -> str:
    """What is said of the step with a body."""
    plan = see(text, {"x": X, **feed}).plan()
    return next(r.message for r in plan.seams if plan.steps.items[r.positions[0]].bodies)


def test_m3_control_flow_says_what_is_decided_in_a_run() -> None:
    loop = (
        "g (float[2, 3] x, int64 n, bool c) => (float[2, 3] y) <int64 k = {2}> { y = Loop (n, c, x) <body ="
        " b (int64 i, bool d, float[2, 3] s) => (bool e, float[2, 3] o) { e = Identity(d) o = Neg(s) }> }"
    )
    given = {"n": torch.tensor(2), "c": torch.tensor(True)}
    stops = loop.replace("e = Identity(d)", "q = ReduceMax <keepdims = 0> (s) z = Sub(q, q) e = Less(z, q)")
    branch = (
        "g (float[2, 3] x) => (float[2, 3] y) <int64 k = {3}> { n = NonZero(x) s = Size(n) c = Less(s, k)"
        " y = If (c) <then_branch = t () => (float[2, 3] p) { p = Neg(x) },"
        " else_branch = e () => (float[2, 3] q) { q = Abs(x) }> }"
    )
    scan = (
        "g (float[2, 3] x) => (float[3] y, float[2, 3] v) <float[3] z = {0, 0, 0}> { y, v = Scan"
        " <num_scan_inputs = 1, body = b (float[3] s, float[3] e) => (float[3] t, float[3] o)"
        " { t = Add(s, e) o = Neg(t) }> (z, x) }"
    )
    assert_expected_inline(
        "\n".join(
            [
                flow(loop, **given),
                flow(loop.replace("(n, c, x)", "(k, , x)"), **given),
                flow(stops.replace("(n, c, x)", "(k, , x)"), **given),
                flow(branch),
                flow(scan),
            ]
        ),
        """\
how often its body runs depends on data
its body runs once for each turn
its body says after each turn whether to go on
which branch runs follows from a shape that depends on data
its body runs once for each element""",
    )


def test_m21_sequences_and_strings_are_seams() -> None:
    text = (
        "g (float[2, 3] x) => (float[2, 3] y) <int64 z = {1}> { a = Neg(x) b = Abs(x)"
        " s = SequenceConstruct(a, b) t = SequenceAt(s, z) y = Neg(t) }"
    )
    assert_expected_inline(
        cut(see(text, {"x": X}).plan()),
        """\
segment  Neg Abs
seam     SequenceConstruct  (host control flow or sequence: 's' is no tensor (sequence))
seam     SequenceAt  (host control flow or sequence: 's' is no tensor (sequence))
segment  Neg""",
    )


def test_static_steps_are_in_no_region() -> None:
    text = (
        "g (float[b, 3] x) => (float[?] y) <int64[1] m = {-1}> { a = Neg(x) s = Shape(a)"
        " p = ReduceProd(s) r = Reshape(a, p) n = Neg(s) y = Neg(r) }"
    )
    seen = see(text, {"x": X})
    plan = seen.plan()
    assert_expected_inline(cut(plan), """segment  Neg Reshape Neg""")
    assert [seen.steps.items[p].node.op for p in plan.folded] == ["Shape", "ReduceProd"]
    kept = kept_constants(seen.steps, seen.static_values)
    assert [seen.steps.names[value] for value in sorted(kept)] == ["p"]
    assert seen.observation.static.keys() == kept


def test_m8_a_quarantined_operator_is_a_seam() -> None:
    seen = see("g (float[2, 3] x) => (float[2, 3] y) { a = Neg(x) b = Abs(a) y = Neg(b) }", {"x": X})
    assert_expected_inline(
        cut(seen.plan(quarantined={("", "Abs")})),
        """\
segment  Neg
seam     Abs  (recording failed: recording ai.onnx::Abs failed before)
segment  Neg""",
    )
    assert cut(seen.plan(quarantined={("other", "Abs")})) == cut(seen.plan())


def test_a_segment_of_views_only_is_not_recorded() -> None:
    text = (
        "g (float[2, 3] x) => (float[?, ?] y) { a = Transpose(x) n = NonZero(a) b = Transpose(n)"
        " c = Transpose(b) m = NonZero(c) d = Neg(m) y = Cast <to = 1> (d) }"
    )
    assert_expected_inline(
        cut(see(text, {"x": X}).plan()),
        """\
seam     Transpose  (below minimum length: 1 step(s) with only views)
seam     NonZero  (kernel declares a seam: the size of the output depends on the data)
seam     Transpose Transpose  (below minimum length: 2 step(s) with only views)
seam     NonZero  (kernel declares a seam: the size of the output depends on the data)
segment  Neg Cast""",
    )


def test_views_do_not_count_towards_the_minimum() -> None:
    text = (
        "g (float[2, 3] x) => (float[?, ?] y) { a = Transpose(x) b = Neg(a) c = Transpose(b) n = NonZero(c)"
        " d = Neg(n) e = Abs(d) y = Cast <to = 1> (e) }"
    )
    seen = see(text, {"x": X})
    assert_expected_inline(
        cut(seen.plan(minimum=2)),
        """\
seam     Transpose Neg Transpose  (below minimum length: 3 step(s) with 1 launch(es), fewer than 2)
seam     NonZero  (kernel declares a seam: the size of the output depends on the data)
segment  Neg Abs Cast""",
    )
    assert [region.is_segment for region in seen.plan(minimum=4).regions] == [False, False, False]
    assert count_launches(range(3), seen.steps, seen.observation) == 1


def test_m25_what_lies_on_another_device_is_a_seam() -> None:
    seen = see("g (float[2, 3] x) => (float[2, 3] y) { a = Neg(x) b = Abs(a) y = Neg(b) }", {"x": X})
    step = seen.steps.items[1]
    here = torch.device("meta")
    specs = list(seen.observation.specs)
    assert seam_reason(step, seen.static_values, seen.observation, CPU) is None
    for value, text in ((step.inputs[0], "its input 'x' lies on cpu"), (step.outputs[0], "it runs on cpu")):
        moved = [spec and spec._replace(device=here) for spec in specs]
        moved[value] = specs[value]
        found = seam_reason(step, seen.static_values, replace(seen.observation, specs=tuple(moved)), here)
        assert found is not None
        assert found[1] == text


@kernel("Cut", since=(1,), domain="tests", seam="it cuts")
def cutting(x: Tensor) -> Tensor:
    return x + 1


@kernel("View", since=(1,), domain="tests", view_of="x")
def viewing(x: Tensor) -> Tensor:
    return x.view(x.shape)


@kernel("Pack", since=(1,), domain="tests")
def packing(x: Tensor) -> TensorSequence:
    return (x,)


@kernel("Unpack", since=(1,), domain="tests", view_of="x")
def unpacking(x: TensorSequence) -> Tensor:
    return x[0]


def drawn(seed: int) -> Seen:
    """A chain with branches, of plain steps, views, seams, sequences and static steps."""
    draw = random.Random(seed)
    made, nodes = ["x"], []
    for number in range(draw.randrange(1, 30)):
        name, source = f"v{number}", draw.choice(made[-3:])
        kind = draw.choice(["Neg", "Abs", "Add", "View", "Cut", "Shape", "Pack", "Neg"])
        if kind == "Add":
            nodes.append(f"{name} = Add({source}, {draw.choice(made)})")
        elif kind == "Shape":
            nodes.append(f"s{number} = Shape({source}) {name} = Reshape({source}, s{number})")
        elif kind == "Pack":
            nodes.append(f"q{number} = tests.Pack({source}) {name} = tests.Unpack(q{number})")
        elif kind in ("View", "Cut"):
            nodes.append(f"{name} = tests.{kind}({source})")
        else:
            nodes.append(f"{name} = {kind}({source})")
        made.append(name)
    outputs = sorted({made[-1], draw.choice(made[1:])})
    declared = ", ".join(f"float[2, 3] {name}" for name in outputs)
    text = f"g (float[2, 3] x) => ({declared}) {{ {' '.join(nodes)} }}"
    with operator(cutting, viewing, packing, unpacking):
        return see(text, {"x": X})


@pytest.mark.parametrize("seed", range(60))
def test_m5_every_step_is_in_one_region_and_in_order(seed: int) -> None:
    seen = drawn(seed)
    draw = random.Random(seed)
    quarantined = {("", "Abs")} if draw.random() < 0.3 else set()
    minimum = draw.choice([1, 1, 2, 4])
    regions = split(seen.steps, seen.static_values, seen.observation, CPU, quarantined, minimum)
    positions = [position for region in regions for position in region.positions]
    folded = [p for p, step in enumerate(seen.steps.items) if is_folded(step, seen.static_values)]
    assert sorted(positions + folded) == list(range(len(seen.steps.items)))
    assert positions == sorted(positions)
    assert all(region.positions for region in regions)
    assert all(bool(region.message) == (not region.is_segment) for region in regions)
    for before, after in itertools.pairwise(regions):
        assert not (before.is_segment and after.is_segment)
    for region in regions:
        why = [
            seam_reason(seen.steps.items[p], seen.static_values, seen.observation, CPU, quarantined)
            for p in region.positions
        ]
        # A region is one seam by itself, or a stretch without any.
        assert len(region.positions) == 1 or why == [None] * len(why)
        if region.is_segment:
            assert why == [None] * len(why)
            assert count_launches(region.positions, seen.steps, seen.observation) >= minimum


def test_regions_do_not_hang_on_specs_that_are_not_there() -> None:
    seen = see("g (float[2, 3] x) => (float[2, 3] y) { a = Neg(x) y = Neg(a) }", {"x": X})
    nothing: tuple[Spec | None, ...] = (None,) * len(seen.observation.specs)
    regions = split(seen.steps, seen.static_values, replace(seen.observation, specs=nothing), CPU)
    assert [region.positions for region in regions] == [(0, 1)]
