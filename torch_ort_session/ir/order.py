"""Names and order of a graph: every value is made once, and before it is used.

Source: https://onnx.ai/onnx/repo-docs/IR.html#names-within-a-graph
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable
from dataclasses import replace

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.convert import shown
from torch_ort_session.ir.graph import AttributeValue, Graph, Node

_COMPARED = 1000


def ordered(graph: Graph, place: str, outer: tuple[frozenset[str], ...] = ()) -> Graph:
    """The graph with its nodes, and those of its bodies, in an order in which values are made before use.

    An order that is right already is kept: a body may read a value of an enclosing graph and then define its
    own value of the same name.

    Args:
        graph: A graph without calls of functions.
        place: What errors name.
        outer: Names that enclosing graphs define, one set a graph.

    Raises:
        ModelError: A name is defined twice or never, or nodes wait for each other in a circle.
    """
    known = _formal_names(graph, place)
    local = frozenset(_all_names(graph, known, place))
    scopes = (*outer, local)
    nodes = tuple(_with_ordered_bodies(node, place, scopes) for node in graph.nodes)
    reads = [_reads(node) for node in nodes]
    for node, names in zip(nodes, reads, strict=True):
        for name in names:
            if not any(name in scope for scope in scopes):
                raise ModelError(
                    f"its input {shown(name)} is made by no node and is no input or "
                    f"initializer{_near(name, local)}",
                    place=f"{place} / node {shown(node.name)}",
                )
    for info in graph.outputs:
        if not info.name or not any(info.name in scope for scope in scopes):
            raise ModelError(
                f"the output {shown(info.name)} is made by no node and is no input or initializer"
                f"{_near(info.name, local)}",
                place=place,
            )
    if not _in_order(nodes, reads, known, outer):
        nodes = _sorted(nodes, reads, known, local, place)
    return graph if nodes == graph.nodes else replace(graph, nodes=nodes)


def _formal_names(graph: Graph, place: str) -> set[str]:
    known: set[str] = set()
    for info in graph.inputs:
        if not info.name:
            raise ModelError("an input has no name: the file is damaged", place=place)
        if info.name in known:
            raise ModelError(f"two inputs have the name {shown(info.name)}: rename one", place=place)
        known.add(info.name)
    # An initializer may have the name of an input: it is then the input's default.
    return known | set(graph.initializers)


def _all_names(graph: Graph, known: set[str], place: str) -> Iterable[str]:
    made: dict[str, str] = dict.fromkeys(known, "an input or initializer")
    for node in graph.nodes:
        for name in node.outputs:
            if name and name in made:
                raise ModelError(
                    f"its output {shown(name)} is made already, by {made[name]}: rename one",
                    place=f"{place} / node {shown(node.name)}",
                )
            if name:
                made[name] = f"node {shown(node.name)}"
    return made


def _with_ordered_bodies(node: Node, place: str, scopes: tuple[frozenset[str], ...]) -> Node:
    changed: dict[str, AttributeValue] = {}
    for key, value in node.attributes.items():
        if isinstance(value, Graph):
            changed[key] = ordered(
                value, f"{place} / node {shown(node.name)} / {key} {shown(value.name)}", scopes
            )
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            changed[key] = tuple(
                ordered(item, f"{place} / node {shown(node.name)} / {key} {shown(item.name)}", scopes)
                for item in value
                if isinstance(item, Graph)
            )
    if not changed:
        return node
    return replace(node, attributes={**node.attributes, **changed})


def _reads(node: Node) -> list[str]:
    names = [name for name in node.inputs if name]
    for _, body in node.subgraphs():
        names.extend(body.outer_names())
    return names


def _in_order(
    nodes: tuple[Node, ...], reads: list[list[str]], known: set[str], outer: tuple[frozenset[str], ...]
) -> bool:
    seen = set(known)
    for node, names in zip(nodes, reads, strict=True):
        for name in names:
            if name not in seen and not any(name in scope for scope in outer):
                return False
        seen.update(node.outputs)
    return True


def _sorted(
    nodes: tuple[Node, ...], reads: list[list[str]], known: set[str], local: frozenset[str], place: str
) -> tuple[Node, ...]:
    """Kahn's order; among nodes that are ready the first in the file comes first."""
    producer = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    waits: list[set[int]] = [
        {producer[name] for name in names if name in local and name not in known} for names in reads
    ]
    readers: dict[int, list[int]] = {}
    for index, sources in enumerate(waits):
        for source in sources:
            readers.setdefault(source, []).append(index)
    missing = [len(sources) for sources in waits]
    ready = [index for index, count in enumerate(missing) if not count]
    out: list[Node] = []
    while ready:
        index = heapq.heappop(ready)
        out.append(nodes[index])
        for reader in readers.get(index, ()):
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(out) < len(nodes):
        circle = _circle(waits, {index for index, count in enumerate(missing) if count})
        shown = " -> ".join(repr(nodes[index].name) for index in circle[:8])
        more = f" -> ({len(circle) - 8} more)" if len(circle) > 8 else ""
        raise ModelError(
            f"nodes wait for each other in a circle: {shown}{more}; a model must not have one", place=place
        )
    return tuple(out)


def _circle(waits: list[set[int]], stuck: set[int]) -> list[int]:
    """Nodes of one circle, each feeding the next; every stuck node waits for another stuck one."""
    path: list[int] = []
    position: dict[int, int] = {}
    current = min(stuck)
    while current not in position:
        position[current] = len(path)
        path.append(current)
        current = min(waits[current] & stuck)
    circle = path[position[current] :]
    circle.reverse()
    return [*circle, circle[0]]


def _near(name: str, names: frozenset[str]) -> str:
    # The comparison takes time that grows with the square of the length.
    similar = sorted(item for item in names if abs(len(item) - len(name)) <= 2) if len(name) < 80 else []
    close = difflib.get_close_matches(name, similar[:_COMPARED], n=1, cutoff=0.8)
    return f"; did you mean {close[0]!r}?" if close else ": the file is damaged"
