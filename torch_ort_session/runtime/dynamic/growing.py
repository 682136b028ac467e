"""Growing runs: without the steps whose results are known, and with what does not grow recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis.growth import FARTHEST
from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.plan.analysis.static_values import Taint, taint
from torch_ort_session.plan.lowering.steps import NOTHING
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.plan.partition.segments import split
from torch_ort_session.runtime.captures.capture import Captured
from torch_ort_session.runtime.captures.compare import difference
from torch_ort_session.runtime.captures.warmup import Warm, frame_of, specialised
from torch_ort_session.runtime.dispatch.paths import Refused, breakage, by_steps, record
from torch_ort_session.runtime.dispatch.policy import Decision, Entry
from torch_ort_session.runtime.dispatch.state import Machine, before_run, put_back
from torch_ort_session.runtime.dynamic.memo import Kept, Seen, shorten
from torch_ort_session.runtime.dynamic.residual import BY, Otherwise, Shortened
from torch_ort_session.runtime.dynamic.shape_family import Grown
from torch_ort_session.runtime.dynamic.symbolic_tape import Weave
from torch_ort_session.runtime.interpreter.observe import observe
from torch_ort_session.runtime.interpreter.profile import watch_capture, watch_program
from torch_ort_session.runtime.interpreter.program import Program
from torch_ort_session.runtime.interpreter.views import view_difference
from torch_ort_session.runtime.recorders.cuda import strips_for
from torch_ort_session.runtime.validation.tickets import counts
from torch_ort_session.runtime.values.delivery import Delivery
from torch_ort_session.runtime.values.results import own, storages
from torch_ort_session.runtime.values.signature import BoundForm, Signature, signature_of
from torch_ort_session.trace import counters

_LARGEST = 1 << 16
"""Elements of a value that is kept; a larger one is rather computed again."""


def following(machine: Machine, signature: Signature, *, new: bool) -> Grown | None:
    """Note the signature of a run; says what grew when feeds grow and the memo may know something.

    Args:
        machine: What runs need.
        signature: Of a run that is not captured.
        new: Whether it came for the first time.

    Returns:
        What grew; None where the run is to be made as any other.
    """
    grown = machine.memo.follow(signature, new=new)
    if grown is None or not machine.memo.latched(grown.form):
        return grown
    machine.policy.count(counters.INELIGIBLE)
    return None


def ongoing(
    machine: Machine,
    outputs: tuple[str, ...],
    keys: frozenset[str],
    fed: Mapping[str, Value],
    bound: tuple[BoundForm, ...],
) -> Grown | None:
    """What grew in a run that goes on as those before did, told without a signature.

    Args:
        machine: What runs need.
        outputs: Requested output names.
        keys: Names of feeds whose value may be part of the signature.
        fed: Feeds.
        bound: Bound tensors.

    Returns:
        What grew; None for any other run, and for one that is captured whole.
    """
    grown, policy = machine.memo.ongoing(outputs, fed), machine.policy
    if grown is None or all(entry.captured is None for entry in policy.entries.values()):
        return grown
    entry = policy.entries.get(signature_of(outputs, fed, policy.active(keys), bound))
    return grown if entry is None or entry.captured is None else None


class _Run(NamedTuple):
    """A run whose feeds grew, and what is kept for such runs."""

    machine: Machine
    program: Program
    outputs: Sequence[str]
    grown: Grown
    fed: Mapping[str, Value]
    kept: Kept
    recording: bool


class _Made(NamedTuple):
    """What a run gave.

    Attributes:
        results: The results, which may lie in anybody's memory.
        lasting: Addresses of memory that later runs read.
        captured: The capture that gave them.
        replayed: Whether they are as a replay left them.
    """

    results: list[Any]
    lasting: frozenset[int]
    captured: Captured | None = None
    replayed: bool = False


def run_growing(
    machine: Machine,
    program: Program,
    outputs: Sequence[str],
    grown: Grown,
    fed: Mapping[str, Value],
    delivery: Delivery | None,
    recording: bool,
) -> list[Any]:
    """One run whose feeds grew as they did before.

    Args:
        machine: What runs need.
        program: The steps for these outputs, whatever the signature.
        outputs: Requested output names.
        grown: What grew.
        fed: Feeds.
        delivery: Where results go that are bound.
        recording: Whether what does not grow may be recorded.

    Returns:
        The results, in memory of their own, those that are not bound.

    Raises:
        KernelError: A kernel failed.
    """
    names = frozenset(name for name, _ in grown.form[2])

    def fold(full: Program) -> Program:
        return specialised(machine.graph, machine.build, full, tuple(outputs), names, (), fed)[0]

    kept = machine.memo.kept(grown.form, program, fold)
    if kept.folded is not None:
        observer = machine.tracer.observer
        program = watch_program(kept.folded, fed, machine.tracer) if observer.on else kept.folded
    machine.memo.noted = None
    made = _make(_Run(machine, program, outputs, grown, fed, kept, recording))

    if delivery is None and made.replayed:
        assert made.captured is not None
        return made.captured.results_of(made.results, fed)

    def owned(results: Sequence[Any]) -> list[Any]:
        if made.captured is not None:
            return made.captured.own_results(results, fed)
        return own(results, made.lasting, fed.values(), machine.device)

    return owned(made.results) if delivery is None else delivery.deliver(made.results, owned)


def _make(run: _Run) -> _Made:
    policy, kept = run.machine.policy, run.kept
    if kept.latched:
        policy.count(counters.INELIGIBLE)
        return _Made(by_steps(run.program, run.fed), run.program.constants)
    by, short = _distance(run.grown, kept), kept.short
    if short is None or by is None:
        run.machine.memo.noted = run.grown.form
        made = _prime(run)
        primed = counters.PRIMED if short is None else counters.REBUILT
        policy.count(counters.INELIGIBLE if kept.latched else primed)
        return made
    if run.machine.tracer.observer.on:
        run.machine.tracer.observer.note(decision=Decision.GROW.value)
    entry = kept.entry = kept.entry or _entry(run, short)
    entry.runs += 1
    twice = short.random or run.machine.verify or counts(run.program)
    state = before_run(run.machine.device, run.program.validation) if twice else None

    def again() -> _Made:
        if state is not None:
            put_back(run.machine.device, state)
        return _Made(by_steps(run.program, run.fed), run.program.constants)

    woven = kept.weave is not None and kept.weave.woven
    try:
        made = _shortened(run, short, entry, by)
    except Otherwise as otherwise:
        return _rebuilt(run, otherwise.value, again)
    except Exception as error:
        # Where the feeds are at fault the eager run says so in its own words; else what is kept is.
        made = again()
        if entry.captured is None:
            kept.latch()
            policy.count(counters.INELIGIBLE)
        else:
            policy.retire(entry, breakage(error))
            policy.count(counters.REBUILT)
        return made
    policy.count(counters.GROWN)
    policy.count(counters.SKIPPED, short.dropped)
    policy.count(counters.VIEWS, len(short.views))
    if run.machine.verify:
        return _verified(run, made, again)
    return _proven(run, made, again) if woven and kept.weave is not None else made


def _shortened(run: _Run, short: Shortened, entry: Entry, by: int) -> _Made:
    """A run of what is not known beforehand: replayed, else recorded, else step by step."""
    machine, given, constants = run.machine, short.fed(run.fed, by), short.program.constants
    observer = machine.tracer.observer
    if entry.captured is None and run.recording and not entry.latched:
        machine.memo.noted = run.grown.form
        entry.warm = entry.warm or _warm(run, short)
        found = record(machine, entry, given, None)
        if not isinstance(found, Refused):
            run.kept.weave = _weave(run, found[0])
            return _Made(found[1], constants, found[0])
        for node in (row.node for row in found.report.rows if row.node and row.reason is Reason.DIVERGED):
            raise Otherwise(_first_result(short, node))
        machine.policy.declined(entry, found.report, lasting=found.lasting)
    captured = entry.captured
    if captured is None:
        program = watch_program(short.program, given, machine.tracer) if observer.on else short.program
        return _Made(by_steps(program, given), constants)
    watched = watch_capture(captured, given, observer) if observer.on else captured
    results = _replayed(watched, given, None if observer.on else run.kept.weave)
    machine.policy.count(counters.COPIED, captured.memory.static_inputs)
    return _Made(results, constants, captured, replayed=True)


def _first_result(short: Shortened, node: str) -> int:
    """The id of what a node makes."""
    step = next(step for step in short.program.steps.items if step.node.name == node)
    return next(value for value in step.outputs if value != NOTHING)


def _replayed(captured: Captured, given: Mapping[str, Any], weave: Weave | None) -> list[Any]:
    """Replay what does not grow, and run the steps between, whose failures are the caller's to explain.

    Raises:
        Otherwise: A step gave what no recording can read.
    """
    for name, static in captured.copied:
        static.copy_(given[name])
    frame = captured.frame.copy()
    for name, place in captured.passed:
        frame[place] = given[name]
    watching = weave is not None and weave.watching
    if weave is not None:
        weave.begin()
    for number, stage in enumerate(captured.stages if weave is None else weave.stages):
        if stage.recording is not None:
            stage.recording.replay()
            continue
        if watching and weave is not None:
            weave.watch(number, stage.calls, frame)
        else:
            for bound in stage.calls:
                bound.call(frame)
                for value in bound.release:
                    frame[value] = None
        for value, slot in stage.landings:
            made = frame[value]
            if made.shape != slot.shape or made.dtype is not slot.dtype:
                raise Otherwise(value)
            frame[value] = slot.copy_(made)
    captured.done()
    if watching and weave is not None:
        weave.done(given[BY])
    return [frame[value] for value in captured.warm.program.steps.outputs]


def _weave(run: _Run, captured: Captured) -> Weave:
    """What makes strips of a capture's seams once two runs were watched."""
    first, second = run.kept.first, run.kept.second
    assert first is not None and second is not None
    by = second.dims[0] - first.dims[0]
    known = ((0, first.observation.specs), (by, second.observation.specs))
    assert run.kept.short is not None
    told = [name for _, names, _ in run.kept.short.even for name in names]
    return Weave(captured, known, strips_for(run.machine.device), told)


