"""Nodes, names, order, bodies, opsets, attributes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from expecttest import assert_expected_inline
from ir.irmodels import OPSET, evaluate, fault, floats, graph_of, lines, model_of, rebuilt, value
from onnx import AttributeProto, TensorProto, helper
from onnx.helper import make_node

from torch_ort_session.ir.graph import Graph, Weight
from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.types import (
    ElementType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    describe,
)
from torch_ort_session.options import Limits

X = np.array([1.5, -2.0], dtype=np.float32)
FLAG = value("flag", TensorProto.BOOL, ())


def branch(name: str, nodes, output: str, weights=()) -> onnx.GraphProto:
    return graph_of(nodes, inputs=[], outputs=[output], weights=weights, name=name)


def test_what_a_model_says():
    model = model_of(
        [make_node("Relu", ["x"], ["y"], name="r")],
        inputs=[value("x", TensorProto.FLOAT, ["batch", 3, None, -1])],
        outputs=[value("y", TensorProto.FLOAT, None)],
        weights=[floats("w", 1, 2)],
        opsets=(("ai.onnx", 17), ("com.microsoft", 1)),
    )
    model.producer_version = "1.0"
    helper.set_model_props(model, {"names": "{0: 'person'}"})
    loaded = load_model(model)
    assert loaded.opsets == {"": 17, "com.microsoft": 1}
    assert (loaded.ir_version, loaded.producer, loaded.source) == (10, "tests 1.0", "<proto>")
    assert loaded.metadata == {"names": "{0: 'person'}"}
    assert [describe(info.type) for info in loaded.graph.inputs] == ["float32[batch, 3, ?, ?]"]
    assert [describe(info.type) for info in loaded.graph.outputs] == ["float32[...]"]
    node = loaded.graph.nodes[0]
    assert (node.name, node.op, node.domain, node.since, node.inputs, node.outputs) == (
        ("r", "Relu", "", 14, ("x",), ("y",))
    )


def test_types_of_values():
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    kinds = {
        "s": helper.make_sequence_type_proto(tensor),
        "o": helper.make_optional_type_proto(helper.make_sequence_type_proto(tensor)),
        "m": helper.make_map_type_proto(TensorProto.INT64, tensor),
        "p": helper.make_sparse_tensor_type_proto(TensorProto.INT4, [None]),
    }
    infos = [helper.make_value_info(name, kind) for name, kind in kinds.items()]
    infos.append(onnx.ValueInfoProto(name="n"))
    graph = load_model(model_of([], inputs=infos, outputs=["s"])).graph
    two = TensorType(ElementType.FLOAT, (2,))
    assert [info.type for info in graph.inputs] == [
        SequenceType(two),
        OptionalType(SequenceType(two)),
        MapType(ElementType.INT64, two),
        TensorType(ElementType.INT4, (None,), sparse=True),
        None,
    ]


def test_every_kind_of_attribute():
    body = graph_of([make_node("Neg", ["z"], ["b"])], inputs=["z"], outputs=["b"], name="body")
    tensor, kind = floats("t", 1, 2), helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    given = {
        "f": 0.5,
        "i": -3,
        "s": "text",
        "t": tensor,
        "g": body,
        "tp": kind,
        "fs": [0.5, 1.5],
        "ints": [1, 2],
        "ss": ["a", "b"],
        "ts": [tensor, tensor],
        "gs": [body, body],
        "tps": [kind],
    }
    node = make_node("Thing", ["x"], ["y"], domain="other", **given)
    node.attribute.append(AttributeProto(name="none", type=AttributeProto.INTS))
    node.attribute.append(AttributeProto(name="raw", type=AttributeProto.STRING, s=b"\xff"))
    found = load_model(model_of([node], opsets=(("", OPSET), ("other", 3)))).graph.nodes[0]
    assert found.since == 3
    values = found.attributes
    assert {k: values[k] for k in ("f", "i", "s", "fs", "ints", "ss", "none", "raw")} == {
        "f": 0.5,
        "i": -3,
        "s": "text",
        "fs": (0.5, 1.5),
        "ints": (1, 2),
        "ss": ("a", "b"),
        "none": (),
        "raw": "\udcff",
    }
    assert isinstance(values["t"], Weight) and values["t"].data.tolist() == [1, 2]
    assert isinstance(values["g"], Graph) and [n.op for n in values["g"].nodes] == ["Neg"]
    assert values["tp"] == TensorType(ElementType.FLOAT, (2,)) and values["tps"] == (values["tp"],)
    assert [type(item) for item in (*values["ts"], *values["gs"])] == [Weight, Weight, Graph, Graph]
    assert len(list(found.subgraphs())) == 3


def test_attributes_of_ir_version_1_do_not_say_their_kind():
    node = make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)
    node.attribute[0].ClearField("type")
    model = model_of([node], ir_version=1)
    del model.opset_import[:]
    loaded = load_model(model)
    assert loaded.opsets == {"": 1} and loaded.graph.nodes[0].attributes == {"alpha": 0.5}


@pytest.mark.parametrize(
    ("op", "opset", "since"), [("Add", 6, 6), ("Add", 13, 13), ("Add", OPSET, 14), ("Upsample", 9, 9)]
)
def test_revisions(op, opset, since):
    inputs = ["x", "x"] if op == "Add" else ["x", "w"]
    model = model_of([make_node(op, inputs, ["y"])], weights=[floats("w", 1)], opsets=(("", opset),))
    assert load_model(model).graph.nodes[0].since == since


def test_withdrawn_and_unknown_operators_load():
    """Whoever binds kernels reports all of them together."""
    withdrawn = model_of([make_node("Upsample", ["x", "w"], ["y"])], weights=[floats("w", 1)])
    assert load_model(withdrawn).graph.nodes[0].since == 10
    unknown = model_of([make_node("Nope", ["x"], ["y"])])
    assert load_model(unknown).graph.nodes[0].since == 0


def test_bodies_see_enclosing_values_and_may_shadow_them():
    """Both branches name a value that the outer graph and an initializer of the other branch name too."""
    one = branch("one", [make_node("Add", ["x", "k"], ["t"])], "t", [floats("k", 1, 1)])
    two = branch("two", [make_node("Neg", ["t"], ["k"]), make_node("Abs", ["k"], ["u"])], "u")
    nodes = [
        make_node("Sqrt", ["p"], ["t"]),
        make_node("If", ["flag"], ["y"], then_branch=one, else_branch=two),
    ]
    model = model_of(nodes, inputs=["x", "p", FLAG])
    graph = load_model(model).graph
    bodies = dict(graph.nodes[1].subgraphs())
    assert bodies["then_branch"].outer_names() == ("x",)
    assert bodies["else_branch"].outer_names() == ("t",)
    p = np.array([4.0, 9.0], dtype=np.float32)
    for flag, expected in ((True, X + 1), (False, np.sqrt(p))):
        (found,) = evaluate(rebuilt(model), x=X, p=p, flag=np.array(flag))
        np.testing.assert_array_equal(found, expected)


def test_nodes_out_of_order_are_sorted():
    """Also when a body is what makes a node wait; an order that is right is kept."""
    body = branch(
        "b",
        [make_node("Neg", ["mid"], ["r"]), make_node("Abs", ["s"], ["t"]), make_node("Neg", ["r"], ["s"])],
        "t",
    )
    nodes = [
        make_node("If", ["flag"], ["y"], name="if", then_branch=body, else_branch=body),
        make_node("Neg", ["x"], ["q"], name="late"),
        make_node("Sqrt", ["start"], ["mid"], name="sqrt"),
        make_node("Abs", ["x"], ["start"], name="abs"),
    ]
    graph = load_model(model_of(nodes, inputs=["x", FLAG])).graph
    assert [node.name for node in graph.nodes] == ["late", "abs", "sqrt", "if"]
    inner = dict(graph.nodes[-1].subgraphs())["then_branch"]
    assert [node.outputs for node in inner.nodes] == [("r",), ("s",), ("t",)]
    nodes = [make_node("Neg", ["x"], ["a"], name="2"), make_node("Abs", ["x"], ["y"], name="1")]
    assert [node.name for node in load_model(model_of(nodes)).graph.nodes] == ["2", "1"]


def test_node_names_are_filled_in_and_unique():
    nodes = [make_node("Neg", ["x"], [name]) for name in "abc"]
    nodes[1].name = nodes[2].name = "n"
    graph = load_model(model_of(nodes, outputs=["c"])).graph
    assert [node.name for node in graph.nodes] == ["Neg_0", "n", "n_1"]


def test_faults_of_names_and_order():
    loop = branch("b", [make_node("Neg", ["y"], ["t"])], "t")
    messages = [
        fault(
            model_of(
                [make_node("Add", ["x", "b"], ["a"], name="n1"), make_node("Neg", ["a"], ["b"], name="n2")],
                outputs=["b"],
            )
        ),
        fault(model_of([make_node("Neg", ["y"], ["y"])])),
        fault(
            model_of([make_node("If", ["flag"], ["y"], then_branch=loop, else_branch=loop)], inputs=[FLAG])
        ),
        fault(model_of([make_node("Neg", ["hiden"], ["y"])], inputs=["hidden"])),
        fault(model_of([make_node("Neg", ["q"], ["y"])])),
        fault(model_of([make_node("Neg", ["x"], ["z"])])),
        fault(model_of([make_node("Neg", ["x"], ["y"])], outputs=["y", ""])),
        fault(model_of([make_node("Neg", ["x"], ["y"]), make_node("Abs", ["x"], ["y"])])),
        fault(model_of([make_node("Neg", ["x"], ["x"])])),
        fault(model_of([make_node("Neg", ["x"], ["w"])], weights=[floats("w", 1)])),
        fault(model_of([], inputs=["x", "x"])),
        fault(model_of([], inputs=["x", ""])),
        fault(model_of([], weights=[floats("w", 1), floats("w", 2)])),
        fault(model_of([], weights=[floats("", 1)])),
        fault(model_of([make_node("Neg", ["x\0"], ["y"])])),
    ]
    assert_expected_inline(
        lines(*messages),
        """\
