"""Faults below the level of messages: bytes that no library would write."""

from __future__ import annotations

import onnx
from malformed.faults import FLAG, HUGE, MODELS, branch, fault, model, value
from onnx import AttributeProto, TensorProto, helper
from onnx.helper import make_node


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def numeric(number: int, content: int) -> bytes:
    return varint(number << 3) + varint(content)


PAD = field(6, b"p" * (1 << 19))  # a doc string that makes a file large enough to be walked
GOOD = model().SerializeToString()

# Field numbers: a model's graph is 7; a graph's nodes 1 and initializers 5; a node's attributes 5; an
# attribute's graph 6; a tensor's dims 1, type 2, raw data 9.
RAW: dict[str, bytes] = {
    "zeros": bytes(1000),
    "ones": b"\xff" * 1000,
    "one_byte": b"\x08",
    "field_zero": b"\x02\x00" + GOOD,
    "group": b"\x0b\x0c" + GOOD,
    "open_group": b"\x3b" * 100,
    "wire_type_7": b"\x3f" + GOOD,
    "long_varint": b"\x08" + b"\x80" * 9 + b"\x01" + GOOD,
    "endless_varint": b"\x08" + b"\x80" * 1000,
    "length_beyond": b"\x3a\x7f" + bytes(20),
    "length_of_2_to_63": b"\x3a" + varint(1 << 63) + bytes(20),
    "length_minus_one": b"\x3a" + varint(-1) + bytes(20),
    "unknown_fields": field(1000, b"?" * 100) + numeric(2000, HUGE) + GOOD,
    "graph_is_a_number": numeric(7, 5),
    "version_is_a_string": field(1, b"8") + field(7, b""),
    "empty_graph": field(7, b""),
    "two_graphs": GOOD + GOOD,
    "graph_name_not_utf8": field(7, field(2, b"\xff\xfe")) + GOOD,
    "node_name_not_utf8": field(7, field(1, field(3, b"\xff\xfe"))) + GOOD,
    "operator_not_utf8": field(7, field(1, field(4, b"\xff\xfe"))) + GOOD,
    "value_not_utf8": field(7, field(1, field(1, b"\xff\xfe") + field(4, b"Neg"))) + GOOD,
    "attribute_not_utf8": field(7, field(1, field(4, b"Neg") + field(5, field(1, b"\xff")))) + GOOD,
    "domain_not_utf8": field(8, field(1, b"\xff")) + GOOD,
    "metadata_not_utf8": field(14, field(1, b"\xff") + field(2, b"\xfe")) + GOOD,
    "producer_not_utf8": field(2, b"\xff") + GOOD,
    "dims_not_packed": field(
        7, field(5, b"\x08\x02\x08\x02" + numeric(2, 1) + field(9, bytes(16)) + field(8, b"w"))
    )
    + GOOD,
    "raw_data_twice": field(
        7, field(5, numeric(2, 1) + numeric(1, 1) + field(9, b"1") + field(9, b"1234") + field(8, b"w"))
    )
    + GOOD,
    "20000_empty_nodes": field(7, field(1, b"") * 20_000),
    "20000_empty_weights": field(7, field(5, b"") * 20_000) + GOOD,
    "20000_empty_imports": field(8, b"") * 20_000 + GOOD,
    "20000_empty_functions": field(25, b"") * 20_000 + GOOD,
    "20000_empty_ports": field(7, field(11, b"") * 20_000) + GOOD,
    "large_truncated": PAD + GOOD[:-5],
    "large_group": PAD + b"\x0b",
    "large_endless_varint": PAD + b"\x80" * 100,
    "large_length_minus_one": b"\x3a" + varint(-1) + PAD,
    "large_two_graphs": PAD + GOOD + GOOD,
    "large_graph_is_a_number": PAD + numeric(7, 5),
    "large_without_a_graph": PAD,
}
for _name, _data in RAW.items():
    MODELS[f"wire_{_name}"] = lambda data=_data: data


def nest(depth: int, inner: bytes) -> bytes:
    """Bodies within each other, as bytes."""
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, inner) + numeric(20, AttributeProto.GRAPH)
        inner = field(1, field(4, b"If") + field(1, b"flag") + field(2, b"y") + field(5, attribute))
    return inner


