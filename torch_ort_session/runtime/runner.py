"""Runners: they do what the policy decided, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ort_session.errors import CaptureError, SessionError
from torch_ort_session.ir.graph import Graph
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.report import DeclineReport, Reason
from torch_ort_session.plan.segments import kept_static
from torch_ort_session.plan.specialise import specialise
from torch_ort_session.plan.steps import Steps
from torch_ort_session.plan.taint import Taint, taint
from torch_ort_session.runtime.arena import Arena
from torch_ort_session.runtime.capture import Declined, Warm, capture
from torch_ort_session.runtime.execute import Program, Values, bind_steps, execute
from torch_ort_session.runtime.observe import observe
from torch_ort_session.runtime.policy import Decision, Entry, Policy
from torch_ort_session.runtime.recording import Recorder
from torch_ort_session.runtime.replay import replay
from torch_ort_session.runtime.results import apart, own


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """What runs need beyond a program.

    Attributes:
        graph: The graph that runs.
        build: Makes a program of a graph and output names.
        device: Where it runs.
        policy: Decides.
        recorder: Makes the recorder of a capture; a text says why there is none.
        arena: Memory that captures share.
        required: Whether a run that cannot be captured is an error.
        minimum: Launches from which on a segment is worth recording.
    """

    graph: Graph
    build: Callable[[Graph, tuple[str, ...]], Program]
    device: torch.device
    policy: Policy
    recorder: Callable[[], Recorder | str]
    arena: Arena
    required: bool = False
    minimum: int = 1


def run_eagerly(program: Program, fed: Mapping[str, Value], device: torch.device) -> list[Any]:
    """One eager run.

    Returns:
        The results, in memory of their own.
    """
    values = frame_of(program, fed)
    execute(program, values)
    return own([values[i] for i in program.steps.outputs], program.constants, fed.values(), device)


def run(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
) -> list[Any]:
    """One run, made as the policy decides.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds.

    Returns:
        The results, in memory of their own.

    Raises:
        CaptureError: A capture is required and cannot be had.
        KernelError: A kernel failed.
    """
    policy = machine.policy
    signature, entry = policy.entry(outputs, fed, keys)
    decision = policy.decide(entry)
    entry.runs += 1
    if decision is Decision.REPLAY:
        return _replayed(machine, program, entry, fed)
    key_names = frozenset(name for name, _ in signature.keys)
    if decision is Decision.OBSERVE:
        policy.count("observed runs")
        return _observed(machine, program, outputs, key_names, entry, fed)
    if decision is Decision.CAPTURE:
        return _captured(machine, program, entry, fed)
    policy.count("eager runs")
    return run_eagerly(program, fed, machine.device)


def frame_of(program: Program, fed: Mapping[str, Value]) -> Values:
    """Initial values with the feeds in place."""
    steps = program.steps
    values = list(steps.template)
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        if name in fed:
            values[place] = fed[name]
    return values


def _observed(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    entry: Entry,
    fed: Mapping[str, Value],
) -> list[Any]:
    entry.warm, results = warm_up(machine, program, outputs, keys, fed)
    return own(results, entry.warm.program.constants, fed.values(), machine.device)


def warm_up(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
) -> tuple[Warm, list[Any]]:
    """One eager run that is observed, of the steps with what is static folded.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        keys: Names of the key feeds.
        fed: Feeds.

    Returns:
        What a capture starts from, and the results, which may lie in anybody's memory.

    Raises:
        KernelError: A kernel failed.
    """
    program, found = _specialised(machine, program, outputs, keys, fed)
    values = frame_of(program, fed)
    observation = observe(program, values, kept_static(program.steps, found))
    static = {**observation.static, **_key_values(program.steps, keys, fed)}
    results = [values[i] for i in program.steps.outputs]
    program = _with_static(program.steps, static, found)
    return Warm(program, replace(observation, static=static), found, machine.minimum), results


def _with_static(steps: Steps, static: Mapping[int, Value], found: Taint) -> Program:
    """The steps with what is static under the signature as constants, so that host inputs are bound once."""
    template = list(steps.template)
    for value, held in static.items():
        template[value] = held
    kept = [
        (name, place)
        for name, place in zip(steps.input_names, steps.inputs, strict=True)
        if place not in found.data
    ]
    return bind_steps(
        replace(
            steps,
            template=tuple(template),
            input_names=tuple(name for name, _ in kept),
            inputs=tuple(place for _, place in kept),
        )
    )


def _specialised(
    machine: Machine,
    program: Program,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
) -> tuple[Program, Taint]:
    """Fold every If whose predicate is static, then the ones that this lays open, and so on."""
    graph = machine.graph
    while True:
        steps = program.steps
        found = taint(steps, _static_inputs(steps, keys, fed))
        names = dict.fromkeys(
            step.node.inputs[0]
            for step in steps.items
            if step.node.op == "If" and step.node.domain == "" and step.inputs[0] in found.data
        )
        if not names:
            return program, found
        wanted = tuple(names)
        inner = machine.build(graph, wanted)
        values = frame_of(inner, fed)
        execute(inner, values)
        flags = [bool(values[i]) for i in inner.steps.outputs]
        graph = specialise(graph, dict(zip(wanted, flags, strict=True)))
        program = machine.build(graph, outputs)


def _captured(machine: Machine, program: Program, entry: Entry, fed: Mapping[str, Value]) -> list[Any]:
    """Record, quarantining what cannot be recorded, at most once an operator; else run eagerly."""
    policy, warm = machine.policy, entry.warm
    assert warm is not None
    recorder = machine.recorder()
    report: DeclineReport | None = None
    if isinstance(recorder, str):
        report = DeclineReport.of(Reason.OFF, recorder)
    else:
        state = torch.get_rng_state()
        for _ in range(len(warm.program.steps.items) + 1):
            try:
                captured, results = capture(warm, fed, recorder, machine.arena, policy.quarantined)
            except Declined as declined:
                torch.set_rng_state(state)
                report = declined.report
                if declined.quarantine is None or declined.quarantine in policy.quarantined:
                    break
                policy.quarantined.add(declined.quarantine)
                policy.count("quarantined operators")
                continue
            except SessionError as error:
                # Either this step's data is at fault, which the eager run says in its own words, or the
                # recorder is: then the signature is tried again later.
                torch.set_rng_state(state)
                policy.failed(entry, DeclineReport.of(Reason.RECORDING, str(error)))
                return run_eagerly(program, fed, machine.device)
            policy.captured(entry, captured)
            results = apart(results, captured.lasting)
            return own(results, program.constants, fed.values(), machine.device)
    assert report is not None
    policy.declined(entry, report)
    if machine.required:
        raise CaptureError(f"the run could not be captured:\n{report}")
    return run_eagerly(program, fed, machine.device)


def _replayed(machine: Machine, program: Program, entry: Entry, fed: Mapping[str, Value]) -> list[Any]:
    policy, captured = machine.policy, entry.captured
    assert captured is not None
    try:
        replayed = replay(captured, fed)
    except SessionError:
        raise
    except Exception as error:
        policy.retire(entry, DeclineReport.of(Reason.DIVERGED, str(error)))
        return run_eagerly(program, fed, machine.device)
    policy.count("replays")
    results = apart(replayed.results, captured.lasting)
    results = own(results, program.constants, fed.values(), machine.device)
    if replayed.divergence is not None:
        policy.retire(entry, DeclineReport((replayed.divergence,)))
    return results


def _static_inputs(steps: Steps, keys: frozenset[str], fed: Mapping[str, Value]) -> frozenset[int]:
    """Key feeds, and inputs that keep their default in every run of the signature."""
    places = zip(steps.input_names, steps.inputs, strict=True)
    return frozenset(place for name, place in places if name in keys or name not in fed)


def _key_values(steps: Steps, keys: frozenset[str], fed: Mapping[str, Value]) -> dict[int, Value]:
    """Key feeds are constants of the plan, in memory of its own."""
    found: dict[int, Value] = {}
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        value = fed.get(name)
        if name in keys and isinstance(value, torch.Tensor):
            found[place] = value.clone()
    return found