graph 'g': nodes wait for each other in a circle: 'n2' -> 'n1' -> 'n2'; a model must not have one
graph 'g': nodes wait for each other in a circle: 'Neg_0' -> 'Neg_0'; a model must not have one
graph 'g': nodes wait for each other in a circle: 'If_0' -> 'If_0'; a model must not have one
graph 'g' / node 'Neg_0': its input 'hiden' is made by no node and is no input or initializer; did
    you mean 'hidden'?
graph 'g' / node 'Neg_0': its input 'q' is made by no node and is no input or initializer: the file
    is damaged
graph 'g': the output 'y' is made by no node and is no input or initializer: the file is damaged
graph 'g': the output '' is made by no node and is no input or initializer: the file is damaged
graph 'g' / node 'Abs_1': its output 'y' is made already, by node 'Neg_0': rename one
graph 'g' / node 'Neg_0': its output 'x' is made already, by an input or initializer: rename one
graph 'g' / node 'Neg_0': its output 'w' is made already, by an input or initializer: rename one
graph 'g': two inputs have the name 'x': rename one
graph 'g': an input has no name: the file is damaged
initializer 'w': two initializers have this name: rename one
initializer '': an initializer needs a name: the file is damaged
graph 'g' / node 'Neg_0': the name 'x\\x00' holds a NUL character: the file is damaged""",
    )


def test_a_fault_in_a_body_names_the_way_to_it():
    inner = branch("inner", [make_node("Neg", ["nowhere"], ["t"], name="neg")], "t")
    outer = branch(
        "outer", [make_node("If", ["flag"], ["t"], name="if2", then_branch=inner, else_branch=inner)], "t"
    )
    model = model_of(
        [make_node("If", ["flag"], ["y"], name="if1", then_branch=outer, else_branch=outer)], inputs=[FLAG]
    )
    bad = model_of(
        [make_node("If", ["flag"], ["y"], name="if1", then_branch=inner, else_branch=inner)], inputs=[FLAG]
    )
    bad.graph.node[0].attribute[0].g.initializer.add(name="w", data_type=1, dims=[3], raw_data=b"1234")
    assert_expected_inline(
        lines(fault(model), fault(bad)),
        """\
