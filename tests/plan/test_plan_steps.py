"""Steps: what runs, what each value's last reader is, and what bodies see of the graph around them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from textmodel import message, model

import torch_ort_session as tos
from torch_ort_session.ir.graph import Weight
from torch_ort_session.ir.load import load_model
from torch_ort_session.plan.lowering.build import build_steps
from torch_ort_session.plan.lowering.lower import lower
from torch_ort_session.plan.lowering.steps import NOTHING, Setting, Steps

CPU = torch.device("cpu")


def steps_of(
    text: str, outputs: list[str] | None = None, fed: set[str] | None = None, **kwargs: Any
) -> Steps:
    def constant(name: str, weight: Weight, device: torch.device) -> Any:
        return weight.data

    graph = lower(load_model(model(text, **kwargs)).graph)
    return build_steps(graph, Setting(CPU, constant, frozenset(fed or ())), outputs)


def listing(steps: Steps, indent: str = "") -> str:
    """One line a step: inputs, outputs and what is dropped after it, by name."""

    def names(values: tuple[int, ...]) -> str:
        return " ".join(steps.names[value] or "-" for value in values)

    lines = []
    for step in steps.items:
        dropped = f"  drop {names(step.release)}" if step.release else ""
        lines.append(f"{indent}{step.node.op} {names(step.inputs)} -> {names(step.outputs)}{dropped}")
        for attribute, body in step.bodies.items():
            captured = " ".join(
                f"{steps.names[outside]}={body.steps.names[inside]}" for outside, inside in body.captured
            )
            lines.append(f"{indent}  {attribute} captures {captured or 'nothing'}")
            lines.append(listing(body.steps, indent + "    "))
    return "\n".join(lines)


def test_last_readers() -> None:
    steps = steps_of(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}>"
        " { a = Add(x, w) b = Neg(a) c = Mul(a, b) d = Add(c, w) y = Add(d, b) }"
    )
    assert_expected_inline(
        listing(steps),
        """\
Add x w -> a  drop x
Neg a -> b
Mul a b -> c  drop a
Add c w -> d  drop c
Add d b -> y  drop b d""",
    )
    assert [value is not None for value in steps.template].count(True) == 1
    assert NOTHING not in {value for step in steps.items for value in step.release}


def test_outputs_inputs_and_weights_are_not_dropped() -> None:
    steps = steps_of("g (float[2] x) => (float[2] a, float[2] x, float[2] b) { a = Neg(x) b = Neg(a) }")
    assert_expected_inline(
        listing(steps),
        """\
Neg x -> a
Neg a -> b""",
    )


def test_what_is_not_needed_is_left_out() -> None:
    text = (
        "g (float[4] x) => (float[4] y, float[4] z) <int64[2] s = {2, 2}>"
        " { p, q = Split(x, s) u = Neg(p) y = Concat <axis = 0> (u, u) v = Neg(q)"
        " z = Concat <axis = 0> (v, v) }"
    )
    assert_expected_inline(
        listing(steps_of(text, ["y"])),
        """\
Split x s -> p -  drop x
Neg p -> u  drop p
Concat u u -> y  drop u""",
    )
    assert_expected_inline(
        listing(steps_of(text, ["v", "x"])),
        """\
Split x s -> - q
Neg q -> v  drop q""",
    )
    assert listing(steps_of(text, ["x", "s"])) == ""


def test_an_unknown_output() -> None:
    text = "g (float[2] x) => (float[2] y) { y = Neg(x) }"
    assert_expected_inline(
        message(tos.ModelError, lambda: steps_of(text, ["z"])),
        """\
graph 'g': value 'z' is not made by anything in the graph; ask for one of its outputs, inputs,
weights or intermediate values (`torch-ort-session inspect MODEL --nodes` lists them)""",
    )


def test_an_optional_input_left_out_in_the_middle() -> None:
    steps = steps_of("g (float[2] x, float h) => (float[2] y) { y = Clip(x, , h) }")
    assert_expected_inline(listing(steps), """Clip x - h -> y  drop x h""")
    assert steps.items[0].inputs[1] == NOTHING


def test_an_output_that_nobody_reads_is_not_wanted() -> None:
    steps = steps_of("g (float[4] x, int64[1] k) => (int64[k] i) { v, i = TopK(x, k) }")
    assert_expected_inline(listing(steps), """TopK x k -> - i  drop x k""")
    (step,) = steps.items
    assert (step.ctx.wants(0), step.ctx.wants(1), step.ctx.wants(2)) == (False, True, False)


NESTED = (
    "g (float[2] x, bool c, int64 k) => (float[2] y) <float[2] w = {10, 20}> { n = Neg(x) used = Abs(x)"
    " y = If (c) <then_branch = t () => (float[2] a) { a = Loop (k, , n) <body = b (int64 i, bool d,"
    " float[2] s) => (bool e, float[2] o) <float[2] q = {1, 1}> { e = Identity(d) p = Add(s, w)"
    " r = Add(p, used) o = Add(r, q) }> }, else_branch = u () => (float[2] z) { z = Add(n, w) }> }"
)


def test_values_captured_through_two_bodies() -> None:
    steps = steps_of(NESTED)
    assert_expected_inline(
        listing(steps),
        """\
