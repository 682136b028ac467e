"""M14: steps that touch what grows are put together, as far as what they read allows."""

from __future__ import annotations

from collections.abc import Collection

import torch
from textmodel import model

import torch_ort_session as tos
from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.plan.analysis.static_values import StaticValues
from torch_ort_session.plan.lowering.steps import NOTHING, Step, Steps
from torch_ort_session.plan.partition.regroup import growth_reason, regroup
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.plan.partition.segments import split
from torch_ort_session.runtime.captures.warmup import frame_of
from torch_ort_session.runtime.interpreter.observe import observe
from torch_ort_session.runtime.interpreter.program import bind_steps, execute

TEXT = (
    "g (float[n, 2] x, float[1, 2] q) => (float[a, b] y, float[c, d] z)"
    " { a = Exp(x) b = Exp(q) c = Neg(a) d = Neg(b) m = ReduceMax <keepdims = 1> (c) e = Add(d, m) f = Exp(e)"
    " y = Add(c, f) z = Neg(f) }"
)


def steps_of(text: str = TEXT, outputs: tuple[str, ...] = ("y", "z")) -> Steps:
    return tos.load(model(text))._engine.program(outputs)[0].steps


def ids(steps: Steps, *names: str) -> frozenset[int]:
    return frozenset(map(steps.names.index, names))


def made(steps: Steps, items: Collection[Step]) -> list[str]:
    return [steps.names[step.outputs[0]] for step in items]


def test_m14_steps_are_put_together_by_whether_they_grow() -> None:
    steps = steps_of()
    grown = ids(steps, "x", "a", "c", "y")
    order = regroup(steps.items, grown, steps.outputs, steps.template)
    assert made(steps, order) == ["b", "d", "a", "c", "m", "e", "f", "z", "y"]


def test_m14_the_new_order_gives_the_same_results_and_releases_after_the_last_reader() -> None:
    steps = steps_of()
    grown = ids(steps, "x", "a", "c", "y")
    order = regroup(steps.items, grown, steps.outputs, steps.template)
    feed = {"x": torch.randn(3, 2), "q": torch.randn(1, 2)}
    results = []
    for items in (steps.items, order):
        program = bind_steps(Steps(items, *(getattr(steps, name) for name in Steps.__slots__[1:])))
        values = frame_of(program, feed)
        execute(program, values)
        results.append([values[output] for output in steps.outputs])
        assert [value is not None for value in values].count(True) == len(steps.outputs)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    released = [steps.names[value] for step in order for value in step.release]
    assert sorted(released) == ["a", "b", "c", "d", "e", "f", "m", "q", "x"]


def test_m14_random_steps_keep_their_order() -> None:
    text = (
        "g (float[n, 2] x, float[1, 2] q) => (float[a, b] y, float[c, d] z)"
        " { y = RandomNormalLike(x) z = RandomNormalLike(q) }"
    )
    steps = steps_of(text)
    order = regroup(steps.items, ids(steps, "x", "y"), steps.outputs, steps.template)
    assert made(steps, order) == ["y", "z"]


def test_m14_steps_with_bodies_are_apart_and_read_from_outside() -> None:
    text = (
        "g (float[n, 2] x, float[1, 2] q, bool b) => (float[c, d] y, float[e, f] z)"
        " { z = Neg(q) y = If (b) <then_branch = t () => (float[c, d] u) { u = Exp(x) },"
        " else_branch = o () => (float[c, d] v) { v = Neg(x) }> w = Exp(z) }"
    )
    steps = steps_of(text)
    reason = next(growth_reason(step, ids(steps, "x")) for step in steps.items if step.bodies)
    assert reason == (Reason.GROWTH, "'what its body reads' grows from run to run")


def test_m14_regions_say_what_grows() -> None:
    steps = steps_of()
    grown = ids(steps, "x", "a", "c", "y")
    program = bind_steps(steps)
    seen: Observation = observe(program, frame_of(program, {"x": torch.ones(3, 2), "q": torch.ones(1, 2)}))
    everything = frozenset(range(len(steps.names)))
    found = StaticValues(frozenset({NOTHING}), everything - grown, growing=grown)
    regions = split(steps, found, seen, torch.device("cpu"))
    told = [(made(steps, [steps.items[p] for p in r.positions]), r.reason, r.message) for r in regions]
    assert told == [
        (["a"], Reason.GROWTH, "'x' grows from run to run"),
        (["b"], None, ""),
        (["c"], Reason.GROWTH, "'a' grows from run to run"),
        (["d"], None, ""),
        (["m"], Reason.GROWTH, "'c' grows from run to run"),
        (["e", "f"], None, ""),
        (["y"], Reason.GROWTH, "'c' grows from run to run"),
        (["z"], None, ""),
    ]
