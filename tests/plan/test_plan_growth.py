"""What does not change, or changes evenly, while feeds grow: it is proven from the steps, never guessed."""

from __future__ import annotations

import pytest
import torch
from textmodel import model

import torch_ort_session as tos
from torch_ort_session.plan.analysis.growth import Even, find_growth
from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.plan.analysis.static_values import find_static_values
from torch_ort_session.plan.lowering.steps import NOTHING
from torch_ort_session.runtime.captures.warmup import frame_of
from torch_ort_session.runtime.interpreter.observe import observe
from torch_ort_session.runtime.interpreter.program import Program

WEIGHTS = (
    "<int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64[1] l0 = {0}, int64[1] l1 = {1},"
    " int64[1] l2 = {2},"
    " int64 huge = {4611686018427387904}, int64[3] zeros = {0, 0, 0}, int64[3] minus = {-1, -1, -1},"
    " int64 twelve = {12}, bool[2] flags = {0, 1}, int64[1] minus1 = {-1},"
    " int64[1] minus3 = {-3}>"
)


def seen(program: Program, n: int) -> Observation:
    """What a run on n rows shows."""
    values = frame_of(program, {"x": torch.zeros(n, 2)})
    return observe(program, values, find_static_values(program.steps).data - {NOTHING})


def known(nodes: str, first: int = 3, second: int = 5) -> dict[str, str]:
    """Of every value of a chain on ``s``, the dims of float[n, 2]: its numbers, ``base + slope``."""
    text = f"g (float[n, 2] x) => (float[a] y) {WEIGHTS} {{ s = Shape(x) {nodes} y = Cast <to = 1> (o) }}"
    program = tos.load(model(text))._engine.program(("y",))[0]
    steps = program.steps
    found = find_growth(steps, seen(program, first), seen(program, second), second - first)
    assert not found.assumed
    return {steps.names[value]: told(even) for value, even in found.even.items()} | {
        steps.names[value]: str(held.tolist())  # type: ignore[union-attr]
        for value, held in found.constant.items()
    }


def told(even: Even) -> str:
    return " ".join(
        f"{base}{slope:+d}t" if slope else str(base)
        for base, slope in zip(even.base, even.slope, strict=True)
    )


CHAINS = {
    "picked": ("o = Gather(s, i0)", "3+1t"),
    "picked, and still": ("o = Gather(s, i1)", "2"),
    "picked by a growing index": ("a = Gather(s, i0) b = Range(i0, twelve, i1) o = Gather(b, a)", None),
    "a slice": ("o = Slice(s, l0, l1)", "3+1t"),
    "a slice with a gap in its inputs": ("o = Slice(s, l0, l1, , l1)", "3+1t"),
    "unsqueezed": ("a = Gather(s, i0) o = Unsqueeze(a, l0)", "3+1t"),
    "joined": ("o = Concat <axis = 0> (s, l2, s)", "3+1t 2 2 3+1t 2"),
    "reversed": ("o = Slice(s, minus1, minus3, l0, minus1)", "2 3+1t"),
    "added": ("a = Gather(s, i0) o = Add(a, i2)", "5+1t"),
    "added up": ("a = Gather(s, i0) o = Add(a, a)", "6+2t"),
    "subtracted": ("a = Gather(s, i0) o = Sub(i2, a)", "-1-1t"),
    "nothing left": ("a = Gather(s, i0) o = Sub(a, a)", "0"),
    "times a number": ("a = Gather(s, i0) o = Mul(a, twelve)", "36+12t"),
    "times itself": ("a = Gather(s, i0) o = Mul(a, a)", None),
    "wrapping": ("a = Gather(s, i0) o = Mul(a, huge)", None),
    "wrapping later": ("a = Gather(s, i0) o = Add(a, huge)", None),
    "halved": ("a = Gather(s, i0) o = Div(a, i2)", None),
    "all multiplied": ("o = ReduceProd(s)", None),
    "counted": ("a = Gather(s, i0) o = Range(i0, a, i1)", None),
    "never -1": ("a = Concat <axis = 0> (s, l1) o = Equal(a, minus)", "[False, False, False]"),
    "may come to be 12": ("a = Gather(s, i0) o = Equal(a, twelve)", None),
    "was 3, and will not be again": ("a = Gather(s, i0) o = Equal(a, i2)", "False"),
    "chosen": ("o = Where(flags, s, l2)", "[2, 2]"),
    "chosen, and growing": ("o = Where(flags, l2, s)", "3+1t 2"),
    "as it is": ("o = Identity(s)", "3+1t 2"),
    "cast to itself": ("o = Cast <to = 7> (s)", "3+1t 2"),
    "cast to something else": ("o = Cast <to = 6> (s)", None),
    "filled": ("o = ConstantOfShape(s)", None),
}


@pytest.mark.parametrize("name", CHAINS)
def test_m14_what_is_known_of_a_chain(name: str) -> None:
    nodes, expected = CHAINS[name]
    found = known(nodes)
    assert found.get("o") == expected
    assert found.get("s") == "3+1t 2"


@pytest.mark.parametrize("name", CHAINS)
def test_m14_what_is_known_does_not_hang_on_how_far_apart_the_runs_were(name: str) -> None:
    nodes, _ = CHAINS[name]
    assert known(nodes, 3, 4) == known(nodes, 3, 11)


def test_m14_dims_of_values_are_assumed_and_named_once() -> None:
    text = (
        "g (float[n, 2] x) => (float[a, b] y, float[a, b] z) <float[1, 1] w = {7}>"
        " { h = Add(x, w) s = Shape(h) y = Expand(w, s) t = Shape(h) z = Expand(w, t) }"
    )
    program = tos.load(model(text))._engine.program(("y", "z"))[0]
    found = find_growth(program.steps, seen(program, 3), seen(program, 4), 1)
    names = program.steps.names
    assert {place: names[value] for place, (value, _) in found.assumed.items()} == {1: "h"}
    assert found.dropped == {1, 3}
    wild = find_growth(program.steps, seen(program, 3), seen(program, 4), 1, {names.index("h")})
    assert not wild.dropped and not wild.even and not wild.assumed
