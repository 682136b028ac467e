"""Growing runs: without the steps whose results are known, and with what does not grow recorded."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis import (
    FARTHEST,
    Observation,
    StaticValues,
    find_growth,
    find_static_values,
    growing_values,
)
from torch_ort_session.plan.lowering import NOTHING
from torch_ort_session.plan.partition import Decline, Reason
from torch_ort_session.runtime.captures import (
    CapturedGraph,
    CapturedRegion,
    PlannedProgram,
    Seams,
    Source,
    Warmup,
    difference,
    frame_of,
    planned_program,
    release,
    replay_regions,
    specialised,
    watch_capture,
)
from torch_ort_session.runtime.dispatch import (
    Decision,
    EngineState,
    GraphEntry,
    Refusal,
    RunRequest,
    before_run,
    breakage,
    by_steps,
    deliver,
    deliver_captured,
    plan_rules,
    put_back,
    record,
)
from torch_ort_session.runtime.dynamic.residual import BY, AssumptionFailed, ResidualProgram, residual_program
from torch_ort_session.runtime.dynamic.shape_family import (
    Growth,
    ShapeFamily,
    family_text,
    grown_since,
    growth_pattern,
)
from torch_ort_session.runtime.dynamic.symbolic_tape import SymbolicTape
from torch_ort_session.runtime.interpreter import (
    BoundProgram,
    Frame,
    Program,
    Views,
    bound_program,
    observe,
    view_difference,
    watch_program,
)
from torch_ort_session.runtime.recorders import strips_for
from torch_ort_session.runtime.validation import counts_routes
from torch_ort_session.runtime.values import Signature, signature_of, storages
from torch_ort_session.trace import counters

_RESTARTS = 16
"""How often runs of a form may begin anew before it is latched."""

_LATCHED = _RESTARTS + 1

_MUCH = 10
"""A good part of the steps is one in so many."""


class ObservedRun(NamedTuple):
    """An observed run, and the dims that its feeds had."""

    dims: tuple[int, ...]
    observation: Observation


@dataclass(slots=True, eq=False)
class GrowthEntry:
    """What is kept for runs of one form; it lives until the cache drops the form.

    Attributes:
        first: A run; dims count from it.
        second: A run with larger dims.
        short: What follows from the two.
        entry: What is known of captures of that; None before the first.
        wild: Values whose dims were other ones than was assumed.
        again: How often a run was no continuation of the first, so that another one became the first.
        tape: What makes strips of a capture's seams.
        folded: The steps, where the key feeds of the form fold branches of them.
    """

    first: ObservedRun | None = None
    second: ObservedRun | None = None
    short: ResidualProgram | None = None
    entry: GraphEntry | None = None
    wild: set[int] = field(default_factory=set)
    again: int = 0
    tape: SymbolicTape | None = None
    folded: Program | None = None

    @property
    def latched(self) -> bool:
        """Whether nothing is to be had."""
        return self.again > _RESTARTS

    @property
    def recorded(self) -> bool:
        """Whether there are recordings."""
        return self.entry is not None and self.entry.captured is not None

    def restart(self, seen: ObservedRun) -> None:
        """Let dims count from another run; latches when that has happened too often."""
        self.again += self.first is not None
        self.forget()
        self.first, self.second = seen, None
        if self.latched:
            self.latch()

    def latch(self) -> None:
        """Keep nothing any more."""
        self.forget()
        self.first = self.second = None
        self.again = _LATCHED

    def forget(self) -> None:
        """Give up what followed from the two runs, captures included."""
        if self.entry is not None and self.entry.captured is not None:
            self.entry.captured.close()
        self.short = self.entry = self.tape = None


class GrowthCache:
    """What is kept between runs whose feeds grow; the least recently used form goes first.

    It lives as long as the session, the binding or the body whose runs it serves.

    Args:
        forms: Forms that are kept.

    Attributes:
        noted: The form of the last growing run, if that run showed anything that later ones rely on.
    """

    def __init__(self, forms: int = 8) -> None:
        self._limit = forms
        self._last: Signature | None = None
        # The form that grew last, and whether another run came since.
        self._habit: tuple[ShapeFamily | None, bool] = (None, False)
        self._given: Growth | None = None
        self.noted: ShapeFamily | None = None
        self._bound: BoundProgram | None = None
        self._entries: OrderedDict[ShapeFamily, GrowthEntry] = OrderedDict()
        self._children: weakref.WeakSet[GrowthCache] = weakref.WeakSet()

    def child(self) -> GrowthCache:
        """The cache of a binding, which ends with it."""
        child = GrowthCache(self._limit)
        self._children.add(child)
        return child

    def renewed(self) -> GrowthCache:
        """The same, as before the first run."""
        return GrowthCache(self._limit)

    def bound(self, program: Program, names: frozenset[str], views: Callable[[], Views]) -> BoundProgram:
        """The steps of a binding, less views of what is bound.

        Args:
            program: The full program.
            names: Inputs that are bound to tensors of which all is valid.
            views: Makes an empty view plan.
        """
        bound = self._bound
        if bound is None or bound.source is not program or bound.names != names:
            self.unbind()
            bound = self._bound = bound_program(program, names, views())
        return bound

    def unbind(self) -> None:
        """Hold no views of bound tensors any more."""
        if self._bound is not None:
            self._bound.views.drop()
        self._bound = None

    def captures(self) -> Iterator[CapturedGraph]:
        """Captures that are kept, those of bindings too."""
        for kept in self._entries.values():
            if kept.entry is not None and kept.entry.captured is not None:
                yield kept.entry.captured
        for child in tuple(self._children):
            yield from child.captures()

    def follow(self, signature: Signature, *, new: bool = True) -> Growth | None:
        """Note the signature of a run; says what grew when the same dims grew twice.

        One larger run after a smaller one is no habit. Runs may come between that are new themselves, as
        where decodes take turns; signatures that take turns are captured.

        Args:
            signature: Of a run that is not captured.
            new: Whether it came for the first time.
        """
        before, self._last = self._last, signature
        grown = None if before is None or before == signature else grown_since(before, signature)
        form, gap = self._habit
        if grown is None:
            self._habit = (form if new else None, True)
            return None
        self._habit = (grown.form, False)
        return grown if grown.form == form and (new or not gap) else None

    def ongoing(self, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> Growth | None:
        """What grew, when a run is like others whose steps are recorded as far as they do not grow.

        Args:
            outputs: Requested output names.
            fed: Feeds.

        Returns:
            None for any other run, and for one with the same dims as the one before: what comes again is
            captured whole.
        """
        for kept in reversed(self._entries.values()):
            if kept.short is None or kept.short.pattern is None or not kept.recorded:
                continue
            grown = kept.short.pattern.grown(outputs, fed)
            if grown is not None:
                before, self._given = self._given, grown
                return None if grown == before else grown
        return None

    def latched(self, form: ShapeFamily) -> bool:
        """Whether nothing is to be had for runs of a form."""
        kept = self._entries.get(form)
        return kept is not None and kept.latched

    def kept(
        self, form: ShapeFamily, program: Program, fold: Callable[[Program], Program] | None = None
    ) -> GrowthEntry:
        """What is kept for runs of a form.

        Args:
            form: The form.
            program: The full program.
            fold: Folds the branches that key feeds take.
        """
        entry = self._entries.get(form)
        if entry is None:
            folded = program if fold is None or not form[2] else fold(program)
            entry = GrowthEntry(folded=None if folded is program else folded)
            self._entries[form] = entry
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)[1].forget()
        else:
            self._entries.move_to_end(form)
        return entry

    def distrust(self) -> None:
        """The last run's data was bad: what it showed is not relied on."""
        if self.noted is not None:
            kept = self._entries.pop(self.noted, None)
            if kept is not None:
                kept.forget()
        self.noted = None

    def knows_much(self, form: ShapeFamily) -> bool:
        """Whether a good part of the steps is known beforehand, or may turn out to be."""
        kept = self._entries.get(form)
        return kept is None or kept.short is None or kept.short.dropped * _MUCH >= kept.short.total

    def clear(self) -> None:
        """Drop everything."""
        self.unbind()
        self._last = self._given = None
        self._habit = (None, False)
        for kept in self._entries.values():
            kept.forget()
        self._entries.clear()
        for child in tuple(self._children):
            child.clear()

    def __str__(self) -> str:
        lines = []
        for form, kept in reversed(self._entries.items()):
            before = "latched to eager" if kept.latched else "primed"
            if kept.short is not None:
                short = kept.short
                before = f"{short.dropped} of {short.total} steps are known beforehand"
                before += f", {len(short.views)} of them views of what stays the same" if short.views else ""
            lines.append("\n  ".join((f"growing {family_text(form)}", before, *_recordings(kept))))
        return "\n\n".join([*lines, *filter(None, map(str, tuple(self._children)))])


