"""Graph -> Graph for one signature: an If whose predicate is known is replaced by the branch it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch_ort_session.ir.graph import AttributeValue, Graph, Node, ValueInfo, Weight


def specialise(graph: Graph, predicates: Mapping[str, bool]) -> Graph:
    """Put the taken branch in the place of every If of the main graph whose predicate is known.

    Args:
        graph: A graph.
        predicates: Known predicates by the name of the value.

    Returns:
        A graph of the same meaning under these predicates. Values and nodes of a branch carry the names that
        they have as parts of a body (``node/branch/name``), so that weights stay the same; a name that the
        graph has already gets underscores at its end.
    """
    taken_names = set(_names(graph))
    nodes: list[Node] = []
    initializers: dict[str, Weight] = dict(graph.initializers)
    value_info: dict[str, ValueInfo] = dict(graph.value_info)
    for node in graph.nodes:
        if node.op != "If" or node.domain != "" or node.inputs[0] not in predicates:
            nodes.append(node)
            continue
        taken = "then_branch" if predicates[node.inputs[0]] else "else_branch"
        branch = node.attributes[taken]
        assert isinstance(branch, Graph)
        inlined = _inline(branch, f"{node.name}/{taken}/", initializers, taken_names)
        nodes.extend(inlined.nodes)
        value_info.update(inlined.value_info)
        nodes.extend(
            Node(f"{node.name}/{taken}/result_{number}", "Identity", "", 25, (made.name,), (name,))
            for number, (made, name) in enumerate(zip(inlined.outputs, node.outputs, strict=True))
            if name
        )
    return replace(graph, nodes=tuple(nodes), initializers=initializers, value_info=value_info)


def _names(graph: Graph) -> Iterator[str]:
    """Every name of a value, those inside of bodies included."""
    yield from graph.initializers
    yield from (info.name for info in graph.inputs)
    for node in graph.nodes:
        yield from node.outputs
        for _, body in node.subgraphs():
            yield from _names(body)


def _inline(branch: Graph, prefix: str, initializers: dict[str, Weight], taken: set[str]) -> Graph:
    """The branch under names that are unique in the main graph; its weights move there."""

    def unique(name: str) -> str:
        found = prefix + name
        while found in taken:
            found += "_"
        taken.add(found)
        return found

    renamed = {name: unique(name) for name in branch.initializers}
    initializers.update({renamed[name]: weight for name, weight in branch.initializers.items()})
    nodes = []
    for node in branch.nodes:
        inputs = tuple(renamed.get(name, name) for name in node.inputs)
        attributes = _attributes(node, renamed)
        renamed.update({name: unique(name) for name in node.outputs if name})
        outputs = tuple(renamed[name] if name else "" for name in node.outputs)
        nodes.append(
            replace(node, name=prefix + node.name, inputs=inputs, outputs=outputs, attributes=attributes)
        )
    return Graph(
        name=branch.name,
        inputs=(),
        outputs=tuple(replace(info, name=renamed.get(info.name, info.name)) for info in branch.outputs),
        initializers={},
        nodes=tuple(nodes),
        value_info={
            renamed[name]: replace(info, name=renamed[name])
            for name, info in branch.value_info.items()
            if name in renamed
        },
    )


def _attributes(node: Node, renamed: Mapping[str, str]) -> Mapping[str, AttributeValue]:
    bodies = dict(node.subgraphs())
    if not bodies:
        return node.attributes
    inner = {name: _rename_outer(body, renamed) for name, body in bodies.items()}
    return {**node.attributes, **inner}


def _rename_outer(body: Graph, renamed: Mapping[str, str]) -> Graph:
    """A body with the enclosing values it reads under their new names."""
    own = {info.name for info in body.inputs} | set(body.initializers)
    visible = {name: new for name, new in renamed.items() if name not in own}
    nodes = []
    for node in body.nodes:
        inputs = tuple(visible.get(name, name) for name in node.inputs)
        attributes = _attributes(node, visible)
        visible = {name: new for name, new in visible.items() if name not in node.outputs}
        nodes.append(replace(node, inputs=inputs, attributes=attributes))
    outputs = tuple(replace(info, name=visible.get(info.name, info.name)) for info in body.outputs)
    return replace(body, nodes=tuple(nodes), outputs=outputs)
