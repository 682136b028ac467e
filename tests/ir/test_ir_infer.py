"""Element types by schema."""

from __future__ import annotations

import onnx
import pytest
from ir.irmodels import OPSET, floats, graph_of, model_of, value
from onnx import TensorProto, helper
from onnx.backend.test.case.node import collect_testcases
from onnx.helper import make_node

from torch_ort_session.ir.infer import body_inputs, element_types
from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.types import ElementType


def types_of(nodes, inputs=("x",), outputs=("y",), opset=OPSET, **kwargs) -> dict[str, str]:
    """Inferred types as text; outputs say nothing of theirs."""
    outs = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = load_model(model_of(nodes, list(inputs), outs, opsets=(("", opset),), **kwargs)).graph
    return {name: kind.name for name, kind in element_types(graph).items()}


def one(op, inputs=("x",), opset=OPSET, count=1, **attributes) -> list[str | None]:
    outputs = [f"o{i}" for i in range(count)]
    ports = [
        "x",
        value("i", TensorProto.INT64),
        value("h", TensorProto.FLOAT16),
        value("z", TensorProto.INT4),
        value("b", TensorProto.BOOL, ()),
    ]
    found = types_of([make_node(op, inputs, outputs, **attributes)], ports, outputs, opset)
    return [found.get(name) for name in outputs]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (one("Add", ["h", "h"]), ["FLOAT16"]),
        (one("Cast", to=TensorProto.INT4), ["INT4"]),
        (one("CastLike", ["x", "z"]), ["INT4"]),
        (one("Equal", ["x", "x"]), ["BOOL"]),
        (one("Shape"), ["INT64"]),
        (one("Where", ["b", "h", "h"]), ["FLOAT16"]),
        (one("TopK", ["h", "i"], count=2), ["FLOAT16", "INT64"]),
        (one("Split", ["h"], count=3, num_outputs=3), ["FLOAT16"] * 3),
        (one("Concat", ["h", "h", "h"], axis=0), ["FLOAT16"]),
        (one("LayerNormalization", ["h", "h"], count=3), ["FLOAT16", "FLOAT", "FLOAT"]),
        (one("QuantizeLinear", ["x", "x", "z"]), ["INT4"]),
        (one("QuantizeLinear", ["x", "x"], output_dtype=TensorProto.INT4), ["INT4"]),
        (one("QuantizeLinear", ["x", "x"]), ["UINT8"]),
        (one("DequantizeLinear", ["z", "h", "z"]), ["FLOAT16"]),
        (one("DynamicQuantizeLinear", count=3), ["UINT8", "FLOAT", "UINT8"]),
        (one("ConstantOfShape", ["i"]), ["FLOAT"]),
        (one("ConstantOfShape", ["i"], value=helper.make_tensor("v", TensorProto.INT4, [1], [1])), ["INT4"]),
        (one("Constant", [], value=floats("v", 1)), ["FLOAT"]),
        (one("Constant", [], value_ints=[1, 2]), ["INT64"]),
        (one("Constant", [], value_string="s"), ["STRING"]),
        (one("EyeLike", ["i"]), ["INT64"]),
        (one("EyeLike", ["i"], dtype=TensorProto.DOUBLE), ["DOUBLE"]),
        (one("RandomNormal", [], shape=[2]), ["FLOAT"]),
        (one("RandomNormal", [], shape=[2], dtype=TensorProto.DOUBLE), ["DOUBLE"]),
        (one("RandomUniformLike", ["h"]), ["FLOAT16"]),
        (one("Bernoulli", ["h"]), ["FLOAT16"]),
        (one("Multinomial", ["h"]), ["INT32"]),
        (one("HannWindow", ["i"]), ["FLOAT"]),
        (one("NonMaxSuppression", ["x", "x", "i"]), ["INT64"]),
        (one("MatMulInteger", ["z", "z"]), ["INT32"]),
        (one("SequenceEmpty", []), ["FLOAT"]),
        (one("SequenceConstruct", ["h", "h"]), ["FLOAT16"]),
        (one("Nope"), [None]),
    ],
    ids=lambda item: "-".join(map(str, item)),
)
def test_one_node(given, expected):
    assert given == expected


def test_sequences_hand_their_elements_on():
    nodes = [
        make_node("SplitToSequence", ["h"], ["s"]),
        make_node("SequenceInsert", ["s", "h"], ["s2"]),
        make_node("SequenceAt", ["s2", "i"], ["e"]),
        make_node("ConcatFromSequence", ["s2"], ["y"], axis=0),
        make_node("SequenceLength", ["s2"], ["n"]),
    ]
    found = types_of(nodes, [value("h", TensorProto.FLOAT16), value("i", TensorProto.INT64, ())])
    assert found["e"] == found["y"] == "FLOAT16" and found["n"] == "INT64"