graph 'g' / node 'if1' / else_branch 'outer' / node 'if2' / else_branch 'inner' / node 'neg': its
    input 'nowhere' is made by no node and is no input or initializer: the file is damaged
graph 'g' / node 'if1' / else_branch 'inner' / initializer 'w': raw_data has 4 bytes, its dims and
    type need 12: the file is damaged""",
    )


def test_faults_of_nodes():
    def node(op, inputs=("x",), outputs=("y",), **attributes):
        return fault(model_of([make_node(op, inputs, outputs, name="n", **attributes)]))

    twice = make_node("LeakyRelu", ["x"], ["y"], name="n", alpha=1.0)
    twice.attribute.append(twice.attribute[0])
    empty = make_node("Constant", [], ["y"], name="n")
    empty.attribute.append(AttributeProto(name="value", type=AttributeProto.TENSOR))
    missing = make_node("Neg", ["x"], ["y"], name="n")
    missing.op_type = ""
    messages = [
        node("Cast"),
        node("Cast", to="float"),
        node("LeakyRelu", alpha=1),
        node("Transpose", perm=[0.5]),
        node("Add"),
        node("Neg", ["x", "x"]),
        node("Neg", outputs=["y", "z"]),
        node("Concat", [], axis=0),
        fault(model_of([twice])),
        fault(model_of([empty])),
        fault(model_of([missing])),
        fault(model_of([make_node("Neg", ["x"], ["y"], overload="o")])),
    ]
    assert_expected_inline(
        lines(*messages),
        """\
