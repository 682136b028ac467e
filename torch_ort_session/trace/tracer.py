"""The tracer: the observer of a session's runs just now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from torch_ort_session.trace.observer import LABELS, OFF, Observer
from torch_ort_session.trace.timeline import Timeline


class Tracer:
    """The observer of the runs of a session and of its bindings, which changes with what traces it.

    Attributes:
        observer: Is told of every run; :data:`~.observer.OFF` most of the time.
        memo: What was prepared to be watched; it goes with the observer.
    """

    def __init__(self) -> None:
        self.observer: Observer = OFF
        self.memo: dict[Any, Any] = {}

    @contextlib.contextmanager
    def trace(self, lock: AbstractContextManager[object], title: str) -> Iterator[Timeline]:
        """Watch every run until the block ends.

        Args:
            lock: Held during runs, so that none is watched in part.
            title: What the timeline is of.

        Raises:
            RuntimeError: The session is being traced.
        """
        timeline = Timeline(title)
        with lock:
            if self.observer.on:
                raise RuntimeError("the session is being traced; end that block first")
            self.observer = timeline
        try:
            yield timeline
        finally:
            with lock:
                self.observer = OFF
                self.memo.clear()

    def watching(self) -> bool:
        """Whether a run is watched: by a timeline, or by a profiler of torch's."""
        # Asked for at every run: without the call of `profiled`.
        return self.observer.on or torch._C._autograd._profiler_enabled()

    @contextlib.contextmanager
    def run(self, name: str, counters: Mapping[str, int]) -> Iterator[None]:
        """The context of a watched run."""
        before = self.observer
        if not before.on:
            self.observer = LABELS
        try:
            with self.observer.run(name, counters):
                yield
        finally:
            self.observer = before
