"""Capture: a run that is recorded region by region and yields this step's results as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis import Observation, fits
from torch_ort_session.plan.lowering import NOTHING, Step, Steps, reads
from torch_ort_session.plan.memory import MemoryLayout, named
from torch_ort_session.plan.partition import Decline, DeclineReport, Reason, Region, last_name
from torch_ort_session.plan.plan import Plan, Specs
from torch_ort_session.plan.verify import verify_layout
from torch_ort_session.runtime.captures.warmup import PlannedProgram
from torch_ort_session.runtime.interpreter import (
    BoundStep,
    Frame,
    Views,
    raise_failure,
    region_facts,
    segment_name,
    watch_calls,
)
from torch_ort_session.runtime.recorders import (
    Arena,
    CaptureMemory,
    Finished,
    Recorder,
    Recording,
    Refused,
    Shared,
    Stamp,
    Use,
)
from torch_ort_session.runtime.values import Delivery, apart, cloned, own, storage_ids
from torch_ort_session.trace.observer import OFF, SEGMENT, Observer


@dataclass(frozen=True, slots=True, eq=False)
class OutputDonation:
    """What becomes of each result.

    Attributes:
        recording: Gives results away; None where every one of them is copied.
        given: Of each result, whether its bytes leave with it.
        lasting: Identities of the storages that a capture keeps: other results in them are copied.
    """

    recording: Recording | None
    given: tuple[bool, ...]
    lasting: frozenset[int]

    def __call__(self, results: Sequence[Any], copied: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Results in memory of their own; right after a replay, and once.

        Args:
            results: The results as the capture has them.
            copied: Gives memory of their own to those that cannot leave as they are.
        """
        if self.recording is None:
            return copied(list(results))
        if all(self.given):
            return list(self.recording.donate(list(results)))
        pairs = list(zip(results, self.given, strict=True))
        moved = iter(self.recording.donate([result for result, given in pairs if given]))
        rest = iter(copied([result for result, given in pairs if not given]))
        return [next(moved) if given else next(rest) for _, given in pairs]


def donation(
    outputs: Sequence[Any], given: frozenset[int], recording: Recording, lasting: frozenset[int]
) -> OutputDonation:
    """What becomes of results.

    Args:
        outputs: The results as a capture has them.
        given: Identities of the storages whose bytes leave.
        recording: One of its recordings.
        lasting: Identities of the storages that the capture keeps.
    """
    marks = tuple(
        isinstance(held, torch.Tensor) and held.untyped_storage()._cdata in given for held in outputs
    )
    return OutputDonation(recording if any(marks) else None, marks, lasting)


