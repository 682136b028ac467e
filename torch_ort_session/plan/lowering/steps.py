"""Steps: each node bound to its kernel, each value to a number, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from torch_ort_session.ir.graph import Node, Weight
from torch_ort_session.ops.kernel import Body, Kernel, KernelContext, Validation, Value
from torch_ort_session.ops.signature import InputParam

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
        host_inputs: Names of inputs that stay on the CPU: kernels want them as Python numbers.
    """

    items: tuple[Step, ...]
    template: tuple[Value, ...]
    inputs: tuple[int, ...]
    input_names: tuple[str, ...]
    outputs: tuple[int, ...]
    names: tuple[str, ...]
    host_inputs: frozenset[str] = frozenset()


class BodyRuns(Protocol):
    """Where a body may be run in another way than step by step."""

    def enter(self, body: BodySteps, program: Any, outer: list[Any]) -> Body | None:
        """Bind a body to the values of a run.

        Args:
            body: The body.
            program: Its steps made callable.
            outer: The enclosing values; they stay as they are while the body is called.

        Returns:
            What runs it; None where it runs step by step.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class BodySteps:
    """The steps of a control-flow body, and the enclosing values it reads.

    Attributes:
        steps: Its steps; ``steps.inputs`` are the formal inputs.
        captured: Pairs of (value id outside, value id inside); constants are in ``steps.template``.
        runs: Where it may be run otherwise than step by step; None where nobody does.
        name: Names of its node and of the attribute that holds it, those of enclosing bodies before them.
        depth: How many bodies it lies in.
    """

    steps: Steps
    captured: tuple[tuple[int, int], ...]
    runs: BodyRuns | None = None
    name: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Where steps are built for.

    Attributes:
        device: The session's device.
        constant: Gives the value of a weight under its qualified name, on a device.
        fed: Qualified names of weights that are fed at each run rather than constant (parameters).
        validation: The run's validation word, None where torch itself refuses bad data.
        bodies: Where control-flow bodies may be run otherwise than step by step.
    """

    device: torch.device
    constant: Callable[[str, Weight, torch.device], Value]
    fed: frozenset[str] = frozenset()
    validation: Validation | None = None
    bodies: BodyRuns | None = None


def input_params(kernel: Kernel, count: int) -> list[InputParam]:
    """The parameter of each of ``count`` inputs, a variadic one repeated."""
    declared = list(kernel.signature.inputs)
    while len(declared) < count:
        declared.append(declared[-1])
    return declared[:count]