graph 'g' / node 'n': ai.onnx::Cast needs the attribute 'to': the file is damaged
graph 'g' / node 'n': the attribute 'to' of ai.onnx::Cast is string, it must be int
graph 'g' / node 'n': the attribute 'alpha' of ai.onnx::LeakyRelu is int, it must be float
graph 'g' / node 'n': the attribute 'perm' of ai.onnx::Transpose is floats, it must be ints
graph 'g' / node 'n': ai.onnx::Add takes 2 input(s), the node has 1
graph 'g' / node 'n': ai.onnx::Neg takes 1 input(s), the node has 2
graph 'g' / node 'n': ai.onnx::Neg takes 1 output(s), the node has 2
graph 'g' / node 'n': ai.onnx::Concat takes at least 1 input(s), the node has 0
graph 'g' / node 'n': the attribute 'alpha' is given twice: the file is damaged
graph 'g' / node 'n' / attribute 'value': the attribute has no value: the file is damaged
graph 'g' / node 'n': the node has no operator: the file is damaged
graph 'g' / node 'Neg_0': the model has no function ai.onnx::Neg with overload 'o': the file is
    damaged""",
    )


def test_faults_of_opsets():
    def text(*opsets, op="Neg", domain="", **more):
        return fault(model_of([make_node(op, ["x"], ["y"], domain=domain, name="n")], opsets=opsets, **more))

    messages = [
        text(("com.microsoft", 1)),
        text(("", 13), domain="com.microsoft", op="FastGelu"),
        text(),
        text(("", 13), ("ai.onnx", 14)),
        text(("", 0)),
        text(("", 13), ir_version=99).replace(
            f"{onnx.__version__} knows ({onnx.IR_VERSION})", "VERSION knows (N)"
        ),
    ]
    assert_expected_inline(
        lines(*messages),
        """\
graph 'g' / node 'n': ai.onnx::Neg needs an opset import of ai.onnx, the model imports:
    com.microsoft 1; export it anew
graph 'g' / node 'n': com.microsoft::FastGelu needs an opset import of com.microsoft, the model
    imports: ai.onnx 13; export it anew
