"""Placement: which values stay on the CPU when a session runs on a device.

Shapes, axes and trip counts are wanted as Python numbers, and reading one from a device waits for it. So
what follows from ``Shape``, from lengths that are fed and from small constants is computed on the CPU, as a
few tiny torch ops, and is copied to the device only where a kernel there reads it as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

import torch

from torch_ort_session.ir.graph import Graph, Node, ValueInfo, Weight
from torch_ort_session.ir.types import ElementType, TensorType, ValueType
from torch_ort_session.ops import registry
from torch_ort_session.ops.kernel import Kernel, KernelContext, Value, kernel, kernels_of
from torch_ort_session.ops.signature import InputParam
from torch_ort_session.plan.lowering.steps import input_params

_SMALL = 1024
"""Elements up to which a constant is taken to be a shape or a scalar that may live on either side."""


@kernel("ToDevice", domain="torch_ort_session", since=(1,), seam="a copy across devices")
def to_device(value: Value, *, ctx: KernelContext) -> Value:
    """Copy a host value, or every item of a sequence, to the session's device."""
    if isinstance(value, torch.Tensor):
        return value.to(ctx.device)
    return tuple(to_device(item, ctx=ctx) for item in value) if isinstance(value, tuple) else value


TO_DEVICE: Kernel = kernels_of(to_device)[0]


@dataclass(slots=True)
class Placement:
    """Where the values of one scope live.

    It lives while steps are made.

    Attributes:
        device: The session's device; on the CPU nothing needs placing.
        demanded: Names of values that some kernel wants on the host, by way of others or directly.
        host: Ids of values on the CPU.
        either: Ids of small constants, which may be had on both sides.
        copies: The device copy of a host value, by its id.
    """

    device: torch.device
    demanded: Set[str] = frozenset()
    host: set[int] = field(default_factory=set)
    either: set[int] = field(default_factory=set)
    copies: dict[int, int] = field(default_factory=dict)

    @property
    def needed(self) -> bool:
        """Whether host and device differ."""
        return self.device.type != "cpu"

    def note_constant(self, value: int, weight: Weight) -> None:
        """Note a constant of the scope."""
        if is_small(weight):
            self.either.add(value)

    def runs_on_host(self, node: Node, kernel: Kernel, inputs: Sequence[int]) -> bool:
        """Whether a step works on host values alone, so that its results are host values too.

        A step that has only constants to work on runs where its results are wanted.
        """
        if kernel.host_result:
            return True
        if kernel.varies or kernel.seam_reason(node) is not None:
            return False
        params = input_params(kernel, len(inputs))
        tensors = [value for param, value in zip(params, inputs, strict=True) if not param.read and value]
        if not all(value in self.host or value in self.either for value in tensors):
            return False
        wanted = any(name in self.demanded for name in node.outputs)
        return wanted or any(value in self.host for value in tensors)


def is_small(weight: Weight) -> bool:
    """Whether a constant may be had on the host and on the device."""
    return isinstance(weight.data, torch.Tensor) and weight.data.numel() <= _SMALL


def host_inputs(infos: Iterable[ValueInfo]) -> set[str]:
    """Names of inputs that may be shapes, counts or switches: lists of integers or bools, or single ones."""
    return {info.name for info in infos if _may_be_a_shape(info.type)}


def _may_be_a_shape(kind: ValueType | None) -> bool:
    if not isinstance(kind, TensorType) or kind.shape is None or len(kind.shape) > 1:
        return False
    return kind.element in (ElementType.INT64, ElementType.INT32, ElementType.BOOL)


def host_formals(node: Node) -> int:
    """How many leading formal inputs of a node's bodies are host values: Loop's trip number and condition."""
    return 2 if node.op == "Loop" and node.domain == "" else 0


def host_demand(nodes: Sequence[Node], hostable: Iterable[str]) -> set[str]:
    """Names of values that kernels want on the host, and of what these are computed from.

    Args:
        nodes: Nodes of a graph, in order.
        hostable: Names of values that can be had on the host: small constants, fed lengths.
    """
    known = set(hostable)
    movable = [_note_movable(node, known) for node in nodes]
    demanded: set[str] = set()
    for node, moves in zip(reversed(nodes), reversed(movable), strict=True):
        kernel = registry.find(node.op, node.domain, node.since)
        params: list[InputParam] = [] if kernel is None else input_params(kernel, len(node.inputs))
        demanded.update(name for param, name in zip(params, node.inputs, strict=False) if param.read)
        if moves and not demanded.isdisjoint(node.outputs):
            demanded.update(node.inputs)
        for _, body in node.subgraphs():
            demanded |= host_demand(body.nodes, known | hostable_inside(node, body))
    return demanded - {""}


def hostable_inside(node: Node, body: Graph) -> set[str]:
    """Names that a body adds to what can be had on the host."""
    formals = {info.name for info in body.inputs[: host_formals(node)]}
    return formals | {name for name, weight in body.initializers.items() if is_small(weight)}


def _note_movable(node: Node, known: set[str]) -> bool:
    """Whether a node can run on the host; its outputs can be had there then."""
    kernel = registry.find(node.op, node.domain, node.since)
    if (
        kernel is None
        or kernel.varies
        or kernel.seam_reason(node) is not None
        or any(True for _ in node.subgraphs())
    ):
        return False
    if not kernel.host_result and not all(name in known for name in node.inputs if name):
        return False
    known.update(node.outputs)
    return not kernel.host_result
