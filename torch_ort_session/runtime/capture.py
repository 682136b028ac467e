"""Capture: a run that is recorded region by region and yields this step's results as well."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.report import Decline, DeclineReport, Reason
from torch_ort_session.plan.segments import Region, split
from torch_ort_session.plan.specs import Observation, fits
from torch_ort_session.plan.steps import NOTHING, Steps
from torch_ort_session.plan.taint import Taint
from torch_ort_session.runtime.arena import Arena
from torch_ort_session.runtime.execute import BoundStep, Program, Values, raise_failure
from torch_ort_session.runtime.recording import Recorder, Recording, Refused
from torch_ort_session.runtime.results import storage_ids


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A region, ready for replay.

    Attributes:
        region: The region.
        calls: Its steps made callable.
        recording: Its recording; None for a seam.
        landings: Of a seam: value ids with the tensor that segments read them from.
        raw: Of a seam: results that only seams and the user read; they stay as the run made them.
    """

    region: Region
    calls: tuple[BoundStep, ...]
    recording: Recording | None
    landings: tuple[tuple[int, torch.Tensor], ...] = ()
    raw: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A captured signature.

    Attributes:
        program: What was captured.
        frame: Values that stay where they are: constants, static inputs, landings, results of recordings.
        feeds: Name, value id and static input of each fed tensor; None where it is read from the feed itself.
        stages: The regions in order.
        lasting: Identities of the storages in the frame: results in them are copied.
        observation: What the warm run showed.
        taint: What is static.
    """

    program: Program
    frame: Values
    feeds: tuple[tuple[str, int, torch.Tensor | None], ...]
    stages: tuple[Stage, ...]
    lasting: frozenset[int]
    observation: Observation
    taint: Taint

    def close(self) -> None:
        """Give up every recording, together."""
        for stage in self.stages:
            if stage.recording is not None:
                stage.recording.close()


class Declined(Exception):
    """Carries a report out of a capture; never leaves this package."""

    def __init__(self, report: DeclineReport, quarantine: tuple[str, str] | None = None) -> None:
        super().__init__(str(report))
        self.report = report
        self.quarantine = quarantine


@dataclass(frozen=True, slots=True, eq=False)
class Warm:
    """What a capture starts from.

    Attributes:
        program: The steps, with If folded where its predicate is static and static values as constants.
        observation: What the warm run showed.
        taint: What is static.
        minimum: Launches from which on a segment is worth recording.
    """

    program: Program
    observation: Observation
    taint: Taint
    minimum: int = 1


def capture(
    warm: Warm,
    fed: Mapping[str, Value],
    recorder: Recorder,
    arena: Arena,
    quarantined: Collection[tuple[str, str]],
) -> tuple[Captured, list[Any]]:
    """Record every segment and run every seam once.

    Args:
        warm: What to capture.
        fed: This run's feeds.
        recorder: Records on the session's device.
        arena: Gives the memory that recordings share.
        quarantined: (domain, operator) pairs that run as seams.

    Returns:
        The capture, and this step's results (which replays overwrite: the caller copies them).

    Raises:
        Declined: Nothing was captured; what the attempt did is undone by the caller.
    """
    steps = warm.program.steps
    regions = split(steps, warm.taint, warm.observation, arena.device, quarantined, warm.minimum)
    if not any(region.is_segment for region in regions):
        rows = [_row(steps, region) for region in regions]
        nothing = Decline("", "", "", Reason.NOTHING, "no segment is left to record")
        raise Declined(DeclineReport((nothing, *rows)))
    frame = list(steps.template)
    needs = _needs(steps, regions)
    feeds = _static_inputs(steps, fed, frame, needs[-1])
    attempt = _Attempt(warm, frame, recorder, arena)
    try:
        for number, region in enumerate(regions):
            later, in_segments = needs[number], _read_by_segments(steps, regions[number + 1 :])
            if region.is_segment:
                attempt.segment(region, later)
            else:
                attempt.seam(region, later, in_segments)
        results = [frame[value] for value in steps.outputs]
        attempt.finish()
    except BaseException:
        attempt.close()
        raise
    lasting = frozenset(storage_ids(frame))
    return (
        Captured(
            program=warm.program,
            frame=frame,
            feeds=feeds,
            stages=tuple(attempt.stages),
            lasting=lasting,
            observation=warm.observation,
            taint=warm.taint,
        ),
        results,
    )


class _Attempt:
    """One attempt at a capture."""

    def __init__(self, warm: Warm, frame: Values, recorder: Recorder, arena: Arena) -> None:
        self.warm = warm
        self.frame = frame
        self.recorder = recorder
        self.arena = arena
        self.stages: list[Stage] = []
        self.kept: list[list[torch.Tensor]] = []

    def segment(self, region: Region, later: set[int]) -> None:
        calls = self.calls(region)
        current = calls[0]

        def body() -> None:
            nonlocal current
            for current in calls:
                current.call(self.frame)

        try:
            recording = self.recorder.record(body)
        except Refused as refused:
            node = current.step.node
            kernel = current.step.kernel
            row = Decline(node.name, node.op, node.domain, Reason.RECORDING, str(refused))
            raise Declined(DeclineReport((row,)), (kernel.domain, kernel.op)) from refused
        except torch.OutOfMemoryError as error:
            raise Declined(DeclineReport.of(Reason.MEMORY, str(error))) from error
        except Exception as error:
            raise_failure(current.step, self.warm.program.steps, self.frame, error)
        self.stages.append(Stage(region, calls, recording))
        made = {value for call in calls for value in call.step.outputs if value != NOTHING}
        for call in calls:
            self.compare(call)
        self.kept.append([self.frame[value] for value in made & later if _is_tensor(self.frame[value])])
        for value in made - later:
            self.frame[value] = None

    def seam(self, region: Region, later: set[int], in_segments: set[int]) -> None:
        calls = self.calls(region)
        for bound in calls:
            try:
                bound.call(self.frame)
            except Exception as error:
                raise_failure(bound.step, self.warm.program.steps, self.frame, error)
            self.compare(bound)
        landings: list[tuple[int, torch.Tensor]] = []
        raw: list[int] = []
        for value in dict.fromkeys(v for bound in calls for v in bound.step.outputs if v != NOTHING):
            held = self.frame[value]
            if value in in_segments and _is_tensor(held):
                # A seam may hand on memory of somebody else's; what segments read never moves.
                self.frame[value] = held.clone(memory_format=torch.preserve_format)
                landings.append((value, self.frame[value]))
            else:
                raw.append(value)
                if value not in later:
                    self.frame[value] = None
        self.stages.append(Stage(region, calls, None, tuple(landings), tuple(raw)))

    def calls(self, region: Region) -> tuple[BoundStep, ...]:
        return tuple(self.warm.program.calls[position] for position in region.positions)

    def compare(self, bound: BoundStep) -> None:
        """The shapes of the capture pass must be those of the warm run."""
        for value in bound.step.outputs:
            spec, held = self.warm.observation.specs[value], self.frame[value]
            if spec is not None and not (_is_tensor(held) and fits(spec, held)):
                node = bound.step.node
                now = list(held.shape) if _is_tensor(held) else type(held).__name__
                message = f"{self.warm.program.steps.names[value]!r} was {list(spec.shape)} and is now {now}"
                row = Decline(node.name, node.op, node.domain, Reason.DIVERGED, message)
                raise Declined(DeclineReport((row,)))

    def finish(self) -> None:
        """Let the recordings give up what nobody reads: last, since later regions read while recording."""
        foreign = [held for held in self.frame if _is_tensor(held)]
        recordings = [stage.recording for stage in self.stages if stage.recording is not None]
        for recording, kept in zip(recordings, self.kept, strict=True):
            recording.finish(kept, foreign, self.arena.block)

    def close(self) -> None:
        for stage in self.stages:
            if stage.recording is not None:
                stage.recording.close()


def _static_inputs(
    steps: Steps, fed: Mapping[str, Value], frame: Values, read: set[int]
) -> tuple[tuple[str, int, torch.Tensor | None], ...]:
    found: list[tuple[str, int, torch.Tensor | None]] = []
    for name, place in zip(steps.input_names, steps.inputs, strict=True):
        if name not in fed or place not in read:
            continue
        value = fed[name]
        if isinstance(value, torch.Tensor):
            static = torch.empty_like(value, memory_format=torch.contiguous_format).copy_(value)
            frame[place] = static
            found.append((name, place, static))
        else:
            frame[place] = value
            found.append((name, place, None))
    return tuple(found)


def _needs(steps: Steps, regions: Sequence[Region]) -> list[set[int]]:
    """For each region what is read after it; at the end what is read at all."""
    needed = set(steps.outputs)
    found: list[set[int]] = []
    for region in reversed(regions):
        found.append(set(needed))
        needed |= _reads(steps, region)
    found.reverse()
    return [*found, needed]


def _reads(steps: Steps, region: Region) -> set[int]:
    read: set[int] = set()
    for position in region.positions:
        step = steps.items[position]
        read.update(step.inputs)
        for body in step.bodies.values():
            read.update(outside for outside, _ in body.captured)
    return read - {NOTHING}


def _read_by_segments(steps: Steps, regions: Sequence[Region]) -> set[int]:
    read: set[int] = set()
    for region in regions:
        if region.is_segment:
            read |= _reads(steps, region)
    return read


def _row(steps: Steps, region: Region) -> Decline:
    node = steps.items[region.positions[0]].node
    assert region.reason is not None
    return Decline(node.name, node.op, node.domain, region.reason, region.message)


def _is_tensor(held: Any) -> bool:
    return isinstance(held, torch.Tensor)
