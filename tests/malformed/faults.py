"""Faults made on purpose: each is a model, or a folder of files around one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper
from onnx.helper import make_node

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
HUGE = (1 << 63) - 1
MODELS: dict[str, Callable[[], ModelProto | bytes]] = {}
FOLDERS: dict[str, Callable[[Path, Path], Path]] = {}


def value(name: str, element: int = TensorProto.FLOAT, shape=("n",)):
    return helper.make_tensor_value_info(name, element, shape)


def model(
    nodes=(), weights=(), inputs=("x",), outputs=("y",), functions=(), opsets=OPSETS, **more
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes) or [make_node("Neg", ["x"], ["y"])],
        "g",
        [value(item) if isinstance(item, str) else item for item in inputs],
        [value(item) if isinstance(item, str) else item for item in outputs],
        list(weights),
        **more,
    )
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def add(name: str, *args, **kwargs) -> None:
    """A fault that is one call of ``model``."""
    MODELS[name] = lambda: model(*args, **kwargs)


def fault(make: Callable[[], ModelProto | bytes]) -> Callable[[], ModelProto | bytes]:
    MODELS[make.__name__] = make
    return make


def folder(build: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    FOLDERS[build.__name__] = build
    return build


def tensor(**fields) -> TensorProto:
    return TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, **fields})


TENSORS: dict[str, dict[str, object]] = {
    "no_data": {"dims": [3]},
    "short_raw": {"dims": [3], "raw_data": b"1234"},
    "long_raw": {"dims": [1], "raw_data": b"12345678"},
    "odd_raw": {"dims": [2], "raw_data": b"1234567"},
    "raw_for_empty": {"dims": [0], "raw_data": b"1234"},
    "negative_dim": {"dims": [-1], "raw_data": b"1234"},
    "least_dim": {"dims": [-HUGE - 1], "raw_data": b"1234"},
    "huge_dim": {"dims": [HUGE], "raw_data": b"1234"},
    "huge_product": {"dims": [1 << 32, 1 << 32], "raw_data": b"1234"},
    "wrapped_product": {"dims": [1 << 32, 1 << 32, 1 << 30], "raw_data": b""},
    "zero_and_huge": {"dims": [0, HUGE]},
    "many_dims": {"dims": [1] * 100_000, "raw_data": b"1234"},
    "rank_65": {"dims": [1] * 65, "raw_data": b"1234"},
    "undefined_type": {"data_type": 0, "dims": [1], "raw_data": b"1234"},
    "unknown_type": {"data_type": 9999, "dims": [1], "raw_data": b"1234"},
    "negative_type": {"data_type": -1, "dims": [1], "raw_data": b"1234"},
    "raw_strings": {"data_type": TensorProto.STRING, "dims": [1], "raw_data": b"1234"},
    "few_strings": {"data_type": TensorProto.STRING, "dims": [3], "string_data": [b"a"]},
    "bad_strings": {"data_type": TensorProto.STRING, "dims": [1], "string_data": [b"\xff\xfe"]},
    "raw_and_typed": {"dims": [1], "raw_data": b"1234", "float_data": [1]},
    "two_typed": {"dims": [1], "int32_data": [1], "float_data": [1]},
    "wrong_typed": {"dims": [1], "int64_data": [1]},
    "few_typed": {"dims": [3], "float_data": [1]},
    "bytes_out_of_range": {"data_type": TensorProto.UINT8, "dims": [1], "int32_data": [1000]},
    "bools_out_of_range": {"data_type": TensorProto.BOOL, "dims": [2], "raw_data": b"\x02\xff"},
    "half_complex": {"data_type": TensorProto.COMPLEX64, "dims": [1], "float_data": [1]},
    "short_int4": {"data_type": TensorProto.INT4, "dims": [3], "raw_data": b"1"},
    "short_float6": {"data_type": TensorProto.FLOAT6E2M3, "dims": [4], "raw_data": b"12"},
    "segment": {"dims": [1], "raw_data": b"1234", "segment": TensorProto.Segment(begin=0, end=HUGE)},
    "external_without_entries": {"dims": [1], "data_location": TensorProto.EXTERNAL},
    "unknown_location_kind": {"dims": [1], "data_location": 1, "raw_data": b"1234"},
    "nan_payload": {"dims": [1], "raw_data": b"\xff\xff\xff\xff"},
    "no_name": {"name": "", "dims": [1], "raw_data": b"1234"},
    "nul_name": {"name": "w\0", "dims": [1], "raw_data": b"1234"},
    "long_name": {"name": "w" * 3_000_000, "dims": [1], "raw_data": b"1234"},
}
for _name, _fields in TENSORS.items():
    add(f"tensor_{_name}", weights=[tensor(**_fields)])
    add(f"constant_{_name}", [make_node("Constant", [], ["y"], value=tensor(**_fields))])


def _sparse(name: str, values: TensorProto, indices: TensorProto, dims) -> None:
    sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=dims)
    add(f"sparse_{name}", sparse_initializer=[sparse])


def _index(data, dims=None) -> TensorProto:
    return helper.make_tensor("i", TensorProto.INT64, dims or [len(data)], data)


_TWO = helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2])
_sparse("beyond", _TWO, _index([0, 4]), [4])
_sparse("below", _TWO, _index([-1, 1]), [4])
_sparse("twice", _TWO, _index([1, 1]), [4])
_sparse("huge_index", _TWO, _index([0, HUGE]), [4])
_sparse("huge_pair", _TWO, _index([0, 0, HUGE, HUGE], [2, 2]), [2, 2])
_sparse("bomb", _TWO, _index([0, 1]), [1 << 39])
_sparse("bigger_bomb", _TWO, _index([0, 1]), [1 << 31, 1 << 31])
_sparse("negative", _TWO, _index([0, 1]), [-4])
_sparse("few_indices", _TWO, _index([0]), [4])
_sparse("wrong_rank", _TWO, _index([0, 1, 2], [1, 3]), [4])
_sparse("float_indices", _TWO, helper.make_tensor("i", TensorProto.FLOAT, [2], [0, 1]), [4])
_sparse("matrix_of_values", helper.make_tensor("w", TensorProto.FLOAT, [1, 2], [1, 2]), _index([0, 1]), [4])
_sparse("strings", helper.make_tensor("w", TensorProto.STRING, [2], ["a", "b"]), _index([0, 9]), [4])
_sparse("empty", TensorProto(), TensorProto(), [])


def branch(nodes, output="t", name="b", weights=()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [value(output)], list(weights))


def with_ref(node: NodeProto, name: str, parameter: str) -> NodeProto:
    node.attribute.append(AttributeProto(name=name, ref_attr_name=parameter, type=AttributeProto.FLOAT))
    return node


FLAG = value("flag", TensorProto.BOOL, [])
_SELF = branch([make_node("Neg", ["y"], ["t"])])
_LOST = branch([make_node("Neg", ["nowhere"], ["t"])])
NODES: dict[str, list[NodeProto]] = {
    "circle_of_one": [make_node("Neg", ["y"], ["y"])],
    "circle_of_two": [make_node("Neg", ["b"], ["y"]), make_node("Neg", ["y"], ["b"])],
    "circle_of_1000": [make_node("Neg", [f"v{i}"], [f"v{(i + 1) % 1000}"]) for i in range(1000)],
    "circle_through_a_body": [make_node("If", ["flag"], ["y"], then_branch=_SELF, else_branch=_SELF)],
    "lost_value": [make_node("Neg", ["nowhere"], ["y"])],
    "lost_value_in_a_body": [make_node("If", ["flag"], ["y"], then_branch=_LOST, else_branch=_LOST)],
    "lost_output": [make_node("Neg", ["x"], ["z"])],
    "made_twice": [make_node("Neg", ["x"], ["y"]), make_node("Abs", ["x"], ["y"])],
    "made_over_an_input": [make_node("Neg", ["x"], ["x"]), make_node("Neg", ["x"], ["y"])],
    "output_twice_in_a_node": [make_node("Split", ["x"], ["y", "y"], num_outputs=2)],
    "no_operator": [make_node("", ["x"], ["y"])],
    "unknown_operator": [make_node("DoesNotExist", ["x"], ["y"])],
    "unknown_domain": [make_node("Neg", ["x"], ["y"], domain="no.such")],
    "nul_in_operator": [make_node("Neg\0", ["x"], ["y"])],
    "few_inputs": [make_node("Add", ["x"], ["y"])],
    "many_inputs": [make_node("Neg", ["x"] * 10_000, ["y"])],
    "variadic_without_inputs": [make_node("Concat", [], ["y"], axis=0)],
    "many_outputs": [make_node("Neg", ["x"], ["y", *(f"o{i}" for i in range(10_000))])],
    "required_attribute_missing": [make_node("Cast", ["x"], ["y"])],
    "required_attribute_of_a_wrong_kind": [make_node("Cast", ["x"], ["y"], to="float")],
    "attribute_of_a_wrong_kind": [make_node("Transpose", ["x"], ["y"], perm=[0.5])],
    "unknown_attribute": [make_node("Neg", ["x"], ["y"], nothing=1)],
    "attribute_that_is_a_graph": [make_node("Neg", ["x"], ["y"], g=_LOST)],
    "cast_to_an_unknown_type": [make_node("Cast", ["x"], ["y"], to=1234)],
    "huge_axis": [make_node("Softmax", ["x"], ["y"], axis=HUGE)],
    "reference_outside_of_a_function": [with_ref(make_node("LeakyRelu", ["x"], ["y"]), "alpha", "a")],
    "overload_of_nothing": [make_node("Neg", ["x"], ["y"], overload="o")],
    "upsample_in_a_new_opset": [make_node("Upsample", ["x", "x"], ["y"])],
    "20000_nodes_of_one_name": [make_node("Neg", ["x"], [f"v{i}"], name="n") for i in range(20_000)],
    "20000_nodes_backwards": [make_node("Neg", [f"v{i + 1}"], [f"v{i}"]) for i in range(20_000)],
    "value_with_a_long_name": [make_node("Neg", ["x" * 2_000_000], ["y"])],
    "near_names": [
        make_node("Neg", ["v" * 60 + "!"], ["y"]),
        *(make_node("Neg", ["x"], ["v" * 50 + str(i)]) for i in range(3000)),
    ],
}
for _name, _nodes in NODES.items():
    add(f"node_{_name}", _nodes, inputs=["x", FLAG])


def function(name: str, nodes, inputs=("a",), outputs=("b",), attributes=(), **more):
    return helper.make_function("local", name, inputs, outputs, list(nodes), OPSETS, attributes, **more)


def call(op: str, inputs=("x",), outputs=("y",), **attributes) -> NodeProto:
    return make_node(op, inputs, outputs, domain="local", **attributes)


def chain(levels: int, width: int, leaf=()) -> ModelProto:
    """Each function calls the next ``width`` times."""
    functions = []
    for level in range(levels):
        names = [f"v{i}" for i in range(width + 1)]
        nodes = [call(f"F{level + 1}", [a], [b]) for a, b in itertools.pairwise(names)]
        functions.append(function(f"F{level}", nodes, ["v0"], [names[-1]]))
    leaf = leaf or [make_node("Neg", ["a"], ["b"])]
    return model([call("F0")], functions=[*functions, function(f"F{levels}", leaf)])


_NEG = [make_node("Neg", ["a"], ["b"])]
FUNCTIONS: dict[str, tuple[list[NodeProto], list[onnx.FunctionProto]]] = {
    "calls_itself": ([call("F")], [function("F", [call("F", ["a"], ["b"])])]),
    "call_each_other": (
        [call("F")],
        [function("F", [call("G", ["a"], ["b"])]), function("G", [call("F", ["a"], ["b"])])],
    ),
    "calls_itself_in_a_body": (
        [call("F")],
        [
            function(
                "F",
                [
                    make_node(
                        "If",
                        ["a"],
                        ["b"],
                        then_branch=branch([call("F", ["a"], ["t"])]),
                        else_branch=branch([call("F", ["a"], ["t"])]),
                    )
                ],
            )
        ],
    ),
    "calls_itself_unused": ([], [function("F", [call("F", ["a"], ["b"])])]),
    "twice": ([call("F")], [function("F", _NEG), function("F", _NEG)]),
    "many_inputs": ([call("F", ["x", "x", "x"])], [function("F", _NEG)]),
    "many_outputs": ([call("F", ["x"], ["y", "z"])], [function("F", _NEG)]),
    "output_never_made": ([call("F")], [function("F", _NEG, outputs=["c"])]),
    "value_never_made": ([call("F")], [function("F", [make_node("Neg", ["q"], ["b"])])]),
    "input_twice": ([call("F")], [function("F", _NEG, ["a", "a"])]),
    "value_twice": ([call("F")], [function("F", [*_NEG, *_NEG])]),
    "writes_its_input": ([call("F")], [function("F", [make_node("Neg", ["a"], ["a"])], outputs=["a"])]),
    "without_a_name": ([], [function("", _NEG)]),
    "named_as_an_operator": (
        [make_node("Neg", ["x"], ["y"])],
        [helper.make_function("", "Neg", ["a"], ["b"], [make_node("Neg", ["a"], ["b"])], OPSETS)],
    ),
    "circle_inside": (
        [call("F")],
        [function("F", [make_node("Neg", ["b"], ["t"]), make_node("Neg", ["t"], ["b"])])],
    ),
    "required_attribute_not_given": (
        [call("F")],
        [function("F", [with_ref(make_node("Cast", ["a"], ["b"]), "to", "kind")], attributes=["kind"])],
    ),
    "missing_input_handed_through": ([call("F", [""])], [function("F", [], outputs=["a"])]),
    "no_inputs_given": ([call("F", [])], [function("F", _NEG)]),
}
for _name, (_nodes, _functions) in FUNCTIONS.items():
    add(f"function_{_name}", _nodes, functions=_functions, inputs=["x", FLAG])
MODELS["function_billion_laughs"] = lambda: chain(10, 10)
MODELS["function_laughs_without_nodes"] = lambda: chain(40, 3, [make_node("Identity", ["a"], ["b"])])
MODELS["function_chain_of_2000"] = lambda: chain(2000, 1)
MODELS["function_quadratic_laughs"] = lambda: chain(1, 700)


def versions(*pairs: tuple[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid(domain, version) for domain, version in pairs]


for _name, _pairs in {
    "none": (),
    "zero": (("", 0),),
    "negative": (("", -5),),
    "future": (("", 9999),),
    "huge": (("", HUGE),),
    "conflict": (("", 13), ("ai.onnx", 14)),
    "only_another": (("ai.onnx.ml", 3),),
}.items():
    add(f"opset_{_name}", opsets=versions(*_pairs))
add(
    "opset_huge_elsewhere", [make_node("A", ["x"], ["y"], domain="b")], opsets=versions(("", 21), ("b", HUGE))
)


@fault
def ir_version_of_the_future() -> ModelProto:
    made = model()
    made.ir_version = HUGE
    return made


@fault
def ir_version_negative() -> ModelProto:
    made = model()
    made.ir_version = -1
    return made


for _name, _ports in {
    "input_twice": (["x", "x"], ["y"]),
    "input_without_a_name": (["x", ""], ["y"]),
    "output_without_a_name": (["x"], ["y", ""]),
    "output_twice": (["x"], ["y", "y"]),
    "output_of_nothing": (["x"], ["z"]),
    "no_ports": ([], []),
    "unknown_element": ([value("x", 77)], ["y"]),
    "undefined_element": ([value("x", 0)], ["y"]),
    "negative_dim": ([value("x", shape=[-7])], ["y"]),
    "huge_dims": ([value("x", shape=[HUGE] * 8)], ["y"]),
    "1000_dims": ([value("x", shape=[1] * 1000)], ["y"]),
    "untyped": ([onnx.ValueInfoProto(name="x")], ["y"]),
    "long_symbol": ([value("x", shape=["n" * 1_000_000])], ["y"]),
    "surrogate_symbol": ([value("x", shape=["\0"])], ["y"]),
}.items():
    add(f"port_{_name}", inputs=_ports[0], outputs=_ports[1])
