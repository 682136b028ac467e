"""The arena: blocks of memory that captures of one session share, since its runs serialise.

Values of a capture lie there from region to region, so that what runs within one of its regions has an arena
of its own: :attr:`Arena.inner`.
"""

from __future__ import annotations

import weakref

import torch

from torch_ort_session.runtime.recorders.tape.prepack import Prepacked


class Arena:
    """Blocks on one device. Lives as long as its session.

    A block never moves, and lives while a capture refers to it.

    Attributes:
        device: The device.
        packing: Weights that captures share in another order.
    """

    def __init__(self, device: torch.device, packing: Prepacked | None = None) -> None:
        self.device = device
        self.packing = packing or Prepacked()
        self._blocks: list[weakref.ref[torch.Tensor]] = []
        self._inner: Arena | None = None

    @property
    def inner(self) -> Arena:
        """The arena of what runs within a region of a capture: control-flow bodies."""
        if self._inner is None:
            self._inner = Arena(self.device, self.packing)
        return self._inner

    def block(self, nbytes: int) -> torch.Tensor:
        """A block of at least ``nbytes``: the largest one there is when it fits, else a new one.

        Returns:
            A 1-d uint8 tensor. No value may lie in it from one run to the next.
        """
        held = self._held()
        if held and held[-1].numel() >= nbytes:
            return held[-1]
        new = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        self._blocks = [weakref.ref(block) for block in (*held, new)]
        return new

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks that captures refer to, inner ones included; 0 when no capture lives."""
        inner = 0 if self._inner is None else self._inner.nbytes
        return inner + sum(block.numel() for block in self._held())

    def _held(self) -> list[torch.Tensor]:
        """The blocks that live, the largest one last."""
        blocks = (known() for known in self._blocks)
        return sorted((block for block in blocks if block is not None), key=torch.Tensor.numel)