Neg x -> n
Abs x -> used  drop x
If c -> y  drop n used c k
  then_branch captures k=k n=n used=used
    Loop k - n -> a  drop k n used
      body captures used=used
        Identity d -> e  drop d
        Add s w -> p  drop s
        Add p used -> r  drop p used
        Add r If_2/then_branch/Loop_0/body/q -> o  drop r
  else_branch captures n=n
    Add n w -> z  drop n""",
    )
    session = tos.load(model(NESTED))
    assert session([1.0, 2.0], True, 2).tolist() == [23, 44]
    assert session([1.0, 2.0], False, 2).tolist() == [9, 18]


def test_weights_of_bodies_are_those_of_the_graph() -> None:
    steps = steps_of(NESTED)
    held = [steps.names[i] for i, value in enumerate(steps.template) if value is not None]
    assert_expected_inline(
        "\n".join(sorted(held)),
        """\
If_2/then_branch/Loop_0/body/q
w""",
    )
    inner = steps.items[2].bodies["then_branch"].steps.items[0].bodies["body"].steps
    shared = {id(value) for value in steps.template if value is not None}
    assert {id(value) for value in inner.template if value is not None} <= shared


def test_weights_that_are_fed_reach_bodies() -> None:
    inner = "If_2/then_branch/Loop_0/body/q"
    steps = steps_of(NESTED, fed={"w", inner})
    assert set(steps.input_names) == {"x", "c", "k", "w", inner}
    assert all(value is None for value in steps.template)


SHADOWS = {
    "a body's output named as a weight of the graph": (
        "g (float[2] x, bool c) => (float[2] y) <float[2] w = {10, 20}> { v = Add(x, w)"
        " r = If (c) <then_branch = t () => (float[2] w) { w = Neg(v) },"
        " else_branch = e () => (float[2] b) { b = Add(v, w) }> y = Add(r, w) }",
        {True: [-1.0, -2.0], False: [31.0, 62.0]},
    ),
    "a body's weight named as one of the graph": (
        "g (float[2] x, bool c) => (float[2] y) <float[2] w = {10, 20}> { v = Add(x, w)"
        " r = If (c) <then_branch = t () => (float[2] a) <float[2] w = {1, 1}> { a = Add(v, w) },"
        " else_branch = e () => (float[2] b) { b = Add(v, w) }> y = Add(r, w) }",
        {True: [22.0, 43.0], False: [31.0, 62.0]},
    ),
    "a formal input named as a value of the graph": (
        "g (float[2] x, bool c) => (float[2] y) <int64 k = {2}> { v = Neg(x) r = Loop (k, c, x) <body ="
        " b (int64 i, bool d, float[2] v) => (bool e, float[2] o) { e = Identity(d) o = Add(v, v) }>"
        " y = Add(r, v) }",
        {True: [3.0, 6.0], False: [0.0, 0.0]},
    ),
}


@pytest.mark.parametrize("name", SHADOWS)
def test_names_that_are_used_twice(name: str) -> None:
    text, expected = SHADOWS[name]
    try:
        session = tos.load(model(text))
    except tos.ModelError as error:
        assert "twice" in str(error) or "already" in str(error)
        return
    for flag, want in expected.items():
        assert session([1.0, 2.0], flag).tolist() == want


def test_a_default_is_an_input_with_a_value() -> None:
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"
    steps = steps_of(text, ir=3)
    assert steps.input_names == ("x", "w")
    default = steps.template[steps.inputs[1]]
    assert isinstance(default, torch.Tensor)
    assert default.tolist() == [1, 2]


def test_element_types_reach_kernels() -> None:
    steps = steps_of(
        "g (float[2] x) => (float[2] y) <float s = {0.5}> { y = DequantizeLinear(q, s) }",
        weights={"q": np.array([1, -2], ml_dtypes.int4)},
    )
    (step,) = steps.items
    assert [kind.name if kind else None for kind in step.ctx.input_types] == ["INT4", "FLOAT"]
