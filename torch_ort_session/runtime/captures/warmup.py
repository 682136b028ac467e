"""Warm-up: the eager run that shows what a capture of a signature can rely on, and the plan that follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ort_session.errors import KernelError
from torch_ort_session.ir.graph import Graph
from torch_ort_session.ops import native
from torch_ort_session.ops.fused import DOMAIN
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis import Observation, StaticValues, find_static_values
from torch_ort_session.plan.lowering import Step, Steps, specialise
from torch_ort_session.plan.partition import kept_constants
from torch_ort_session.plan.plan import Plan, PlanRules, make_plan
from torch_ort_session.runtime.interpreter import (
    BoundStep,
    Builder,
    Call,
    Frame,
    Program,
    bind_steps,
    execute,
    observe,
)
from torch_ort_session.runtime.validation import ValidationWord

Keys = tuple[tuple[str, int | bool], ...]
"""Names and values of key feeds."""


@dataclass(frozen=True, slots=True, eq=False)
class Warmup:
    """What an observed run showed.

    Attributes:
        steps: The steps that were run, with If folded where its predicate is static.
        validation: The word that their kernels report bad data into.
        observation: What each value was, and of what is static, or assumed to be, the data.
        static_values: What is static, and what is assumed to be.
        keys: Names and values of the key feeds.
    """

    steps: Steps
    validation: ValidationWord | None
    observation: Observation
    static_values: StaticValues
    keys: Keys = ()


@dataclass(frozen=True, slots=True, eq=False)
class PlannedProgram:
    """A plan, and its steps made callable.

    Attributes:
        plan: The plan.
        program: Its steps, with what is static, or assumed to be, as constants.
        fallback_calls: The same steps with static values alone as constants, fused ones node by node; none
            where no seam could show that a shape is another one than assumed.
        warm: What it was made from.
    """

    plan: Plan
    program: Program
    fallback_calls: tuple[BoundStep, ...]
    warm: Warmup


def frame_of(program: Program, fed: Mapping[str, Value]) -> Frame:
    """Initial values with the feeds in place."""
    steps = program.steps
    values = list(steps.template)
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        if name in fed:
            values[place] = fed[name]
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What an observed run is made of.

    Attributes:
        graph: The graph that runs; None for the steps of a body, in which no If is folded.
        build: Makes a program of a graph and output names.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
    """

    graph: Graph | None
    build: Builder
    program: Program
    outputs: tuple[str, ...]


def warm_up(
    source: Source, keys: Keys, fed: Mapping[str, Value], unstable: Collection[str] = ()
) -> tuple[Warmup, list[Any]]:
    """One eager run that is observed, of the steps with what is static folded.

    Args:
        source: What is run.
        keys: Names and values of the key feeds.
        fed: Feeds.
        unstable: Nodes of whose results' shapes nothing is assumed, for they do not settle.

    Returns:
        What it showed, and the results, which may lie in anybody's memory: constants of the plan too, which
        are those of the observation.

    Raises:
        KernelError: A kernel failed.
    """
    names = frozenset(name for name, _ in keys)
    # Key feeds are constants of the plan, and a static value may be a view of one: in memory of its own.
    fed = {name: _copied(value) if name in names else value for name, value in fed.items()}
    program, static = specialised(source, names, unstable, fed)
    steps, values = program.steps, frame_of(program, fed)
    observation = observe(program, values, kept_constants(steps, static))
    if observation.kinds:
        static = find_static_values(steps, _static_inputs(steps, names, fed), unstable, observation.kinds)
    places = zip(steps.input_names, steps.inputs, strict=True)
    held = {**observation.static, **{place: fed[name] for name, place in places if name in names}}
    held = {value: kept for value, kept in held.items() if static.constant(value)}
    observation = replace(observation, static=held)
    warm = Warmup(steps, program.validation, observation, static, keys)
    return warm, [values[i] for i in steps.outputs]


def planned_program(warm: Warmup, rules: PlanRules) -> PlannedProgram:
    """Plan what an observed run has shown, and make the steps of the plan callable.

    Args:
        warm: What it showed.
        rules: What plans of the session go by; nothing is fused where the device has no op for it.
    """
    if rules.fuse:
        usable = native.status().usable and native.load()
        rules = replace(rules, fuse=usable and native.has_kernel("elementwise_chain", rules.device.type))
    held = warm.observation.static
    static = {value: kept for value, kept in held.items() if value in warm.static_values.data}
    assumed = {value: kept for value, kept in held.items() if value in warm.static_values.assumed}
    settled = _with_constants(_without_inputs(warm.steps, warm.static_values.data), static)
    plan = make_plan(
        _with_constants(settled, assumed), warm.static_values, warm.observation, rules, warm.keys
    )
    # Bound anew: calls of the observed run may be watched.
    program = replace(bind_steps(plan.steps), validation=warm.validation)
    fallback = _fallback_calls(plan, program, settled, assumed) if plan.seams else ()
    return PlannedProgram(plan, program, fallback, warm)


