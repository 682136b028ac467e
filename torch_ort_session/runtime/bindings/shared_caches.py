"""Caches that are bound as past and present: a run gives their new rows, and delivery puts them there.

A model that reads a cache and gives a new one copies all of it for each token. Where both are one bound
tensor the steps give the rows alone. They are written where results are delivered, as anything that is bound:
a run that fails, is made again, or met bad data leaves the cache as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from torch_ort_session.ir.graph import Graph, Node, ValueInfo
from torch_ort_session.ir.types import ElementType, TensorType
from torch_ort_session.ops.microsoft.gqa.cache_rows import caches_of, giving_rows
from torch_ort_session.runtime.dispatch import EngineState
from torch_ort_session.runtime.interpreter import Program


class Rows(NamedTuple):
    """What a run gives for a cache: its new rows, and where those of each sample belong."""

    fresh: torch.Tensor
    start: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """A graph whose nodes give rows.

    Attributes:
        graph: The graph.
        program: Its steps.
        names: Of its outputs: those of the model, then where rows belong.
        starts: For each output that is rows, the one that says where they belong.
    """

    graph: Graph
    program: Program
    names: tuple[str, ...]
    starts: dict[str, str]

    def given(self, results: Sequence[Any]) -> list[Any]:
        """The results of a run for the outputs of the model."""
        by_name = dict(zip(self.names, results, strict=True))
        starts = self.starts
        return [
            Rows(by_name[name], by_name[starts[name]]) if name in starts else by_name[name]
            for name in self.names[: len(self.names) - len(set(starts.values()))]
        ]


class Caches:
    """What the runs of a binding are made of, by the states that are bound; it lives as long as the binding.

    Args:
        graph: The graph of the session.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._states: frozenset[tuple[str, str]] = frozenset()
        self._found: Sharing | None = None

    def state(self, state: EngineState, states: frozenset[tuple[str, str]]) -> EngineState:
        """The state that runs go by while these states are bound.

        Args:
            state: The one that ran before.
            states: Inputs and outputs that are one tensor, all of which is valid.
        """
        if states == self._states:
            return state
        shared = sharing(self._graph, states, state.build)
        self._states, self._found = states, shared
        return replace(state, graph=self._graph if shared is None else shared.graph)

    def runs(self, program: Program, names: tuple[str, ...]) -> tuple[Program, tuple[str, ...]]:
        """What runs for a program of the session, and the names of what it gives."""
        shared = self._found
        return (program, names) if shared is None else (shared.program, shared.names)

    def given(self, results: Sequence[Any]) -> Sequence[Any]:
        """The results of a run for the outputs of the model."""
        return results if self._found is None else self._found.given(results)


def sharing(
    graph: Graph, states: Collection[tuple[str, str]], build: Callable[[Graph, tuple[str, ...]], Program]
) -> Sharing | None:
    """The graph that gives rows for caches that are states; None where there are none.

    Args:
        graph: The graph that runs.
        states: Inputs and outputs that are one tensor, all of which is valid.
        build: Makes a program of a graph and output names.
    """
    names = [info.name for info in graph.outputs]
    read = {name for node in graph.nodes for name in _reads(node)}
    starts: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        pairs = caches_of(node)
        alone = all(present not in read and names.count(present) == 1 for _, present in pairs)
        if pairs and alone and set(pairs) <= set(states):
            node = giving_rows(node)
            starts |= {present: node.outputs[-1] for _, present in pairs}
        nodes.append(node)
    if not starts:
        return None
    places = tuple(dict.fromkeys(starts.values()))
    infos = (ValueInfo(name, TensorType(ElementType.INT64, None)) for name in places)
    shared_graph = replace(graph, nodes=tuple(nodes), outputs=(*graph.outputs, *infos))
    outputs = (*names, *places)
    return Sharing(shared_graph, build(shared_graph, outputs), outputs, starts)


def _reads(node: Node) -> list[str]:
    return [*node.inputs, *(name for _, body in node.subgraphs() for name in body.outer_names())]