def growth_cache_of(state: EngineState) -> GrowthCache:
    """What a session keeps of runs whose feeds grow."""
    cache: GrowthCache = state.growth  # type: ignore[assignment]
    return cache


def _recordings(kept: GrowthEntry) -> Iterator[str]:
    """What of the steps that are left is replayed, and what is not and why."""
    entry = kept.entry
    if entry is None:
        return
    if entry.captured is None:
        if entry.report is not None:
            yield "the others run one by one"
            yield from str(entry.report).splitlines()
        elif entry.latched:
            yield "the others run one by one: none of them can be recorded apart from what grows"
        return
    regions = entry.captured.regions
    segments = [stage for stage in regions if stage.region.is_segment]
    replayed = sum(len(stage.calls) for stage in segments)
    yield f"{replayed} are replayed, in {len(segments)} segment{'' if len(segments) == 1 else 's'}"
    for stage in regions:
        region = stage.region
        if region.reason is not None:
            count, first = len(stage.calls), stage.calls[0].step.node.name
            steps = f"{count} step{'' if count == 1 else 's'}"
            yield f"{steps} from {first!r}: {region.reason.value}, {region.message}"


def shorten(program: Program, kept: GrowthEntry, form: ShapeFamily) -> None:
    """Bind a program again, without the steps whose results are known.

    Args:
        program: The full program.
        kept: Two runs of a form, in which the result is put.
        form: The form.
    """
    first, second = kept.first, kept.second
    assert first is not None and second is not None
    by = second.dims[0] - first.dims[0]
    slopes = [divmod(b - a, by) for a, b in zip(first.dims, second.dims, strict=True)]
    if any(rest for _, rest in slopes):
        kept.restart(second)
        return
    analysis = find_growth(program.steps, first.observation, second.observation, by, kept.wild)
    kept.forget()
    growing = growing_values(first.observation, second.observation, analysis, kept.wild)
    kept.short = residual_program(program.steps, analysis, growing)
    rates = tuple(slope for slope, _ in slopes)
    kept.short = replace(kept.short, slopes=rates, pattern=growth_pattern(form, first.dims, rates))
    # Less may be known when it is made again, never more.
    values = analysis.constant.keys() | analysis.even.keys()
    kept.first, kept.second = _less(first, values), _less(second, values)


