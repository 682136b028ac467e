"""Capture: a run that is recorded region by region and yields this step's results as well."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering.steps import Steps
from torch_ort_session.plan.partition.report import Decline, DeclineReport, Reason
from torch_ort_session.plan.partition.segments import Region, guarded, split
from torch_ort_session.runtime.captures.handover import Handover, handover
from torch_ort_session.runtime.captures.relied import LastReads, Specs, last_reads, unlike
from torch_ort_session.runtime.captures.shares import shares
from torch_ort_session.runtime.captures.warmup import Warm
from torch_ort_session.runtime.interpreter.profile import region_facts, segment_name, watch_calls
from torch_ort_session.runtime.interpreter.program import BoundStep, Values, raise_failure
from torch_ort_session.runtime.interpreter.views import Views
from torch_ort_session.runtime.recorders.api import CaptureMemory, Finished, Recorder, Recording, Refused
from torch_ort_session.runtime.recorders.arena import Arena
from torch_ort_session.runtime.values.delivery import Delivery
from torch_ort_session.runtime.values.results import apart, own, storage_ids
from torch_ort_session.trace.observer import OFF, SEGMENT, Observer


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A region, ready for replay.

    Attributes:
        region: The region.
        calls: Its steps made callable.
        recording: Its recording; None for a seam.
        landings: Of a seam: value ids with the tensor that segments read them from. Its other results stay as
            the run made them: only seams and the user read those.
        relied: Of a seam: for each call those of its results whose shapes segments, or constants of the
            capture, rely on, with what they were in the warm run.
        views: Of a seam: the view plan of those calls that make views of what the capture owns.
    """

    region: Region
    calls: tuple[BoundStep, ...]
    recording: Recording | None
    landings: tuple[tuple[int, torch.Tensor], ...] = ()
    relied: tuple[Specs, ...] = ()
    views: Views | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A captured signature; nothing in it changes but the data of its tensors.

    Attributes:
        warm: What was captured.
        frame: Values that stay where they are: constants, static inputs, landings, results of recordings.
        copied: Names of fed tensors, with their static inputs.
        passed: Names and value ids of other feeds, which are read as they come.
        stages: The regions in order.
        whole: The recording that is all of the run; None when there are seams.
        results: The outputs where every one of them lies in the frame; None where a run makes some anew.
        handover: What becomes of the results.
        memory: Bytes.
        quarantined: (domain, operator) pairs that run as seams.
        device: Where results belong.
        varies: Whether a step of a replay may draw random numbers; none that a tape holds does.
    """

    warm: Warm
    frame: Values
    copied: tuple[tuple[str, torch.Tensor], ...]
    passed: tuple[tuple[str, int], ...]
    stages: tuple[Stage, ...]
    whole: Recording | None
    results: tuple[torch.Tensor, ...] | None
    handover: Handover
    memory: CaptureMemory
    quarantined: frozenset[tuple[str, str]]
    device: torch.device
    varies: bool

    def differs(self, fed: Mapping[str, Value]) -> bool:
        """Whether feeds are other ones than those of the run before, or might be."""
        if any(isinstance(fed[name], torch.Tensor) for name, _ in self.passed):
            return True
        return any(not torch.equal(static, fed[name]) for name, static in self.copied)  # type: ignore[arg-type]

    @property
    def lasting(self) -> frozenset[int]:
        """Identities of the storages in the frame: results in them are copied, or take their bytes along."""
        return self.handover.lasting

    def results_of(self, results: Sequence[Any], fed: Mapping[str, Value]) -> list[Any]:
        """The results of a replay that went well, in memory of their own; once a replay."""
        return self.handover(results, lambda rest: self.own_results(rest, fed))

    def own_results(self, results: Sequence[Any], fed: Mapping[str, Value]) -> list[Any]:
        """Results in memory of their own, copied where later runs or anybody else write to theirs."""
        constants = self.warm.program.constants
        return own(apart(results, self.lasting), constants, fed.values(), self.device)

    def done(self) -> None:
        """A replay has succeeded: the views that it made count from now on."""
        for stage in self.stages:
            if stage.views is not None:
                stage.views.done()

    def close(self) -> None:
        """Give up every recording, together."""
        for stage in self.stages:
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
    warm: Warm,
    fed: Mapping[str, Value],
    recorder: Recorder,
    arena: Arena,
    quarantined: Collection[tuple[str, str]],
    delivery: Delivery | None = None,
    observer: Observer = OFF,
) -> tuple[Captured, list[Any]]:
    """Record every segment and run every seam once.

    Args:
        warm: What to capture.
        fed: This run's feeds.
        recorder: Records on the session's device.
        arena: Gives the memory that recordings share.
        quarantined: (domain, operator) pairs that run as seams.
        delivery: Of a binding, whose inputs are read where they are.
        observer: Is told of regions and steps.

    Returns:
        The capture, and this step's results: in memory of their own, or as they are for a delivery.

    Raises:
        Declined: Nothing was captured; what the attempt did is undone by the caller.
        Exception: The same, for a reason that nobody foresaw: a step failed, or the recorder did.
    """
    steps = warm.program.steps
    parts = warm.taint, warm.observation, arena.device, quarantined, warm.minimum, warm.loose
    regions = split(steps, *parts)
    if not any(region.is_segment for region in regions):
        rows = [_row(steps, region) for region in regions]
        nothing = Decline("", "", "", Reason.NOTHING, "no segment is left to record")
        raise Declined(DeclineReport((nothing, *rows)))
    frame = list(steps.template)
    reads = last_reads(steps, regions, guarded(steps, warm.taint))
    copied, passed = _static_inputs(warm, fed, frame, reads, delivery)
    observer.note(**{"copied bytes": sum(static.nbytes for _, static in copied)})
    attempt = _Attempt(warm, frame, recorder, reads, observer)
    try:
        with arena.packing.admitting(steps.template):
            for region in regions:
                if region.is_segment:
                    attempt.segment(region)
                else:
                    attempt.seam(region)
        results = [frame[value] for value in steps.outputs]
        finished = attempt.finish(arena, [static for _, static in copied], give=delivery is None)
        for value in (*attempt.raw, *(place for _, place in passed)):
            frame[value] = None
        captured = _captured(attempt, copied, passed, finished, frozenset(quarantined), arena.device)
        return captured, results if delivery is not None else captured.results_of(results, fed)
    except BaseException:
        attempt.close()
        raise


class _Attempt:
    """One attempt at a capture.

    Attributes:
        warm: What is captured.
        frame: Values so far.
        recorder: Records.
        reads: Which region is the last to read a value.
        stages: The regions so far.
        crossing: Bytes of what segments make and others read.
        raw: Results of seams that no segment reads.
        observer: Is told of regions and steps.
    """

    def __init__(
        self, warm: Warm, frame: Values, recorder: Recorder, reads: LastReads, observer: Observer
    ) -> None:
        self.warm = warm
        self.frame = frame
        self.recorder = recorder
        self.reads = reads
        self.stages: list[Stage] = []
        self.crossing = 0
        self.raw: set[int] = set()
        self.observer = observer

    def segment(self, region: Region) -> None:
        calls = self.calls(region)
        told, number = self.told(calls, region), len(self.stages)
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
            raise_failure(current.step, self.warm.program.steps, self.frame, error)
        self.stages.append(Stage(region, calls, recording))
        for call in calls:
            self.compare(call, recorded=True)
            for value in call.step.outputs:
                if self.reads.anywhere.get(value, -1) <= number:
                    self.frame[value] = None

    def seam(self, region: Region) -> None:
        calls, number = self.calls(region), len(self.stages)
        relied: list[Specs] = []
        for bound in self.told(calls, region):
            try:
                bound.call(self.frame)
            except Exception as error:
                raise_failure(bound.step, self.warm.program.steps, self.frame, error)
            # The shape of what neither a segment nor a constant relies on is nobody's concern.
            relied.append(self.compare(bound, recorded=False))
            self.raw.update(
                value for value in bound.step.outputs if self.reads.recorded.get(value, -1) < number
            )
            for value in bound.release:
                if value in self.raw:
                    self.frame[value] = None
        landings: list[tuple[int, torch.Tensor]] = []
        for value in dict.fromkeys(v for bound in calls for v in bound.step.outputs):
            if value not in self.raw and _is_tensor(self.frame[value]):
                # A seam may hand on memory of somebody else's; what segments read never moves.
                self.frame[value] = self.frame[value].clone(memory_format=torch.preserve_format)
                landings.append((value, self.frame[value]))
        self.stages.append(Stage(region, calls, None, tuple(landings), tuple(relied)))

    def calls(self, region: Region) -> tuple[BoundStep, ...]:
        return tuple(self.warm.program.calls[position] for position in region.positions)

    def told(self, calls: tuple[BoundStep, ...], region: Region) -> tuple[BoundStep, ...]:
        """The calls to make: somebody may want to be told of each."""
        return watch_calls(calls, region, len(self.stages), self.observer) if self.observer.on else calls

    def compare(self, bound: BoundStep, *, recorded: bool) -> Specs:
        """The specs that segments and constants rely on must be those of the warm run."""
        number = len(self.stages)
        relied = tuple(
            (value, spec)
            for value in bound.step.outputs
            if (spec := self.warm.observation.specs[value]) is not None
            and (recorded or value in self.reads.shapes or self.reads.recorded.get(value, -1) > number)
        )
        rows = unlike(bound.step, relied, self.frame, self.warm.program.steps.names)
        if rows:
            raise Declined(DeclineReport(rows))
        return relied

    def finish(self, arena: Arena, inputs: Sequence[torch.Tensor], *, give: bool) -> Finished:
        """Let the recordings give up what nobody reads: last, since later regions read while recording."""
        steps, static = self.warm.program.steps, {id(tensor) for tensor in inputs}
        shared = shares(
            steps,
            self.warm.observation,
            [stage.region for stage in self.stages],
            self.frame,
            self.reads.anywhere,
            [place for place in steps.inputs if id(self.frame[place]) in static],
            {value: at for at, stage in enumerate(self.stages) for value, _ in stage.landings},
            give=give,
        )
        crossing = {one.tensor.untyped_storage()._cdata: one.tensor for one in shared if one.start is None}
        self.crossing = sum(tensor.untyped_storage().nbytes() for tensor in crossing.values())
        recordings = [stage.recording for stage in self.stages]
        return self.recording.finish_all(recordings, shared, arena.block)

    @property
    def recording(self) -> Recording:
        """Any of the recordings."""
        return next(stage.recording for stage in self.stages if stage.recording is not None)

    def close(self) -> None:
        for stage in self.stages:
            if stage.recording is not None:
                stage.recording.close()


def _captured(
    attempt: _Attempt,
    copied: tuple[tuple[str, torch.Tensor], ...],
    passed: tuple[tuple[str, int], ...],
    finished: Finished,
    quarantined: frozenset[tuple[str, str]],
    device: torch.device,
) -> Captured:
    warm, frame, stages = attempt.warm, attempt.frame, tuple(attempt.stages)
    outputs = [frame[value] for value in warm.program.steps.outputs]
    fixed = all(_is_tensor(held) and held.device == device for held in outputs)
    recorded = finished.stats
    landed = (tensor for stage in stages for _, tensor in stage.landings)
    return Captured(
        warm=warm,
        frame=frame,
        copied=copied,
        passed=passed,
        stages=stages,
        whole=stages[0].recording if len(stages) == 1 else None,
        results=tuple(outputs) if fixed else None,
        handover=handover(outputs, finished.given, attempt.recording, frozenset(storage_ids(frame))),
        memory=CaptureMemory(
            static_inputs=sum(static.nbytes for _, static in copied),
            placed=recorded.inputs,
            landings=sum(tensor.nbytes for tensor in landed),
            crossing=attempt.crossing,
            slots=recorded.arena,
            fresh=recorded.fresh,
            recorded=recorded,
        ),
        quarantined=quarantined,
        device=device,
        varies=any(
            call.step.kernel.varies or call.step.bodies
            for stage in stages
            if stage.recording is None or device.type != "cpu"
            for call in stage.calls
        ),
    )


def _static_inputs(
    warm: Warm, fed: Mapping[str, Value], frame: Values, reads: LastReads, delivery: Delivery | None
) -> tuple[tuple[tuple[str, torch.Tensor], ...], tuple[tuple[str, int], ...]]:
    """Put every feed that is read in place: tensors that segments read as copies, the rest as it is."""
    steps = warm.program.steps
    in_place = frozenset() if delivery is None else delivery.in_place
    fixed = {*reads.recorded, *steps.outputs} - warm.taint.growing
    copied: list[tuple[str, torch.Tensor]] = []
    passed: list[tuple[str, int]] = []
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        if name not in fed or (place not in reads.anywhere and place not in warm.taint.growing):
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
