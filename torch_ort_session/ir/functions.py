"""Functions, of the model and of operator schemas, expanded into the nodes of their bodies.

Source: https://onnx.ai/onnx/repo-docs/IR.html#functions
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from torch_ort_session.errors import ModelError
from torch_ort_session.ir import schema
from torch_ort_session.ir.build import (
    AttributeRef,
    FunctionKey,
    Scope,
    build_attribute,
    build_node,
    imports,
    kind_of,
    unused,
)
from torch_ort_session.ir.convert import shown, string
from torch_ort_session.ir.graph import AttributeValue, Graph, Node, ValueInfo
from torch_ort_session.ir.save import node_proto, type_proto
from torch_ort_session.ir.storage import Storage
from torch_ort_session.ir.types import ElementType, TensorType, ValueType
from torch_ort_session.options import Limits


@dataclass(frozen=True, slots=True)
class Template:
    """A function: nodes with names of its own, which every call replaces.

    Attributes:
        name: Domain and name, for messages.
        inputs: Formal inputs.
        outputs: Formal outputs.
        defaults: Default values of attributes.
        nodes: Its body; attributes may be an ``AttributeRef``.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    defaults: Mapping[str, AttributeValue]
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class _Expansion:
    """Functions by key, and the names that are taken."""

    templates: Mapping[FunctionKey, Template] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)

    def find(self, node: Node) -> Template | None:
        return self.templates.get((node.domain, node.op, node.overload))


@dataclass(frozen=True, slots=True)
class _Call:
    """What replaces the names of a function's body in one call of it."""

    place: str
    prefix: str
    names: Mapping[str, str]
    attributes: Mapping[str, AttributeValue]


def function_key(proto: onnx.FunctionProto) -> FunctionKey:
    """Domain, name and overload.

    Raises:
        ModelError: One of them is malformed.
    """
    place = "functions"
    return (
        schema.canonical_domain(string(proto.domain, place)),
        string(proto.name, place),
        string(proto.overload, place),
    )


def templates(protos: Sequence[onnx.FunctionProto], scope: Scope) -> Mapping[FunctionKey, Template]:
    """The model-local functions.

    Args:
        protos: The functions as they stand in the file.
        scope: That of the model; its opset imports stand in for those that a function lacks.

    Raises:
        ModelError: One is malformed, or two are the same.
    """
    found: dict[FunctionKey, Template] = {}
    for proto in protos:
        key = function_key(proto)
        title = f"{key[0] or 'ai.onnx'}::{key[1]}" + (f":{key[2]}" if key[2] else "")
        place = f"function {title!r}"
        if not key[1]:
            raise ModelError("the function has no name: the file is damaged", place=place)
        if key in found:
            raise ModelError("two functions have this domain, name and overload: rename one", place=place)
        opsets = {**scope.opsets, **imports(proto.opset_import, 0, place)}
        inside = replace(scope, place=place, opsets=opsets, in_function=True, node_names={})
        found[key] = _template(proto, title, inside)
    return found


def _template(proto: onnx.FunctionProto, name: str, scope: Scope) -> Template:
    plain = replace(scope, in_function=False)
    defaults = {
        string(item.name, scope.place): build_attribute(item, kind_of(item), plain)
        for item in proto.attribute_proto
    }
    nodes = tuple(build_node(node, index, scope) for index, node in enumerate(proto.node))
    inputs = tuple(string(value, scope.place) for value in proto.input)
    _refuse_twice(inputs, "input", scope.place)
    _refuse_twice((*inputs, *(value for node in nodes for value in node.outputs)), "value", scope.place)
    return Template(
        name=name,
        inputs=inputs,
        outputs=tuple(string(value, scope.place) for value in proto.output),
        defaults=defaults,
        nodes=nodes,
    )


