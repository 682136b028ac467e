"""Observers of runs, and the one for runs that nobody watches."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch

Facts = Mapping[str, object]

SEGMENT: Final = "segment"
SEAM: Final = "seam"
OP: Final = "op"
PHASE: Final = "phase"
RUN: Final = "run"


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time.

    Attributes:
        kind: ``run``, ``phase``, ``segment``, ``seam`` or ``op``.
        name: Of a run its outputs, of a step its operator.
        start: Nanoseconds since the timeline was made.
        end: The same.
        thread: Native id of the thread.
        facts: What else is known: node, region, reason, bytes, the error that ended it.
    """

    kind: str
    name: str
    start: int
    end: int
    thread: int
    facts: Facts = field(default_factory=dict)

    @property
    def duration(self) -> int:
        """Nanoseconds."""
        return self.end - self.start


class Spans(Protocol):
    """A timeline, as far as it is written."""

    title: str
    counters: Counter[str]

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans in the order in which they began, outer ones first."""


class Observer(Protocol):
    """A watcher of what a run does, who has no part in it.

    A run asks for ``on`` before it tells anything, so that nothing is worked out for nobody.
    """

    @property
    def on(self) -> bool:
        """Whether there is somebody who watches."""

    @property
    def ops(self) -> bool:
        """Whether every step is worth telling of, not regions and seams alone."""

    def run(self, name: str, counters: Mapping[str, int]) -> AbstractContextManager[None]:
        """The context of a whole run; the counters are read before and after it."""

    def mark(self, phase: str) -> None:
        """Begin a phase of the current run, and end the one before."""

    def note(self, **facts: object) -> None:
        """Note facts of the current run."""

    def span(self, kind: str, name: str, facts: Facts) -> AbstractContextManager[None]:
        """The context of a segment, a seam or another step."""


class Null:
    """An observer for runs that nobody watches."""

    on = False
    ops = False

    def run(self, name: str, counters: Mapping[str, int]) -> AbstractContextManager[None]:
        """Nothing around a run."""
        return _NOTHING

    def mark(self, phase: str) -> None:
        """Nothing."""

    def note(self, **facts: object) -> None:
        """Nothing."""

    def span(self, kind: str, name: str, facts: Facts) -> AbstractContextManager[None]:
        """Nothing around a step."""
        return _NOTHING


class Labels(Null):
    """An observer that shows segments and seams to a profiler of torch's."""

    on = True

    def span(self, kind: str, name: str, facts: Facts) -> AbstractContextManager[None]:
        """A label of the profiler's, where that may be: within a recording nothing must be told to it."""
        return label(name, facts) if kind in (SEGMENT, SEAM) else _NOTHING


_NOTHING: Final = contextlib.nullcontext()
OFF: Final[Observer] = Null()
LABELS: Final[Observer] = Labels()


def label(name: str, facts: Facts) -> AbstractContextManager[None]:
    """A stretch that a profiler of torch's shows under this name, with a seam's reason."""
    why = facts.get("why")
    text = f"torch_ort_session: {name}"
    return torch.profiler.record_function(f"{text} ({why})" if why else text)


def profiled() -> bool:
    """Whether a profiler of torch's runs in this thread."""
    return torch._C._autograd._profiler_enabled()
