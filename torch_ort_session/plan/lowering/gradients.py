"""Graph -> Graph: every Gradient node is given the part of the graph that it differentiates, as a body.

The node names values (``xs``, ``zs``, ``y``); which nodes lie between them only the graph knows.

Source: https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Gradient.html
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NoReturn

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.graph import AttributeValue, Graph, Node, ValueInfo
from torch_ort_session.plan.lowering.steps import Step

BODY = "body"
"""The attribute under which a Gradient node carries what it differentiates."""

_ORDERS = 8
"""How often a Gradient may differentiate another: each copies what those before it run."""


@dataclass(frozen=True, slots=True, eq=False)
class _Scope:
    """What a Gradient can see: its own graph and the enclosing ones.

    Attributes:
        nodes: In an order in which every value is made before it is used.
        weights: Names of constants.
        formals: Names of inputs that are no constants.
    """

    nodes: tuple[Node, ...] = ()
    weights: frozenset[str] = frozenset()
    formals: frozenset[str] = frozenset()

    def inside(self, graph: Graph) -> _Scope:
        """What can be seen from a graph that lies in this scope."""
        weights = self.weights | frozenset(graph.initializers)
        formals = frozenset(info.name for info in graph.inputs) - frozenset(graph.initializers)
        return _Scope((*self.nodes, *graph.nodes), weights, self.formals | formals)


def with_gradients(graph: Graph) -> Graph:
    """Give every Gradient node its body.

    Args:
        graph: A graph in which every node has a kernel.

    Returns:
        The graph; the body of a Gradient has the values of ``xs`` and ``zs`` as formal inputs and ``y`` as
        its output, and reads weights from where they are. Its nodes are named after the Gradient and the
        nodes of the graph that they repeat.

    Raises:
        ModelError: What a Gradient names is no function of the graph; it says which name and why.
    """
    if not any(_is_gradient(node) for node in graph.all_nodes()):
        return graph
    return _completed(graph, _Scope())


def runs_alike(step: Step) -> bool:
    """Whether the bodies of a step run the same kernels in every run, once, so that they can be recorded.

    Args:
        step: A step with bodies.

    Returns:
        True for a Gradient of steps that can be recorded themselves.
    """
    return _is_gradient(step.node) and all(
        runs_alike(inner)
        if inner.bodies
        else not inner.kernel.varies and inner.kernel.seam_reason(inner.node) is None
        for body in step.bodies.values()
        for inner in body.steps.items
    )


def _is_gradient(node: Node) -> bool:
    return node.op == "Gradient" and node.domain == "ai.onnx.preview.training"


def _completed(graph: Graph, outer: _Scope) -> Graph:
    scope = outer.inside(graph)
    return replace(graph, nodes=tuple(_complete(node, scope, ()) for node in graph.nodes))


def _complete(node: Node, scope: _Scope, within: tuple[str, ...]) -> Node:
    """A node whose Gradients have their bodies; ``within`` names those that it is repeated for."""
    bodies: dict[str, AttributeValue] = {}
    if _is_gradient(node):
        bodies[BODY] = _body(node, scope, within)
    else:
        bodies.update((name, _completed(body, scope)) for name, body in node.subgraphs())
    return replace(node, attributes={**node.attributes, **bodies}) if bodies else node


def _body(node: Node, scope: _Scope, within: tuple[str, ...]) -> Graph:
    if node.name in within:
        chain = " -> ".join((*within[within.index(node.name) :], node.name))
        _refuse(node, f"it differentiates what follows from itself: {chain}")
    if len(within) >= _ORDERS:
        _refuse(node, f"derivatives of more than order {_ORDERS} are not supported")
    xs, listed, y = _named(node)
    _check_independent(node, listed, scope)
    kept, needed = _leading_to(y, listed, scope)
    known = scope.weights.union(
        scope.formals, listed, (name for each in scope.nodes for name in each.outputs)
    )
    if y not in known:
        _refuse(node, f"the graph has no value {y!r}, which y names")
    for name in sorted(needed & scope.formals - set(listed)):
        _refuse(node, f"{y!r} depends on the input {name!r}, which neither xs nor zs names")
    for name in xs:
        if name not in needed:
            _refuse(node, f"{y!r} does not depend on {name!r}, which xs names")
    # What is repeated may make a listed value beside others; the one that is given counts.
    repeated = [
        replace(
            _complete(each, scope, (*within, node.name)),
            name=f"{node.name}/{each.name}",
            outputs=tuple("" if name in listed else name for name in each.outputs),
        )
        for each in kept
    ]
    return Graph(
        name=f"{node.name}/{BODY}",
        inputs=tuple(ValueInfo(name, None) for name in listed),
        outputs=(ValueInfo(y, None),),
        initializers={},
        nodes=tuple(repeated),
    )


def _named(node: Node) -> tuple[list[str], list[str], str]:
    """The names in xs, those in xs and zs, and y."""
    xs, zs, y = (node.attributes.get(key, default) for key, default in (("xs", ()), ("zs", ()), ("y", "")))
    if not (isinstance(xs, tuple) and isinstance(zs, tuple) and isinstance(y, str)):
        _refuse(node, "xs and zs are lists of names and y is a name")
    first, others = [str(name) for name in xs], [str(name) for name in zs]
    listed = [*first, *others]
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        _refuse(node, f"{name!r} is named twice in xs and zs")
    if len(node.inputs) != len(listed):
        _refuse(node, f"xs and zs name {len(listed)} value(s), and it has {len(node.inputs)} input(s)")
    if len(node.outputs) > len(first):
        _refuse(node, f"xs names {len(first)} value(s), and it has {len(node.outputs)} output(s)")
    return first, listed, y


def _check_independent(node: Node, listed: list[str], scope: _Scope) -> None:
    """Refuse a listed value that follows from another one: what would its derivative hold fixed?"""
    given = set(listed)
    follows: dict[str, str] = {}
    for each in scope.nodes:
        cause = next(
            (follows.get(name, name) for name in _read(each) if name in given or name in follows), None
        )
        if cause is None:
            continue
        for name in each.outputs:
            if name in given:
                _refuse(node, f"{name!r} follows from {cause!r}, and xs and zs name both")
            follows[name] = cause


def _leading_to(y: str, listed: list[str], scope: _Scope) -> tuple[list[Node], set[str]]:
    """The nodes by which ``y`` follows from the listed values, in order, and all names that takes."""
    given, needed = set(listed), {y}
    kept: list[Node] = []
    for each in reversed(scope.nodes):
        if any(name in needed and name not in given for name in each.outputs):
            kept.append(each)
            needed.update(_read(each))
    kept.reverse()
    return kept, needed


def _read(node: Node) -> Iterable[str]:
    yield from (name for name in node.inputs if name)
    for _, body in node.subgraphs():
        yield from body.outer_names()


def _refuse(node: Node, why: str) -> NoReturn:
    raise ModelError(why, place=f"node {node.name!r} ({node.qualified})")
