"""Children of ``os.fork``: what another thread was in the midst of when the process was copied is given up.

The child has one thread. A lock that another one held stays locked there for ever, and a run that was under
way never ends; ``torch.utils.data.DataLoader`` forks its workers, whatever else the process does.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """What has to be put right in a child; hashable, and weakly held."""

    def after_fork(self) -> None:
        """Give up what belonged to threads that are not there."""


_FORKED: weakref.WeakSet[Forked] = weakref.WeakSet()


def put_right(one: Forked) -> None:
    """Call ``one.after_fork()`` in every child from now on, as long as it lives."""
    _FORKED.add(one)


def _in_child() -> None:
    for one in list(_FORKED):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