def test_optional_inputs_may_be_missing():
    nodes = [make_node("Clip", ["x", "", "top"], ["y"])]
    assert types_of(nodes, weights=[floats("top", 1)])["y"] == "FLOAT"


def test_declared_types_hold_where_nothing_else_is_known():
    nodes = [make_node("Nope", ["x"], ["m"]), make_node("Neg", ["m"], ["y"])]
    found = types_of(nodes, value_info=[value("m", TensorProto.DOUBLE)])
    assert found == {"x": "FLOAT", "m": "DOUBLE", "y": "DOUBLE"}


def untyped(*names: str) -> list[onnx.ValueInfoProto]:
    return [onnx.ValueInfoProto(name=name) for name in names]


def test_if_loop_scan():
    """Bodies see enclosing types; what a body's formal input is follows from the node."""
    branch = graph_of([make_node("Cast", ["h"], ["t"], to=TensorProto.INT4)], [], untyped("t"), name="b")
    step = graph_of(
        [
            make_node("Add", ["v", "h"], ["w"]),
            make_node("Shape", ["w"], ["s"]),
            make_node("Not", ["c"], ["d"]),
        ],
        untyped("i", "c", "v"),
        untyped("d", "w", "s", "i"),
        name="l",
    )
    scan = graph_of(
        [make_node("Add", ["a", "e"], ["r"]), make_node("Cast", ["e"], ["o"], to=TensorProto.INT8)],
        untyped("a", "e"),
        untyped("r", "o"),
        name="s",
    )
    nodes = [
        make_node("If", ["b"], ["y"], then_branch=branch, else_branch=branch),
        make_node("Loop", ["", "b", "h"], ["l0", "l1", "l2"], body=step),
        make_node("Scan", ["h", "h"], ["s0", "s1"], body=scan, num_scan_inputs=1),
    ]
    model = model_of(
        nodes, [value("h", TensorProto.FLOAT16), value("b", TensorProto.BOOL, ())], untyped("y", "l0", "s1")
    )
    graph = load_model(model).graph
    types = element_types(graph)
    names = {name: types[name].name for name in ("y", "l0", "l1", "l2", "s0", "s1")}
    assert names == {
        "y": "INT4", "l0": "FLOAT16", "l1": "INT64", "l2": "INT64", "s0": "FLOAT16", "s1": "INT8",
    }  # fmt: skip
    body = next(body for _, body in graph.nodes[1].subgraphs())
    inner = element_types(body, {**types, **body_inputs(graph.nodes[1], body, types)})
    assert {name: kind.name for name, kind in inner.items()} == {
        "i": "INT64", "c": "BOOL", "v": "FLOAT16", "w": "FLOAT16", "s": "INT64", "d": "BOOL",
    }  # fmt: skip


def test_a_local_name_goes_before_an_enclosing_one():
    graph = load_model(model_of([make_node("Shape", ["x"], ["y"])], outputs=untyped("y"))).graph
    assert element_types(graph, {"y": ElementType.INT4, "x": ElementType.BOOL})["y"] is ElementType.INT64


# The generator of these cases overflows casts on purpose.
@pytest.mark.filterwarnings("ignore")
def test_it_agrees_with_the_types_of_onnxs_own_cases():
    """Graph outputs of every node test, with the declaration taken away first."""
    wrong, unknown, checked = [], [], 0
    for case in collect_testcases(None):
        declared = case.model.graph
        stripped = onnx.ModelProto.FromString(case.model.SerializeToString())
        for info in stripped.graph.output:
            info.ClearField("type")
        types = element_types(load_model(stripped).graph)
        for info in declared.output:
            if not info.type.HasField("tensor_type"):
                continue
            checked += 1
            found = types.get(info.name)
            if found is None:
                unknown.append(case.name)
            elif int(found) != info.type.tensor_type.elem_type:
                wrong.append((case.name, found.name, info.type.tensor_type.elem_type))
    assert checked > 1500
    assert not wrong
    # The type of a state that is not given is nowhere said.
    assert {name.removeprefix("test_")[:16] for name in unknown} == {"linear_attention"}


def test_types_of_thousands_of_nodes():
    nodes = []
    for i in range(0, 5000, 5):
        nodes += [
            make_node("Mul", [f"v{i}", f"v{i}"], [f"m{i}"]),
            make_node("Shape", [f"m{i}"], [f"s{i}"]),
            make_node("Cast", [f"s{i}"], [f"c{i}"], to=1),
            make_node("Reshape", [f"m{i}", f"s{i}"], [f"r{i}"]),
            make_node("Add", [f"r{i}", f"r{i}"], [f"v{i + 5}"]),
        ]
    graph = load_model(model_of(nodes, ["v0"], ["v5000"])).graph
    types = element_types(graph)
    assert len(types) == 5001
    assert types["v5000"] is ElementType.FLOAT
    assert types["s4995"] is ElementType.INT64
