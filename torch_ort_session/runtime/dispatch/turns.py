"""Turns: what becomes of a run that is begun within another one.

A signal handler, a finalizer, a hook or a kernel of the caller's can call a session in the midst of a run of
the same thread, which no lock keeps out. What the outer run has in the memory of its capture must stay as it
is: runs within runs are eager, and use nothing that is kept between runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from torch_ort_session.errors import SessionError


class Turns:
    """Runs of one session that are under way; used by whoever holds its lock.

    Attributes:
        depth: How many there are, each within the one before.
        due: What was asked for within a run, and is done at the end of the outermost.
        abandon: Gives up what a run that was broken off has left for somebody to read.
    """

    __slots__ = ("abandon", "depth", "due")

    def __init__(self, abandon: Callable[[], None] = lambda: None) -> None:
        self.depth = 0
        self.due: Callable[[], None] | None = None
        self.abandon = abandon

    def later(self, due: Callable[[], None]) -> bool:
        """Do something at the end of the run that is under way; False when none is."""
        if self.depth:
            self.due = due
        return bool(self.depth)

    def give_up(self) -> None:
        """No run is under way any more: the thread that was in them is gone."""
        self.depth, self.due = 0, None

    def settle(self) -> None:
        """A run is over: do what was put off."""
        due = self.due
        if due is not None and not self.depth:
            self.due = None
            due()

    def broken_off(self, error: BaseException) -> None:
        """A run ends with an error, which is no :class:`Exception` where it was interrupted anywhere."""
        if self.depth == 1 and not isinstance(error, Exception):
            self.abandon()

    @contextlib.contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """A run that cannot take place within another one.

        Args:
            what: What it is called.

        Raises:
            SessionError: Another one is under way.
        """
        if self.depth:
            raise SessionError(
                f"{what} was asked for within a run of the same session, by a signal handler, a finalizer, a"
                " hook or a kernel; do it after that run, or with another session"
            )
        self.depth += 1
        try:
            yield
        except BaseException as error:
            self.broken_off(error)
            raise
        finally:
            self.depth -= 1
            if self.due is not None:
                self.settle()
