"""Growing runs: eager, without the steps whose results the memo knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.growth import FARTHEST
from torch_ort_session.plan.specs import Observation
from torch_ort_session.plan.steps import NOTHING
from torch_ort_session.plan.taint import taint
from torch_ort_session.runtime import counters
from torch_ort_session.runtime.execute import Program, execute
from torch_ort_session.runtime.machine import Machine, random_state, restore_random
from torch_ort_session.runtime.memo import Grown, Kept, Numbers, Otherwise, Seen, Shortened, shorten
from torch_ort_session.runtime.observe import observe
from torch_ort_session.runtime.policy import Decision
from torch_ort_session.runtime.probe import difference
from torch_ort_session.runtime.results import storages
from torch_ort_session.runtime.signature import Signature
from torch_ort_session.runtime.tracing import watch_program
from torch_ort_session.runtime.views import view_difference
from torch_ort_session.runtime.warmup import frame_of

_LARGEST = 1 << 16
"""Elements of a value that is kept; a larger one is rather computed again."""


def following(machine: Machine, signature: Signature) -> Grown | None:
    """Note the signature of a run; says what grew when feeds grow and the memo may know something.

    Args:
        machine: What runs need.
        signature: Of a run that is not captured.

    Returns:
        What grew; None where the run is to be made as any other.
    """
    grown = machine.memo.follow(signature)
    if grown is None or not machine.memo.latched(grown.form):
        return grown
    machine.policy.count(counters.INELIGIBLE)
    return None


def run_growing(
    machine: Machine, program: Program, outputs: Sequence[str], grown: Grown, fed: Mapping[str, Value]
) -> tuple[list[Any], frozenset[int]]:
    """One run whose feeds grew as they did before.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        grown: What grew.
        fed: Feeds.

    Returns:
        The results, which may lie in anybody's memory, and the addresses of memory that later runs read.

    Raises:
        KernelError: A kernel failed.
    """
    policy, kept = machine.policy, machine.memo.kept(grown.form, program)
    if kept.latched:
        policy.count(counters.INELIGIBLE)
        return _eager(program, fed), program.constants
    by = _distance(grown, kept)
    if kept.short is None or by is None:
        rebuilt = kept.short is not None
        results, static = _prime(program, grown, kept, fed)
        policy.count(
            counters.INELIGIBLE if kept.latched else counters.REBUILT if rebuilt else counters.PRIMED
        )
        return results, program.constants | static
    short = kept.short
    state = random_state(machine.device) if kept.random or machine.verify else None

    def again() -> list[Any]:
        if state is not None:
            restore_random(machine.device, state)
        return _eager(program, fed)

    shown = short.program
    if machine.tracer.observer.on:
        shown = watch_program(shown, fed, machine.tracer)
        machine.tracer.observer.note(decision=Decision.GROW.value)
    try:
        results = _shortened(short, shown, fed, by)
    except Otherwise as otherwise:
        return _rebuilt(machine, program, kept, otherwise.value, again), program.constants
    except Exception:
        # Where the feeds are at fault the eager run says so in its own words; else what is kept is.
        results = again()
        kept.latch()
        policy.count(counters.INELIGIBLE)
        return results, program.constants
    policy.count(counters.GROWN)
    policy.count(counters.VIEWS, len(short.views))
    if machine.verify:
        results = _verified(machine, program, outputs, kept, results, again)
    return results, short.program.constants


def _rebuilt(
    machine: Machine, program: Program, kept: Kept, value: int, again: Callable[[], list[Any]]
) -> list[Any]:
    """The run as if nothing were known, and from now on without what was assumed of a value."""
    results = again()
    kept.wild.add(value)
    shorten(program, kept)
    machine.policy.count(counters.REBUILT)
    return results


def _verified(
    machine: Machine,
    program: Program,
    outputs: Sequence[str],
    kept: Kept,
    results: list[Any],
    again: Callable[[], list[Any]],
) -> list[Any]:
    """Compare with a full run, and kept views with ones made again; what differs is not done again."""
    machine.policy.count(counters.PROBES)
    eager = again()
    wrong = difference(tuple(outputs), results, eager)
    if not wrong and kept.short is not None:
        wrong = view_difference(program, kept.short.views)
    if not wrong:
        return results
    machine.policy.count(counters.MISMATCHES)
    kept.latch()
    return eager


def _eager(program: Program, fed: Mapping[str, Value]) -> list[Any]:
    values = frame_of(program, fed)
    execute(program, values)
    return [values[i] for i in program.steps.outputs]


def _distance(grown: Grown, kept: Kept) -> int | None:
    """How much the first dim grew since the first run; None where the dims are no continuation of it."""
    if kept.first is None:
        return None
    by = grown.dims[0] - kept.first.dims[0]
    if not 0 <= by <= FARTHEST:
        return None
    if kept.short is not None:
        pairs = zip(kept.first.dims, kept.short.slopes, strict=True)
        if grown.dims != tuple([base + slope * by for base, slope in pairs]):
            return None
    return by


def _prime(
    program: Program, grown: Grown, kept: Kept, fed: Mapping[str, Value]
) -> tuple[list[Any], frozenset[int]]:
    """An observed run: the first of its form, the second, or one that begins anew."""
    results, observation = _observed(program, fed)
    seen = Seen(grown.dims, observation)
    first = kept.first
    if kept.short is not None or first is None or grown.dims[0] <= first.dims[0]:
        kept.restart(seen)
    else:
        kept.second = seen
        shorten(program, kept)
    return results, frozenset(storages(observation.static.values()))


def _observed(program: Program, fed: Mapping[str, Value]) -> tuple[list[Any], Observation]:
    """An eager run, with the values noted that follow from the dims of the feeds."""
    steps = program.steps
    values = frame_of(program, fed)
    wanted = frozenset(v for v in taint(steps).data if steps.template[v] is None) - {NOTHING}
    observation = observe(program, values, wanted)
    static = {
        value: held
        for value, held in observation.static.items()
        if isinstance(held, torch.Tensor) and held.numel() <= _LARGEST
    }
    return [values[i] for i in steps.outputs], replace(observation, static=static)


def _shortened(short: Shortened, program: Program, fed: Mapping[str, Value], by: int) -> list[Any]:
    values = frame_of(program, fed)
    for value, even, wants_tensor in short.even:
        flat = [base + slope * by for base, slope in zip(even.base, even.slope, strict=True)]
        values[value] = torch.tensor(flat).view(even.shape) if wants_tensor else Numbers(even.shape, flat)
    # Checks ask how far this run is, and see the frame alone.
    values.append(by)
    execute(program, values)
    return [values[i] for i in program.steps.outputs]