def _entry(run: _Run, short: Shortened) -> Entry:
    """What is known of captures before the first: whether there is anything to record."""
    warm, machine = _warm(run, short), run.machine
    parts = warm.program.steps, warm.taint, warm.observation, machine.device
    regions = split(*parts, machine.policy.quarantined, machine.minimum)
    some = any(region.is_segment for region in regions)
    return Entry(warm=warm, latched=not some or isinstance(machine.recorder(), str))


def _warm(run: _Run, short: Shortened) -> Warm:
    """What a capture of all that does not grow starts from."""
    assert run.kept.second is not None
    seen, program = run.kept.second.observation, short.program
    steps = program.steps
    fixed = {value for value, held in enumerate(steps.template) if held is not None}.difference(steps.inputs)
    still = frozenset(range(len(steps.template))) - short.growing
    found = Taint(frozenset(fixed | {NOTHING}), still, growing=short.growing)
    observation = replace(seen, specs=(*seen.specs, None), static={})
    return Warm(program, program.calls, observation, found, run.machine.minimum)


def _rebuilt(run: _Run, value: int, again: Callable[[], _Made]) -> _Made:
    """The run as if nothing were known, and from now on without what was assumed of a value."""
    made = again()
    kept, policy = run.kept, run.machine.policy
    if kept.recorded:
        policy.count(counters.RETIREMENTS)
    kept.wild.add(value)
    _shorten(run)
    policy.count(counters.REBUILT)
    return made


