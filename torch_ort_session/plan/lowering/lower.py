"""Graph -> Graph in which every node has a kernel: what happens to a loaded graph before steps are built."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from torch_ort_session.errors import ModelError, UnsupportedOp, UnsupportedOpError
from torch_ort_session.ir import schema
from torch_ort_session.ir.functions import expand_schema_function
from torch_ort_session.ir.graph import AttributeValue, Graph, Node, Weight
from torch_ort_session.ir.infer import element_types
from torch_ort_session.ir.types import ElementType, element_type_of
from torch_ort_session.ops import gaps, registry
from torch_ort_session.ops.kernel import Kernel
from torch_ort_session.plan.lowering.gradients import with_gradients

_DEPTH = 8
"""How deep schema function bodies may nest; the deepest of onnx 1.23 is 3."""


@dataclass(slots=True)
class _Found:
    """Ops without a kernel, by (op, domain, since), with the names of their nodes.

    It lives while a graph is lowered.
    """

    missing: dict[tuple[str, str, int], list[str]] = field(default_factory=dict)


def lower(graph: Graph) -> Graph:
    """Turn Constant nodes into initializers and ops without a kernel into their schema's function body.

    Args:
        graph: As it was loaded.

    Returns:
        A graph of the same meaning in which every node has a kernel.

    Raises:
        UnsupportedOpError: Some ops have neither kernel nor function body; all of them are named.
        ModelError: A node does not follow its operator's schema.
    """
    found = _Found()
    lowered = _lower(graph, {}, found, 0)
    if found.missing:
        raise UnsupportedOpError(
            UnsupportedOp(op, domain or "ai.onnx", since, tuple(nodes), _why(op, domain, since))
            for (op, domain, since), nodes in found.missing.items()
        )
    return with_gradients(lowered)


def _why(op: str, domain: str, since: int) -> str:
    served = sorted(s for kernel in registry.kernels().get((domain, op), ()) for s in kernel.since)
    if served:
        return f"no kernel for this revision; revisions served: {', '.join(map(str, served))}"
    known = schema.newest_opset(domain) is None or schema.revisions(op, domain)
    return gaps.why(op, domain) if known else "no such operator in the installed onnx"


def _lower(graph: Graph, outer: Mapping[str, ElementType], found: _Found, depth: int) -> Graph:
    types: Mapping[str, ElementType] | None = None
    initializers = dict(graph.initializers)
    fed = {info.name for info in graph.inputs}
    nodes: list[Node] = []
    for node in graph.nodes:
        bodies = dict(node.subgraphs())
        kernel = registry.find(node.op, node.domain, node.since)
        if node.op == "Constant" and node.domain == "" and kernel is not None:
            if node.outputs[0]:
                initializers[node.outputs[0]] = _constant(node, kernel)
            continue
        if (bodies or kernel is None) and types is None:
            types = {**outer, **element_types(graph, outer=outer)}
        if bodies:
            assert types is not None
            node = _with_bodies(node, types, found, depth)
            node = replace(node, name=_apart(node.name, graph))
        if kernel is not None:
            _check(node, kernel)
            nodes.append(_untrained(node, initializers, fed))
            continue
        assert types is not None
        nodes.extend(_expand(node, types, found, initializers, depth))
    return replace(graph, initializers=initializers, nodes=tuple(nodes))


def _check(node: Node, kernel: Kernel) -> None:
    signature, place = kernel.signature, f"node {node.name!r} ({node.qualified} revision {node.since})"
    known = {param.name: param for param in signature.attributes}
    bodies = {name for name, _ in node.subgraphs()}
    for name in node.attributes:
        if name not in known and name not in bodies:
            listed = ", ".join(known) or "none"
            raise ModelError(f"unknown attribute {name!r}; this operator has: {listed}", place=place)
    for attribute in signature.attributes:
        if attribute.required and attribute.name not in node.attributes:
            raise ModelError(f"the required attribute {attribute.name!r} is missing", place=place)
    params = signature.inputs
    variadic = bool(params) and params[-1].variadic
    if len(node.inputs) > len(params) and not variadic:
        raise ModelError(f"it has {len(node.inputs)} inputs, the operator takes {len(params)}", place=place)
    for position, param in enumerate(params):
        absent = position >= len(node.inputs) or not node.inputs[position]
        if absent and not param.optional and not param.variadic:
            raise ModelError(f"the required input {param.name!r} (number {position}) is missing", place=place)
    if len(node.outputs) > 1 and not signature.several_outputs:
        raise ModelError(f"it names {len(node.outputs)} outputs, the operator has one", place=place)


def _untrained(node: Node, constants: Mapping[str, Weight], fed: Collection[str]) -> Node:
    """A Dropout that is told for good not to train, without being told: it draws nothing at random."""
    if node.op != "Dropout" or node.domain != "" or len(node.inputs) < 3 or node.inputs[2] in fed:
        return node
    told = constants.get(node.inputs[2])
    if told is None or not isinstance(told.data, torch.Tensor) or bool(told.data.any()):
        return node
    return replace(node, inputs=node.inputs[:2])


def _with_bodies(node: Node, types: Mapping[str, ElementType], found: _Found, depth: int) -> Node:
    attributes: dict[str, AttributeValue] = {
        name: _lower(value, types, found, depth) if isinstance(value, Graph) else value
        for name, value in node.attributes.items()
    }
    return replace(node, attributes=attributes)


def _apart(name: str, graph: Graph) -> str:
    """A node's name under which no weight of the graph looks like a weight of the node's body."""
    while any(weight.startswith(f"{name}/") for weight in graph.initializers):
        name += "_"
    return name


def _expand(
    node: Node,
    types: Mapping[str, ElementType],
    found: _Found,
    initializers: dict[str, Weight],
    depth: int,
) -> list[Node]:
    schema_of = schema.resolve(node.op, node.domain, node.since)
    inner: tuple[Node, ...] = ()
    if schema_of is not None and schema_of.has_function and depth < _DEPTH:
        inner = expand_schema_function(node, node.since, [types.get(name) for name in node.inputs])
    if not inner:
        found.missing.setdefault((node.op, node.domain, node.since), []).append(node.name)
        return []
    infos = Graph(name=node.name, inputs=(), outputs=(), initializers={}, nodes=inner)
    lowered = _lower(infos, types, found, depth + 1)
    initializers.update(lowered.initializers)
    return list(lowered.nodes)


def _constant(node: Node, kernel: Kernel) -> Weight:
    given = node.attributes.get("value", node.attributes.get("sparse_value"))
    if isinstance(given, Weight):
        return replace(given, name="")
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in node.attributes.items()}
    _check(node, kernel)
    try:
        value = kernel.fn(**attributes)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(str(error), place=f"node {node.name!r} ({node.qualified})") from error
    if isinstance(value, np.ndarray):
        return Weight("", ElementType.STRING, value)
    assert isinstance(value, torch.Tensor)
    return Weight("", element_type_of(value.dtype), value)
