"""Faults in data that kernels may find: a flag for each kind.

`csrc/core/word.h` has the same flags for kernels in C++, `runtime/validation/word.py` a sentence for each.
"""

from __future__ import annotations

from enum import IntEnum


class Flag(IntEnum):
    """The bits of a validation word's first element."""

    INDEX = 1
    """An index outside of its axis."""
    DIVISION = 2
    """An integer divided by zero."""
    LENGTH = 4
    """A length that is negative, or longer than what it measures."""
    CLASS = 8
    """A target of a loss that names no class."""
    POSITION = 16
    """A place in a cache that there is not."""
    DISTRIBUTION = 32
    """A row of probabilities that leaves nothing to draw."""
    PROBABILITY = 64
    """A number that is no probability."""

    @property
    def what(self) -> str:
        """Name of what is wrong with its article, such as ``an index``."""
        article = "an" if self.name[0] in "AEIOU" else "a"
        return f"{article} {self.name.lower()}"
