"""The fast path: a run like the one before is checked in one go and replayed, with no signature or frame.

After a replay nothing of Python is in the processor's caches, so that every step on the way costs several
times what it costs in a loop of its own: this is the shortest way from feeds to results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd import forward_ad

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering import NOTHING
from torch_ort_session.runtime.captures import CapturedGraph, OutputDonation, clones, replay_whole
from torch_ort_session.runtime.dispatch import EngineState, GraphEntry
from torch_ort_session.runtime.recorders import NativeFeeds, Recording, feeds_for
from torch_ort_session.runtime.validation import ValidationWord
from torch_ort_session.runtime.values import FeedGuard, guard_of, stepwise
from torch_ort_session.trace import counters

_Tensor = torch.Tensor
_HOST = torch.device("cpu")
_NUMBERS = frozenset((torch.int64, torch.int32, torch.bool))


class StaticWrite(NamedTuple):
    """Where a feed goes that something reads.

    Attributes:
        name: Of the feed.
        static: The static input.
        array: The same memory as an array; None where numpy has no such dtype.
    """

    name: str
    static: torch.Tensor
    array: np.ndarray[Any, Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class FastFeeds:
    """What feeds must be like, and where they go; part of a :class:`FastReplay`.

    Attributes:
        guard: What they must be like.
        writes: Where they go.
        threads: Of torch's CPU kernels.
        native: The same for a dict of tensors, compiled; None where it is not.
    """

    guard: FeedGuard
    writes: tuple[StaticWrite, ...]
    threads: int
    native: NativeFeeds | None


@dataclass(frozen=True, slots=True, eq=False)
class FastReplay:
    """What a run must be like to be a replay of one recording, and that recording; it lives as long.

    Attributes:
        entry: The signature's entry.
        captured: Its capture.
        outputs: Requested output names.
        feeds: What its feeds must be like.
        recording: All of the run.
        results: The outputs, in the recording's memory.
        give: Gives them memory of their own, once a replay.
        validation: The session's word; None where it has none.
        checks: Whether the recording may report bad data into it.
        usual: Whether the outputs are the model's.
    """

    entry: GraphEntry
    captured: CapturedGraph
    outputs: tuple[str, ...]
    feeds: FastFeeds
    recording: Recording
    results: tuple[torch.Tensor, ...]
    give: Callable[[list[torch.Tensor]], list[Any]]
    validation: ValidationWord | None
    checks: bool
    usual: bool


def fast_replay_of(
    entry: GraphEntry, outputs: tuple[str, ...], fed: Mapping[str, Value], usual: bool
) -> FastReplay | None:
    """The fast replay of runs like the last one of an entry; None when they take more than one recording.

    Args:
        entry: A captured entry.
        outputs: Requested output names.
        fed: The last run's feeds, all of which were accepted.
        usual: Whether the outputs are the model's.
    """
    captured = entry.captured
    if captured is None or captured.whole is None or captured.results is None:
        return None
    if captured.planned.program.validation is not None and captured.planned.program.validation.counting:
        # Each run is asked about in full.
        return None
    feeds = _fast_feeds(captured, fed)
    if feeds is None:
        return None
    return FastReplay(
        entry=entry,
        captured=captured,
        outputs=outputs,
        feeds=feeds,
        recording=captured.whole,
        results=captured.results,
        give=_giver(captured.donation),
        validation=captured.planned.program.validation,
        checks=_checks(captured),
        usual=usual,
    )


def _fast_feeds(captured: CapturedGraph, fed: Mapping[str, Value]) -> FastFeeds | None:
    """What feeds like the last ones must be like; None where one is no tensor."""
    statics, likes = dict(captured.copied), list(fed.items())
    tensors = [(name, value) for name, value in likes if isinstance(value, torch.Tensor)]
    if len(tensors) < len(likes):
        return None
    guard = guard_of(tensors, dict(captured.plan.keys))
    writes = tuple(
        StaticWrite(row.name, static, None if row.array is None else static.numpy())
        for row in guard.rows
        if row is not None and (static := statics.get(row.name)) is not None
    )
    return FastFeeds(guard, writes, torch.get_num_threads(), native_form(guard, tensors, statics))


def native_form(
    guard: FeedGuard, likes: Sequence[tuple[str, torch.Tensor]], statics: Mapping[str, torch.Tensor]
) -> NativeFeeds | None:
    """A guard of feeds with fixed dims, compiled, which copies them too; None where that is not to be had.

    Args:
        guard: The guard.
        likes: Names and tensors that it admits.
        statics: Where they go, by name.
    """
    native = feeds_for(_HOST, torch.get_num_threads())
    for row, (name, like) in zip(guard.rows, likes, strict=True):
        static = statics.get(name)
        number = None if row is None else row.number
        if native is None or not like.is_cpu or (static is not None and not static.is_cpu):
            return None
        if number is not None and like.dtype not in _NUMBERS:
            return None
        native.add(name, like, static, None if number is None else int(number))
    return native


def _giver(donation: OutputDonation) -> Callable[[list[torch.Tensor]], list[Any]]:
    """What gives the results of a replay memory of their own."""
    if donation.recording is None:
        return clones
    if all(donation.given):
        return donation.recording.donate
    return functools.partial(donation, copied=clones)


def try_replay(
    fast: FastReplay, state: EngineState, outputs: tuple[str, ...] | None, feed: Mapping[str, Any]
) -> list[Any] | Exception | None:
    """Replay a run that is like the one before.

    Args:
        fast: What it must be like.
        state: What runs need.
        outputs: Requested output names; None for the model's.
        feed: What came, by name.

    Returns:
        The results, in memory of their own. None when the run is another one, or might be. What the recording
        raised, which is to be taken care of as if it had been replayed on the long way.

    Raises:
        DeviceValidationError: A kernel met bad data, or nobody has asked whether one did in the run before.
    """
    dispatcher = state.dispatcher
    if fast.entry is not dispatcher.recent or fast.entry.captured is not fast.captured:
        return None
    if fast.captured.stamp is not dispatcher.rules.stamp:
        return None
    if not fast.usual if outputs is None else fast.outputs != outputs:
        return None
    feeds = fast.feeds
    native = feeds.native
    rest: Sequence[tuple[str, torch.Tensor]] = ()
    if native is None or forward_ad._current_level >= 0 or not native.take(feed):
        taken = _take(feeds, feed)
        if taken is None:
            return None
        rest = taken
    word = fast.validation
    if word is not None:
        if word.ticket is not None:
            word.refuse()
        if not fast.checks:
            # Nothing of the recording would write to it.
            word = None
    try:
        flagged = replay_whole(fast.recording, rest, feed, None if word is None else word.word)
    except Exception as error:
        return error
    fast.entry.runs += 1
    counted = dispatcher.counters
    counted[counters.REPLAYS] += 1
    counted[counters.COPIED] += fast.captured.memory.static_inputs
    if flagged and word is not None:
        fault = word.peek()
        if fault is not None:
            raise fault.error()
    return fast.give(list(fast.results))


def _take(feeds: FastFeeds, feed: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]] | None:
    """Static inputs that are still to be written, with their names: arrays are. None for other feeds."""
    if torch.get_num_threads() != feeds.threads or torch.is_inference_mode_enabled() or stepwise():
        return None
    admitted = feeds.guard.admit(feed)
    if admitted is None:
        return None
    rest: list[tuple[str, torch.Tensor]] = []
    for name, static, array in feeds.writes:
        value = admitted[name]
        if type(value) is _Tensor:
            rest.append((name, static))
        else:
            assert array is not None
            np.copyto(array, value)
    return rest


def _checks(captured: CapturedGraph) -> bool:
    """Whether a replay may meet bad data: constants were looked at when they were recorded."""
    template, specs = captured.plan.steps.template, captured.plan.observation.specs
    return any(
        template[value] is None
        and (
            callable(call.step.kernel.checks)
            or (spec := specs[value]) is None
            or not spec.dtype.is_floating_point
        )
        for stage in captured.regions
        for call in stage.calls
        if call.step.ctx.validation is not None
        for value in call.step.inputs
        if value != NOTHING
    )