def _refuse_twice(names: Iterable[str], what: str, place: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            raise ModelError(f"the {what} {name!r} is defined twice: the file is damaged", place=place)
        seen.add(name)


def expand_functions(graph: Graph, found: Mapping[FunctionKey, Template], limits: Limits) -> Graph:
    """A graph without calls of model-local functions.

    Raises:
        ModelError: Functions call each other in a circle or too deep, a call does not fit its function, or
            the expanded graph has too many nodes.
    """
    if not found:
        return graph
    expansion = _Expansion(
        found, dict.fromkeys(_value_names(graph), 0), {node.name: 0 for node in graph.all_nodes()}
    )
    sizes: dict[FunctionKey, int] = {}
    total = _size(graph.nodes, expansion, sizes, (), limits)
    if total > limits.nodes:
        raise ModelError(
            f"the model has {_many(total)} nodes with its functions expanded, the limit is {limits.nodes}: "
            "pass Limits(nodes=...) to raise it",
            place=f"graph {shown(graph.name)}",
        )
    return _expand_graph(graph, expansion, f"graph {shown(graph.name)}")


def _many(count: int) -> str:
    return str(count) if count < 10**12 else "more than 10**12"


def _size(
    nodes: Iterable[Node],
    expansion: _Expansion,
    sizes: dict[FunctionKey, int],
    stack: tuple[FunctionKey, ...],
    limits: Limits,
) -> int:
    """Nodes after expansion, each call counted as one, without expanding anything."""
    total = 0
    for outer in nodes:
        for node in (outer, *(inner for _, body in outer.subgraphs() for inner in body.all_nodes())):
            total += 1
            key = (node.domain, node.op, node.overload)
            template = expansion.templates.get(key)
            if template is None:
                continue
            if key in stack:
                chain = " -> ".join(
                    expansion.templates[item].name for item in (*stack[stack.index(key) :], key)
                )
                raise ModelError(
                    f"functions call each other in a circle: {chain}", place=f"function {template.name!r}"
                )
            if len(stack) >= limits.nesting:
                raise ModelError(
                    f"functions call each other more than {limits.nesting} deep: pass "
                    "Limits(nesting=...) to raise it",
                    place=f"function {template.name!r}",
                )
            if key not in sizes:
                sizes[key] = _size(template.nodes, expansion, sizes, (*stack, key), limits)
            total += sizes[key]
    return total


def _value_names(graph: Graph) -> Iterable[str]:
    yield from (info.name for info in graph.inputs)
    yield from graph.initializers
    for node in graph.nodes:
        yield from node.outputs
        for _, body in node.subgraphs():
            yield from _value_names(body)


def _expand_graph(graph: Graph, expansion: _Expansion, place: str) -> Graph:
    out: list[Node] = []
    for node in graph.nodes:
        _expand_node(node, expansion, f"{place} / node {shown(node.name)}", out)
    return replace(graph, nodes=tuple(out))


def _expand_node(node: Node, expansion: _Expansion, place: str, out: list[Node]) -> None:
    if any(True for _ in node.subgraphs()):
        node = replace(node, attributes=_map_graphs(node, lambda body: _expand_graph(body, expansion, place)))
    template = expansion.find(node)
    if template is None:
        out.append(node)
    else:
        _instantiate(node, template, expansion, place, out)


def _map_graphs(node: Node, change: Callable[[Graph], Graph]) -> Mapping[str, AttributeValue]:
    changed: dict[str, AttributeValue] = {}
    for name, value in node.attributes.items():
        if isinstance(value, Graph):
            changed[name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            changed[name] = tuple(change(item) for item in value if isinstance(item, Graph))
        else:
            changed[name] = value
    return changed


def _instantiate(node: Node, template: Template, expansion: _Expansion, place: str, out: list[Node]) -> None:
    for what, given, taken in (
        ("input", len(node.inputs), len(template.inputs)),
        ("output", len(node.outputs), len(template.outputs)),
    ):
        if given > taken:
            raise ModelError(
                f"the function {template.name} has {taken} {what}(s), the call gives {given}", place=place
            )
    prefix = f"{node.name}/"
    made = {value for inner in template.nodes for value in inner.outputs if value}
    names = {formal: "" for formal in template.inputs}
    names.update(zip(template.inputs, node.inputs, strict=False))
    copies: list[tuple[str, str]] = []
    for formal, actual in zip(template.outputs, node.outputs, strict=False):
        if not actual:
            continue
        if formal not in made and formal not in template.inputs:
            raise ModelError(
                f"the output {formal!r} of the function {template.name} is never made", place=place
            )
        if formal in names:
            # An input handed through, or one value listed as two outputs.
            copies.append((formal, actual))
        else:
            names[formal] = actual
    for value in sorted(made - names.keys()):
        names[value] = unused(prefix + value, expansion.values)
    call = _Call(place, prefix, names, {**template.defaults, **node.attributes})
    for inner in template.nodes:
        renamed = _renamed(inner, call, expansion)
        _expand_node(renamed, expansion, f"{place} / node {shown(inner.name)}", out)
    for formal, actual in copies:
        name = unused(f"{prefix}{formal}_copy", expansion.nodes)
        out.append(Node(name, "Identity", "", _IDENTITY, (names[formal],), (actual,)))


_IDENTITY = schema.revisions("Identity")[-1]


def _renamed(node: Node, call: _Call, expansion: _Expansion) -> Node:
    attributes: dict[str, AttributeValue] = {}
    for key, value in node.attributes.items():
        if isinstance(value, AttributeRef):
            if value.name in call.attributes:
                attributes[key] = call.attributes[value.name]
        elif isinstance(value, Graph):
            attributes[key] = _renamed_graph(value, call, expansion)
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            attributes[key] = tuple(
                _renamed_graph(item, call, expansion) for item in value if isinstance(item, Graph)
            )
        else:
            attributes[key] = value
    for key in attributes.keys() & _NAMING.get((node.domain, node.op), ()):
        attributes[key] = _named(attributes[key], call, node)
    return replace(
        node,
        name=unused(call.prefix + node.name, expansion.nodes),
        inputs=tuple(_name(value, call, node) for value in node.inputs),
        outputs=tuple(_name(value, call, node) for value in node.outputs),
        attributes=attributes,
    )


_NAMING = {("ai.onnx.preview.training", "Gradient"): ("xs", "zs", "y")}
"""Attributes that hold names of values."""


def _named(value: AttributeValue, call: _Call, node: Node) -> AttributeValue:
    if isinstance(value, tuple):
        return tuple(_name(str(item), call, node) for item in value)
    return _name(str(value), call, node)


def _name(value: str, call: _Call, node: Node) -> str:
    if not value:
        return ""
    found = call.names.get(value)
    if found is None:
        raise ModelError(
            f"the value {value!r} is never made", place=f"{call.place} / node {shown(node.name)}"
        )
    return found


def _renamed_graph(graph: Graph, call: _Call, expansion: _Expansion) -> Graph:
    local = [info.name for info in graph.inputs]
    local += graph.initializers
    local += [value for node in graph.nodes for value in node.outputs if value]
    names = dict(call.names)
    for value in dict.fromkeys(local):
        names[value] = unused(call.prefix + value, expansion.values)
    inner = replace(call, names=names)

    def info_of(info: ValueInfo) -> ValueInfo:
        return ValueInfo(names.get(info.name, info.name), info.type)

    return Graph(
        name=graph.name,
        inputs=tuple(info_of(info) for info in graph.inputs),
        outputs=tuple(info_of(info) for info in graph.outputs),
        initializers={names[key]: replace(item, name=names[key]) for key, item in graph.initializers.items()},
        nodes=tuple(_renamed(node, inner, expansion) for node in graph.nodes),
        value_info={names[key]: info_of(info) for key, info in graph.value_info.items() if key in names},
    )


def expand_schema_function(
    node: Node, opset: int, input_types: Sequence[ElementType | ValueType | None] = ()
) -> tuple[Node, ...]:
    """The nodes of the body that a node's schema carries, named after the node.

    Args:
        node: A node whose operator has no kernel.
        opset: The imported version of the node's domain, or the revision of the operator.
        input_types: What is known of each input; a body may depend on it.

    Returns:
        The body's nodes, or nothing when the schema has no body for this node and these types.
    """
    types = [type_proto(_as_type(kind)) for kind in input_types]
    types += [type_proto(None)] * (len(node.inputs) - len(types))
    body = schema.function_body(node.op, node.domain, opset, node_proto(node), types)
    if body is None:
        return ()
    place = f"function of {node.qualified}"
    scope = Scope(
        place=place,
        # Bodies of operators that are not in ai.onnx do not always say which opset of it they use.
        opsets={
            "": schema.newest_opset() or 1,
            node.domain: body.opset,
            **imports(body.function.opset_import, 0, place),
        },
        storage=Storage(Limits()),
        in_function=True,
    )
    plain = replace(scope, in_function=False)
    template = replace(
        _template(body.function, node.qualified, scope),
        defaults={item.name: build_attribute(item, kind_of(item), plain) for item in body.defaults},
    )
    out: list[Node] = []
    expansion = _Expansion(values=dict.fromkeys((*node.inputs, *node.outputs), 0))
    _instantiate(node, template, expansion, f"node {shown(node.name)}", out)
    return tuple(out)


def _as_type(kind: ElementType | ValueType | None) -> ValueType | None:
    return TensorType(kind) if isinstance(kind, ElementType) else kind