def clones(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Contiguous copies."""
    return [cloned(result) for result in results]


def check_guards(step: Step, guards: Specs, frame: Frame, names: Sequence[str]) -> tuple[Decline, ...]:
    """Compare results of a step with what they were in the warm run.

    Args:
        step: The step.
        guards: Those of its results on which others rely, with their specs in the warm run.
        frame: The values as they are.
        names: Their names.

    Returns:
        One row for each that has another dtype, shape or device, or is no tensor.
    """
    rows: tuple[Decline, ...] = ()
    for value, spec in guards:
        held = frame[value]
        if not (isinstance(held, torch.Tensor) and fits(spec, held)):
            message = f"{names[value]!r} was {described(spec)} in the warm run and is now {described(held)}"
            node = step.node
            rows += (Decline(last_name(step), node.op, node.domain, Reason.DIVERGED, message),)
    return rows


def described(held: Any) -> str:
    """The dtype and dims of a spec or a tensor, or what else there is, in a message."""
    if hasattr(held, "dtype") and hasattr(held, "shape") and isinstance(held.dtype, torch.dtype):
        return f"{str(held.dtype).removeprefix('torch.')}{list(held.shape)}"
    return "absent" if held is None else "a sequence" if isinstance(held, tuple) else "strings"


def shares(
    plan: Plan, frame: Frame, inputs: Iterable[int], landed: Mapping[int, int], *, give: bool
) -> list[Shared]:
    """List the memory that others than recorded calls read or write.

    Args:
        plan: The plan.
        frame: Values as the capture's run left them.
        inputs: Values that are fed, in copies of the capture's own.
        landed: Values that seams hand to segments, with the number of the seam's region.
        give: Whether results may leave without a copy.
    """
    needed = _needed(plan, landed)
    made = dict.fromkeys(
        value
        for region in plan.segments
        for position in region.positions
        for value in plan.steps.items[position].outputs
    )
    leaving = _leaving(plan, frame) if give else set()
    shared: list[Shared] = []
    for value in inputs:
        shared.append(Shared(frame[value], Use.INPUT, 0, needed.get(value, 0)))
    for value, number in landed.items():
        shared.append(Shared(frame[value], Use.SHARED, number, max(number, needed.get(value, number))))
    for value in made:
        held = frame[value]
        if isinstance(held, torch.Tensor) and value in needed:
            use = Use.GIVEN if value in leaving else Use.SHARED
            shared.append(Shared(held, use, None, needed[value]))
    return shared


def _needed(plan: Plan, landed: Mapping[int, int]) -> dict[int, int]:
    """By value, the last region that reads its memory, through what a seam handed on of it as well."""
    last = plan.reads.anywhere
    needed = dict(last)
    behind: dict[int, set[int]] = {}
    for region in plan.seams:
        inside: dict[int, set[int]] = {}
        for position in region.positions:
            step = plan.steps.items[position]
            roots: set[int] = set()
            for value in _may_alias(step, plan.observation):
                roots |= {value} | inside.get(value, set()) | behind.get(value, set())
            for value in step.outputs:
                if value != NOTHING:
                    inside[value] = roots
        behind.update((value, roots) for value, roots in inside.items() if value not in landed)
    for value, roots in behind.items():
        for root in roots:
            needed[root] = max(needed.get(root, 0), last.get(value, 0))
    return needed


def _may_alias(step: Step, observation: Observation) -> Iterator[int]:
    """Values in whose memory a step's results may lie when it runs eagerly."""
    if step.bodies or any(value in observation.kinds for value in (*step.inputs, *step.outputs)):
        yield from (value for value in reads(step) if value != NOTHING)
        return
    # What a kernel was seen to do counts as well as what it declares.
    owners = {spec.owner for value in step.outputs if (spec := observation.specs[value]) is not None}
    names = [param.name for param in step.kernel.signature.inputs]
    for place, value in enumerate(step.inputs):
        spec = observation.specs[value]
        name = names[min(place, len(names) - 1)] if names else ""
        if value != NOTHING and (name == step.kernel.view_of or (spec is not None and spec.owner in owners)):
            yield value


def _leaving(plan: Plan, frame: Frame) -> set[int]:
    """Results that fill a storage of their own, which no seam reads and which no other result lies in."""
    lent = {
        _storage(frame[value])
        for region in plan.seams
        for position in region.positions
        for value in reads(plan.steps.items[position])
    }
    outputs = plan.steps.outputs
    owners = [_storage(frame[value]) for value in outputs]
    return {
        value
        for value, owner in zip(outputs, owners, strict=True)
        if owner and owner not in lent and owners.count(owner) == 1 and _fills(frame[value])
    }


def _storage(held: object) -> int:
    return held.untyped_storage()._cdata if isinstance(held, torch.Tensor) else 0


def _fills(held: torch.Tensor) -> bool:
    return (
        held.is_contiguous()
        and held.storage_offset() == 0
        and held.nbytes == held.untyped_storage().nbytes() > 0
        and not held.is_conj()
        and not held.is_neg()
    )


@dataclass(frozen=True, slots=True, eq=False)
class CapturedRegion:
    """A region, ready for replay.

    Attributes:
        region: The region.
        calls: Its steps made callable.
        recording: Its recording; None for a seam.
        landings: Of a seam: value ids with the tensor that segments read them from. Its other results stay as
            the run made them: only seams and the user read those.
        guards: Of a seam: for each call those of its results whose shapes segments, or constants of the
            capture, rely on, with what they were in the warm run.
        views: Of a seam: the view plan of those calls that make views of what the capture owns.
    """

    region: Region
    calls: tuple[BoundStep, ...]
    recording: Recording | None
    landings: tuple[tuple[int, torch.Tensor], ...] = ()
    guards: tuple[Specs, ...] = ()
    views: Views | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CapturedGraph:
    """A captured signature; nothing in it changes but the data of its tensors.

    Attributes:
        planned: What was captured, with the layout of its memory.
        frame: Values that stay where they are: constants, static inputs, landings, results of recordings.
        copied: Names of fed tensors, with their static inputs.
        passed: Names and value ids of other feeds, which are read as they come.
        regions: The regions in order.
        whole: The recording that is all of the run; None when there are seams.
        results: The outputs where every one of them lies in the frame; None where a run makes some anew.
        donation: What becomes of the results.
        memory: Bytes.
        device: Where results belong.
        varies: Whether a step of a replay may draw random numbers; none that a tape holds does.
        stamp: What it was made with; None for a body's, which is replayed within runs alone.
    """

    planned: PlannedProgram
    frame: Frame
    copied: tuple[tuple[str, torch.Tensor], ...]
    passed: tuple[tuple[str, int], ...]
    regions: tuple[CapturedRegion, ...]
    whole: Recording | None
    results: tuple[torch.Tensor, ...] | None
    donation: OutputDonation
    memory: CaptureMemory
    device: torch.device
    varies: bool
    stamp: Stamp | None = None

    @property
    def plan(self) -> Plan:
        """The plan that it follows."""
        return self.planned.plan

    def differs(self, fed: Mapping[str, Value]) -> bool:
        """Whether feeds are other ones than those of the run before, or might be."""
        if any(isinstance(fed[name], torch.Tensor) for name, _ in self.passed):
            return True
        return any(not torch.equal(static, fed[name]) for name, static in self.copied)  # type: ignore[arg-type]

    @property
    def lasting(self) -> frozenset[int]:
        """Identities of the storages in the frame: results in them are copied, or take their bytes along."""
        return self.donation.lasting

    def results_of(self, results: Sequence[Any], fed: Mapping[str, Value]) -> list[Any]:
        """The results of a replay that went well, in memory of their own; once a replay."""
        return self.donation(results, lambda rest: self.own_results(rest, fed))

    def own_results(self, results: Sequence[Any], fed: Mapping[str, Value]) -> list[Any]:
        """Results in memory of their own, copied where later runs or anybody else write to theirs."""
        constants = self.planned.program.constants
        return own(apart(results, self.lasting), constants, fed.values(), self.device)

    def done(self) -> None:
        """A replay has succeeded: the views that it made count from now on."""
        for stage in self.regions:
            if stage.views is not None:
                stage.views.done()

    def close(self) -> None:
        """Give up every recording, together."""
        for stage in self.regions:
            if stage.views is not None:
                stage.views.drop()
            if stage.recording is not None:
                stage.recording.close()


class Declined(Exception):
    """Carries a report out of a capture; never leaves this package."""

    def __init__(self, report: DeclineReport, quarantine: tuple[str, str] | None = None) -> None:
        super().__init__(str(report))
        self.report = report
        self.quarantine = quarantine


def capture(
    planned: PlannedProgram,
    fed: Mapping[str, Value],
    recorder: Recorder,
    arena: Arena,
    delivery: Delivery | None = None,
    observer: Observer = OFF,
) -> tuple[CapturedGraph, list[Any]]:
    """Record every segment of a plan and run every seam once.

    Args:
        planned: What to capture.
        fed: This run's feeds.
        recorder: Records on the session's device.
        arena: Gives the memory that recordings share.
        delivery: Of a binding, whose inputs are read where they are.
        observer: Is told of regions and steps.

    Returns:
        The capture, and this step's results: in memory of their own, or as they are for a delivery.

    Raises:
        Declined: Nothing was captured; what the attempt did is undone by the caller.
        PlanError: The layout of its memory is wrong: looked for where the recorder gives evidence.
        Exception: Nothing was captured, for a reason that nobody foresaw: a step failed, or the recorder did.
    """
    plan = planned.plan
    if not plan.segments:
        rows = [_row(plan.steps, region) for region in plan.regions]
        nothing = Decline("", "", "", Reason.NOTHING, "no segment is left to record")
        raise Declined(DeclineReport((nothing, *rows)))
    frame = list(plan.steps.template)
    copied, passed = _static_inputs(plan, fed, frame, delivery)
    observer.note(**{"copied bytes": sum(static.nbytes for _, static in copied)})
    attempt = _Attempt(planned, frame, recorder, observer)
    try:
        with arena.packing.admitting(plan.steps.template):
            for region in plan.regions:
                if region.is_segment:
                    attempt.segment(region)
                else:
                    attempt.seam(region)
        results = [frame[value] for value in plan.steps.outputs]
        finished = attempt.finish(arena, [static for _, static in copied], give=delivery is None)
        for value in (*attempt.raw, *(place for _, place in passed)):
            frame[value] = None
        captured = _captured(attempt, copied, passed, finished, arena.device)
        return captured, results if delivery is not None else captured.results_of(results, fed)
    except BaseException:
        attempt.close()
        raise


class _Attempt:
    """One attempt at a capture.

    It lives while one capture is made.

    Attributes:
        planned: What is captured.
        frame: Values so far.
        recorder: Records.
        regions: The regions so far.
        crossing: Bytes of what segments make and others read.
        raw: Results of seams that no segment reads.
        owners: By storage key, the name of the first value that lay in it.
        observer: Is told of regions and steps.
    """

    def __init__(self, planned: PlannedProgram, frame: Frame, recorder: Recorder, observer: Observer) -> None:
        self.planned, self.plan = planned, planned.plan
        self.frame = frame
        self.recorder = recorder
        self.regions: list[CapturedRegion] = []
        self.crossing = 0
        self.raw: set[int] = set()
        self.owners: dict[int, str] = {}
        self.observer = observer

    def segment(self, region: Region) -> None:
        calls = self.calls(region)
        told, number = self.told(calls, region), len(self.regions)
        current: BoundStep | None = None

        def body() -> None:
            nonlocal current
            for current in told:
                current.call(self.frame)
            # What comes now is no node's fault.
            current = None

        try:
            with self.observer.span(SEGMENT, segment_name(number), region_facts(region, number)):
                recording = self.recorder.record(body)
        except Refused as refused:
            if current is None:
                raise Declined(DeclineReport.of(Reason.RECORDING, str(refused))) from refused
            node, kernel = current.step.node, current.step.kernel
            row = Decline(node.name, node.op, node.domain, Reason.RECORDING, str(refused))
            raise Declined(DeclineReport((row,)), (kernel.domain, kernel.op)) from refused
        except Exception as error:
            if current is None:
                raise
            raise_failure(current.step, self.plan.steps, self.frame, error)
        self.regions.append(CapturedRegion(region, calls, recording))
        for position, call in zip(region.positions, calls, strict=True):
            self.compare(position, call)
            for value in call.step.outputs:
                self.note_owner(value)
                if self.plan.reads.anywhere.get(value, -1) <= number:
                    self.frame[value] = None

    def seam(self, region: Region) -> None:
        calls, number = self.calls(region), len(self.regions)
        recorded = self.plan.reads.recorded
        for position, bound in zip(region.positions, self.told(calls, region), strict=True):
            try:
                bound.call(self.frame)
            except Exception as error:
                raise_failure(bound.step, self.plan.steps, self.frame, error)
            self.compare(position, bound)
            self.raw.update(value for value in bound.step.outputs if recorded.get(value, -1) < number)
            for value in bound.release:
                if value in self.raw:
                    self.frame[value] = None
        landings: list[tuple[int, torch.Tensor]] = []
        for value in dict.fromkeys(v for bound in calls for v in bound.step.outputs):
            if value not in self.raw and _is_tensor(self.frame[value]):
                # A seam may hand on memory of somebody else's; what segments read never moves.
                self.frame[value] = self.frame[value].clone(memory_format=torch.preserve_format)
                landings.append((value, self.frame[value]))
                self.note_owner(value)
        guards = tuple(self.plan.guards[position] for position in region.positions)
        self.regions.append(CapturedRegion(region, calls, None, tuple(landings), guards))

    def calls(self, region: Region) -> tuple[BoundStep, ...]:
        return tuple(self.planned.program.calls[position] for position in region.positions)

    def told(self, calls: tuple[BoundStep, ...], region: Region) -> tuple[BoundStep, ...]:
        """The calls to make: somebody may want to be told of each."""
        return watch_calls(calls, region, len(self.regions), self.observer) if self.observer.on else calls

    def compare(self, position: int, bound: BoundStep) -> None:
        """The specs that segments and constants rely on must be those of the warm run."""
        guards = self.plan.guards[position]
        rows = check_guards(bound.step, guards, self.frame, self.plan.steps.names) if guards else ()
        if rows:
            raise Declined(DeclineReport(rows))

    def note_owner(self, value: int) -> None:
        """Note in which storage a value lies: recordings keep those that their calls touch."""
        storage = _storage(self.frame[value])
        if storage:
            self.owners.setdefault(storage, self.plan.steps.names[value])

    def finish(self, arena: Arena, inputs: Sequence[torch.Tensor], *, give: bool) -> Finished:
        """Let the recordings give up what nobody reads: last, since later regions read while recording."""
        static = {id(tensor) for tensor in inputs}
        fed = [place for place in self.plan.steps.inputs if id(self.frame[place]) in static]
        for place in fed:
            self.note_owner(place)
        landed = {value: at for at, stage in enumerate(self.regions) for value, _ in stage.landings}
        shared = shares(self.plan, self.frame, fed, landed, give=give)
        crossing = {one.tensor.untyped_storage()._cdata: one.tensor for one in shared if one.start is None}
        self.crossing = sum(tensor.untyped_storage().nbytes() for tensor in crossing.values())
        recordings = [stage.recording for stage in self.regions]
        finished = self.recording.finish_all(recordings, shared, arena.block)
        if finished.evidence is not None:
            verify_layout(finished.layout, finished.evidence)
        return finished

    @property
    def recording(self) -> Recording:
        """Any of the recordings."""
        return next(stage.recording for stage in self.regions if stage.recording is not None)

    def close(self) -> None:
        for stage in self.regions:
            if stage.recording is not None:
                stage.recording.close()


def _captured(
    attempt: _Attempt,
    copied: tuple[tuple[str, torch.Tensor], ...],
    passed: tuple[tuple[str, int], ...],
    finished: Finished,
    device: torch.device,
) -> CapturedGraph:
    planned, frame, regions = attempt.planned, attempt.frame, tuple(attempt.regions)
    outputs = [frame[value] for value in planned.plan.steps.outputs]
    fixed = all(_is_tensor(held) and held.device == device for held in outputs)
    recorded = finished.stats
    landed = (tensor for stage in regions for _, tensor in stage.landings)
    return CapturedGraph(
        planned=replace(planned, plan=replace(planned.plan, memory=_named(finished.layout, attempt.owners))),
        frame=frame,
        copied=copied,
        passed=passed,
        regions=regions,
        whole=regions[0].recording if len(regions) == 1 else None,
        results=tuple(outputs) if fixed else None,
        donation=donation(outputs, finished.given, attempt.recording, frozenset(storage_ids(frame))),
        memory=CaptureMemory(
            static_inputs=sum(static.nbytes for _, static in copied),
            placed=recorded.inputs,
            landings=sum(tensor.nbytes for tensor in landed),
            crossing=attempt.crossing,
            slots=recorded.arena,
            fresh=recorded.fresh,
            recorded=recorded,
        ),
        device=device,
        varies=any(
            call.step.kernel.varies or call.step.bodies
            for stage in regions
            if stage.recording is None or device.type != "cpu"
            for call in stage.calls
        ),
    )


def _named(layout: MemoryLayout, owners: dict[int, str]) -> MemoryLayout:
    return replace(layout, places=named(layout.places, owners))


def _static_inputs(
    plan: Plan, fed: Mapping[str, Value], frame: Frame, delivery: Delivery | None
) -> tuple[tuple[tuple[str, torch.Tensor], ...], tuple[tuple[str, int], ...]]:
    """Put every feed that is read in place: tensors that segments read as copies, the rest as it is."""
    steps, growing = plan.steps, plan.static_values.growing
    in_place = frozenset() if delivery is None else delivery.in_place
    fixed = {*plan.reads.recorded, *steps.outputs} - growing
    copied: list[tuple[str, torch.Tensor]] = []
    passed: list[tuple[str, int]] = []
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        if name not in fed or (place not in plan.reads.anywhere and place not in growing):
            continue
        value = fed[name]
        if name in in_place:
            frame[place] = value
        elif isinstance(value, torch.Tensor) and place in fixed:
            frame[place] = torch.empty_like(value, memory_format=torch.contiguous_format).copy_(value)
            copied.append((name, frame[place]))
        else:
            frame[place] = value
            passed.append((name, place))
    return tuple(copied), tuple(passed)


def _row(steps: Steps, region: Region) -> Decline:
    node = steps.items[region.positions[0]].node
    assert region.reason is not None
    return Decline(node.name, node.op, node.domain, region.reason, region.message)


def _is_tensor(held: Any) -> bool:
    return isinstance(held, torch.Tensor)
