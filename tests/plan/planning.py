"""Plans of small models: steps, a run that is observed, and what follows from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import onnx
import torch
from tapelab import tape_recorder
from textmodel import model

from torch_ort_session.ir.graph import Graph, Weight
from torch_ort_session.ir.load import load_model
from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.plan.analysis.static_values import StaticValues, find_static_values
from torch_ort_session.plan.lowering.build import build_steps
from torch_ort_session.plan.lowering.lower import lower
from torch_ort_session.plan.lowering.steps import Setting, Steps
from torch_ort_session.plan.partition.segments import Region, kept_constants
from torch_ort_session.plan.plan import Plan, PlanRules, make_plan
from torch_ort_session.runtime.captures.capture import CapturedGraph, capture
from torch_ort_session.runtime.captures.warmup import Keys, Warmup, planned_program
from torch_ort_session.runtime.interpreter.observe import observe
from torch_ort_session.runtime.interpreter.program import Program, bind_steps
from torch_ort_session.runtime.recorders.arena import Arena

CPU = torch.device("cpu")


def graph_of(text: str | onnx.ModelProto, **kwargs: Any) -> Graph:
    return lower(load_model(model(text, **kwargs) if isinstance(text, str) else text).graph)


def steps_of(graph: Graph, outputs: list[str] | None = None) -> Steps:
    def constant(name: str, weight: Weight, device: torch.device) -> Any:
        return weight.data

    return build_steps(graph, Setting(CPU, constant), outputs)


def ids(steps: Steps, *names: str) -> frozenset[int]:
    """The ids of values by name."""
    return frozenset(steps.names.index(name) for name in names)


def names(steps: Steps, values: Collection[int]) -> str:
    """The names of values, in alphabetical order."""
    return " ".join(sorted(steps.names[value] for value in values if value))


@dataclass(frozen=True)
class Seen:
    """A run that was observed."""

    program: Program
    static_values: StaticValues
    observation: Observation
    results: tuple[Any, ...]

    @property
    def steps(self) -> Steps:
        return self.program.steps

    def plan(self, keys: Keys = (), **rules: Any) -> Plan:
        return make_plan(self.steps, self.static_values, self.observation, PlanRules(CPU, **rules), keys)

    def captured(self, feed: Mapping[str, Any], keys: Keys = (), **rules: Any) -> CapturedGraph:
        """The capture of a run; its recordings destroy each slot after its last reader."""
        warm = Warmup(self.steps, None, self.observation, self.static_values, keys)
        planned = planned_program(warm, PlanRules(CPU, **rules))
        return capture(planned, feed, tape_recorder(poison=True), Arena(CPU))[0]

    def laid_out(self, feed: Mapping[str, Any], keys: Keys = (), **rules: Any) -> Plan:
        """The plan with the layout of its memory."""
        captured = self.captured(feed, keys, **rules)
        captured.close()
        return captured.plan

    def spec(self, name: str) -> Any:
        return self.observation.specs[self.steps.names.index(name)]


def see(
    text: str | Graph,
    feed: Mapping[str, Any],
    keys: Collection[str] = (),
    outputs: list[str] | None = None,
) -> Seen:
    """Run a model once and note what it does.

    Args:
        text: The model.
        feed: Tensors by name.
        keys: Names of the key feeds.
        outputs: What is asked for.
    """
    steps = steps_of(graph_of(text) if isinstance(text, str) else text, outputs)
    program = bind_steps(steps)
    found = find_static_values(steps, ids(steps, *keys))
    values = list(steps.template)
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        if name in feed:
            values[place] = feed[name]
    with torch.no_grad():
        observation = observe(program, values, kept_constants(steps, found))
    found = find_static_values(steps, ids(steps, *keys), opaque=observation.kinds)
    held = {value: kept for value, kept in observation.static.items() if found.constant(value)}
    observation = replace(observation, static=held)
    return Seen(program, found, observation, tuple(values[i] for i in steps.outputs))


def cut(plan: Plan) -> str:
    """One line a region: what it is, its steps, and why."""
    return "\n".join(_line(plan, region) for region in plan.regions)


def _line(plan: Plan, region: Region) -> str:
    ops = " ".join(plan.steps.items[position].node.op for position in region.positions)
    if region.reason is None:
        return f"segment  {ops}"
    return f"seam     {ops}  ({region.reason.value}: {region.message})"
