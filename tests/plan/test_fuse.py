"""Fused steps: which groups of elementwise steps become one, and which do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from plan.planning import CPU, Seen, see
from textmodel import wrapped

from torch_ort_session.ops.native.chain import Code
from torch_ort_session.plan.partition.fuse import Fusion, fuse, is_fused, last_name
from torch_ort_session.plan.partition.segments import split

ROW = "g (float[n, k] x, float[k] w) => (float[n, k] y)"


def feed(*names: str, shape: tuple[int, ...] = (2, 3), dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    made = {name: torch.rand(shape, dtype=dtype) + 0.5 for name in names}
    return {**made, "w": torch.rand(shape[-1:], dtype=dtype) + 0.5}


def fusion(seen: Seen, **given: Any) -> Fusion | None:
    template = list(seen.steps.template)
    for value, held in seen.observation.static.items():
        template[value] = held
    parts = replace(seen.steps, template=tuple(template)), seen.static_values, seen.observation
    regions = split(*parts, CPU, given.get("refused", ()), given.get("minimum", 1))
    return fuse(*parts, regions, CPU, **given)


def planned(text: str, fed: Mapping[str, Any], **given: Any) -> str:
    """The operators of the steps, fused ones with their inputs, rows and constants."""
    outputs = given.pop("outputs", None)
    seen = see(text, fed, outputs=outputs)
    found = fusion(seen, **given)
    lines = []
    for step in seen.steps.items if found is None else found.items:
        told = step.node.op
        if is_fused(step):
            numbers = step.node.attributes["program"]
            assert isinstance(numbers, tuple)
            rows = [numbers[at : at + 4] for at in range(0, len(numbers), 4)]
            operands = ["".join(f" {n}" for n in row[1:] if n != -1) for row in rows]
            told = f"{told}  {', '.join(step.node.inputs)}"
            told += "".join(f"; {Code(row[0]).name}{each}" for row, each in zip(rows, operands, strict=True))
            constants = step.node.attributes["constants"]
            assert isinstance(constants, tuple)
            told += "".join(f", {number:.4g}" for number in constants)
        lines.append(told)
    return "\n".join(lines)


def fused_ops(text: str, fed: Mapping[str, Any], **given: Any) -> list[str]:
    return [line.partition("  ")[0] for line in planned(text, fed, **given).split("\n") if "Fused" in line]


def test_a_decomposed_gelu_is_one_step_with_its_constants() -> None:
    text = (
        "g (float[n, k] x) => (float[n, k] y) <float two = {2.0}, float[1] one = {1.0}, float half = {0.5}>"
        " { r = Sqrt(two) a = Div(x, r) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half) }"
    )
    assert_expected_inline(
        planned(text, feed("x")),
        """\
Sqrt
Fused(Div, Erf, Add, Mul, Mul)  x; DIV 0 1; ERF 4; ADD 5 2; MUL 0 6; MUL 7 3, 1.414, 1, 0.5""",
    )


def test_a_result_read_twice_in_the_group_stays_inside() -> None:
    text = ROW + " { a = Mul(x, w) b = Sigmoid(a) c = Mul(a, b) y = Add(c, x) }"
    assert_expected_inline(
        planned(text, feed("x")),
        """Fused(Mul, Sigmoid, Mul, Add)  x, w; MUL 0 1; SIGMOID 2; MUL 2 3; ADD 4 0""",
    )


def test_a_fused_step_is_named_after_its_first_and_last_node() -> None:
    found = fusion(see(ROW + " { a = Mul(x, w) b = Neg(a) y = Add(b, x) }", feed("x")))
    assert found is not None
    (step,) = found.items
    assert (step.node.name, step.node.qualified) == ("Mul_0…Add_2", "torch_ort_session::Fused(Mul, Neg, Add)")
    assert (last_name(step), found.sources) == ("Add_2", ((0, 1, 2),))


def test_two_groups_with_another_step_between_are_two() -> None:
    text = ROW + " { a = Mul(x, w) b = Exp(a) s = Softmax(b) c = Mul(s, w) y = Relu(c) }"
    assert_expected_inline(
        planned(text, feed("x")),
        """\
Fused(Mul, Exp)  x, w; MUL 0 1; EXP 2
Softmax
Fused(Mul, Relu)  s, w; MUL 0 1; RELU 2""",
    )


def test_attributes_and_bounds_are_constants() -> None:
    text = (
        ROW + " <float low = {-1.0}> { a = LeakyRelu <alpha = 0.25> (x) b = Clip(a, low)"
        " c = Elu <alpha = 2.0> (b) e = Max(c, w, x) y = Softplus(e) }"
    )
    assert_expected_inline(
        wrapped(planned(text, feed("x"))),
        """\
