"""A graph under known predicates: the same results, without the Ifs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from plan.planning import graph_of, see, steps_of
from textmodel import model

import torch_ort_session as tos
from torch_ort_session.ir.graph import Graph
from torch_ort_session.ir.text import dump
from torch_ort_session.plan.lowering.specialise import specialise

X = torch.tensor([1.0, -2.0])


def ops(graph: Graph) -> str:
    return " ".join(node.op for node in graph.nodes)


def same_as_without(text: str | onnx.ModelProto, feed: Mapping[str, Any], known: Mapping[str, bool]) -> Graph:
    """The specialised graph, once its results are seen to be those of the whole one."""
    proto = model(text) if isinstance(text, str) else text
    whole = tos.load(proto)
    narrow = specialise(graph_of(proto), known)
    expected = whole.run(
        None, {**feed, **{n: v for n, v in known.items() if n in {p.name for p in whole.inputs}}}
    )
    got = see(narrow, feed).results
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    return narrow


BRANCHES = (
    "g (float[2] x, bool c) => (float[2] y) { a = Neg(x) b = If (c) <then_branch = t () => (float[2] p)"
    " <float[2] w = {1, 2}> { m = Add(a, w) p = Mul(m, w) }, else_branch = e () => (float[2] q)"
    " { m = Abs(a) q = Add(m, x) }> y = Neg(b) }"
)


@pytest.mark.parametrize(
    ("flag", "expected"), [(True, "Neg Add Mul Identity Neg"), (False, "Neg Abs Add Identity Neg")]
)
def test_an_if_is_replaced_by_the_branch_it_takes(flag: bool, expected: str) -> None:
    narrow = same_as_without(BRANCHES, {"x": X}, {"c": flag})
    assert ops(narrow) == expected


def test_names_are_those_that_steps_of_a_body_have() -> None:
    narrow = specialise(graph_of(BRANCHES), {"c": True})
    assert_expected_inline(
        dump(narrow),
        """\