@fault
def wire_bodies_20_deep() -> bytes:
    return field(7, nest(20, b"")) + field(8, numeric(2, 21))


@fault
def wire_bodies_1000_deep() -> bytes:
    return field(7, nest(1000, b"")) + field(8, numeric(2, 21))


@fault
def wire_large_bodies_1000_deep() -> bytes:
    return field(7, nest(1000, PAD)) + field(8, numeric(2, 21))


@fault
def wire_types_5000_deep() -> bytes:
    kind = field(1, numeric(1, 1))
    for _ in range(5000):
        kind = field(4, field(1, kind))
    return field(7, field(11, field(1, b"x") + field(2, kind))) + GOOD


@fault
def wire_types_30_deep() -> onnx.ModelProto:
    kind = helper.make_tensor_type_proto(1, [1])
    for _ in range(30):
        kind = helper.make_optional_type_proto(helper.make_sequence_type_proto(kind)) if _ % 2 else kind
    return model(inputs=[helper.make_value_info("x", kind)])


@fault
def wide_and_nested_bodies() -> onnx.ModelProto:
    """Every level reads 300 values of the levels around it."""
    body = branch([make_node("Neg", ["v0"], ["t"])])
    for level in range(12):
        nodes = [make_node("Neg", [f"v{i}"], [f"l{level}_{i}"]) for i in range(300)]
        nodes.append(
            make_node(
                "If", ["flag"], ["t"], then_branch=body, else_branch=branch([make_node("Neg", ["x"], ["t"])])
            )
        )
        body = branch(nodes)
    outer = [make_node("Neg", ["x"], [f"v{i}"]) for i in range(300)]
    return model(
        [*outer, make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body)], inputs=["x", FLAG]
    )


@fault
def a_body_that_binary_doubles() -> onnx.ModelProto:
    """Both branches hold both branches: two to the power of ten bodies."""
    body = branch([make_node("Neg", ["x"], ["t"])])
    for _ in range(9):
        body = branch([make_node("If", ["flag"], ["t"], then_branch=body, else_branch=body)])
    return model([make_node("If", ["flag"], ["y"], then_branch=body, else_branch=body)], inputs=["x", FLAG])


@fault
def a_function_with_a_large_constant() -> onnx.ModelProto:
    """Called a thousand times: it must not be copied for each call."""
    constant = make_node(
        "Constant", [], ["k"], value=helper.make_tensor("k", 1, [1 << 20], bytes(1 << 22), raw=True)
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    function = helper.make_function(
        "local", "F", ["a"], ["b"], [constant, make_node("Add", ["a", "k"], ["b"])], imports
    )
    nodes = [make_node("F", [f"v{i}"], [f"v{i + 1}"], domain="local") for i in range(1000)]
    return model(nodes, inputs=["v0"], outputs=["v1000"], functions=[function])


@fault
def loop_body_without_outputs() -> onnx.ModelProto:
    body = helper.make_graph([], "b", [], [])
    return model([make_node("Loop", ["", "", "x"], ["y"], body=body)])


@fault
def scan_with_a_huge_count() -> onnx.ModelProto:
    body = helper.make_graph([make_node("Neg", ["a"], ["b"])], "b", [value("a")], [value("b")])
    return model([make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=HUGE)])


@fault
def if_without_branches() -> onnx.ModelProto:
    return model([make_node("If", ["flag"], ["y"])], inputs=["x", FLAG])


@fault
def attribute_without_a_kind() -> onnx.ModelProto:
    made = model([make_node("LeakyRelu", ["x"], ["y"])])
    made.graph.node[0].attribute.add(name="alpha")
    return made


@fault
def attribute_twice() -> onnx.ModelProto:
    made = model([make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)])
    made.graph.node[0].attribute.append(made.graph.node[0].attribute[0])
    return made


@fault
def attribute_of_many_strings() -> onnx.ModelProto:
    return model([make_node("StringNormalizer", ["x"], ["y"], stopwords=["w" * 100] * 20_000)])


@fault
def initializers_of_one_name() -> onnx.ModelProto:
    return model(weights=[helper.make_tensor("w", TensorProto.FLOAT, [1], [1])] * 2)