Fused(LeakyRelu, Clip, Elu, Max, Softplus)  x, w; LEAKY_RELU 0 2; CLIP 5 3; ELU 6 4; MAX 7 1;
MAX 8 0; SOFTPLUS 9, 0.25, -1, 2""",
    )


def test_a_hard_sigmoid_is_what_torch_computes_for_its_slope() -> None:
    def rows(attributes: str) -> str:
        text = ROW + f" {{ a = HardSigmoid <{attributes}> (x) y = Neg(a) }}"
        return planned(text, feed("x")).partition("x; ")[2]

    assert rows("alpha = 0.1666666716337204, beta = 0.5") == ("ADD 0 1; CLIP 4 2 3; DIV 5 3; NEG 6, 3, 0, 6")
    assert rows("alpha = 0.25") == "MUL 0 1; ADD 5 2; CLIP 6 3 4; DIV 7 4; NEG 8, 1.5, 3, 0, 6"
    assert rows("alpha = 0.25, beta = 0.25") == "MUL 0 1; ADD 4 1; CLIP 5 2 3; NEG 6, 0.25, 0, 1"


@pytest.mark.parametrize(
    ("exponent", "rows"),
    [
        ("2.0", "SQUARE 0"),
        ("3.0", "CUBE 0"),
        ("0.5", "SQRT 0"),
        ("-1.0", "RECIPROCAL 0"),
        ("2.5", "POW 0 1"),
    ],
)
def test_a_power_is_what_torch_computes_for_its_exponent(exponent: str, rows: str) -> None:
    text = f"g (float[n, k] x) => (float[n, k] y) <float e = {{{exponent}}}> {{ a = Pow(x, e) y = Neg(a) }}"
    assert f"; {rows}; NEG" in planned(text, feed("x"))


@pytest.mark.parametrize("exponent", ["0.0", "1.0", "-0.5", "-2.0"])
def test_powers_that_torch_computes_in_its_own_way_stay(exponent: str) -> None:
    text = f"g (float[n, k] x) => (float[n, k] y) <float e = {{{exponent}}}> {{ a = Pow(x, e) y = Neg(a) }}"
    assert fused_ops(text, feed("x")) == []


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_fuse_where_each_row_rounds_as_its_step_does(dtype: torch.dtype) -> None:
    name = "bfloat16" if dtype == torch.bfloat16 else "float16"
    text = (
        f"g ({name}[n, k] x, {name}[k] w) => ({name}[n, k] y)"
        " { a = Mul(x, w) b = Tanh(a) c = HardSigmoid(b) d = Add(c, w) y = Neg(d) }"
    )
    assert fused_ops(text, feed("x", dtype=dtype)) == ["Fused(Mul, Tanh)", "Fused(Add, Neg)"]


@pytest.mark.parametrize(
    ("why", "text", "outputs"),
    [
        ("a single step", ROW + " { a = Softmax(x) y = Mul(a, w) }", None),
        ("a result of the run", ROW + " { a = Mul(x, w) y = Exp(a) }", ["y", "a"]),
        (
            "another step reads it",
            ROW + " { a = Mul(x, w) b = Exp(a) s = Softmax(a) y = MatMul(b, s) }",
            None,
        ),
        ("a view of it", ROW + " { a = Mul(x, w) t = Transpose(a) b = Exp(a) y = MatMul(t, b) }", None),
        ("a seam reads it", ROW + " { a = Mul(x, w) z = NonZero(a) b = Exp(a) y = Softmax(b) }", ["y", "z"]),
        ("two segments", ROW + " { a = Mul(x, w) z = NonZero(x) b = Exp(a) y = Softmax(b) }", ["y", "z"]),
        (
            "a body reads it",
            "g (float[n, k] x, bool p) => (float[n, k] y) { a = Neg(x) b = Exp(a) i = If (p) <then_branch ="
            " t () => (float[n, k] c) { c = Identity(a) }, else_branch = e () => (float[n, k] d)"
            " { d = Softmax(a) }> y = MatMul(b, i) }",
            None,
        ),
        (
            "another shape",
            "g (float[1, k] x, float[n, k] v) => (float[n, k] y) { a = Neg(x) y = Add(a, v) }",
            None,
        ),
        ("another dtype", "g (double[n, k] x) => (double[n, k] y) { a = Neg(x) y = Exp(a) }", None),
        ("integers", "g (int64[n, k] x) => (int64[n, k] y) { a = Neg(x) y = Abs(a) }", None),
        (
            "dims of a constant",
            "g (float[k] v) => (float[1, k] y) <float[1, 1] c = {2.0}> { a = Mul(v, c) y = Mul(a, c) }",
            None,
        ),
        (
            "an order of its own",
            "g (float[n, k] x) => (float[k, n] y) { t = Transpose(x) a = Neg(t) y = Exp(a) }",
            None,
        ),
    ],
)
def test_what_is_not_fused(why: str, text: str, outputs: list[str] | None) -> None:
    fed = feed("x", shape=(3, 3))
    if "int64[n, k] x" in text:
        fed["x"] = torch.ones(3, 3, dtype=torch.int64)
    if "double" in text:
        fed["x"] = torch.ones(3, 3, dtype=torch.float64)
    if "[1, k] x" in text:
        fed |= {"x": torch.ones(1, 3), "v": torch.ones(3, 3)}
    if "float[k] v" in text:
        fed["v"] = torch.ones(3)
    if "bool p" in text:
        fed["p"] = torch.tensor(True)
    assert fused_ops(text, fed, outputs=outputs) == [], why


@pytest.mark.parametrize(
    ("count", "told"),
    [(8, ["Fused(Add, Add, Add, Add, Add, Add, Add)"]), (9, ["Fused(Add, Add, Add, Add, Add, Add, Add)"])],
)
def test_more_inputs_than_the_op_takes_are_left_to_a_step_before(count: int, told: list[str]) -> None:
    names = [f"x{n}" for n in range(count)]
    given = ", ".join(f"float[n, k] {name}" for name in names)
    body = " ".join(
        f"{'y' if n == count - 1 else f'a{n}'} = Add({'x0' if n == 1 else f'a{n - 1}'}, x{n})"
        for n in range(1, count)
    )
    assert fused_ops(f"g ({given}) => (float[n, k] y) {{ {body} }}", feed(*names)) == told


def test_a_chain_longer_than_a_program_is_split() -> None:
    body = " ".join(f"a{n} = Neg(a{n - 1})" for n in range(1, 71))
    found = fused_ops(f"g (float[n, k] a0) => (float[n, k] a70) {{ {body} }}", feed("a0"))
    assert [op.count("Neg") for op in found] == [6, 32, 32]


def test_more_constants_than_a_program_holds_are_split() -> None:
    weights = ", ".join(f"float c{n} = {{{n}.5}}" for n in range(1, 21))
    body = " ".join(
        f"{'y' if n == 20 else f'a{n}'} = Add({'x' if n == 1 else f'a{n - 1}'}, c{n})" for n in range(1, 21)
    )
    found = fused_ops(f"g (float[n, k] x) => (float[n, k] y) <{weights}> {{ {body} }}", feed("x"))
    assert [op.count("Add") for op in found] == [4, 16]


def test_what_was_refused_is_made_step_by_step() -> None:
    text = ROW + " { a = Mul(x, w) b = Exp(a) s = Softmax(b) c = Mul(s, w) y = Relu(c) }"
    refused = {("torch_ort_session", "Fused(Mul, Exp)")}
    assert fused_ops(text, feed("x"), refused=refused) == ["Fused(Mul, Relu)"]


def test_a_segment_that_would_be_too_short_to_record_is_left_as_it_is() -> None:
    text = ROW + " { a = Mul(x, w) b = Exp(a) y = Neg(b) }"
    assert fused_ops(text, feed("x"), minimum=1) == ["Fused(Mul, Exp, Neg)"]
    assert fused_ops(text, feed("x"), minimum=2) == []


def test_what_is_read_far_before_does_not_keep_more_than_it_saves() -> None:
    """The product of two tensors that nobody else reads stays where it is: later it would keep both."""
    text = (
        "g (float[n, n] x) => (float[n, n] y) { p = Softmax(x) q = Softmax <axis = 0> (x) a = Mul(p, q)"
        " s = MatMul(x, x) t = Softmax(s) y = Add(a, t) }"
    )
    assert fused_ops(text, feed("x", shape=(3, 3))) == []
    near = text.replace(
        "a = Mul(p, q) s = MatMul(x, x) t = Softmax(s)", "s = MatMul(x, x) t = Softmax(s) a = Mul(p, q)"
    )
    assert fused_ops(near, feed("x", shape=(3, 3))) == ["Fused(Mul, Add)"]


def test_what_fused_steps_read_is_released_after_them() -> None:
    text = ROW + " { s = Softmax(x) a = Mul(s, w) b = Exp(a) y = Softmax(b) }"
    found = fusion(see(text, feed("x")))
    assert found is not None
    released = [[step.node.op, len(step.release)] for step in found.items]
    assert released == [["Softmax", 1], ["Fused(Mul, Exp)", 2], ["Softmax", 1]]
