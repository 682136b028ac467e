"""Model-local functions are expanded by inlining; onnx's reference runs both forms."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from expecttest import assert_expected_inline
from ir.irmodels import OPSET, evaluate, fault, floats, lines, model_of, rebuilt, value
from onnx import AttributeProto, TensorProto, helper
from onnx.helper import make_node

from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.text import dump
from torch_ort_session.options import Limits

X = np.array([1.5, -2.0], dtype=np.float32)


def function(name, inputs, outputs, nodes, attributes=(), defaults=(), opsets=((("", OPSET)),), **more):
    imports = [helper.make_opsetid(domain, version) for domain, version in (*opsets, ("local", 1))]
    return helper.make_function("local", name, inputs, outputs, nodes, imports, attributes, defaults, **more)


def call(op, inputs, outputs, name="", **attributes):
    return make_node(op, inputs, outputs, domain="local", name=name, **attributes)


def with_ref(node: onnx.NodeProto, attribute: str, parameter: str, kind: int) -> onnx.NodeProto:
    node.attribute.append(AttributeProto(name=attribute, ref_attr_name=parameter, type=kind))
    return node


def leaky(default: float | None = 0.25):
    node = with_ref(make_node("LeakyRelu", ["a"], ["b"], name="act"), "alpha", "slope", AttributeProto.FLOAT)
    defaults = [] if default is None else [helper.make_attribute("slope", default)]
    return function("Leaky", ["a"], ["b"], [node], [] if defaults else ["slope"], defaults)


def gives(model: onnx.ModelProto, *expected: np.ndarray, **feed: np.ndarray) -> None:
    """The expanded graph, run by onnx's reference, gives these outputs."""
    for found, wanted in zip(evaluate(rebuilt(model), **feed), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def text(model: onnx.ModelProto) -> str:
    return dump(load_model(model).graph)


def test_a_call_becomes_the_nodes_of_the_body():
    body = [make_node("Neg", ["a"], ["t"], name="n"), make_node("Add", ["t", "b"], ["c"])]
    model = model_of(
        [call("F", ["x", "x"], ["m"], name="first"), call("F", ["m", "x"], ["y"])],
        functions=[function("F", ["a", "b"], ["c"], body)],
    )
    assert_expected_inline(
        text(model),
        """\
graph g(%x: float32[2]) -> (%y: float32[2]) {
  %first/t = ai.onnx::Neg(%x)  # first/n
  %m = ai.onnx::Add(%first/t, %x)  # first/Add_1
  %F_1/t = ai.onnx::Neg(%m)  # F_1/n
  %y = ai.onnx::Add(%F_1/t, %x)  # F_1/Add_1
}
""",
    )
    gives(model, -(X - X) + X, x=X)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("default", [0.25, None])
def test_attributes_and_their_defaults(given, default):
    model = model_of(
        [call("Leaky", ["x"], ["y"], **({"slope": 0.5} if given else {}))], functions=[leaky(default)]
    )
    node = load_model(model).graph.nodes[0]
    assert node.attributes.get("alpha") == (0.5 if given else default)
    slope = 0.5 if given else default or 0.01
    gives(model, np.where(X < 0, X * np.float32(slope), X), x=X)


def test_nested_calls_hand_attributes_on():
    inner = with_ref(call("Leaky", ["p"], ["q"], name="in"), "slope", "s", AttributeProto.FLOAT)
    outer = function("Outer", ["p"], ["r"], [inner, make_node("Abs", ["q"], ["r"])], ["s"])
    model = model_of([call("Outer", ["x"], ["y"], name="out", s=0.5)], functions=[outer, leaky()])
    assert_expected_inline(
        text(model),
        """\
graph g(%x: float32[2]) -> (%y: float32[2]) {
  %out/q = ai.onnx::LeakyRelu(%x) {alpha=0.5}  # out/in/act
  %y = ai.onnx::Abs(%out/q)  # out/Abs_1
}
""",
    )
    gives(model, np.abs(np.where(X < 0, X * np.float32(0.5), X)), x=X)


def test_overloads():
    functions = [
        function("F", ["a"], ["b"], [make_node("Neg", ["a"], ["b"])], overload="neg"),
        function("F", ["a"], ["b"], [make_node("Abs", ["a"], ["b"])], overload="abs"),
    ]
    nodes = [call("F", ["x"], ["m"], overload="neg"), call("F", ["m"], ["y"], overload="abs")]
    loaded = load_model(model_of(nodes, functions=functions)).graph
    assert [node.op for node in loaded.nodes] == ["Neg", "Abs"]
    assert {node.overload for node in loaded.nodes} == {""}
    nodes = [call("F", ["x"], ["y"], overload="other")]
    assert_expected_inline(
        lines(fault(model_of(nodes, functions=functions))),
        """\
graph 'g' / node 'F_0': the model has no function local::F with overload 'other': the file is
    damaged""",
    )


def test_missing_optional_inputs_and_unwanted_outputs():
    body = [
        make_node("Clip", ["a", "low", "high"], ["b"], name="clip"),
        make_node("Neg", ["b"], ["c"], name="neg"),
    ]
    model = model_of(
        [call("F", ["x", "", "top"], ["", "y"], name="f")],
        weights=[helper.make_tensor("top", TensorProto.FLOAT, [], [1.0])],
        functions=[function("F", ["a", "low", "high"], ["b", "c"], body)],
    )
    assert_expected_inline(
        text(model),
        """\
graph g(%x: float32[2]) -> (%y: float32[2]) {
  %top = weight float32[] (1)
  %f/b = ai.onnx::Clip(%x, _, %top)  # f/clip
  %y = ai.onnx::Neg(%f/b)  # f/neg
}
""",
    )
    gives(model, -np.minimum(X, 1), x=X)
    model.graph.node[0].input[:] = ["x"]
    gives(model, -X, x=X)


def test_inputs_handed_through_and_values_listed_twice():
    nodes = [make_node("Neg", ["a"], ["b"])]
    model = model_of(
        [call("F", ["x"], ["p", "q", "r"])],
        outputs=["p", "q", "r"],
        functions=[function("F", ["a"], ["b", "b", "a"], nodes)],
    )
    gives(model, -X, -X, X, x=X)


def test_a_function_that_is_called_in_a_body_and_has_one():
    """Names of the function's own body are replaced too, and what it reads from around is the caller's."""
    then_branch = helper.make_graph(
        [make_node("Add", ["a", "k"], ["t"])], "then", [], [value("t")], [floats("k", 1, 2)]
    )
    else_branch = helper.make_graph([call("Leaky", ["a"], ["e"])], "else", [], [value("e")])
    body = make_node("If", ["c"], ["b"], name="if", then_branch=then_branch, else_branch=else_branch)
    functions = [
        function(
            "F",
            ["c", "a"],
            ["b"],
            [body],
        ),
        leaky(),
    ]
    outer = helper.make_graph([call("F", ["flag", "x"], ["t"], name="f")], "outer", [], [value("t")])
    other = helper.make_graph([make_node("Identity", ["x"], ["t"])], "other", [], [value("t")])
    model = model_of(
        [make_node("If", ["flag"], ["y"], name="top", then_branch=outer, else_branch=other)],
        inputs=["x", value("flag", TensorProto.BOOL, ())],
        functions=functions,
    )
    assert_expected_inline(
        text(model),
        """\
graph g(%x: float32[2], %flag: bool[]) -> (%y: float32[2]) {
  %y = ai.onnx::If(%flag) {else_branch=<other>, then_branch=<outer>}  # top
    else_branch other() -> (%t: float32[2]) {
      %t = ai.onnx::Identity(%x)  # Identity_0
    }
    then_branch outer() -> (%t: float32[2]) {
      %t = ai.onnx::If(%flag) {else_branch=<else>, then_branch=<then>}  # f/if
        else_branch else() -> (%f/e: float32[2]) {
          %f/e = ai.onnx::LeakyRelu(%x) {alpha=0.25}  # f/Leaky_0/act
        }
        then_branch then() -> (%f/t: float32[2]) {
          %f/k = weight float32[2] (1, 2)
          %f/t = ai.onnx::Add(%x, %f/k)  # f/Add_0
        }
    }
}
""",
    )
    gives(model, X + np.array([1, 2], np.float32), x=X, flag=np.array(True))
    gives(model, X, x=X, flag=np.array(False))


def test_names_stay_unique():
    """Values and nodes of the graph that look like those of an expansion."""
    body = [make_node("Neg", ["a"], ["t"], name="n"), make_node("Neg", ["t"], ["c"], name="n")]
    nodes = [
        make_node("Abs", ["x"], ["f/t"], name="f/n"),
        call("F", ["f/t"], ["m"], name="f"),
        call("F", ["m"], ["y"], name="f"),
    ]
    model = model_of(nodes, functions=[function("F", ["a"], ["c"], body)])
    loaded = load_model(model).graph
    names = [node.name for node in loaded.nodes]
    values = [name for node in loaded.nodes for name in node.outputs]
    assert len(set(names)) == 5 and len(set(values)) == 5, (names, values)
    gives(model, np.abs(X), x=X)


def test_a_function_binds_under_its_own_opset():
    """Softmax changed its meaning in opset 13: the function keeps the older one."""
    functions = [function("F", ["a"], ["b"], [make_node("Softmax", ["a"], ["b"])], opsets=(("", 11),))]
    model = model_of([call("F", ["x"], ["m"]), make_node("Softmax", ["m"], ["y"])], functions=functions)
    assert [node.since for node in load_model(model).graph.nodes] == [11, 13]


def test_a_function_goes_before_the_operator_of_its_name():
    double = helper.make_function(
        "", "Relu", ["a"], ["b"], [make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", OPSET)]
    )
    model = model_of([make_node("Relu", ["x"], ["y"])], functions=[double])
    assert [node.op for node in load_model(model).graph.nodes] == ["Add"]


def test_weights_of_a_function_are_shared_by_its_calls():
    body = [make_node("Constant", [], ["k"], value=floats("k", 1, 2)), make_node("Add", ["a", "k"], ["b"])]
    model = model_of(
        [call("F", ["x"], ["m"]), call("F", ["m"], ["y"])], functions=[function("F", ["a"], ["b"], body)]
    )
    first, second = (n.attributes["value"] for n in load_model(model).graph.nodes if n.op == "Constant")
    assert first is second


def test_faults():
    def text_of(*functions, nodes=(), **kwargs):
        return fault(model_of(list(nodes or [call("F", ["x"], ["y"])]), functions=functions), **kwargs)

    def simple(inputs=("a",), outputs=("b",), nodes=None):
        return function("F", inputs, outputs, nodes or [make_node("Neg", ["a"], ["b"])])

    messages = [
        text_of(
            function("F", ["a"], ["b"], [call("G", ["a"], ["b"])]),
            function("G", ["a"], ["b"], [call("F", ["a"], ["b"])]),
        ),
        text_of(simple(), simple()),
        text_of(simple(), nodes=[call("F", ["x", "x"], ["y"])]),
        text_of(simple(), nodes=[call("F", ["x"], ["y", "z"])]),
        text_of(simple(outputs=["c"])),
        text_of(simple(nodes=[make_node("Neg", ["q"], ["b"])])),
        text_of(simple(inputs=["a", "a"])),
        text_of(simple(nodes=[make_node("Neg", ["a"], ["a"]), make_node("Neg", ["a"], ["b"])])),
        text_of(nodes=[with_ref(make_node("LeakyRelu", ["x"], ["y"]), "alpha", "s", AttributeProto.FLOAT)]),
        text_of(simple(nodes=[make_node("Neg", ["a"], ["t"]), make_node("Cast", ["t"], ["b"])])),
    ]
    assert_expected_inline(
        lines(*messages),
        """\
function 'local::F': functions call each other in a circle: local::F -> local::G -> local::F
function 'local::F': two functions have this domain, name and overload: rename one
graph 'g' / node 'F_0': the function local::F has 1 input(s), the call gives 2
graph 'g' / node 'F_0': the function local::F has 1 output(s), the call gives 2
graph 'g' / node 'F_0': the output 'c' of the function local::F is never made
graph 'g' / node 'F_0' / node 'Neg_0': the value 'q' is never made
function 'local::F': the input 'a' is defined twice: the file is damaged
function 'local::F': the value 'a' is defined twice: the file is damaged
graph 'g' / node 'LeakyRelu_0' / attribute 'alpha': it refers to the attribute 's' of a function,
    and stands in none
function 'local::F' / node 'Cast_1': ai.onnx::Cast needs the attribute 'to': the file is damaged""",
    )


def laughs(depth: int, width: int = 10):
    """Each function calls the next one ``width`` times."""
    functions = []
    for level in range(depth):
        target = f"F{level + 1}" if level + 1 < depth else "Leaky"
        chain = [f"v{i}" for i in range(width + 1)]
        nodes = [call(target, [a], [b]) for a, b in pairwise(chain)]
        functions.append(function(f"F{level}", ["v0"], [f"v{width}"], nodes))
    return model_of([call("F0", ["x"], ["y"])], functions=[*functions, leaky()])


def test_expansion_is_bounded_before_it_starts():
    assert_expected_inline(
        lines(fault(laughs(12))),
        """\
graph 'g': the model has more than 10**12 nodes with its functions expanded, the limit is 500000:
    pass Limits(nodes=...) to raise it""",
    )
    assert_expected_inline(
        lines(fault(laughs(3), limits=Limits(nodes=1000))),
        """\
graph 'g': the model has 2111 nodes with its functions expanded, the limit is 1000: pass
    Limits(nodes=...) to raise it""",
    )
    assert_expected_inline(
        lines(fault(laughs(80, 1))),
        """\
function 'local::F64': functions call each other more than 64 deep: pass Limits(nesting=...) to
    raise it""",
    )
    assert len(load_model(laughs(3)).graph.nodes) == 1000
