"""Function bodies that schemas carry: those of onnx's own expanded test cases."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from expecttest import assert_expected_inline
from ir.irmodels import model_of, value
from onnx import AttributeProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.helper import make_node

from torch_ort_session.ir.functions import expand_schema_function
from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.save import graph_proto
from torch_ort_session.ir.text import node_line


def canonical(graph: onnx.GraphProto, outer: dict[str, str] | None = None) -> list[object]:
    """The graph without its own names: values are numbered in the order in which they are made."""
    names = dict(outer or {})
    for info in graph.input:
        names[info.name] = f"in{len(names)}"
    out: list[object] = []
    for node in graph.node:
        inputs = [names.get(name, name and f"?{name}") for name in node.input]
        for name in filter(None, node.output):
            names.setdefault(name, f"v{len(names)}")
        bodies = [(a.name, canonical(a.g, names)) for a in node.attribute if a.type == AttributeProto.GRAPH]
        plain = {}
        for item in node.attribute:
            if item.type not in (AttributeProto.GRAPH, AttributeProto.TENSOR):
                plain[item.name] = helper.get_attribute_value(item)
            elif item.type == AttributeProto.TENSOR:
                plain[item.name] = (item.t.data_type, repr(numpy_helper.to_array(item.t).tolist()))
        while inputs and not inputs[-1]:
            inputs.pop()
        out.append((node.domain, node.op_type, inputs, [names[n] for n in node.output if n], plain, bodies))
    out.append([names.get(info.name) for info in graph.output])
    return out


# The generator of these cases overflows casts on purpose.
@pytest.mark.filterwarnings("ignore")
def test_bodies_are_those_of_onnxs_expanded_cases():
    cases = {case.name: case.model for case in collect_testcases(None)}
    ops: dict[str, int] = {}
    for name, wanted in cases.items():
        plain, mark, version = name.partition("_expanded")
        if not mark or plain not in cases or len(cases[plain].graph.node) != 1:
            continue
        graph = load_model(cases[plain]).graph
        (node,) = graph.nodes
        types = {info.name: info.type for info in graph.inputs}
        opset = int(version.removeprefix("_ver")) if version else node.since
        body = expand_schema_function(node, opset, [types.get(item) for item in node.inputs])
        found = graph_proto(replace(graph, nodes=body))
        assert canonical(found) == canonical(wanted.graph), name
        ops[node.op] = ops.get(node.op, 0) + 1
    assert len(ops) > 40 and sum(ops.values()) > 400, ops


@pytest.mark.filterwarnings("ignore")
def test_graphs_go_back_to_messages():
    checked = 0
    for case in collect_testcases(None):
        if case.model.functions or case.model.graph.sparse_initializer:
            continue
        assert canonical(graph_proto(load_model(case.model).graph)) == canonical(case.model.graph), case.name
        checked += 1
    assert checked > 1800


def nodes_of(node: onnx.NodeProto, opset: int, *types) -> str:
    inputs = [value(name) for name in dict.fromkeys(node.input) if name]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    loaded = load_model(model_of([node], inputs, outputs, opsets=(("", opset),))).graph.nodes[0]
    return "\n".join(map(node_line, expand_schema_function(loaded, opset, types)))


def test_names_and_defaults():
    """Attributes of the node, or else the defaults of the schema, reach the body."""
    celu = make_node("Celu", ["x"], ["y"], name="c")
    assert_expected_inline(
        nodes_of(celu, 12),
        """\
%c/alpha = ai.onnx::Constant() {value=float32[1] (1)}  # c/Constant_0
%c/X_alpha = ai.onnx::Div(%x, %c/alpha)  # c/Div_1
%c/Elu_Result = ai.onnx::Elu(%c/X_alpha) {alpha=1}  # c/Elu_2
%y = ai.onnx::Mul(%c/alpha, %c/Elu_Result)  # c/Mul_3""",
    )
    norm = make_node("MeanVarianceNormalization", ["x"], ["y"], name="m", axes=[0])
    assert_expected_inline(
        nodes_of(norm, 18),
        """\
%m/Exponent = ai.onnx::Constant() {value=float32[] (2)}  # m/Constant_0
%m/Epsilon = ai.onnx::Constant() {value=float32[] (1e-09)}  # m/Constant_1
%m/axes = ai.onnx::Constant() {value_ints=[0]}  # m/Constant_2
%m/X_RM = ai.onnx::ReduceMean(%x, %m/axes)  # m/ReduceMean_3
%m/EX_squared = ai.onnx::Pow(%m/X_RM, %m/Exponent)  # m/Pow_4
%m/X_squared = ai.onnx::Pow(%x, %m/Exponent)  # m/Pow_5
%m/E_Xsquared = ai.onnx::ReduceMean(%m/X_squared, %m/axes)  # m/ReduceMean_6
%m/Variance = ai.onnx::Sub(%m/E_Xsquared, %m/EX_squared)  # m/Sub_7
%m/STD = ai.onnx::Sqrt(%m/Variance)  # m/Sqrt_8
%m/X_variance = ai.onnx::Sub(%x, %m/X_RM)  # m/Sub_9
%m/Processed_STD = ai.onnx::Add(%m/STD, %m/Epsilon)  # m/Add_10
%y = ai.onnx::Div(%m/X_variance, %m/Processed_STD)  # m/Div_11""",
    )


def test_bodies_that_depend_on_the_node():
    clip = make_node("Clip", ["x", "", "top"], ["y"], name="c")
    assert_expected_inline(
        nodes_of(clip, 13),
        """\
%c/input_large_than_max = ai.onnx::Less(%top, %x)  # c/Less_0
%y = ai.onnx::Where(%c/input_large_than_max, %top, %x)  # c/Where_1""",
    )


def test_no_body():
    assert nodes_of(make_node("Neg", ["x"], ["y"]), 13) == ""


def test_the_body_of_the_governing_revision():
    """From opset 18 on ReduceMax takes its axes as an input."""
    softmax = make_node("Softmax", ["x"], ["y"], name="s")
    assert "axes=[" in nodes_of(softmax, 13) and "axes=[" not in nodes_of(softmax, 18)
