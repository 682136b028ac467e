"""A whole plan, step by step: in which region each step is, where its results lie and from when to when."""

from __future__ import annotations

import torch
from expecttest import assert_expected_inline
from plan.planning import see
from plan.walks import KERNELS
from tapelab import needs_extension
from textmodel import operator

from torch_ort_session.plan.lowering.steps import NOTHING
from torch_ort_session.plan.memory.layout import Place, PlaceKind
from torch_ort_session.plan.plan import Plan

DECODER = (
    "g (float[2, 4] x, float[2, past, 4] cache, int64 n) => (float[?] y, float[2, total, 4] longer)"
    " <int64[1] z = {0}, int64[1] one = {1}, int64[1] all = {-1}> {"
    " a = Neg(x) b = Unsqueeze(a, one) longer = Concat<axis = 1>(cache, b) s = Shape(longer)"
    " t = Gather(s, one) w = Mul(longer, longer) u = Unsqueeze(n, z) k = Slice(w, z, u, one)"
    " c = tests.Cut(k) m = ReduceSum<keepdims = 0>(c, one) o = NonZero(m) f = Cast<to = 1>(o)"
    " h = Cast<to = 1>(t) e = Mul(f, h) y = Reshape(e, all) }"
)


def dump(plan: Plan) -> str:
    """One line a step: its region, what it computes, and each result's form and bytes, or why it has none."""
    regions = {p: number for number, region in enumerate(plan.regions) for p in region.positions}
    assert plan.memory is not None
    places = {place.name: place for place in plan.memory.places}
    lines = []
    for position, step in enumerate(plan.steps.items):
        where = "fold" if position not in regions else kind(plan, regions[position])
        read = ", ".join(name(plan, value) for value in step.inputs)
        made = [described(plan, value, places) for value in step.outputs if value != NOTHING]
        lines.append(f"{position:2} {where}  {step.node.op}({read}) -> {'; '.join(made)}")
    ends = ", ".join(name(plan, value) for value in plan.steps.outputs)
    lines.append(f"results {ends}; arena of {plan.memory.arena} bytes")
    return "\n".join(lines)


def kind(plan: Plan, number: int) -> str:
    return f"{'seg' if plan.regions[number].is_segment else 'cut'}{number}"


def name(plan: Plan, value: int) -> str:
    return plan.steps.names[value] if value != NOTHING else "-"


def described(plan: Plan, value: int, places: dict[str, Place]) -> str:
    spec = plan.observation.specs[value]
    form = name(plan, value)
    if spec is not None:
        form += f" {str(spec.dtype).removeprefix('torch.')}{list(spec.shape)}"
    if value in plan.static_values.data:
        return f"{form} static"
    place = places.get(plan.steps.names[value])
    if place is not None:
        where = f"at {place.offset}:{place.offset + place.nbytes}"
        where = where if place.kind is PlaceKind.SLOT else place.kind.value
        return f"{form} {where}, calls {place.first} to {place.last}"
    if spec is not None and spec.owner != value:
        return f"{form} view of {name(plan, spec.owner)}"
    return f"{form} torch's"


@needs_extension
def test_a_plan_step_by_step() -> None:
    feed = {"x": torch.ones(2, 4), "cache": torch.ones(2, 3, 4), "n": torch.tensor(2)}
    with operator(*KERNELS):
        plan = see(DECODER, feed, keys=["n"]).laid_out(feed)
    assert_expected_inline(
        dump(plan),
        """\
 0 seg0  Neg(x) -> a float32[2, 4] at 0:32, calls 0 to 1
 1 seg0  Unsqueeze(a, one) -> b float32[2, 1, 4] view of a
 2 seg0  Concat(cache, b) -> longer float32[2, 4, 4] given, calls 1 to 8
 3 fold  Shape(longer) -> s int64[3] static
 4 fold  Gather(s, one) -> t int64[1] static
 5 seg0  Mul(longer, longer) -> w float32[2, 4, 4] at 0:128, calls 2 to 3
 6 fold  Unsqueeze(n, z) -> u int64[1] static
 7 seg0  Slice(w, z, u, one) -> k float32[2, 2, 4] view of w
 8 cut1  Cut(k) -> c float32[2, 2, 4] at 256:320, calls 3 to 4
 9 seg2  ReduceSum(c, one) -> m float32[2, 4] at 0:32, calls 4 to 5
10 cut3  NonZero(m) -> o int64[2, 8] at 256:384, calls 5 to 6
11 seg4  Cast(o) -> f float32[2, 8] at 0:64, calls 6 to 7
12 fold  Cast(t) -> h float32[1] static
13 seg4  Mul(f, h) -> e float32[2, 8] given, calls 7 to 8
14 seg4  Reshape(e, all) -> y float32[16] view of e
results y, longer; arena of 512 bytes""",
    )
