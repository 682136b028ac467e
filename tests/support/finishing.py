"""Finishing one recording alone, as a capture with one region does."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from torch_ort_session.runtime.recorders.api import Recording, RecordingStats, Shared, Use


def allocated(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8)


def finish(
    recording: Recording,
    held: Iterable[torch.Tensor],
    block: Callable[[int], torch.Tensor] = allocated,
) -> RecordingStats:
    """Let a recording go on alone; `held` stays where it is and nobody frees it."""
    shared = [Shared(tensor, Use.HELD, None, 1) for tensor in held]
    return recording.finish_all([recording], shared, block).stats


def finish_run(
    recording: Recording,
    feeds: Iterable[torch.Tensor],
    results: Iterable[torch.Tensor],
    held: Iterable[torch.Tensor] = (),
    block: Callable[[int], torch.Tensor] = allocated,
) -> RecordingStats:
    """Finish a recording that is the whole of a run: feeds and results may lie in the block too."""
    shared = [
        *(Shared(tensor, Use.INPUT, 0, 0) for tensor in feeds),
        *(Shared(tensor, Use.SHARED, None, 1) for tensor in results),
        *(Shared(tensor, Use.HELD, None, 1) for tensor in held),
    ]
    return recording.finish_all([recording], shared, block).stats
