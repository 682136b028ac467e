"""Steps: each node bound to its kernel, each value to a number, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.graph import Graph, Node, Weight
from torch_ort_session.ir.infer import element_types
from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops import registry
from torch_ort_session.ops.kernel import Kernel, KernelContext, Validation, Value

NOTHING = 0
"""The value id that always holds None: an absent input reads it, an unwanted output is not written."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A node bound to its kernel.

    Attributes:
        node: The node.
        kernel: Its kernel.
        ctx: What the kernel may ask for; bodies are added when the step runs.
        inputs: Value ids, ``NOTHING`` where an optional input is absent.
        outputs: Value ids, ``NOTHING`` where nobody reads the output.
        release: Values that nobody reads after this step.
        bodies: Control-flow bodies by attribute name.
    """

    node: Node
    kernel: Kernel
    ctx: KernelContext
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    release: tuple[int, ...] = ()
    bodies: Mapping[str, BodySteps] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """What one run of a graph does.

    Attributes:
        items: The steps in order.
        template: Initial values by id: constants where they are known, None elsewhere.
        inputs: Value ids of the fed names, in the order of ``input_names``.
        input_names: Names of graph inputs and of weights that are fed rather than constant.
        outputs: Value ids of the requested outputs.
        names: Value names by id, for messages.
    """

    items: tuple[Step, ...]
    template: tuple[Value, ...]
    inputs: tuple[int, ...]
    input_names: tuple[str, ...]
    outputs: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BodySteps:
    """The steps of a control-flow body, and the enclosing values it reads.

    Attributes:
        steps: Its steps; ``steps.inputs`` are the formal inputs.
        captured: Pairs of (value id outside, value id inside).
    """

    steps: Steps
    captured: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Where steps are built for.

    Attributes:
        device: The session's device.
        constant: Gives the run-time value of a weight under its qualified name.
        fed: Qualified names of weights that are fed at each run rather than constant (parameters).
        validation: The run's validation word, None where torch itself refuses bad data.
    """

    device: torch.device
    constant: Callable[[str, Weight], Value]
    fed: frozenset[str] = frozenset()
    validation: Validation | None = None


def build_steps(graph: Graph, setting: Setting, outputs: Iterable[str] | None = None) -> Steps:
    """Bind every node that the requested outputs need.

    Args:
        graph: A graph in which every node has a kernel (see ``plan.lower``).
        setting: Where it will run.
        outputs: Names of any values of the main graph; None asks for the graph's own outputs.

    Returns:
        The steps; nodes that the outputs do not need are left out.

    Raises:
        ModelError: A requested output does not exist in the graph.
    """
    wanted = [info.name for info in graph.outputs] if outputs is None else list(outputs)
    scope = _Scope(graph, setting, None, "", {})
    return scope.build(wanted)