def _less(seen: ObservedRun, wanted: Collection[int]) -> ObservedRun:
    static = {value: held for value, held in seen.observation.static.items() if value in wanted}
    return ObservedRun(seen.dims, replace(seen.observation, static=static))


_LARGEST = 1 << 16
"""Elements of a value that is kept; a larger one is rather computed again."""


def following(state: EngineState, signature: Signature, *, new: bool) -> Growth | None:
    """Note the signature of a run; says what grew when feeds grow and the cache may know something.

    Args:
        state: What runs need.
        signature: Of a run that is not captured.
        new: Whether it came for the first time.

    Returns:
        What grew; None where the run is to be made as any other.
    """
    grown = growth_cache_of(state).follow(signature, new=new)
    if grown is None or not growth_cache_of(state).latched(grown.form):
        return grown
    state.dispatcher.count(counters.INELIGIBLE)
    return None


def ongoing(state: EngineState, request: RunRequest) -> Growth | None:
    """What grew in a run that goes on as those before did, told without a signature.

    Args:
        state: What runs need.
        request: The run.

    Returns:
        What grew; None for any other run, and for one that is captured whole.
    """
    outputs, fed, dispatcher = request.outputs, request.fed, state.dispatcher
    growth = growth_cache_of(state).ongoing(outputs, fed)
    if growth is None or all(entry.captured is None for entry in dispatcher.entries.values()):
        return growth
    signature = signature_of(outputs, fed, dispatcher.active(request.keys), request.bound)
    entry = dispatcher.entries.get(signature)
    return growth if entry is None or entry.captured is None else None