def _proven(run: _Run, made: _Made, again: Callable[[], _Made]) -> _Made:
    """Compare the first run of strips with a full one; where they differ there are none from now on."""
    weave, policy = run.kept.weave, run.machine.policy
    assert weave is not None and made.captured is not None
    policy.count(counters.PROBES)
    eager = again()
    if not difference(tuple(run.outputs), made.results, eager.results):
        weave.proven = True
        return made
    policy.count(counters.MISMATCHES)
    weave.unravel(made.captured)
    return eager


def _verified(run: _Run, made: _Made, again: Callable[[], _Made]) -> _Made:
    """Compare with a full run, and kept views with ones made again; what differs is not done again."""
    policy, kept = run.machine.policy, run.kept
    policy.count(counters.PROBES)
    eager = again()
    wrong = difference(tuple(run.outputs), made.results, eager.results)
    if not wrong and kept.short is not None:
        wrong = view_difference(run.program, kept.short.views)
    if not wrong:
        return made
    policy.count(counters.MISMATCHES)
    kept.latch()
    return eager


def _distance(grown: Grown, kept: Kept) -> int | None:
    """How much the first dim grew since the first run; None where the dims are no continuation of it."""
    if kept.first is None or grown.by is not None:
        return grown.by
    by = grown.dims[0] - kept.first.dims[0]
    if not 0 <= by <= FARTHEST:
        return None
    if kept.short is not None:
        pairs = zip(kept.first.dims, kept.short.slopes, strict=True)
        if grown.dims != tuple([base + slope * by for base, slope in pairs]):
            return None
    return by


def _shorten(run: _Run) -> None:
    """Find out what two runs show; latches where nothing is known beforehand and nothing can be recorded."""
    kept = run.kept
    shorten(run.program, kept, run.grown.form)
    if kept.short is not None and not kept.short.dropped and _entry(run, kept.short).latched:
        kept.latch()


def _prime(run: _Run) -> _Made:
    """An observed run: the first of its form, the second, or one that begins anew."""
    program, kept, grown = run.program, run.kept, run.grown
    results, observation = _observed(program, run.fed)
    seen = Seen(grown.dims, observation)
    first = kept.first
    if kept.short is not None or first is None or grown.dims[0] <= first.dims[0]:
        kept.restart(seen)
    else:
        kept.second = seen
        _shorten(run)
    return _Made(results, program.constants | storages(observation.static.values()))


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
