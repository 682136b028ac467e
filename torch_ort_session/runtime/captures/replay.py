"""Replay: feeds in, recordings and seams in order, results out, with a check wherever a seam lands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition import Decline
from torch_ort_session.runtime.captures.capture import CapturedGraph, CapturedRegion, check_guards, clones
from torch_ort_session.runtime.interpreter import (
    BoundStep,
    Frame,
    Views,
    fed_bytes,
    raise_failure,
    region_facts,
    segment_name,
    watch_calls,
)
from torch_ort_session.runtime.recorders import Finished, Recording, RecordingStats, Shared
from torch_ort_session.runtime.values import Delivery
from torch_ort_session.trace.observer import SEGMENT, Facts, Observer


class Seams(NamedTuple):
    """How the seams of a replay run.

    Attributes:
        regions: The regions in order: a capture's, or others in their place.
        run: Runs a seam, by its number, on the frame, and lands its results where segments read them. One row
            for each result that is not what it was in the warm run: then the rest of the run is done.
    """

    regions: tuple[CapturedRegion, ...]
    run: Callable[[int, CapturedRegion, Frame], tuple[Decline, ...]]


def replay(
    captured: CapturedGraph, fed: Mapping[str, Value], delivery: Delivery | None = None
) -> tuple[list[Any], tuple[Decline, ...]]:
    """Run a captured signature on new feeds.

    Args:
        captured: The capture.
        fed: Feeds of the captured signature.
        delivery: Of the binding that the capture belongs to; it takes the results as they are.

    Returns:
        The results, in memory of their own, and every seam that gave another shape than in the warm run:
        then the rest ran eagerly, so that the results are right, and the capture is no longer valid.

    Raises:
        KernelError: A seam failed; the capture stays valid.
        Exception: A recording failed; the capture must be retired.
    """
    if captured.whole is not None and captured.results is not None:
        replay_whole(captured.whole, captured.copied, fed)
        if delivery is not None:
            return list(captured.results), ()
        return captured.donation(captured.results, clones), ()
    seams = Seams(captured.regions, lambda _, region, frame: _seam(captured, region, frame))
    results, diverged = replay_regions(captured, fed, seams)
    if delivery is not None:
        return results, diverged
    return (captured.own_results if diverged else captured.results_of)(results, fed), diverged


def replay_regions(
    captured: CapturedGraph, fed: Mapping[str, Value], seams: Seams
) -> tuple[list[Any], tuple[Decline, ...]]:
    """Feeds in, recordings and seams in order.

    Args:
        captured: The capture.
        fed: Feeds of the captured signature.
        seams: How its seams run.

    Returns:
        The results as they lie in the capture, and what diverged.

    Raises:
        Exception: What a seam raises; of a recording, the capture must be retired.
    """
    for name, static in captured.copied:
        static.copy_(fed[name])  # type: ignore[arg-type]
    # Seams write into a frame of this run, so that the capture is as it was, however the run ends.
    frame = captured.frame.copy()
    for name, place in captured.passed:
        frame[place] = fed[name]
    diverged: tuple[Decline, ...] = ()
    for number, region in enumerate(seams.regions):
        if region.recording is not None:
            region.recording.replay()
            continue
        diverged = seams.run(number, region, frame)
        if diverged:
            break
    captured.done()
    return [frame[value] for value in captured.plan.steps.outputs], diverged


def replay_whole(
    recording: Recording,
    statics: Iterable[tuple[Any, torch.Tensor]] = (),
    fed: Any = None,
    word: torch.Tensor | None = None,
) -> bool:
    """Feeds in, and the one recording that is all of a run; its results are where it made them.

    Args:
        recording: All of the run.
        statics: Names of feeds, or their places, with the static inputs that they go to.
        fed: Feeds by name, or in order.
        word: A validation word: see :meth:`~torch_ort_session.runtime.recorders.api.Recording.replay`.

    Returns:
        Whether a call noted a fault in the word.

    Raises:
        Exception: The recording failed; the capture must be retired.
    """
    for name, static in statics:
        static.copy_(fed[name])
    return recording.replay(word)


def _seam(captured: CapturedGraph, stage: CapturedRegion, frame: Frame) -> tuple[Decline, ...]:
    """Run a seam and copy its results to where segments read them.

    Returns:
        Empty; or, when a result is not what it was in the warm run, one row for each, and the rest of the run
        is done.
    """
    steps = captured.plan.steps
    for position, bound, guards in zip(stage.region.positions, stage.calls, stage.guards, strict=True):
        _call(captured, bound, frame)
        rows = check_guards(bound.step, guards, frame, steps.names)
        release(bound, frame)
        if rows:
            return rows + _rest(captured, frame, position)
    for value, slot in stage.landings:
        frame[value] = slot.copy_(frame[value])
    return ()


def _rest(captured: CapturedGraph, frame: Frame, diverged: int) -> tuple[Decline, ...]:
    """Run all that comes after a step eagerly, with nothing assumed of the shape of its result.

    Constants that follow from shapes before it still hold. The others are made again, from what is there now,
    as eager runs would make them.
    """
    plan = captured.plan
    names, assumed = plan.steps.names, plan.static_values.assumed
    guards = {
        position: specs
        for stage in captured.regions
        for position, specs in zip(stage.region.positions, stage.guards, strict=False)
    }
    rows: tuple[Decline, ...] = ()
    for position, bound in enumerate(captured.planned.fallback_calls[diverged + 1 :], diverged + 1):
        outputs = (value for value in bound.step.outputs if value not in plan.static_values.data)
        if any(assumed.get(value, position) >= diverged for value in outputs):
            _call(captured, bound, frame)
            rows += check_guards(bound.step, guards.get(position, ()), frame, names)
        release(bound, frame)
    return rows


def _call(captured: CapturedGraph, bound: BoundStep, frame: Frame) -> None:
    try:
        bound.call(frame)
    except Exception as error:
        raise_failure(bound.step, captured.plan.steps, frame, error)


def release(bound: BoundStep, frame: Frame) -> None:
    """Drop the values that no step reads after this one."""
    for value in bound.release:
        frame[value] = None


def viewed(captured: CapturedGraph, counted: dict[str, int], *, verify: bool) -> CapturedGraph:
    """A capture whose seams make no views again of what it owns: its static inputs and its landings.

    Args:
        captured: The capture.
        counted: Where it counts.
        verify: Whether views are made again all the same and compared.
    """
    steps = captured.plan.steps
    places = dict(zip(steps.input_names, steps.inputs, strict=True))
    roots = {places[name] for name, _ in captured.copied}
    regions = []
    for stage in captured.regions:
        views = Views(counted, verify=verify)
        if stage.recording is None:
            roots.update(value for value, _ in stage.landings)
            calls = views.over(stage.calls, steps.template, roots)
            stage = replace(stage, calls=calls, views=views) if views.nodes else stage
        regions.append(stage)
    return replace(captured, regions=tuple(regions))


def watch_capture(captured: CapturedGraph, fed: Mapping[str, Value], observer: Observer) -> CapturedGraph:
    """A capture that tells of its regions, for one replay."""
    observer.mark("trace")
    copied = captured.memory.static_inputs
    observer.note(**{"copied bytes": copied, "borrowed bytes": max(0, fed_bytes(fed) - copied)})
    regions = tuple(_stage(stage, number, observer) for number, stage in enumerate(captured.regions))
    whole = None if captured.whole is None else regions[0].recording
    rest = list(captured.planned.fallback_calls)
    for number, stage in enumerate(regions if whole is None else ()):
        positions = stage.region.positions
        watched = watch_calls(tuple([rest[p] for p in positions]), stage.region, number, observer)
        for position, bound in zip(positions, watched, strict=True):
            rest[position] = bound
    planned = replace(captured.planned, fallback_calls=tuple(rest))
    observer.mark("bind")
    return replace(captured, planned=planned, regions=regions, whole=whole)


def _stage(stage: CapturedRegion, number: int, observer: Observer) -> CapturedRegion:
    calls = watch_calls(stage.calls, stage.region, number, observer)
    if stage.recording is None:
        return replace(stage, calls=calls)
    size = {"nodes": len(stage.calls), "calls": stage.recording.stats.calls}
    facts = {**size, **region_facts(stage.region, number)}
    return replace(stage, calls=calls, recording=_Watched(stage.recording, number, facts, observer))


class _Watched:
    """A recording that tells of its replays."""

    def __init__(self, inner: Recording, number: int, facts: Facts, observer: Observer) -> None:
        self.inner = inner
        self.number = number
        self.facts = facts
        self.observer = observer

    @property
    def stats(self) -> RecordingStats:
        """What it holds."""
        return self.inner.stats

    def finish_all(
        self,
        regions: Sequence[Recording | None],
        shared: Sequence[Shared],
        block: Callable[[int], torch.Tensor],
    ) -> Finished:
        """Pass it on."""
        return self.inner.finish_all(regions, shared, block)

    def donate(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Pass it on."""
        return self.inner.donate(results)

    def replay(self, word: torch.Tensor | None = None) -> bool:
        """Make every call again, and tell how long that took."""
        with self.observer.span(SEGMENT, segment_name(self.number), self.facts):
            return self.inner.replay(word)

    def close(self) -> None:
        """Pass it on."""
        self.inner.close()