class _Run(NamedTuple):
    """A run whose feeds grew, and what is kept for such runs."""

    state: EngineState
    program: Program
    outputs: Sequence[str]
    grown: Growth
    fed: Mapping[str, Value]
    kept: GrowthEntry
    recording: bool


class _Outcome(NamedTuple):
    """What a run gave.

    Attributes:
        results: The results, which may lie in anybody's memory.
        lasting: Addresses of memory that later runs read.
        captured: The capture that gave them.
        replayed: Whether they are as a replay left them.
    """

    results: list[Any]
    lasting: frozenset[int]
    captured: CapturedGraph | None = None
    replayed: bool = False


def run_growing(state: EngineState, request: RunRequest, growth: Growth, *, recording: bool) -> list[Any]:
    """One run whose feeds grew as they did before.

    Args:
        state: What runs need.
        request: The run.
        growth: What grew.
        recording: Whether what does not grow may be recorded.

    Returns:
        The results, in memory of their own, those that are not bound.

    Raises:
        KernelError: A kernel failed.
    """
    program, outputs, fed = request.program, request.outputs, request.fed
    names = frozenset(name for name, _ in growth.form[2])

    def fold(full: Program) -> Program:
        source = Source(state.graph, state.build, full, tuple(outputs))
        return specialised(source, names, (), fed)[0]

    kept = growth_cache_of(state).kept(growth.form, program, fold)
    if kept.folded is not None:
        observer = state.tracer.observer
        program = watch_program(kept.folded, fed, state.tracer) if observer.on else kept.folded
    growth_cache_of(state).noted = None
    outcome = _make(_Run(state, program, outputs, growth, fed, kept, recording))
    if outcome.captured is None:
        return deliver(request, outcome.results, state.device, outcome.lasting)
    if request.delivery is None:
        give = outcome.captured.results_of if outcome.replayed else outcome.captured.own_results
        return give(outcome.results, fed)
    return deliver_captured(request, outcome.captured, outcome.results)


def _make(run: _Run) -> _Outcome:
    dispatcher, kept = run.state.dispatcher, run.kept
    if kept.latched:
        dispatcher.count(counters.INELIGIBLE)
        return _Outcome(by_steps(run.program, run.fed), run.program.constants)
    by, short = _distance(run.grown, kept), kept.short
    if short is None or by is None:
        growth_cache_of(run.state).noted = run.grown.form
        outcome = _prime(run)
        primed = counters.PRIMED if short is None else counters.REBUILT
        dispatcher.count(counters.INELIGIBLE if kept.latched else primed)
        return outcome
    if run.state.tracer.observer.on:
        run.state.tracer.observer.note(decision=Decision.GROW.value)
    entry = kept.entry = kept.entry or _entry(run, short)
    entry.runs += 1
    twice = short.random or run.state.verify or counts_routes(run.program.validation)
    before = before_run(run.state.device, run.program.validation) if twice else None

    def again() -> _Outcome:
        if before is not None:
            put_back(run.state.device, before)
        return _Outcome(by_steps(run.program, run.fed), run.program.constants)

    woven = kept.tape is not None and kept.tape.woven
    try:
        outcome = _shortened(run, short, entry, by)
    except AssumptionFailed as failed_assumption:
        return _rebuilt(run, failed_assumption.value, again)
    except Exception as error:
        # Where the feeds are at fault the eager run says so in its own words; else what is kept is.
        outcome = again()
        if entry.captured is None:
            kept.latch()
            dispatcher.count(counters.INELIGIBLE)
        else:
            dispatcher.retire(entry, breakage(error))
            dispatcher.count(counters.REBUILT)
        return outcome
    dispatcher.count(counters.GROWN)
    dispatcher.count(counters.SKIPPED, short.dropped)
    dispatcher.count(counters.VIEWS, len(short.views))
    if run.state.verify:
        return _verified(run, outcome, again)
    return _proven(run, outcome, again) if woven and kept.tape is not None else outcome


