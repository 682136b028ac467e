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
    """

    __slots__ = ("depth", "due")

    def __init__(self) -> None:
        self.depth = 0
        self.due: Callable[[], None] | None = None

    def end(self) -> None:
        """The innermost run is over."""
        self.depth -= 1
        if self.due is not None and not self.depth:
            due, self.due = self.due, None
            due()

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
        finally:
            self.end()