def replanned(planned: PlannedProgram, quarantined: frozenset[tuple[str, str]]) -> PlannedProgram:
    """The same plan where just these operators were quarantined when it was made; else another one.

    Args:
        planned: The plan.
        quarantined: (domain, operator) pairs that run as seams.
    """
    rules = planned.plan.rules
    if rules.quarantined == quarantined:
        return planned
    return planned_program(planned.warm, replace(rules, quarantined=quarantined))


def _without_inputs(steps: Steps, data: Collection[int]) -> Steps:
    """Steps of which static inputs are fed no more."""
    kept = [
        (name, place)
        for name, place in zip(steps.input_names, steps.inputs, strict=True)
        if place not in data
    ]
    names, places = tuple(name for name, _ in kept), tuple(place for _, place in kept)
    return replace(steps, input_names=names, inputs=places)


def _with_constants(steps: Steps, constants: Mapping[int, Value]) -> Steps:
    template = list(steps.template)
    for value, held in constants.items():
        template[value] = held
    return replace(steps, template=tuple(template))


def _fallback_calls(
    plan: Plan, program: Program, settled: Steps, assumed: Collection[int]
) -> tuple[BoundStep, ...]:
    """The steps of a plan made callable with nothing assumed, and node by node.

    Args:
        plan: The plan.
        program: Its steps as captures call them.
        settled: The observed steps, with what is static as constants.
        assumed: What is assumed to be.
    """
    apart = [
        place
        for sources in plan.sources
        for place in sources
        if len(sources) > 1 or not set(settled.items[place].inputs).isdisjoint(assumed)
    ]
    items = tuple(settled.items[place] for place in apart)
    members = dict(zip(apart, bind_steps(replace(settled, items=items)).calls, strict=True))
    calls: list[BoundStep] = []
    for call, sources in zip(program.calls, plan.sources, strict=True):
        if len(sources) > 1:
            calls.append(_one_by_one([members[place] for place in sources], call.step))
        elif sources[0] in members:
            calls.append(BoundStep(members[sources[0]].call, call.release, call.step))
        else:
            calls.append(call)
    return tuple(calls)


def specialised(
    source: Source, keys: frozenset[str], unstable: Collection[str], fed: Mapping[str, Value]
) -> tuple[Program, StaticValues]:
    """Fold every If whose predicate is static, then the ones that this lays open, and so on.

    Args:
        source: What is run.
        keys: Names of the key feeds.
        unstable: Nodes of whose results' shapes nothing is assumed, for they do not settle.
        fed: Feeds.

    Returns:
        The steps, the given ones where nothing is folded, and what of them is static.
    """
    graph, program = source.graph, source.program
    while True:
        steps = program.steps
        static = find_static_values(steps, _static_inputs(steps, keys, fed), unstable)
        names = dict.fromkeys(
            step.node.inputs[0]
            for step in steps.items
            if step.node.op == "If" and step.node.domain == "" and step.inputs[0] in static.data
        )
        if not names or graph is None:
            return program, static
        wanted = tuple(names)
        inner = source.build(graph, wanted)
        values = frame_of(inner, fed)
        execute(inner, values)
        flags = [bool(values[i]) for i in inner.steps.outputs]
        graph = specialise(graph, dict(zip(wanted, flags, strict=True)))
        program = source.build(graph, source.outputs)


def _static_inputs(steps: Steps, keys: frozenset[str], fed: Mapping[str, Value]) -> frozenset[int]:
    """Key feeds, and inputs that keep their default in every run of the signature."""
    places = zip(steps.input_names, steps.inputs, strict=True)
    return frozenset(place for name, place in places if name in keys or name not in fed)


def _copied(value: Value) -> Value:
    return value.clone() if isinstance(value, torch.Tensor) else value


def fused_in(error: Exception) -> tuple[str, str] | None:
    """The fused step that failed, as a (domain, operator) pair; None where something else did.

    Its members ran well by themselves in the warm run.
    """
    domain, _, op = error.op.partition("::") if isinstance(error, KernelError) else ("", "", "")
    return (domain, op) if domain == DOMAIN and op.startswith("Fused(") else None


def _one_by_one(members: Sequence[BoundStep], step: Step) -> BoundStep:
    """The members of a fused step, for shapes that it was not made for."""
    calls: list[Call] = [member.call for member in members]
    inner = [member.step.outputs[0] for member in members[:-1]]

    def call(values: Frame) -> None:
        for each in calls:
            each(values)
        for value in inner:
            values[value] = None

    return BoundStep(call, step.release, step)
