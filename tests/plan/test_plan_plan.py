"""Plans: what a capture is made from, and the memory that it lays out."""

from __future__ import annotations

import itertools

import pytest
import torch
from plan.planning import see
from plan.walks import X, drawn
from tapelab import needs_extension
from textmodel import model

import torch_ort_session as tos
from torch_ort_session.plan.analysis.specs import eager_peak
from torch_ort_session.plan.memory.layout import PlaceKind
from torch_ort_session.plan.memory.slots import ALIGNMENT
from torch_ort_session.plan.plan import Plan
from torch_ort_session.plan.verify import verify
from torch_ort_session.runtime.captures.replay import replay
from torch_ort_session.runtime.interpreter.program import execute

CHAIN = (
    "g (float[64, 4] x) => (float[64, 4] y) { a = Neg(x) b = Exp(a) c = Neg(b) d = Exp(c) e = Add(d, d)"
    " y = Neg(e) }"
)
SIZE = 64 * 4 * 4


@pytest.mark.parametrize("seed", range(60))
@needs_extension
def test_m13_a_replay_in_the_slots_gives_what_a_plain_run_gives(seed: int) -> None:
    seen = drawn(seed)
    plan = seen.plan(minimum=1 + seed % 3)
    verify(plan)
    if not plan.segments:
        return
    captured = seen.captured({"x": X, "c": torch.tensor(True)}, minimum=1 + seed % 3)
    # The other branch of an If may hand on other memory than the one that was seen.
    for flag in (True, False, True):
        feed = {"x": X * 3 - 1, "c": torch.tensor(flag)}
        values = list(seen.steps.template)
        for name, place in zip(seen.steps.input_names, seen.steps.inputs, strict=True):
            values[place] = feed[name]
        execute(seen.program, values)
        results, diverged = replay(captured, feed)
        assert diverged == ()
        for output, result in zip(seen.steps.outputs, results, strict=True):
            assert torch.equal(values[output], result)


def chain_plan(**rules: object) -> Plan:
    return see(CHAIN, {"x": torch.ones(64, 4)}).plan(**rules)


@needs_extension
def test_m13_the_numbers_of_a_chain() -> None:
    layout = see(CHAIN, {"x": torch.ones(64, 4)}).laid_out({"x": torch.ones(64, 4)}).memory
    assert layout is not None
    # Each result is written over the argument, and the last one leaves.
    assert (layout.calls, layout.starts) == (6, (0, 6))
    assert (layout.arena, layout.bound, layout.pool) == (SIZE, SIZE, 0)
    kinds = [(place.name, place.kind, place.first, place.last) for place in layout.places]
    assert kinds == [
        *((name, PlaceKind.SLOT, at, at + 1) for at, name in enumerate("abcde")),
        ("y", PlaceKind.GIVEN, 5, 6),
    ]
    assert (layout.nbytes(PlaceKind.SLOT), layout.beside) == (5 * SIZE, SIZE)


@needs_extension
def test_slots_come_back_to_their_place() -> None:
    seen = see(CHAIN.replace("Neg", "Softmax"), {"x": torch.ones(64, 4)})
    layouts = [seen.laid_out({"x": torch.ones(64, 4)}).memory for _ in range(2)]
    first, second = ([(place.name, place.offset) for place in layout.slots] for layout in layouts if layout)
    assert first == second
    assert {offset % ALIGNMENT for _, offset in first} == {0}


def test_a_plan_without_activations() -> None:
    plan = see("g (float[2] x) => (float[2] x) { y = Neg(x) }", {"x": torch.ones(2)}).plan()
    assert (plan.regions, plan.memory, plan.failure) == ((), None, "")
    verify(plan)


def test_what_was_asked_for_is_kept() -> None:
    plan = chain_plan(quarantined=frozenset({("", "Exp")}), minimum=2)
    assert (plan.rules.quarantined, plan.rules.minimum) == (frozenset({("", "Exp")}), 2)
    assert [region.is_segment for region in plan.regions] == [False] * 4 + [True]
    assert (len(plan.segments), len(plan.seams)) == (1, 4)


def test_regions_are_those_of_the_steps_before_and_after_fusion() -> None:
    text = (
        "g (float[64, 4] x) => (float[?] y) <int64[1] m = {-1}> { a = Neg(x) b = Exp(a) n = NonZero(b)"
        " f = Cast <to = 1> (n) c = Neg(f) d = Exp(c) y = Reshape(d, m) }"
    )
    seen = see(text, {"x": torch.ones(64, 4)})
    plain, fused = seen.plan(), seen.plan(fuse=True)
    assert [len(region.positions) for region in plain.regions] == [2, 1, 4]
    assert [len(region.positions) for region in fused.regions] == [1, 1, 3]
    assert list(itertools.chain.from_iterable(fused.sources)) == list(range(7))
    assert [step.node.op for step in fused.steps.items][:1] == ["Fused(Neg, Exp)"]
    verify(fused)


def test_guards_are_what_segments_rely_on() -> None:
    text = (
        "g (float[4] x) => (float[?] y, int64[1, k] z) { n = NonZero(x) f = Cast <to = 1> (n) y = Exp(f)"
        " z = NonZero(y) }"
    )
    plan = see(text, {"x": torch.ones(4)}).plan()
    named = [[plan.steps.names[value] for value, _ in specs] for specs in plan.guards]
    assert named == [["n"], ["f"], ["y"], []]


def test_the_peak_of_an_eager_run_is_that_of_its_steps() -> None:
    plan = chain_plan()
    assert eager_peak(plan.steps, plan.observation) == 2 * SIZE
    assert torch.equal(
        tos.load(model(CHAIN))(torch.ones(64, 4)), torch.full((64, 4), -2 * torch.e ** -(torch.e**-1))
    )
