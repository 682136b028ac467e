"""Graph -> steps: each node bound to its kernel, each value given a number and a side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from torch_ort_session.errors import ModelError
from torch_ort_session.ir.graph import Graph, Node, Weight
from torch_ort_session.ir.infer import element_types
from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops import registry
from torch_ort_session.ops.kernel import Kernel, KernelContext, Value
from torch_ort_session.plan.lowering.placement import (
    TO_DEVICE,
    Placement,
    host_demand,
    host_formals,
    host_inputs,
    hostable_inside,
    is_small,
)
from torch_ort_session.plan.lowering.steps import NOTHING, BodySteps, Setting, Step, Steps, input_params

_CPU = torch.device("cpu")


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
    types = element_types(graph, outer={})
    return _Scope(_Site(graph, setting, None, "", types, frozenset())).build(wanted)


@dataclass(frozen=True, slots=True, eq=False)
class _Site:
    """Where a scope stands.

    Attributes:
        graph: Its graph.
        setting: Where the steps will run.
        parent: The enclosing scope of a body.
        prefix: What the names of its weights are qualified with.
        types: Element types of the values it can read.
        hostable: Names that it can have on the host, those of enclosing scopes included.
    """

    graph: Graph
    setting: Setting
    parent: _Scope | None
    prefix: str
    types: Mapping[str, ElementType]
    hostable: frozenset[str]


class _Scope:
    """One graph while its steps are built; a body's scope knows the enclosing one.

    It lives while the steps of its graph are made.
    """

    def __init__(self, site: _Site) -> None:
        self.site = site
        self.values = _Values()
        self.captured: list[tuple[int, int]] = []
        self.weights = _Weights()
        self.fed: dict[str, int] = {}
        self.placement = Placement(site.setting.device)
        self.items: list[Step] = []

    def build(self, wanted: list[str], on_host: int = 0) -> Steps:
        """Bind what the wanted values need.

        Args:
            wanted: Names of values.
            on_host: How many of a body's leading inputs and outputs (less one) may stay on the host.
        """
        nodes = _needed(self.site.graph, wanted)
        hostable = self.hostable()
        if self.placement.needed:
            self.placement.demanded = host_demand([node for node, _ in nodes], hostable)
        on_host_inputs = self.define_inputs(on_host)
        for node, read in nodes:
            self.bind(node, read, hostable)
        outputs = [self.lookup(name) for name in wanted]
        if self.site.parent is not None:
            kept = 1 if on_host else 0
            outputs = [*outputs[:kept], *(self.on_device(value) for value in outputs[kept:])]
        items = with_release(self.items, tuple(outputs), self.values.initial)
        return Steps(
            items=tuple(items),
            template=tuple(self.values.initial),
            inputs=tuple(self.fed.values()),
            input_names=tuple(self.fed),
            outputs=tuple(outputs),
            names=tuple(self.values.names),
            host_inputs=on_host_inputs,
        )

    def hostable(self) -> frozenset[str]:
        """Names of this scope that can be had on the host without waiting for the device."""
        site = self.site
        if not self.placement.needed or site.parent is not None:
            return site.hostable
        names = {name for name, w in site.graph.initializers.items() if is_small(w)} - site.setting.fed
        defaults = {info.name for info in site.graph.inputs if info.name in site.graph.initializers}
        return frozenset((names - defaults) | host_inputs(site.graph.inputs))

    def define_inputs(self, on_host: int) -> frozenset[str]:
        """Number the formal inputs, and say which of them stay on the host."""
        site, host = self.site, set()
        for position, info in enumerate(site.graph.inputs):
            value = self.fed[info.name] = self.values.define(info.name)
            default = site.graph.initializers.get(info.name) if site.parent is None else None
            if site.parent is not None:
                stays = position < on_host
            else:
                stays = info.name in host_inputs((info,)) and info.name in self.placement.demanded
            if default is not None and info.name not in site.setting.fed:
                device = _CPU if stays else site.setting.device
                self.values.initial[value] = site.setting.constant(info.name, default, device)
            if stays and self.placement.needed:
                self.placement.host.add(value)
                host.add(info.name)
        return frozenset(host)

    def lookup(self, name: str) -> int:
        """The id of a value of this scope or an enclosing one (then it is captured)."""
        if not name:
            return NOTHING
        found = self.values.ids.get(name)
        if found is not None:
            return found
        site = self.site
        weight = site.graph.initializers.get(name)
        if weight is not None:
            return self.values.alias(name, self.constant(site.prefix + name, weight))
        if site.parent is None:
            raise ModelError(
                f"value {name!r} is not made by anything in the graph; ask for one of its outputs, inputs, "
                "weights or intermediate values (`torch-ort-session inspect MODEL --nodes` lists them)",
                place=f"graph {site.graph.name!r}",
            )
        outside = site.parent.lookup(name)
        origin = site.parent.weights.origins.get(outside)
        value = self.capture(name, outside) if origin is None else self.constant(*origin)
        return self.values.alias(name, value)

    def capture(self, name: str, outside: int) -> int:
        assert self.site.parent is not None
        inside = self.values.new(name)
        self.captured.append((outside, inside))
        if outside in self.site.parent.placement.host:
            self.placement.host.add(inside)
        return inside

    def constant(self, qualified: str, weight: Weight, on_host: bool = False) -> int:
        """A weight; the steps of a body share the main graph's, so that none has a copy of its own."""
        found = self.weights.ids.get((qualified, on_host))
        if found is not None:
            return found
        setting, parent = self.site.setting, self.site.parent
        fed = qualified in setting.fed
        outside = None if parent is None else parent.constant(qualified, weight, on_host)
        if outside is not None and fed:
            made = self.capture(qualified, outside)
        else:
            made = self.values.new(qualified)
            if fed:
                self.fed[qualified] = made
            elif parent is not None and outside is not None:
                self.values.initial[made] = parent.values.initial[outside]
            else:
                device = _CPU if on_host else setting.device
                self.values.initial[made] = setting.constant(qualified, weight, device)
        if on_host:
            self.placement.host.add(made)
        elif not fed:
            self.placement.note_constant(made, weight)
            self.weights.origins[made] = (qualified, weight)
        self.weights.ids[qualified, on_host] = made
        return made

    def bind(self, node: Node, read: tuple[bool, ...], hostable: frozenset[str]) -> None:
        kernel = registry.find(node.op, node.domain, node.since)
        if kernel is None:
            message = f"no kernel for {node.qualified} revision {node.since}"
            raise ModelError(message, place=f"node {node.name!r}")
        inputs = [self.lookup(name) for name in node.inputs]
        on_host = False
        if self.placement.needed:
            on_host = self.placement.runs_on_host(node, kernel, inputs)
            inputs = self.placed(kernel, inputs, on_host)
        setting, types = self.site.setting, self.site.types
        input_types = tuple(types.get(name) for name in node.inputs)
        fed = self.fed.values()
        constants = [None if value in fed else self.values.initial[value] for value in inputs]
        told = None if on_host else setting.validation
        asked = told is not None and kernel.may_fault(node, input_types, constants, told)
        ctx = KernelContext(
            node=node,
            device=_CPU if on_host else setting.device,
            wanted=read,
            input_types=input_types,
            output_types=tuple(types.get(name) for name in node.outputs),
            validation=told if asked else None,
        )
        bodies = {name: self.body(node, name, graph, hostable) for name, graph in node.subgraphs()}
        outputs = tuple(
            self.values.define(name) if name and keep else NOTHING
            for name, keep in zip(node.outputs, read, strict=True)
        )
        if on_host:
            self.placement.host.update(outputs)
        self.items.append(Step(node, kernel, ctx, tuple(inputs), outputs, bodies=bodies))

    def placed(self, kernel: Kernel, inputs: list[int], on_host: bool) -> list[int]:
        """The inputs on the side where the kernel wants them."""
        placed = []
        for param, value in zip(input_params(kernel, len(inputs)), inputs, strict=True):
            origin = self.weights.origins.get(value)
            wants_host = param.read or (on_host and not kernel.host_result)
            # A constant of no dims becomes a number where the kernel takes one.
            number = param.host is not None and origin is not None and not origin[1].shape
            if origin is not None and (wants_host or number):
                placed.append(self.constant(*origin, on_host=True))
            elif not wants_host and not on_host and value in self.placement.host:
                placed.append(self.on_device(value))
            else:
                placed.append(value)
        return placed

    def on_device(self, value: int) -> int:
        """The device copy of a host value, made where it is first wanted."""
        if value not in self.placement.host:
            return value
        made = self.placement.copies.get(value)
        if made is None:
            device, name = self.site.setting.device, self.values.names[value]
            made = self.placement.copies[value] = self.values.new(f"{name} on {device}")
            node = Node(f"{name}/to_device", TO_DEVICE.op, TO_DEVICE.domain, 1, (name,), (name,))
            ctx = KernelContext(node, device, (True,))
            self.items.append(Step(node, TO_DEVICE, ctx, (value,), (made,)))
        return made

    def body(self, node: Node, attribute: str, graph: Graph, hostable: frozenset[str]) -> BodySteps:
        outer, prefix = self.site.types, f"{self.site.prefix}{node.name}/{attribute}/"
        types = {**outer, **element_types(graph, outer=outer)}
        known = hostable | hostable_inside(node, graph)
        scope = _Scope(_Site(graph, self.site.setting, self, prefix, types, known))
        steps = scope.build([info.name for info in graph.outputs], on_host=host_formals(node))
        runs = self.site.setting.bodies
        return BodySteps(steps, tuple(scope.captured), runs, prefix.rstrip("/"), self.depth())

    def depth(self) -> int:
        """How many scopes enclose this one."""
        parent = self.site.parent
        return 0 if parent is None else parent.depth() + 1


