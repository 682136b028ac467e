"""Handover: how the results of a replay leave a capture, without a copy where nobody else needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_ort_session.runtime.recorders.api import Recording
from torch_ort_session.runtime.values.results import cloned


@dataclass(frozen=True, slots=True, eq=False)
class Handover:
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
            return list(self.recording.give(list(results)))
        pairs = list(zip(results, self.given, strict=True))
        moved = iter(self.recording.give([result for result, given in pairs if given]))
        rest = iter(copied([result for result, given in pairs if not given]))
        return [next(moved) if given else next(rest) for _, given in pairs]


def handover(
    outputs: Sequence[Any], given: frozenset[int], recording: Recording, lasting: frozenset[int]
) -> Handover:
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
    return Handover(recording if any(marks) else None, marks, lasting)


def clones(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Contiguous copies."""
    return [cloned(result) for result in results]
