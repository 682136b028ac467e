"""Timelines: spans of what runs did, and what was counted meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from torch_ort_session.trace.chrome import write
from torch_ort_session.trace.observer import OP, PHASE, RUN, SEAM, SEGMENT, Facts, Span, label, profiled
from torch_ort_session.trace.table import table


class Timeline:
    """A record of what the runs of a session did while it was traced; times are the host's.

    Within each run lie its phases: ``setup`` (feeds are looked up and checked), ``resolve`` (signature and
    policy), ``bind`` (feeds are put in place), ``regions`` (segments and seams) and ``collect`` (results are
    given memory of their own); ``trace`` is what watching took.

    Args:
        title: What it is of.
        clock: Gives nanoseconds.
    """

    on = True
    ops = True

    def __init__(self, title: str = "", clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.title = title
        self.counters: Counter[str] = Counter()
        self._clock = clock
        self._began = clock()
        self._spans: list[Span] = []
        self._current: _Run | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans in the order in which they began, outer ones first."""
        return tuple(sorted(self._spans, key=lambda span: (span.start, -span.end, _DEPTH[span.kind])))

    def now(self) -> int:
        """Nanoseconds since the timeline was made."""
        return self._clock() - self._began

    @contextlib.contextmanager
    def run(self, name: str, counters: Mapping[str, int]) -> Iterator[None]:
        """The context of a run: notes its phases, and by how much it changes the counters."""
        before, outer = dict(counters), self._current
        start = self.now()
        run = self._current = _Run(start)
        try:
            yield
        except BaseException as error:
            run.facts["error"] = type(error).__name__
            raise
        finally:
            end = self.now()
            self._current = outer
            counted = {key: value - before.get(key, 0) for key, value in counters.items()}
            changes = {key: change for key, change in counted.items() if change}
            self.counters.update(changes)
            bound = {key: value for key, value in run.facts.items() if key.endswith(" bytes")}
            for phase, since, until in run.phases(end):
                self.add(PHASE, phase, since, until, bound if phase == "bind" else {})
            self.add(RUN, name, start, end, {**run.facts, **changes})

    def mark(self, phase: str) -> None:
        """Begin a phase of the current run."""
        if self._current is not None:
            self._current.marks.append((phase, self.now()))

    def note(self, **facts: object) -> None:
        """Note facts of the current run."""
        if self._current is not None:
            self._current.facts.update(facts)

    def span(self, kind: str, name: str, facts: Facts) -> AbstractContextManager[None]:
        """The context of a step; segments and seams are shown to a profiler of torch's as well."""
        shown = label(name, facts) if kind != OP and profiled() else None
        return _Step(self, kind, name, facts, shown)

    def add(self, kind: str, name: str, start: int, end: int, facts: Facts) -> None:
        """Add a span of this thread."""
        self._spans.append(Span(kind, name, start, end, threading.get_native_id(), facts))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that Perfetto (https://ui.perfetto.dev) and ``chrome://tracing`` open."""
        write(self, path)

    def __str__(self) -> str:
        return table(self)


_DEPTH = {RUN: 0, PHASE: 1, SEGMENT: 2, SEAM: 2, OP: 3}


class _Run:
    """A run while it is made."""

    def __init__(self, start: int) -> None:
        self.marks = [("setup", start)]
        self.facts: dict[str, object] = {}
        self.steps: tuple[int, int] | None = None

    def note_step(self, start: int, end: int) -> None:
        """Note when steps took place: from the first one's start to the last one's end."""
        self.steps = (start if self.steps is None else self.steps[0], end)

    def phases(self, end: int) -> Iterator[tuple[str, int, int]]:
        """Name, start and end of each phase."""
        points = list(self.marks)
        if self.steps is not None:
            points += [("regions", self.steps[0]), ("collect", self.steps[1])]
        for (phase, start), stop in zip(points, [*(at for _, at in points[1:]), end], strict=True):
            yield phase, start, stop


class _Step:
    """A step while it runs."""

    __slots__ = ("facts", "kind", "label", "name", "start", "timeline")

    def __init__(
        self,
        timeline: Timeline,
        kind: str,
        name: str,
        facts: Facts,
        shown: AbstractContextManager[None] | None,
    ) -> None:
        self.timeline = timeline
        self.kind = kind
        self.name = name
        self.facts = facts
        self.label = shown
        self.start = 0

    def __enter__(self) -> None:
        if self.label is not None:
            self.label.__enter__()
        self.start = self.timeline.now()
        if self.timeline._current is not None:
            self.timeline._current.note_step(self.start, self.start)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timeline, end = self.timeline, self.timeline.now()
        facts = self.facts if error is None else {**self.facts, "error": type(error).__name__}
        timeline.add(self.kind, self.name, self.start, end, facts)
        if timeline._current is not None:
            timeline._current.note_step(self.start, end)
        if self.label is not None:
            self.label.__exit__(kind, error, trace)
