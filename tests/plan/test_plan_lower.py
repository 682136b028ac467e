"""Lowering: constants become weights, functions become nodes, and what cannot run is told all at once."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from onnx import helper
from textmodel import declare, load, message, model, operator

import torch_ort_session as tos
from torch_ort_session.ir.load import load_model
from torch_ort_session.ops import registry
from torch_ort_session.plan.lowering.lower import lower


def refused(text: str, error: type[Exception] = tos.UnsupportedOpError, **kwargs: Any) -> str:
    return message(error, lambda: load(text, **kwargs))


def test_constants_become_weights() -> None:
    proto = model(
        "g (float[2] x) => (float[2] y, string[1] s, float[?] e, float[3] f, int64 i, float[2,2] p) {"
        ' a = Constant <value = float[2] {1, 2}> () y = Add(x, a) s = Constant <value_strings = ["w"]> ()'
        " e = Constant <value_floats = [1.5, 2.5]> () f = Constant <value = float[3] {1, 2, 3}> ()"
        " i = Constant <value_int = 7> () p = Identity(q) }",
        weights={"q": np.eye(2, dtype=np.float32)},
    )
    graph = lower(load_model(proto).graph)
    assert [node.op for node in graph.nodes] == ["Add", "Identity"]
    assert set(graph.initializers) == {"a", "s", "e", "f", "i", "q"}
    # A constant is no weight of the source framework: it has no name of its own.
    assert {name for name, weight in graph.initializers.items() if weight.name} == {"q"}
    out = tos.load(proto)([1.0, 1.0])
    assert out.y.tolist() == [2, 3]
    assert out.s.tolist() == ["w"]
    assert out.e.tolist() == [1.5, 2.5]
    assert out.i.tolist() == 7


def test_constants_of_bodies_too() -> None:
    session = load(
        "g (float[2] x, bool c) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] a)"
        " { k = Constant <value_float = 2.0> () a = Mul(x, k) }, else_branch = e () => (float[2] b)"
        " { b = Constant <value = float[2] {5, 6}> () }> }"
    )
    assert [node.op for node in session.graph.all_nodes()] == ["If", "Mul"]
    assert session([1.0, 2.0], True).tolist() == [2, 4]
    assert session([1.0, 2.0], False).tolist() == [5, 6]


@declare
def Twice(x: torch.Tensor, *, by: float, offset: float = 0.0) -> torch.Tensor:
    return x * by + offset


def test_lowering_twice_changes_nothing() -> None:
    graph = lower(load_model(model("g (float[2] x) => (float[2] y) { y = Neg(x) }")).graph)
    again = lower(graph)
    assert [node.op for node in again.nodes] == ["Neg"]


def test_an_op_without_a_kernel_runs_through_its_function_body(monkeypatch: pytest.MonkeyPatch) -> None:
    find = registry.find
    monkeypatch.setattr(
        registry, "find", lambda op, domain, since: None if op == "Celu" else find(op, domain, since)
    )
    text = "g (float[4] x) => (float[4] y) {{ {0} y = Celu <alpha = 2.0> ({1}) }}"
    x = torch.tensor([-3.0, -1.0, 0.0, 2.0])
    session = load(text.format("", "x"))
    ops = [node.op for node in session.graph.nodes]
    assert "Celu" not in ops
    assert len(ops) > 1
    torch.testing.assert_close(session(x), torch.nn.functional.celu(x, 2.0))
    # Two of them do not share names.
    session = load(text.format("a = Celu <alpha = 1.0> (x)", "a"))
    expected = torch.nn.functional.celu(torch.nn.functional.celu(x, 1.0), 2.0)
    torch.testing.assert_close(session(x), expected)
    # In a body, and on a value whose type only the enclosing graph knows.
    session = load(
        "g (float[4] x, bool c) => (float[4] y) { n = Neg(x) y = If (c) <then_branch = t () => (float[4] a)"
        " { a = Celu(n) }, else_branch = e () => (float[4] b) { b = Identity(n) }> }"
    )
    torch.testing.assert_close(session(x, True), torch.nn.functional.celu(-x))


def test_model_local_functions_keep_their_names_apart() -> None:
    body = [helper.make_node("Mul", ["a", "a"], ["t"]), helper.make_node("Add", ["t", "a"], ["b"])]
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("tests", "Poly", ["a"], ["b"], body, opsets)
    proto = model("g (float[2] x) => (float[2] y) { p = tests.Poly(x) y = tests.Poly(p) }")
    proto.functions.append(function)
    assert tos.load(proto)([1.0, 2.0]).tolist() == [6, 42]


def test_everything_unsupported_is_told_at_once() -> None:
    text = (
        "g (float[2] x, bool c) => (float[2] y) { [first] a = tests.Unknown(x) [second] b = tests.Unknown(a)"
        " [third] d = tests.Unknown(b) [fourth] e = tests.Unknown(d) [other] f = tests.Another(e)"
        " y = If (c) <then_branch = t () => (float[2] g) { [inner] g = tests.Inner(f) },"
        " else_branch = u () => (float[2] h) { [strange] h = NoSuchOperator(f) }> }"
    )
    assert_expected_inline(
        refused(text),
        """\
the model uses 4 unsupported operator(s):
  tests::Unknown revision 1 (no kernel): nodes 'first', 'second', 'third' and 1 more
  tests::Another revision 1 (no kernel): nodes 'other'
  tests::Inner revision 1 (no kernel): nodes 'inner'
  ai.onnx::NoSuchOperator revision 0 (no such operator in the installed onnx): nodes 'strange'
