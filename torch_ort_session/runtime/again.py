"""Once more: a run like the one before is checked in one go and replayed, without a signature or a frame.

After a replay nothing of Python is in the processor's caches, so that every step on the way costs several
times what it costs in a loop of its own: this is the shortest way from feeds to results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.steps import NOTHING
from torch_ort_session.runtime import counters
from torch_ort_session.runtime.handover import Handover, clones
from torch_ort_session.runtime.modes import stepwise
from torch_ort_session.runtime.recording import Recording

if TYPE_CHECKING:
    from torch_ort_session.runtime.capture import Captured
    from torch_ort_session.runtime.machine import Machine
    from torch_ort_session.runtime.policy import Entry
    from torch_ort_session.runtime.readiness import Readiness
    from torch_ort_session.runtime.validation import ValidationWord

_Tensor = torch.Tensor
_Array = np.ndarray
_STRIDED = torch.strided
_Row = tuple[str, torch.dtype, torch.Size, Any, int | bool | None]
_Write = tuple[int, torch.Tensor, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Shortcut:
    """What a run must be like to be a replay of one recording, and that recording.

    Attributes:
        entry: The signature's entry.
        outputs: Requested output names.
        rows: Of each feed its name, dtype, dims and numpy dtype; its number when it is a key feed. None where
            there is no such thing.
        writes: Of each feed that something reads, where it is among the feeds, its static input, and the same
            as an array; None where there is no numpy dtype.
        recording: All of the run.
        results: The outputs, in the recording's memory.
        handover: How they leave it.
        threads: Of torch's CPU kernels.
        validation: The session's word; None where it has none.
        checks: Whether the recording may report bad data into it.
        ready: What the recording was made with.
        usual: Whether the outputs are the model's.
    """

    entry: Entry
    outputs: tuple[str, ...]
    rows: tuple[_Row, ...]
    writes: tuple[_Write, ...]
    recording: Recording
    results: tuple[torch.Tensor, ...]
    handover: Handover
    threads: int
    validation: ValidationWord | None
    checks: bool
    ready: Readiness | None
    usual: bool


def shortcut_to(
    entry: Entry, outputs: tuple[str, ...], fed: Mapping[str, Value], usual: bool
) -> Shortcut | None:
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
    statics, numbers = dict(captured.copied), dict(captured.warm.keys)
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
    parts = captured.whole, captured.results, captured.handover, torch.get_num_threads()
    warm = captured.warm
    last = warm.program.validation, _checks(captured), warm.ready, usual
    return Shortcut(entry, outputs, tuple(rows), tuple(writes), *parts, *last)


def at_once(
    machine: Machine, outputs: tuple[str, ...] | None, feed: Mapping[str, Any]
) -> list[Any] | Exception | None:
    """Replay a run that is like the one before.

    Args:
        machine: What runs need.
        outputs: Requested output names; None for the model's.
        feed: What came, by name.

    Returns:
        The results, in memory of their own. None when the run is another one, or might be. What the recording
        raised, which is to be taken care of as if it had been replayed on the long way.

    Raises:
        DeviceValidationError: A kernel met bad data, or nobody has asked whether one did in the run before.
    """
    policy = machine.policy
    known = policy.shortcut
    if known is None or known.entry is not policy.recent or known.ready is not policy.rules.ready:
        return None
    if not known.usual if outputs is None else known.outputs != outputs:
        return None
    if (
        len(feed) != len(known.rows)
        or torch.get_num_threads() != known.threads
        or torch.is_inference_mode_enabled()
        or stepwise()
    ):
        return None
    values = []
    for name, dtype, shape, kind, number in known.rows:
        value = feed.get(name)
        if type(value) is _Tensor:
            if (
                value.dtype is not dtype
                or value.shape != shape
                or not value.is_cpu
                or value.requires_grad
                or value.layout is not _STRIDED
                or value.is_nested
            ):
                return None
        elif type(value) is not _Array or value.dtype != kind or kind is None or value.shape != shape:
            return None
        if number is not None and value.item() != number:
            return None
        values.append(value)
    for position, static, array in known.writes:
        value = values[position]
        if type(value) is _Tensor:
            static.copy_(value)
        else:
            np.copyto(array, value)
    word = known.validation
    if word is not None and word.ticket is None and not known.checks:
        # Nothing of the recording would write to it, and nobody waits for it.
        word = None
    ticket = None if word is None else word.begin()
    try:
        known.recording.replay()
    except BaseException as error:
        if word is not None and ticket is not None:
            word.read(ticket)
        if isinstance(error, Exception):
            return error
        raise
    known.entry.runs += 1
    counted = policy.counters
    counted[counters.REPLAYS] += 1
    counted[counters.COPIED] += known.entry.captured.memory.static_inputs  # type: ignore[union-attr]
    if word is not None and ticket is not None:
        fault = word.read(ticket)
        if fault is not None:
            raise fault.error()
    return known.handover(known.results, clones)


def _checks(captured: Captured) -> bool:
    """Whether a replay may meet bad data: constants were looked at when they were recorded."""
    template, specs = captured.warm.program.steps.template, captured.warm.observation.specs
    return any(
        template[value] is None and ((spec := specs[value]) is None or not spec.dtype.is_floating_point)
        for stage in captured.stages
        for call in stage.calls
        if call.step.kernel.checks
        for value in call.step.inputs
        if value != NOTHING
    )


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any] | None:
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return None
