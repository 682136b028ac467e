"""The arena: blocks of memory that captures of one session share, since its runs serialise."""

from __future__ import annotations

import weakref

import torch


class Arena:
    """Blocks on one device. A block never moves, and lives while a capture refers to it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._largest: weakref.ref[torch.Tensor] | None = None

    def block(self, nbytes: int) -> torch.Tensor:
        """A block of at least ``nbytes``: the largest one there is when it fits, else a new one.

        Returns:
            A 1-d uint8 tensor. No value may lie in it from one run to the next.
        """
        known = None if self._largest is None else self._largest()
        if known is not None and known.numel() >= nbytes:
            return known
        made = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        self._largest = weakref.ref(made)
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of the block that new captures share; 0 when no capture lives."""
        known = None if self._largest is None else self._largest()
        return 0 if known is None else known.numel()
