"""Warm-up: the eager run that shows what a capture of a signature can rely on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ort_session.errors import KernelError
from torch_ort_session.ir.graph import Graph
from torch_ort_session.ops import native
from torch_ort_session.ops.fused import DOMAIN
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.plan.analysis.static_values import StaticValues, find_static_values
from torch_ort_session.plan.lowering.specialise import specialise
from torch_ort_session.plan.lowering.steps import Step, Steps
from torch_ort_session.plan.partition.fuse import Fusion, fuse
from torch_ort_session.plan.partition.segments import kept_constants, split
from torch_ort_session.runtime.interpreter.observe import observe
from torch_ort_session.runtime.interpreter.program import (
    BoundStep,
    Call,
    Frame,
    Program,
    bind_steps,
    execute,
)


@dataclass(frozen=True, slots=True, eq=False)
class Warmup:
    """What a capture starts from.

    Attributes:
        program: The steps, with If folded where its predicate is static, and as constants what is static and
            what is assumed to be.
        fallback_calls: The same steps made callable with static values alone as constants.
        observation: What the warm run showed.
        static_values: What is static, and what is assumed to be.
        minimum: Launches from which on a segment is worth recording.
        keys: Names and values of the key feeds.
        unstable: Nodes that run eagerly because the shape of their results does not settle.
    """

    program: Program
    fallback_calls: tuple[BoundStep, ...]
    observation: Observation
    static_values: StaticValues
    minimum: int = 1
    keys: tuple[tuple[str, int | bool], ...] = ()
    unstable: frozenset[str] = frozenset()


def frame_of(program: Program, fed: Mapping[str, Value]) -> Frame:
    """Initial values with the feeds in place."""
    steps = program.steps
    values = list(steps.template)
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        if name in fed:
            values[place] = fed[name]
    return values


def warm_up(
    graph: Graph | None,
    build: Callable[[Graph, tuple[str, ...]], Program],
    program: Program,
    outputs: tuple[str, ...],
    keys: tuple[tuple[str, int | bool], ...],
    fed: Mapping[str, Value],
    minimum: int = 1,
    unstable: Collection[str] = (),
) -> tuple[Warmup, list[Any]]:
    """One eager run that is observed, of the steps with what is static folded.

    Args:
        graph: The graph that runs; None for the steps of a body, in which no If is folded.
        build: Makes a program of a graph and output names.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names and values of the key feeds.
        fed: Feeds.
        minimum: Launches from which on a segment is worth recording.
        unstable: Nodes of whose results' shapes nothing is assumed, for they do not settle.

    Returns:
        What a capture starts from, and the results, which may lie in anybody's memory.

    Raises:
        KernelError: A kernel failed.
    """
    names = frozenset(name for name, _ in keys)
    # Key feeds are constants of the plan, and a static value may be a view of one: in memory of its own.
    fed = {name: _copied(value) if name in names else value for name, value in fed.items()}
    program, found = specialised(graph, build, program, outputs, names, unstable, fed)
    steps, values = program.steps, frame_of(program, fed)
    observation = observe(program, values, kept_constants(steps, found))
    if observation.kinds:
        found = find_static_values(steps, _static_inputs(steps, names, fed), unstable, observation.kinds)
    places = zip(steps.input_names, steps.inputs, strict=True)
    held = {**observation.static, **{place: fed[name] for name, place in places if name in names}}
    held = {value: kept for value, kept in held.items() if found.constant(value)}
    static = _with_static(steps, {v: kept for v, kept in held.items() if v in found.data}, found)
    assuming = _with_assumed(static, {v: kept for v, kept in held.items() if v in found.assumed})
    observation = replace(observation, static=held)
    warm = Warmup(assuming, static.calls, observation, found, minimum, keys, frozenset(unstable))
    return warm, [values[i] for i in steps.outputs]


def _with_static(steps: Steps, static: Mapping[int, Value], found: StaticValues) -> Program:
    """The steps with what is static as constants, so that host inputs are bound once."""
    kept = [
        (name, place)
        for name, place in zip(steps.input_names, steps.inputs, strict=True)
        if place not in found.data
    ]
    return bind_steps(
        replace(
            steps,
            template=_filled(steps, static),
            input_names=tuple(name for name, _ in kept),
            inputs=tuple(place for _, place in kept),
        )
    )


def _with_assumed(program: Program, assumed: Mapping[int, Value]) -> Program:
    """The same with more values as constants; only steps that read those are bound again."""
    if not assumed:
        return program
    steps = replace(program.steps, template=_filled(program.steps, assumed))
    places = [place for place, step in enumerate(steps.items) if not assumed.keys().isdisjoint(step.inputs)]
    again = bind_steps(replace(steps, items=tuple(steps.items[place] for place in places)))
    bound = dict(zip(places, again.calls, strict=True))
    calls = tuple(bound.get(place, call) for place, call in enumerate(program.calls))
    return replace(program, steps=steps, calls=calls, constants=again.constants)


def _filled(steps: Steps, constants: Mapping[int, Value]) -> tuple[Value, ...]:
    template = list(steps.template)
    for value, held in constants.items():
        template[value] = held
    return tuple(template)


def specialised(
    graph: Graph | None,
    build: Callable[[Graph, tuple[str, ...]], Program],
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    unstable: Collection[str],
    fed: Mapping[str, Value],
) -> tuple[Program, StaticValues]:
    """Fold every If whose predicate is static, then the ones that this lays open, and so on.

    Args:
        graph: The graph that runs; None for the steps of a body, in which no If is folded.
        build: Makes a program of a graph and output names.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of the key feeds.
        unstable: Nodes of whose results' shapes nothing is assumed, for they do not settle.
        fed: Feeds.

    Returns:
        The steps, the given ones where nothing is folded, and what of them is static.
    """
    while True:
        steps = program.steps
        found = find_static_values(steps, _static_inputs(steps, keys, fed), unstable)
        names = dict.fromkeys(
            step.node.inputs[0]
            for step in steps.items
            if step.node.op == "If" and step.node.domain == "" and step.inputs[0] in found.data
        )
        if not names or graph is None:
            return program, found
        wanted = tuple(names)
        inner = build(graph, wanted)
        values = frame_of(inner, fed)
        execute(inner, values)
        flags = [bool(values[i]) for i in inner.steps.outputs]
        graph = specialise(graph, dict(zip(wanted, flags, strict=True)))
        program = build(graph, outputs)


def _static_inputs(steps: Steps, keys: frozenset[str], fed: Mapping[str, Value]) -> frozenset[int]:
    """Key feeds, and inputs that keep their default in every run of the signature."""
    places = zip(steps.input_names, steps.inputs, strict=True)
    return frozenset(place for name, place in places if name in keys or name not in fed)


def _copied(value: Value) -> Value:
    return value.clone() if isinstance(value, torch.Tensor) else value


def with_fused(
    warm: Warmup, device: torch.device, quarantined: Collection[tuple[str, str]], on: bool = True
) -> Warmup:
    """Fuse what can be fused.

    Args:
        warm: What a capture starts from.
        device: The session's device.
        quarantined: (domain, operator) pairs that are not recorded; a fused step of those falls apart.
        on: Whether anything is fused.

    Returns:
        What the capture starts from instead. What runs eagerly because a shape turned out to be another one
        runs node by node as before.
    """
    if not on or not native.has_kernel("elementwise_chain", device.type):
        return warm
    parts = warm.program.steps, warm.static_values, warm.observation
    regions = split(*parts, device, quarantined, warm.minimum, warm.unstable)
    found = fuse(*parts, regions, device, quarantined, warm.minimum)
    if found is None:
        return warm
    return _bound(warm, found)


def fused_in(error: Exception) -> tuple[str, str] | None:
    """The fused step that failed, as a (domain, operator) pair; None where something else did.

    Its members ran well by themselves in the warm run.
    """
    domain, _, op = error.op.partition("::") if isinstance(error, KernelError) else ("", "", "")
    return (domain, op) if domain == DOMAIN and op.startswith("Fused(") else None


def _bound(warm: Warmup, found: Fusion) -> Warmup:
    steps = replace(warm.program.steps, items=found.items)
    fresh = [step for step, sources in zip(found.items, found.sources, strict=True) if len(sources) > 1]
    bound = iter(bind_steps(replace(steps, items=tuple(fresh))).calls)
    calls: list[BoundStep] = []
    fallback_calls: list[BoundStep] = []
    for step, sources in zip(found.items, found.sources, strict=True):
        if len(sources) > 1:
            calls.append(next(bound))
            fallback_calls.append(_one_by_one([warm.fallback_calls[place] for place in sources], step))
        else:
            (place,) = sources
            calls.append(BoundStep(warm.program.calls[place].call, step.release, step))
            fallback_calls.append(BoundStep(warm.fallback_calls[place].call, step.release, step))
    now = {place: at for at, sources in enumerate(found.sources) for place in sources}
    assumed = {value: now[place] for value, place in warm.static_values.assumed.items()}
    return replace(
        warm,
        program=replace(warm.program, steps=steps, calls=tuple(calls)),
        fallback_calls=tuple(fallback_calls),
        static_values=replace(warm.static_values, assumed=assumed),
    )


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