graph 'g' / node 'n': ai.onnx::Neg needs an opset import of ai.onnx, the model imports: none; export
    it anew
opset imports: ai.onnx is imported in opset 13 and in 14, one is allowed
graph 'g' / node 'n': ai.onnx::Neg is governed by opset 0 of ai.onnx, which does not exist: the file
    is damaged
model: IR version 99 is newer than the installed onnx VERSION knows (N): install a newer onnx, or
    export the model for an older version""",
    )
    newest = onnx.defs.onnx_opset_version()
    message = text(("", newest + 1)).replace(onnx.__version__, "VERSION")
    message = message.replace(str(newest + 1), "NEWEST+1").replace(str(newest), "NEWEST")
    assert_expected_inline(
        lines(message),
        """\
graph 'g' / node 'n': ai.onnx::Neg is governed by opset NEWEST+1 of ai.onnx, the installed onnx
    VERSION knows opsets up to NEWEST: install a newer onnx, or export the model for opset NEWEST""",
    )
    # A domain that is imported and not used does not matter.
    load_model(model_of([make_node("Neg", ["x"], ["y"])], opsets=(("", 13), ("ai.onnx.ml", 1000))))


def test_faults_of_types():
    bad = model_of([], inputs=[value("x", 99)], outputs=["x"])
    assert_expected_inline(
        lines(fault(bad)),
        """\
graph 'g' / value 'x': element type 99 is none of ONNX: the file is damaged or newer than this
    package""",
    )
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2])
    for _ in range(33):
        kind = helper.make_sequence_type_proto(kind)
    deep = model_of([], inputs=[helper.make_value_info("x", kind)], outputs=["x"])
    assert_expected_inline(
        lines(fault(deep)), """graph 'g' / value 'x': the type nests more than 32 deep: the file is damaged"""
    )


def nested(depth: int) -> onnx.ModelProto:
    """Ifs within each other, made in place: the parser of protobuf takes no more than about thirty."""
    model = model_of([], inputs=["x", FLAG])
    graph = model.graph
    for _ in range(depth):
        node = graph.node.add(op_type="If", input=["flag"], output=["y"])
        kinds = {"type": AttributeProto.GRAPH}
        node.attribute.add(name="else_branch", g=branch("e", [], "x"), **kinds)
        graph = node.attribute.add(name="then_branch", **kinds).g
        graph.name = "b"
        graph.output.add(name="y")
    graph.node.add(op_type="Neg", input=["x"], output=["y"])
    return model


def test_bodies_nest_up_to_a_limit():
    load_model(nested(60))
    load_model(nested(20).SerializeToString())
    assert "nest more than 64 deep" in fault(nested(80))
    assert "it cannot be parsed" in fault(nested(80).SerializeToString())
    assert_expected_inline(
        lines(fault(nested(20), limits=Limits(nesting=2))),
        """\
graph 'g' / node 'If_0' / then_branch 'b' / node 'If_0_1' / then_branch 'b' / node 'If_0_2':
    control-flow bodies nest more than 2 deep: the file is damaged, or pass Limits(nesting=...)""",
    )


def test_the_models_proto_is_not_changed():
    model = model_of([make_node("Neg", ["y"], ["z"]), make_node("Abs", ["x"], ["y"])], outputs=["z"])
    before = model.SerializeToString()
    load_model(model)
    assert model.SerializeToString() == before


def test_progress_is_reported():
    nodes = [make_node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(1000)]
    calls = []
    load_model(model_of(nodes, ["v0"], ["v1000"]), progress=lambda *args: calls.append(args))
    assert 50 <= len(calls) <= 100
    assert calls[-1] == ("reading the model", 1000, 1000)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


def test_a_loaded_model_is_given_back():
    """So that a session can be made of a model that needs other limits."""
    model = load_model(model_of([make_node("Neg", ["x"], ["y"])]), limits=Limits(nodes=2))
    assert load_model(model) is model


def test_other_sources_are_refused():
    with pytest.raises(TypeError, match=r"a model is a path, bytes or an onnx\.ModelProto, not int"):
        load_model(3)
