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
from torch_ort_session.ops.kernel import InputParam, Kernel, KernelContext, Validation, Value
from torch_ort_session.plan.placement import TO_DEVICE, Placement

_CPU = torch.device("cpu")

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
        constant: Gives the value of a weight under its qualified name, on a device.
        fed: Qualified names of weights that are fed at each run rather than constant (parameters).
        validation: The run's validation word, None where torch itself refuses bad data.
    """

    device: torch.device
    constant: Callable[[str, Weight, torch.device], Value]
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
        self.weights = _Weights()
        self.fed: dict[str, int] = {}
        self.placement = Placement(setting.device)
        self.items: list[Step] = []

    def build(self, wanted: list[str]) -> Steps:
        nodes = _needed(self.graph, wanted)
        for info in self.graph.inputs:
            if self.parent is not None or info.name not in self.graph.initializers:
                self.fed[info.name] = self.values.define(info.name)
        for info in self.graph.inputs:
            if info.name not in self.fed:
                self.fed[info.name] = self.lookup(info.name)
        for node, read in nodes:
            self.bind(node, read)
        outputs = tuple(self.lookup(name) for name in wanted)
        if self.parent is not None:
            outputs = tuple(self.on_device(value) for value in outputs)
        items = _with_release(self.items, outputs, self.values)
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
        assert self.parent is not None
        inside = self.values.new(name)
        self.captured.append((outside, inside))
        if outside in self.parent.placement.host:
            self.placement.host.add(inside)
        return inside

    def constant(self, qualified: str, weight: Weight, on_host: bool = False) -> int:
        """A weight: it lives in the main graph's steps, so that no body holds a copy of its own."""
        found = self.weights.ids.get((qualified, on_host))
        if found is not None:
            return found
        if self.parent is not None:
            made = self.capture(qualified, self.parent.constant(qualified, weight, on_host))
        else:
            made = self.values.new(qualified)
            if qualified in self.setting.fed:
                self.fed[qualified] = made
            else:
                device = _CPU if on_host else self.setting.device
                self.values.initial[made] = self.setting.constant(qualified, weight, device)
        if on_host:
            self.placement.host.add(made)
        elif qualified not in self.setting.fed:
            self.placement.note_constant(made, weight)
            self.weights.origins[made] = (qualified, weight)
        self.weights.ids[qualified, on_host] = made
        return made

    def bind(self, node: Node, read: tuple[bool, ...]) -> None:
        kernel = registry.find(node.op, node.domain, node.since)
        if kernel is None:
            message = f"no kernel for {node.qualified} revision {node.since}"
            raise ModelError(message, place=f"node {node.name!r}")
        inputs = [self.lookup(name) for name in node.inputs]
        on_host = False
        if self.placement.needed:
            inputs, on_host = self.placed(kernel, inputs)
        ctx = KernelContext(
            node=node,
            device=_CPU if on_host else self.setting.device,
            wanted=read,
            input_types=tuple(self.types.get(name) for name in node.inputs),
            output_types=tuple(self.types.get(name) for name in node.outputs),
            validation=None if on_host else self.setting.validation,
        )
        bodies = {attribute: self.body(node, attribute, body) for attribute, body in node.subgraphs()}
        outputs = tuple(
            self.values.define(name) if name and keep else NOTHING
            for name, keep in zip(node.outputs, read, strict=True)
        )
        if on_host:
            self.placement.host.update(outputs)
        self.items.append(Step(node, kernel, ctx, tuple(inputs), outputs, bodies=bodies))

    def placed(self, kernel: Kernel, inputs: list[int]) -> tuple[list[int], bool]:
        """The inputs on the side where the kernel wants them, and whether it runs on the host."""
        params = input_params(kernel, len(inputs))
        on_host = self.placement.runs_on_host(kernel, params, inputs)
        placed = []
        for param, value in zip(params, inputs, strict=True):
            wants_host = param.host is not None or (on_host and not kernel.host_result)
            if wants_host and value in self.weights.origins:
                placed.append(self.constant(*self.weights.origins[value], on_host=True))
            elif not wants_host and not on_host and value in self.placement.host:
                placed.append(self.on_device(value))
            else:
                placed.append(value)
        return placed, on_host

    def on_device(self, value: int) -> int:
        """The device copy of a host value, made where it is first wanted."""
        if value not in self.placement.host:
            return value
        made = self.placement.copies.get(value)
        if made is None:
            name = self.values.names[value]
            made = self.placement.copies[value] = self.values.new(f"{name} on {self.setting.device}")
            node = Node(f"{name}/to_device", TO_DEVICE.op, TO_DEVICE.domain, 1, (name,), (name,))
            ctx = KernelContext(node, self.setting.device, (True,))
            self.items.append(Step(node, TO_DEVICE, ctx, (value,), (made,)))
        return made

    def body(self, node: Node, attribute: str, graph: Graph) -> BodySteps:
        scope = _Scope(graph, self.setting, self, f"{self.prefix}{node.name}/{attribute}/", self.types)
        steps = scope.build([info.name for info in graph.outputs])
        return BodySteps(steps, tuple(scope.captured))


class _Weights:
    """Weights of one scope: ids by (qualified name, on the host), and what each id was made from."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, bool], int] = {}
        self.origins: dict[int, tuple[str, Weight]] = {}


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


def input_params(kernel: Kernel, count: int) -> list[InputParam]:
    """The parameter of each of ``count`` inputs, a variadic one repeated."""
    declared = list(kernel.signature.inputs)
    while len(declared) < count:
        declared.append(declared[-1])
    return declared[:count]


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