`torch-ort-session ops` lists what is supported.""",
    )
    with pytest.raises(tos.UnsupportedOpError) as caught:
        load(text)
    assert isinstance(caught.value, NotImplementedError)
    assert [op.op for op in caught.value.ops] == ["Unknown", "Another", "Inner", "NoSuchOperator"]
    assert caught.value.ops[0].nodes == ("first", "second", "third", "fourth")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_revision_without_a_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (add,) = (k for k in registry.kernels()["", "Add"] if 7 in k.since)
    later = replace(add, since=(13, 14))
    monkeypatch.setattr(registry, "find", lambda op, domain, since: None)
    monkeypatch.setattr(registry, "kernels", lambda: {("", "Add"): (later,)})
    assert_expected_inline(
        refused("g (float[2] x) => (float[2] y) { y = Add(x, x) }", opset=12),
        """\
the model uses 1 unsupported operator(s):
  ai.onnx::Add revision 7 (no kernel for this revision; revisions served: 13, 14): nodes 'Add_0'
`torch-ort-session ops` lists what is supported.""",
    )


def test_attributes() -> None:
    with operator(Twice):
        session = load("g (float[2] x) => (float[2] y) { y = tests.Twice <by = 3.0> (x) }")
        assert session([1.0, 2.0]).tolist() == [3, 6]
        assert_expected_inline(
            refused(
                "g (float[2] x) => (float[2] y) { [n] y = tests.Twice <by = 3.0, odd = 1> (x) }",
                tos.ModelError,
            ),
            """node 'n' (tests::Twice revision 1): unknown attribute 'odd'; this operator has: by, offset""",
        )
        assert_expected_inline(
            refused("g (float[2] x) => (float[2] y) { [n] y = tests.Twice (x) }", tos.ModelError),
            """node 'n' (tests::Twice revision 1): the required attribute 'by' is missing""",
        )
    assert_expected_inline(
        refused("g (float[2] x) => (float[2] y) { [n] y = Neg <axis = 1> (x) }", tos.ModelError),
        """\
node 'n' (ai.onnx::Neg revision 13): unknown attribute 'axis'; this operator has:
consumed_inputs""",
    )
    assert_expected_inline(
        refused("g (float[2] x) => (float[2] y) { [n] y = Cast (x) }", tos.ModelError),
        """graph 'g' / node 'n': ai.onnx::Cast needs the attribute 'to': the file is damaged""",
    )


def test_inputs_and_outputs() -> None:
    assert_expected_inline(
        refused("g (float[2] x) => (float[2] y) { [n] y = Add (x) }", tos.ModelError),
        """graph 'g' / node 'n': ai.onnx::Add takes 2 input(s), the node has 1""",
    )
    assert_expected_inline(
        refused("g (float[2] x) => (float[2] y) { [n] y = Add (x, ) }", tos.ModelError),
        """graph 'g' / node 'n': ai.onnx::Add takes 2 input(s), the node has 1""",
    )
    assert_expected_inline(
        refused("g (float[2] x) => (float[2] y) { [n] y = Neg (x, x) }", tos.ModelError),
        """graph 'g' / node 'n': ai.onnx::Neg takes 1 input(s), the node has 2""",
    )
    assert_expected_inline(
        refused("g (float[2] x) => (float[2] y) { [n] y, z = Neg (x) }", tos.ModelError),
        """graph 'g' / node 'n': ai.onnx::Neg takes 1 output(s), the node has 2""",
    )


def test_wrong_types_of_attributes() -> None:
    proto = onnx.ModelProto()
    proto.CopyFrom(model("g (float[2] x) => (float[2] y) { [n] y = Softmax <axis = 0> (x) }"))
    wrong = copy.deepcopy(proto)
    del wrong.graph.node[0].attribute[:]
    wrong.graph.node[0].attribute.append(helper.make_attribute("axis", 0.5))
    assert_expected_inline(
        message(tos.ModelError, lambda: tos.load(wrong)),
        """graph 'g' / node 'n': the attribute 'axis' of ai.onnx::Softmax is float, it must be int""",
    )
    wrong = copy.deepcopy(proto)
    del wrong.graph.node[0].attribute[:]
    wrong.graph.node[0].attribute.append(helper.make_attribute("axis", "zero"))
    assert_expected_inline(
        message(tos.ModelError, lambda: tos.load(wrong)),
        """graph 'g' / node 'n': the attribute 'axis' of ai.onnx::Softmax is string, it must be int""",
    )


def test_a_dropout_that_never_trains_is_not_told_so() -> None:
    """Without the input it draws nothing at random, and can be captured."""
    weights = "<float r = {0.5}, bool no = {0}, bool yes = {1}>"

    def inputs(text: str, told: str, **kwargs: Any) -> tuple[str, ...]:
        kept = lower(load_model(model(f"g ({text}) => (float[2] y) {told}", **kwargs)).graph)
        return next(node.inputs for node in kept.nodes if node.op == "Dropout")

    given = "float[2] x"
    assert inputs(given, f"{weights} {{ y = Dropout(x, r, no) }}") == ("x", "r")
    assert inputs(given, f"{weights} {{ y = Dropout(x, r, yes) }}") == ("x", "r", "yes")
    assert inputs(f"{given}, bool no", f"{weights} {{ y = Dropout(x, r, no) }}", ir=3) == ("x", "r", "no")
    assert inputs(f"{given}, bool t", f"{weights} {{ y = Dropout(x, r, t) }}") == ("x", "r", "t")
    made = "<float r = {0.5}> { no = Constant <value = bool {0}> () y = Dropout(x, r, no) }"
    assert inputs(given, made) == ("x", "r")
    plan = load(
        f"g (float[2] x) => (float[2] y) {weights} {{ a = Neg(x) b = Dropout(a, r, no) y = Abs(b) }}"
    ).plan({"x": torch.ones(2)})
    assert len(plan.segments) == 1 and not plan.seams
