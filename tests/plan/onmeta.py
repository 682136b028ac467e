"""Runs a model as on a device, without one: device values are meta tensors, host values have data.

A meta tensor has no data, so a kernel that reads a device value on the host fails here, where on a GPU it
would wait; and a dispatch mode sees every call that mixes the two sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_ort_session.ir.graph import Weight
from torch_ort_session.ir.load import load_model
from torch_ort_session.plan.lowering.build import build_steps
from torch_ort_session.plan.lowering.lower import lower
from torch_ort_session.plan.lowering.steps import Setting, Steps
from torch_ort_session.runtime.interpreter.program import bind_steps, execute
from torch_ort_session.runtime.values.feeds import from_numpy

META = torch.device("meta")


class OneSide(TorchDispatchMode):
    """Notes the calls whose tensors lie on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs or {}))
        sides = {item.device.type for item in given if isinstance(item, torch.Tensor)}
        if len(sides) > 1:
            self.mixed.append(str(func))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class MetaRun:
    """What a run made."""

    steps: Steps
    outputs: tuple[Any, ...]
    mixed: list[str]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(value.shape) for value in self.outputs]

    @property
    def on_host(self) -> list[str]:
        """Names of the nodes that ran on the host."""
        return [step.node.name for step in self.steps.items if step.ctx.device.type == "cpu"]

    @property
    def copies(self) -> list[str]:
        """Names of the values that were copied to the device."""
        return [step.node.inputs[0] for step in self.steps.items if step.node.op == "ToDevice"]


def run_on_meta(source: Any, feed: Mapping[str, Any]) -> MetaRun:
    """Run a model with its device values on meta."""
    graph = lower(load_model(source).graph)
    steps = build_steps(graph, Setting(META, _constant))
    program = bind_steps(steps)
    values = list(steps.template)
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        if name in feed:
            given = feed[name]
            tensor = given if isinstance(given, torch.Tensor) else from_numpy(name, np.asarray(given))
            values[place] = tensor if name in steps.host_inputs else tensor.to(META)
    mode = OneSide()
    with torch.no_grad(), mode:
        execute(program, values)
    return MetaRun(steps, tuple(values[place] for place in steps.outputs), mode.mixed)


def _constant(name: str, weight: Weight, device: torch.device) -> Any:
    return weight.data.to(device) if isinstance(weight.data, torch.Tensor) else weight.data