def _shortened(run: _Run, short: ResidualProgram, entry: GraphEntry, by: int) -> _Outcome:
    """A run of what is not known beforehand: replayed, else recorded, else step by step."""
    state, feeds, constants = run.state, short.fed(run.fed, by), short.program.constants
    observer = state.tracer.observer
    if entry.captured is None and run.recording and not entry.latched:
        growth_cache_of(state).noted = run.grown.form
        entry.planned = entry.planned or _planned(run, short)
        recorded = record(state, entry, feeds, None)
        if not isinstance(recorded, Refusal):
            run.kept.tape = _symbolic_tape(run, recorded[0])
            return _Outcome(recorded[1], constants, recorded[0])
        for node in (row.node for row in recorded.report.rows if row.node and row.reason is Reason.DIVERGED):
            raise AssumptionFailed(_first_result(short, node))
        state.dispatcher.declined(entry, recorded.report, lasting=recorded.lasting)
    captured = entry.captured
    if captured is None:
        program = watch_program(short.program, feeds, state.tracer) if observer.on else short.program
        return _Outcome(by_steps(program, feeds), constants)
    watched = watch_capture(captured, feeds, observer) if observer.on else captured
    results = _replayed(watched, feeds, None if observer.on else run.kept.tape)
    state.dispatcher.count(counters.COPIED, captured.memory.static_inputs)
    return _Outcome(results, constants, captured, replayed=True)


def _first_result(short: ResidualProgram, node: str) -> int:
    """The id of what a node makes."""
    step = next(step for step in short.program.steps.items if step.node.name == node)
    return next(value for value in step.outputs if value != NOTHING)


def _replayed(captured: CapturedGraph, fed: Mapping[str, Any], tape: SymbolicTape | None) -> list[Any]:
    """Replay what does not grow, and run the steps between, whose failures are the caller's to explain.

    Raises:
        AssumptionFailed: A step gave what no recording can read.
    """
    if tape is None:
        return replay_regions(captured, fed, Seams(captured.regions, _seam))[0]
    watching = tape.watching
    tape.begin()
    seams = Seams(tape.regions, functools.partial(_watched_seam, tape) if watching else _seam)
    results, _ = replay_regions(captured, fed, seams)
    if watching:
        tape.done(fed[BY])
    return results


def _seam(number: int, region: CapturedRegion, frame: Frame) -> tuple[Decline, ...]:
    """Run a seam's steps and land what segments read of it."""
    for bound in region.calls:
        bound.call(frame)
        release(bound, frame)
    return _land(region, frame)


def _watched_seam(
    tape: SymbolicTape, number: int, region: CapturedRegion, frame: Frame
) -> tuple[Decline, ...]:
    tape.watch(number, region.calls, frame)
    return _land(region, frame)


def _land(region: CapturedRegion, frame: Frame) -> tuple[Decline, ...]:
    for value, slot in region.landings:
        landed = frame[value]
        if landed.shape != slot.shape or landed.dtype is not slot.dtype:
            raise AssumptionFailed(value)
        frame[value] = slot.copy_(landed)
    return ()


def _symbolic_tape(run: _Run, captured: CapturedGraph) -> SymbolicTape:
    """What makes strips of a capture's seams once two runs were watched."""
    first, second = run.kept.first, run.kept.second
    assert first is not None and second is not None
    by = second.dims[0] - first.dims[0]
    observed = ((0, first.observation.specs), (by, second.observation.specs))
    assert run.kept.short is not None
    numbers = [name for _, names, _ in run.kept.short.even for name in names]
    return SymbolicTape(captured, observed, strips_for(run.state.device), numbers)