class _Scope:
    """One graph while its steps are built; a body's scope knows the enclosing one."""

    def __init__(
        self,
        graph: Graph,
        setting: Setting,
        parent: _Scope | None,
        prefix: str,
        outer_types: Mapping[str, ElementType],
    ) -> None:
        self.graph = graph
        self.setting = setting
        self.parent = parent
        self.prefix = prefix
        self.types: dict[str, ElementType] = {**outer_types, **element_types(graph, outer=outer_types)}
        self.values = _Values()
        self.captured: list[tuple[int, int]] = []
        self.weights: dict[str, int] = {}
        self.fed: dict[str, int] = {}

    def build(self, wanted: list[str]) -> Steps:
        nodes = _needed(self.graph, wanted)
        for info in self.graph.inputs:
            if self.parent is not None or info.name not in self.graph.initializers:
                self.fed[info.name] = self.values.define(info.name)
        for info in self.graph.inputs:
            if info.name not in self.fed:
                self.fed[info.name] = self.lookup(info.name)
        items = [self.bind(node, read) for node, read in nodes]
        outputs = tuple(self.lookup(name) for name in wanted)
        items = _with_release(items, outputs, self.values)
        return Steps(
            items=tuple(items),
            template=tuple(self.values.initial),
            inputs=tuple(self.fed.values()),
            input_names=tuple(self.fed),
            outputs=outputs,
            names=tuple(self.values.names),
        )

    def lookup(self, name: str) -> int:
        """The id of a value of this scope or an enclosing one (then it is captured)."""
        if not name:
            return NOTHING
        found = self.values.ids.get(name)
        if found is not None:
            return found
        weight = self.graph.initializers.get(name)
        if weight is not None:
            return self.values.alias(name, self.constant(self.prefix + name, weight))
        if self.parent is None:
            raise ModelError(
                f"value {name!r} is not made by anything in the graph; ask for one of its outputs, inputs, "
                "weights or intermediate values (`torch-ort-session inspect MODEL --nodes` lists them)",
                place=f"graph {self.graph.name!r}",
            )
        return self.values.alias(name, self.capture(name, self.parent.lookup(name)))

    def capture(self, name: str, outside: int) -> int:
        inside = self.values.new(name)
        self.captured.append((outside, inside))
        return inside

    def constant(self, qualified: str, weight: Weight) -> int:
        """A weight: it lives in the main graph's steps, so that no body holds a copy of its own."""
        found = self.weights.get(qualified)
        if found is not None:
            return found
        if self.parent is not None:
            made = self.capture(qualified, self.parent.constant(qualified, weight))
        else:
            made = self.values.new(qualified)
            if qualified in self.setting.fed:
                self.fed[qualified] = made
            else:
                self.values.initial[made] = self.setting.constant(qualified, weight)
        self.weights[qualified] = made
        return made

    def bind(self, node: Node, read: tuple[bool, ...]) -> Step:
        kernel = registry.find(node.op, node.domain, node.since)
        if kernel is None:
            message = f"no kernel for {node.qualified} revision {node.since}"
            raise ModelError(message, place=f"node {node.name!r}")
        ctx = KernelContext(
            node=node,
            device=self.setting.device,
            wanted=read,
            input_types=tuple(self.types.get(name) for name in node.inputs),
            output_types=tuple(self.types.get(name) for name in node.outputs),
            validation=self.setting.validation,
        )
        inputs = tuple(self.lookup(name) for name in node.inputs)
        bodies = {attribute: self.body(node, attribute, body) for attribute, body in node.subgraphs()}
        outputs = tuple(
            self.values.define(name) if name and keep else NOTHING
            for name, keep in zip(node.outputs, read, strict=True)
        )
        return Step(node, kernel, ctx, inputs, outputs, bodies=bodies)

    def body(self, node: Node, attribute: str, graph: Graph) -> BodySteps:
        scope = _Scope(graph, self.setting, self, f"{self.prefix}{node.name}/{attribute}/", self.types)
        steps = scope.build([info.name for info in graph.outputs])
        return BodySteps(steps, tuple(scope.captured))


class _Values:
    """Value ids of one scope."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.names: list[str] = [""]
        self.initial: list[Value] = [None]

    def new(self, name: str) -> int:
        """A new value; ``name`` is for messages only."""
        self.names.append(name)
        self.initial.append(None)
        return len(self.names) - 1

    def define(self, name: str) -> int:
        """A new value that the scope's nodes read under ``name``."""
        return self.alias(name, self.new(name))

    def alias(self, name: str, value: int) -> int:
        self.ids[name] = value
        return value


def _needed(graph: Graph, wanted: Iterable[str]) -> list[tuple[Node, tuple[bool, ...]]]:
    """Nodes that the wanted values need, in order, with which of their outputs are read."""
    read = set(wanted)
    kept: list[tuple[Node, tuple[bool, ...]]] = []
    for node in reversed(graph.nodes):
        flags = tuple(name in read for name in node.outputs)
        if not any(flags):
            continue
        kept.append((node, flags))
        read.update(name for name in node.inputs if name)
        for _, body in node.subgraphs():
            read.update(body.outer_names())
    kept.reverse()
    return kept


def _with_release(items: list[Step], outputs: tuple[int, ...], values: _Values) -> list[Step]:
    """Note at each step the values it is the last to read (or makes in vain)."""
    last: dict[int, int] = {}
    for position, step in enumerate(items):
        for value in _reads(step):
            last[value] = position
        for value in step.outputs:
            last.setdefault(value, position)
    release: dict[int, list[int]] = {}
    for value, position in last.items():
        if value != NOTHING and value not in outputs and values.initial[value] is None:
            release.setdefault(position, []).append(value)
    return [
        Step(s.node, s.kernel, s.ctx, s.inputs, s.outputs, tuple(release.get(position, ())), s.bodies)
        for position, s in enumerate(items)
    ]


def _reads(step: Step) -> Iterable[int]:
    yield from step.inputs
    for body in step.bodies.values():
        yield from (outside for outside, _ in body.captured)
