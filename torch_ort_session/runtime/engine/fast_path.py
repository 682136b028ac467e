"""Once more: a run like the one before is checked in one go and replayed, without a signature or a frame.

After a replay nothing of Python is in the processor's caches, so that every step on the way costs several
times what it costs in a loop of its own: this is the shortest way from feeds to results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering.steps import NOTHING
from torch_ort_session.runtime.captures.capture import CapturedGraph, OutputDonation, clones
from torch_ort_session.runtime.dispatch.policy import GraphEntry
from torch_ort_session.runtime.dispatch.state import EngineState
from torch_ort_session.runtime.recorders.api import Recording
from torch_ort_session.runtime.recorders.backend import Readiness
from torch_ort_session.runtime.recorders.devices import feeds_for
from torch_ort_session.runtime.recorders.tape.native import NativeFeeds
from torch_ort_session.runtime.validation.validator import ValidationWord
from torch_ort_session.runtime.values.context import emptied, stepwise
from torch_ort_session.trace import counters

_Tensor = torch.Tensor
_Array = np.ndarray
_STRIDED = torch.strided
_HOST = torch.device("cpu")
_NUMBERS = frozenset((torch.int64, torch.int32, torch.bool))
_Row = tuple[str, torch.dtype, torch.Size, Any, int | bool | None]
_Write = tuple[int, torch.Tensor, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """What feeds must be like, and where they go.

    Attributes:
        rows: Of each feed its name, dtype, dims and numpy dtype; its number when it is a key feed. None where
            there is no such thing.
        writes: Of each feed that something reads, where it is among the feeds, its static input, and the same
            as an array; None where there is no numpy dtype.
        threads: Of torch's CPU kernels.
        native: The same for a dict of plain tensors, compiled; None where it is not.
    """

    rows: tuple[_Row, ...]
    writes: tuple[_Write, ...]
    threads: int
    native: NativeFeeds | None


@dataclass(frozen=True, slots=True, eq=False)
class FastReplay:
    """What a run must be like to be a replay of one recording, and that recording.

    Attributes:
        entry: The signature's entry.
        captured: Its capture.
        outputs: Requested output names.
        feeds: What its feeds must be like.
        recording: All of the run.
        results: The outputs, in the recording's memory.
        donation: How they leave it.
        validation: The session's word; None where it has none.
        checks: Whether the recording may report bad data into it.
        ready: What the recording was made with.
        usual: Whether the outputs are the model's.
    """

    entry: GraphEntry
    captured: CapturedGraph
    outputs: tuple[str, ...]
    feeds: Alike
    recording: Recording
    results: tuple[torch.Tensor, ...]
    donation: OutputDonation
    validation: ValidationWord | None
    checks: bool
    ready: Readiness | None
    usual: bool


def fast_replay_of(
    entry: GraphEntry, outputs: tuple[str, ...], fed: Mapping[str, Value], usual: bool
) -> FastReplay | None:
    """The shortcut for runs like the last one of an entry; None when they take more than one recording.

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
    statics, numbers = dict(captured.copied), dict(captured.plan.keys)
    rows: list[_Row] = []
    writes: list[_Write] = []
    for position, (name, value) in enumerate(fed.items()):
        if not isinstance(value, torch.Tensor):
            return None
        static, array, kind = statics.get(name), None, _numpy_dtype(value.dtype)
        if static is not None and kind is not None:
            array = static.numpy()
        rows.append((name, value.dtype, value.shape, kind, numbers.get(name)))
        if static is not None:
            writes.append((position, static, array))
    parts = _alike(rows, writes, fed), captured.whole, captured.results, captured.donation
    planned = captured.planned
    last = planned.program.validation, _checks(captured), planned.ready, usual
    return FastReplay(entry, captured, outputs, *parts, *last)


def _alike(rows: Sequence[_Row], writes: Sequence[_Write], fed: Mapping[str, Value]) -> Alike:
    threads = torch.get_num_threads()
    native = feeds_for(_HOST, threads)
    targets = {position: static for position, static, _ in writes}
    for position, (name, dtype, _, _, number) in enumerate(rows):
        target, like = targets.get(position), fed[name]
        if native is None or (target is not None and not target.is_cpu) or not isinstance(like, torch.Tensor):
            return Alike(tuple(rows), tuple(writes), threads, None)
        if number is not None and dtype not in _NUMBERS:
            return Alike(tuple(rows), tuple(writes), threads, None)
        native.add(name, like, target, None if number is None else int(number))
    return Alike(tuple(rows), tuple(writes), threads, native)


def try_replay(
    known: FastReplay, state: EngineState, outputs: tuple[str, ...] | None, feed: Mapping[str, Any]
) -> list[Any] | Exception | None:
    """Replay a run that is like the one before.

    Args:
        known: What it must be like.
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
    if known.entry is not dispatcher.recent or known.entry.captured is not known.captured:
        return None
    if known.ready is not dispatcher.rules.ready:
        return None
    if not known.usual if outputs is None else known.outputs != outputs:
        return None
    feeds = known.feeds
    native = feeds.native
    if (native is None or forward_ad._current_level >= 0 or not native.take(feed)) and not _take(feeds, feed):
        return None
    word = known.validation
    if word is not None:
        if word.ticket is not None:
            word.refuse()
        if not known.checks:
            # Nothing of the recording would write to it.
            word = None
    try:
        flagged = known.recording.replay(None if word is None else word.word)
    except Exception as error:
        return error
    known.entry.runs += 1
    counted = dispatcher.counters
    counted[counters.REPLAYS] += 1
    counted[counters.COPIED] += known.captured.memory.static_inputs
    if flagged and word is not None:
        fault = word.peek()
        if fault is not None:
            raise fault.error()
    return known.donation(known.results, clones)


def _take(feeds: Alike, feed: Mapping[str, Any]) -> bool:
    """Copy feeds to where they go; False, and nothing is written, when they are others."""
    if (
        len(feed) != len(feeds.rows)
        or torch.get_num_threads() != feeds.threads
        or torch.is_inference_mode_enabled()
        or stepwise()
    ):
        return False
    values = []
    for name, dtype, shape, kind, number in feeds.rows:
        value = feed.get(name)
        if type(value) is _Tensor:
            if (
                value.dtype is not dtype
                or value.is_nested
                or value.shape != shape
                or not value.is_cpu
                or value.requires_grad
                or value.layout is not _STRIDED
                or emptied(value)
            ):
                return False
        elif type(value) is not _Array or value.dtype != kind or kind is None or value.shape != shape:
            return False
        if number is not None and value.item() != number:
            return False
        values.append(value)
    for position, static, array in feeds.writes:
        value = values[position]
        if type(value) is _Tensor:
            static.copy_(value)
        else:
            np.copyto(array, value)
    return True


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
        for stage in captured.stages
        for call in stage.calls
        if call.step.ctx.validation is not None
        for value in call.step.inputs
        if value != NOTHING
    )


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any] | None:
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return None