def _entry(run: _Run, short: ResidualProgram) -> GraphEntry:
    """What is known of captures before the first: whether there is anything to record."""
    planned = _planned(run, short)
    return GraphEntry(
        planned=planned, latched=not planned.plan.segments or isinstance(run.state.recorder(), str)
    )


def _planned(run: _Run, short: ResidualProgram) -> PlannedProgram:
    """The plan of all that does not grow."""
    assert run.kept.second is not None
    seen, program = run.kept.second.observation, short.program
    steps = program.steps
    fixed = {value for value, held in enumerate(steps.template) if held is not None}.difference(steps.inputs)
    still = frozenset(range(len(steps.template))) - short.growing
    static_values = StaticValues(frozenset(fixed | {NOTHING}), still, growing=short.growing)
    observation = replace(seen, specs=(*seen.specs, None), static={})
    rules = replace(plan_rules(run.state), unstable=frozenset())
    return planned_program(Warmup(program.steps, program.validation, observation, static_values), rules)


def _rebuilt(run: _Run, value: int, again: Callable[[], _Outcome]) -> _Outcome:
    """The run as if nothing were known, and from now on without what was assumed of a value."""
    outcome = again()
    kept, dispatcher = run.kept, run.state.dispatcher
    if kept.recorded:
        dispatcher.count(counters.RETIREMENTS)
    kept.wild.add(value)
    _shorten(run)
    dispatcher.count(counters.REBUILT)
    return outcome


def _proven(run: _Run, outcome: _Outcome, again: Callable[[], _Outcome]) -> _Outcome:
    """Compare the first run of strips with a full one; where they differ there are none from now on."""
    tape, dispatcher = run.kept.tape, run.state.dispatcher
    assert tape is not None and outcome.captured is not None
    dispatcher.count(counters.PROBES)
    eager = again()
    if not difference(tuple(run.outputs), outcome.results, eager.results):
        tape.proven = True
        return outcome
    dispatcher.count(counters.MISMATCHES)
    tape.unravel(outcome.captured)
    return eager


def _verified(run: _Run, outcome: _Outcome, again: Callable[[], _Outcome]) -> _Outcome:
    """Compare with a full run, and kept views with ones made again; what differs is not done again."""
    dispatcher, kept = run.state.dispatcher, run.kept
    dispatcher.count(counters.PROBES)
    eager = again()
    wrong = difference(tuple(run.outputs), outcome.results, eager.results)
    if not wrong and kept.short is not None:
        wrong = view_difference(run.program, kept.short.views)
    if not wrong:
        return outcome
    dispatcher.count(counters.MISMATCHES)
    kept.latch()
    return eager


def _distance(grown: Growth, kept: GrowthEntry) -> int | None:
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


def _prime(run: _Run) -> _Outcome:
    """An observed run: the first of its form, the second, or one that begins anew."""
    program, kept, grown = run.program, run.kept, run.grown
    results, observation = _observed(program, run.fed)
    seen = ObservedRun(grown.dims, observation)
    first = kept.first
    if kept.short is not None or first is None or grown.dims[0] <= first.dims[0]:
        kept.restart(seen)
    else:
        kept.second = seen
        _shorten(run)
    return _Outcome(results, program.constants | storages(observation.static.values()))


def _observed(program: Program, fed: Mapping[str, Value]) -> tuple[list[Any], Observation]:
    """An eager run, with the values noted that follow from the dims of the feeds."""
    steps = program.steps
    values = frame_of(program, fed)
    read = frozenset(v for v in find_static_values(steps).data if steps.template[v] is None) - {NOTHING}
    observation = observe(program, values, read)
    static = {
        value: held
        for value, held in observation.static.items()
        if isinstance(held, torch.Tensor) and held.numel() <= _LARGEST
    }
    return [values[i] for i in steps.outputs], replace(observation, static=static)