class _Weights:
    """Weights of one scope: ids by (qualified name, on the host), and what each id was made from."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, bool], int] = {}
        self.origins: dict[int, tuple[str, Weight]] = {}


class _Values:
    """Value ids of one scope.

    It lives while steps are made.
    """

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


def with_release(items: Sequence[Step], outputs: Collection[int], template: Sequence[Value]) -> list[Step]:
    """Note at each step the values it is the last to read (or makes in vain).

    Args:
        items: The steps in order.
        outputs: Values that are kept.
        template: Initial values by id; constants are kept too.
    """
    last: dict[int, int] = {}
    for position, step in enumerate(items):
        for value in reads(step):
            last[value] = position
        for value in step.outputs:
            last.setdefault(value, position)
    release: dict[int, list[int]] = {}
    for value, position in last.items():
        if value != NOTHING and value not in outputs and template[value] is None:
            release.setdefault(position, []).append(value)
    return [
        Step(s.node, s.kernel, s.ctx, s.inputs, s.outputs, tuple(release.get(position, ())), s.bodies)
        for position, s in enumerate(items)
    ]


def reads(step: Step) -> Iterable[int]:
    """Ids of what a step reads, what its bodies read from around them among them."""
    yield from step.inputs
    for body in step.bodies.values():
        yield from (outside for outside, _ in body.captured)
