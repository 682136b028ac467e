"""Graphs and nodes of the file to records, one to one: functions are expanded and order is checked later.

Source: https://onnx.ai/onnx/repo-docs/IR.html#graphs
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import onnx

from torch_ort_session.errors import ModelError
from torch_ort_session.ir import schema
from torch_ort_session.ir.convert import shown, string, text, value_infos, value_type
from torch_ort_session.ir.graph import AttributeValue, Graph, Node, Weight
from torch_ort_session.ir.storage import Storage
from torch_ort_session.ir.weights import sparse_weight, weight

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a model-local function."""


@dataclass(frozen=True, slots=True)
class AttributeRef:
    """An attribute of the enclosing function, by name; none is left once functions are expanded."""

    name: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What governs a part of the model.

    Attributes:
        place: Where it is, for messages; empty for the main graph's surroundings.
        opsets: Imported version by domain.
        storage: Where bytes of weights lie.
        functions: Model-local functions, which need no schema.
        in_function: Whether attributes may refer to those of a function.
        depth: Bodies around it.
        node_names: Names of nodes that are taken (see ``unused``).
        tick: Called with the number of nodes and weights that were read.
    """

    place: str
    opsets: Mapping[str, int]
    storage: Storage
    functions: frozenset[FunctionKey] = frozenset()
    in_function: bool = False
    depth: int = 0
    node_names: dict[str, int] = field(default_factory=dict)
    tick: Callable[[int], None] = lambda count: None

    def at(self, part: str) -> str:
        """The place of a part of this."""
        return f"{self.place} / {part}" if self.place else part


def imports(protos: Any, ir_version: int, place: str) -> Mapping[str, int]:
    """Imported opset version by domain (``""`` for ai.onnx).

    Raises:
        ModelError: One domain is imported in two versions.
    """
    found: dict[str, int] = {}
    for item in protos:
        domain = schema.canonical_domain(string(item.domain, place))
        version = int(item.version)
        if found.setdefault(domain, version) != version:
            raise ModelError(
                f"{domain or 'ai.onnx'} is imported in opset {found[domain]} and in {version}, one "
                "is allowed",
                place=place,
            )
    if not found and 0 < ir_version < 3:
        found[""] = 1  # Before IR version 3 there were no imports.
    return found


def build_graph(proto: onnx.GraphProto, scope: Scope, label: str = "graph") -> Graph:
    """A graph or body with everything in it.

    Args:
        proto: The graph.
        scope: What governs it.
        label: What it is in messages, such as ``then_branch``.

    Raises:
        ModelError: Something in it is malformed; the place names it.
    """
    limit = scope.storage.limits.nesting
    if scope.depth > limit:
        raise ModelError(
            f"control-flow bodies nest more than {limit} deep: the file is damaged, or pass "
            "Limits(nesting=...)",
            place=scope.place,
        )
    name = string(proto.name, scope.at(label))
    place = scope.at(f"{label} {shown(name)}")
    weights = initializers(proto, replace(scope, place=place if scope.place else ""))
    inside = replace(scope, place=place)
    return Graph(
        name=name,
        inputs=value_infos(proto.input, place),
        outputs=value_infos(proto.output, place),
        initializers=weights,
        nodes=tuple(build_node(node, index, inside) for index, node in enumerate(proto.node)),
        value_info={info.name: info for info in value_infos(proto.value_info, place)},
    )


def initializers(proto: onnx.GraphProto, scope: Scope) -> dict[str, Weight]:
    """The constants of a graph by name.

    Raises:
        ModelError: One is malformed, or two have the same name.
    """
    found: dict[str, Weight] = {}
    made = [
        weight(t, scope.storage, scope.at(f"initializer {shown(t.name)}"))
        for t in _ticked(proto.initializer, scope)
    ]
    for item in proto.sparse_initializer:
        made.append(
            sparse_weight(item, scope.storage, scope.at(f"sparse initializer {shown(item.values.name)}"))
        )
    for item in made:
        place = scope.at(f"initializer {shown(item.name)}")
        if not item.name:
            raise ModelError("an initializer needs a name: the file is damaged", place=place)
        if item.name in found:
            raise ModelError("two initializers have this name: rename one", place=place)
        found[item.name] = item
    return found


def _ticked(protos: Any, scope: Scope) -> Any:
    for proto in protos:
        yield proto
        scope.tick(1)


def build_node(proto: onnx.NodeProto, index: int, scope: Scope) -> Node:
    """A node with its schema revision.

    Raises:
        ModelError: It is malformed, or breaks its operator's schema in arity, attributes or their types.
    """
    scope.tick(1)
    limit = scope.storage.limits.nodes
    if len(scope.node_names) >= limit:
        raise ModelError(
            f"there are more than {limit} nodes: pass Limits(nodes=...) to raise the limit", place=scope.place
        )
    where = scope.at(f"node {index}")
    op = string(proto.op_type, where)
    name = unused(string(proto.name, where) or f"{op}_{index}", scope.node_names)
    place = scope.at(f"node {shown(name)}")
    if not op:
        raise ModelError("the node has no operator: the file is damaged", place=place)
    domain = schema.canonical_domain(string(proto.domain, place))
    overload = string(proto.overload, place)
    inputs = tuple([string(value, place) for value in proto.input])
    outputs = tuple([string(value, place) for value in proto.output])
    kinds: dict[str, int] = {}
    attributes = _attributes(proto, replace(scope, place=place), kinds) if proto.attribute else {}
    if (domain, op, overload) in scope.functions:
        return Node(name, op, domain, 0, inputs, outputs, attributes, overload)
    qualified = f"{domain or 'ai.onnx'}::{op}"
    if overload:
        raise ModelError(
            f"the model has no function {qualified} with overload {overload!r}: the file is damaged",
            place=place,
        )
    opset = _governing_opset(qualified, domain, scope.opsets, place)
    rules = schema.arity(op, domain, opset)
    if rules is not None:
        _check_counts(qualified, len(inputs), len(outputs), rules, place)
        _check_attributes(qualified, kinds, rules, place)
    return Node(name, op, domain, _revision(op, domain, opset), inputs, outputs, attributes)


def _attributes(proto: onnx.NodeProto, scope: Scope, kinds: dict[str, int]) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    for item in proto.attribute:
        key = string(item.name, scope.place)
        if key in found:
            raise ModelError(f"the attribute {key!r} is given twice: the file is damaged", place=scope.place)
        kinds[key] = kind_of(item)
        found[key] = build_attribute(item, kinds[key], scope)
    return found


def unused(name: str, taken: dict[str, int]) -> str:
    """The name, or else the name with the next number that makes it unique; it is then taken.

    Args:
        name: The wanted name.
        taken: Names that are taken, with the last number tried for each: many equal names must not cost a
            search each.
    """
    unique = name
    while unique in taken:
        taken[name] += 1
        unique = f"{name}_{taken[name]}"
    taken[unique] = 0
    return unique


def _governing_opset(qualified: str, domain: str, opsets: Mapping[str, int], place: str) -> int:
    opset = opsets.get(domain)
    title = domain or "ai.onnx"
    if opset is None:
        listed = ", ".join(f"{key or 'ai.onnx'} {version}" for key, version in opsets.items()) or "none"
        raise ModelError(
            f"{qualified} needs an opset import of {title}, the model imports: {listed}; export it anew",
            place=place,
        )
    if not 1 <= opset < 1 << 31:
        raise ModelError(
            f"{qualified} is governed by opset {opset} of {title}, which does not exist: the file is damaged",
            place=place,
        )
    newest = schema.newest_opset(domain)
    if newest is not None and opset > newest:
        raise ModelError(
            f"{qualified} is governed by opset {opset} of {title}, the installed onnx {onnx.__version__} "
            f"knows opsets up to {newest}: install a newer onnx, or export the model for opset {newest}",
            place=place,
        )
    return opset


def _revision(op: str, domain: str, opset: int) -> int:
    found = schema.resolve(op, domain, opset)
    if found is not None:
        return found.since
    return opset if schema.newest_opset(domain) is None else 0


def _check_counts(qualified: str, inputs: int, outputs: int, rules: schema.Arity, place: str) -> None:
    for what, count, (least, most) in (
        ("input", inputs, rules.inputs),
        ("output", outputs, rules.outputs),
    ):
        if least <= count <= most:
            continue
        wanted = str(least) if least == most else f"{least} to {most}"
        if most >= 1 << 30:
            wanted = f"at least {least}"
        raise ModelError(f"{qualified} takes {wanted} {what}(s), the node has {count}", place=place)


def _check_attributes(qualified: str, kinds: Mapping[str, int], rules: schema.Arity, place: str) -> None:
    for key, wanted, required in rules.attributes:
        kind = kinds.get(key)
        if kind is None and required:
            raise ModelError(f"{qualified} needs the attribute {key!r}: the file is damaged", place=place)
        if kind is not None and kind not in (_ANY_KIND, wanted):
            name_of = onnx.AttributeProto.AttributeType.Name
            raise ModelError(
                f"the attribute {key!r} of {qualified} is {name_of(kind).lower()}, "
                f"it must be {name_of(wanted).lower()}",
                place=place,
            )


_KINDS = onnx.AttributeProto
_FIELDS: dict[int, str] = {
    _KINDS.FLOAT: "f",
    _KINDS.INT: "i",
    _KINDS.STRING: "s",
    _KINDS.TENSOR: "t",
    _KINDS.GRAPH: "g",
    _KINDS.SPARSE_TENSOR: "sparse_tensor",
    _KINDS.TYPE_PROTO: "tp",
    _KINDS.FLOATS: "floats",
    _KINDS.INTS: "ints",
    _KINDS.STRINGS: "strings",
    _KINDS.TENSORS: "tensors",
    _KINDS.GRAPHS: "graphs",
    _KINDS.SPARSE_TENSORS: "sparse_tensors",
    _KINDS.TYPE_PROTOS: "type_protos",
}
# A reference to an attribute of a function need not say its kind.
_ANY_KIND = -1
_SINGLE = frozenset({"f", "i", "s", "t", "g", "sparse_tensor", "tp"})
_MESSAGES = frozenset({"t", "g", "sparse_tensor", "tp"})


def kind_of(proto: onnx.AttributeProto) -> int:
    """The kind of an attribute; files of IR version 1 do not say it, then it is that of the field in use."""
    if proto.type:
        return int(proto.type)
    if proto.ref_attr_name:
        return _ANY_KIND
    for kind, name in _FIELDS.items():
        if proto.HasField(name) if name in _SINGLE else len(getattr(proto, name)):
            return kind
    return 0


def build_attribute(proto: onnx.AttributeProto, kind: int, scope: Scope) -> AttributeValue:
    """The value of an attribute.

    Raises:
        ModelError: It has no value, or one that is malformed.
    """
    name = string(proto.name, scope.place)
    place = scope.at(f"attribute {shown(name)}")
    reference = string(proto.ref_attr_name, place)
    if reference:
        if not scope.in_function:
            raise ModelError(
                f"it refers to the attribute {reference!r} of a function, and stands in none", place=place
            )
        return cast(AttributeValue, AttributeRef(reference))
    key = _FIELDS.get(kind)
    if key is None or (key in _MESSAGES and not proto.HasField(key)):
        raise ModelError("the attribute has no value: the file is damaged", place=place)
    value = getattr(proto, key)
    if key in ("f", "i"):
        return cast(AttributeValue, value)
    if key == "s":
        return text(value)
    if key == "strings":
        return tuple(text(item) for item in value)
    if key in ("floats", "ints"):
        return tuple(value)
    made = tuple(_message(item, scope, name, place) for item in ([value] if key in _MESSAGES else value))
    return cast(AttributeValue, made[0] if key in _MESSAGES else made)


def _message(value: object, scope: Scope, name: str, place: str) -> AttributeValue:
    if isinstance(value, onnx.TensorProto):
        return weight(value, scope.storage, place)
    if isinstance(value, onnx.SparseTensorProto):
        return sparse_weight(value, scope.storage, place)
    if isinstance(value, onnx.GraphProto):
        return build_graph(value, replace(scope, depth=scope.depth + 1), label=name)
    assert isinstance(value, onnx.TypeProto)
    found = value_type(value, place)
    if found is None:
        raise ModelError("the type says nothing: the file is damaged", place=place)
    return found
