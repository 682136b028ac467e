"""Programs of a session: steps bound to its device and weights."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from torch_ort_session.ir.graph import Graph, Weight
from torch_ort_session.ops.kernel import Validation, Value
from torch_ort_session.plan.lowering.build import build_steps
from torch_ort_session.plan.lowering.steps import BodyRuns, Setting
from torch_ort_session.runtime.interpreter.program import Program, bind_steps

Builder = Callable[[Graph, tuple[str, ...]], Program]


def builder(
    device: torch.device,
    placed: dict[str, Value],
    validation: Validation | None,
    bodies: BodyRuns | None = None,
) -> Builder:
    """What makes a program of a graph and output names.

    Args:
        device: Where it runs.
        placed: Weights on that device, filled as they are needed; nothing else is kept of a session, so that
            its memory goes when it goes.
        validation: Where kernels report bad data.
        bodies: Where control-flow bodies may be run otherwise than step by step.
    """
    constant = functools.partial(_placed, placed)
    return functools.partial(_built, Setting(device, constant, validation=validation, bodies=bodies))


def _built(setting: Setting, graph: Graph, names: tuple[str, ...]) -> Program:
    return bind_steps(build_steps(graph, setting, names))


def _placed(placed: dict[str, Value], name: str, weight: Weight, device: torch.device) -> Value:
    if device.type == "cpu" or not isinstance(weight.data, torch.Tensor):
        return weight.data
    if name not in placed:
        placed[name] = weight.data.to(device)
    return placed[name]