graph g(%x: float32[2], %c: bool[]) -> (%y: float32[2]) {
  %If_1/then_branch/w = weight float32[2] (1, 2)
  %a = ai.onnx::Neg(%x)  # Neg_0
  %If_1/then_branch/m = ai.onnx::Add(%a, %If_1/then_branch/w)  # If_1/then_branch/Add_0
  %If_1/then_branch/p = ai.onnx::Mul(%If_1/then_branch/m, %If_1/then_branch/w)  # If_1/then_branch/Mul_1
  %b = ai.onnx::Identity(%If_1/then_branch/p)  # If_1/then_branch/result_0
  %y = ai.onnx::Neg(%b)  # Neg_2
}
""",
    )
    body = steps_of(graph_of(BRANCHES)).items[1].bodies["then_branch"].steps
    weights = {body.names[i] for i, held in enumerate(body.template) if held is not None}
    assert weights <= set(narrow.initializers)


def test_an_if_whose_predicate_is_not_known_stays() -> None:
    graph = graph_of(BRANCHES)
    assert ops(specialise(graph, {})) == ops(specialise(graph, {"other": True})) == "Neg If Neg"


NESTED = (
    "g (float[2] x, bool c, bool d) => (float[2] y) { a = Neg(x) y = If (c) <then_branch = t () =>"
    " (float[2] p)"
    " <float[2] w = {1, 2}> { m = Add(a, w) p = If (d) <then_branch = u () => (float[2] r) { n = Mul(m, a)"
    " r = Add(n, w) }, else_branch = v () => (float[2] s) { s = Sub(m, x) }> }, else_branch = e () =>"
    " (float[2] q) { q = Abs(a) }> }"
)


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("d", [True, False])
def test_nested_ifs_are_laid_open_one_by_one(c: bool, d: bool) -> None:
    proto = model(NESTED)
    once = specialise(graph_of(proto), {"c": c})
    twice = specialise(once, {"d": d})
    assert "If" not in ops(twice)
    assert torch.equal(see(twice, {"x": X}).results[0], tos.load(proto)(X, c, d))
    feed = {"x": X, "d": torch.tensor(d)}
    assert torch.equal(see(once, feed).results[0], tos.load(proto)(X, c, d))


@pytest.mark.parametrize("flag", [True, False])
def test_a_nested_if_of_an_inner_predicate_reads_it_under_its_new_name(flag: bool) -> None:
    text = (
        "g (float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p)"
        " <float z = {0}> { s = ReduceSum <keepdims = 0> (x) k = Greater(s, z) p = If (k) <then_branch = u"
        " () => (float[2] r)"
        " { r = Neg(x) }, else_branch = v () => (float[2] o) { o = Abs(x) }> }, else_branch = e () =>"
        " (float[2] q) { q = Mul(x, x) }> }"
    )
    narrow = same_as_without(text, {"x": X}, {"c": flag})
    if flag:
        (inner,) = (node for node in narrow.nodes if node.op == "If")
        assert inner.inputs == ("If_0/then_branch/k",)
        assert "If" not in ops(specialise(narrow, {inner.inputs[0]: False}))


@pytest.mark.parametrize("flag", [True, False])
def test_loops_in_a_branch_see_the_renamed_values_around_them(flag: bool) -> None:
    text = (
        "g (float[2] x, bool c, int64 k) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p)"
        " <float[2] w = {3, 4}> { m = Neg(x) p = Loop (k, , x) <body = b (int64 i, bool d, float[2] s) =>"
        " (bool e, float[2] o) { e = Identity(d) n = Add(s, m) o = Mul(n, w) }> }, else_branch = f () =>"
        " (float[2] q) { q = Abs(x) }> }"
    )
    same_as_without(text, {"x": X, "k": torch.tensor(3)}, {"c": flag})


@pytest.mark.parametrize("flag", [True, False])
def test_a_name_of_a_body_hides_the_renamed_one_around_it(flag: bool) -> None:
    text = (
        "g (float[2] x, bool c, int64 k) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p)"
        " { m = Neg(x) p = Loop (k, , m) <body = b (int64 i, bool d, float[2] m) => (bool e, float[2] o)"
        " { e = Identity(d) o = Add(m, x) }> }, else_branch = f () => (float[2] q) { q = Abs(x) }> }"
    )
    same_as_without(text, {"x": X, "k": torch.tensor(3)}, {"c": flag})


@pytest.mark.parametrize("flag", [True, False])
def test_a_value_that_a_body_makes_hides_the_renamed_one_around_it(flag: bool) -> None:
    text = (
        "g (float[2] x, bool c, int64 k) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] p)"
        " { m = Neg(x) q = Abs(m) p = Loop (k, , q) <body = b (int64 i, bool d, float[2] s) =>"
        " (bool e, float[2] o) { e = Identity(d) m = Mul(s, s) o = Add(m, x) }> },"
        " else_branch = f () => (float[2] q) { q = Abs(x) }> }"
    )
    same_as_without(text, {"x": X, "k": torch.tensor(3)}, {"c": flag})


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_may_hand_on_what_is_around_it(flag: bool) -> None:
    text = (
        "g (float[2] x, bool c) => (float[2] y, float[2] z) { a = Neg(x) y, z = If (c) <then_branch = t () =>"
        " (float[2] a, float[2] w) <float[2] w = {7, 8}> { }, else_branch = e () => (float[2] a, float[2]"
        " x) { }> }"
    )
    same_as_without(text, {"x": X}, {"c": flag})


@pytest.mark.parametrize("flag", [True, False])
def test_two_ifs_of_one_predicate_go_together(flag: bool) -> None:
    text = (
        "g (float[2] x, bool c) => (float[2] y) { a = If (c) <then_branch = t () => (float[2] p) { p ="
        " Neg(x) },"
        " else_branch = e () => (float[2] p) { p = Abs(x) }> y = If (c) <then_branch = t () => (float[2] p)"
        " { p = Add(a, a) }, else_branch = e () => (float[2] p) { p = Mul(a, a) }> }"
    )
    assert "If" not in ops(same_as_without(text, {"x": X}, {"c": flag}))


@pytest.mark.parametrize("flag", [True, False])
def test_a_name_that_the_graph_has_already_is_not_taken_again(flag: bool) -> None:
    text = (
        "g (float[2] x, bool c) => (float[2] y) <float[2] W = {50, 60}> { M = Add(x, W) b = If (c)"
        " <then_branch = t () => (float[2] p) <float[2] w = {1, 2}> { m = Add(x, w) p = Mul(m, w) },"
        " else_branch = e () => (float[2] q) { q = Abs(x) }> y = Add(b, M) }"
    )
    proto = model(text)
    clash = {"W": "If_1/then_branch/w", "M": "If_1/then_branch/m"}
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [clash.get(name, name) for name in names]
    proto.graph.initializer[0].name = clash["W"]
    (result,) = see(specialise(graph_of(proto), {"c": flag}), {"x": X}).results
    assert result.tolist() == ([53.0, 58.0] if flag else [52.0, 60.0])


def test_the_graph_given_is_left_as_it_was() -> None:
    graph = graph_of(BRANCHES)
    before = dump(graph)
    specialise(graph, {"c": True})
    assert dump(graph) == before
