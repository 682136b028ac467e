"""Recordings on the CPU: native tapes, and the memory that those of one capture share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from torch_ort_session.runtime.recorders.api import Diverged, Finished, RecordingStats, Refused, Shared, Use
from torch_ort_session.runtime.recorders.tape.memory import Life, Notes, Part, lay_out
from torch_ort_session.runtime.recorders.tape.native import NativeModule, NativeTape


class TapeRecording:
    """Recorded calls on the CPU; see :class:`~.recording.Recording`.

    Args:
        native: The compiled extension.
        tape: The calls.
        notes: What is known of them.
        blank: Keys of storages that no call wrote.
        views: Calls that made views.
        poison: Fill every slot with 0xFF after its last reader.
    """

    def __init__(
        self,
        native: NativeModule,
        tape: NativeTape,
        notes: Notes,
        blank: Iterable[int],
        views: int,
        *,
        poison: bool,
    ) -> None:
        self._native = native
        self._tape = tape
        self._poison = poison
        self._blank = frozenset(blank)
        self._notes = notes
        self._stats = RecordingStats(calls=len(tape), views=views)
        self._block: torch.Tensor | None = None

    @property
    def stats(self) -> RecordingStats:
        """What it holds; bytes are known once it is finished."""
        return self._stats

    def finish(
        self,
        keep: Iterable[torch.Tensor],
        foreign: Iterable[torch.Tensor] = (),
        block: Callable[[int], torch.Tensor] | None = None,
        inputs: Sequence[torch.Tensor] | None = None,
    ) -> None:
        """Put what calls write into slots of one block, and free what they allocate after its last reader.

        Raises:
            Refused: A result lies in memory that no recorded call wrote.
        """
        keep, length = list(keep), len(self._tape)
        self._check(keep)
        fed = [] if inputs is None or self._poison else inputs
        brief = Use.HELD if inputs is None or self._poison else Use.SHARED
        passing = set(self._native.storage_keys([*keep, *fed]))
        held = [t for t in foreign if brief is Use.HELD or self._native.storage_keys([t])[0] not in passing]
        lives = [
            *(Life(t, Use.INPUT, 0, 0) for t in fed),
            *(Life(t, brief, None, length) for t in keep),
            *(Life(t, Use.HELD, None, length) for t in held),
        ]
        part = Part(0, self._tape, self._notes)
        self._block, stats, _ = lay_out(
            self._native, [part], lives, length, block or _allocate, keep, poison=self._poison
        )
        self._stats = replace(stats, calls=self._stats.calls, views=self._stats.views)

    def finish_all(
        self,
        stages: Sequence[TapeRecording | None],
        shared: Sequence[Shared],
        block: Callable[[int], torch.Tensor],
    ) -> Finished:
        """Lay out the recordings of one capture together; see :meth:`~.recording.Recording.finish_all`."""
        bases: list[int] = []
        length = 0
        for stage in stages:
            bases.append(length)
            length += max(1, 0 if stage is None else len(stage._tape))
        bases.append(length)
        read = [one.tensor for one in shared if one.use is not Use.INPUT]
        lives = []
        for one in shared:
            use = Use.HELD if one.use is Use.INPUT and self._poison else one.use
            start = None if one.start is None else bases[one.start]
            lives.append(Life(one.tensor, use, start, bases[one.stop]))
        recordings = [stage for stage in stages if stage is not None]
        for recording in recordings:
            recording._check(read)
        parts = [
            Part(base, stage._tape, stage._notes)
            for base, stage in zip(bases, stages, strict=False)
            if stage is not None
        ]
        saved = [one.tensor for one in shared if one.stop == len(stages)]
        memory, stats, given = lay_out(self._native, parts, lives, length, block, saved, poison=self._poison)
        for recording in recordings:
            recording._block = memory
        calls = sum(recording.stats.calls for recording in recordings)
        views = sum(recording.stats.views for recording in recordings)
        return Finished(replace(stats, calls=calls, views=views), given)

    def give(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Move results' bytes into new tensors; see :meth:`~.recording.Recording.give`."""
        return self._native.give(results)

    def replay(self, word: torch.Tensor | None = None) -> bool:
        """Make every call again, without Python; see :meth:`~.recording.Recording.replay`."""
        try:
            outcome = self._tape.replay(word)
        except Exception as error:
            position = self._tape.position
            if position < len(self._tape):
                error.add_note(f"in a replay, at call {position} ({self._tape.name(position)})")
            raise
        if outcome is None:
            return False
        if outcome is True:
            return True
        call, op, what = outcome
        raise Diverged(op, call, what)

    def close(self) -> None:
        """Give up calls, tensors and slots."""
        self._tape.close()
        self._block = None

    def _check(self, keep: list[torch.Tensor]) -> None:
        if not self._blank.isdisjoint(self._native.storage_keys(keep)):
            raise Refused("a result lies in memory that no recorded call wrote")


def _allocate(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8)
