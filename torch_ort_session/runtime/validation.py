"""The validation word: how a device kernel reports bad data without killing the process."""

from __future__ import annotations

import torch

from torch_ort_session.errors import DeviceIndexError
from torch_ort_session.ir.graph import Node


class ValidationWord:
    """Three int64 on the device: the faulty node's number (0: none), the first bad value, the axis length.

    The first fault of a run stays; the word is cleared by :meth:`begin` and read by :meth:`finish`.
    """

    def __init__(self, device: torch.device) -> None:
        self.word = torch.zeros(3, dtype=torch.int64, device=device)
        self.numbers: dict[Node, int] = {}

    def begin(self) -> None:
        """Clear the word before a run."""
        self.word.zero_()

    def check_index(self, index: torch.Tensor, size: int, node: Node) -> torch.Tensor:
        """Note the first index outside of ``[-size, size)`` and return a safe, wrapped index.

        Args:
            index: Integer tensor of any shape on the word's device.
            size: Length of the indexed axis.
            node: The node to name.

        Returns:
            The wrapped index, with 0 in the place of every bad one.

        Raises:
            IndexError: The axis is empty, and an index is given.
        """
        if index.numel() == 0:
            return index
        if size == 0:
            raise IndexError("the indexed axis is empty, so that no index is valid")
        number = self.numbers.setdefault(node, len(self.numbers) + 1)
        bad = (index < -size) | (index >= size)
        flat = bad.reshape(-1)
        first = index.reshape(-1).gather(0, flat.to(torch.uint8).argmax().reshape(1))
        found = torch.cat((torch.full_like(self.word[:1], number), first.to(torch.int64)))
        found = torch.cat((found, torch.full_like(self.word[:1], size)))
        self.word.copy_(torch.where(flat.any() & (self.word[0] == 0), found, self.word))
        return torch.where(bad, 0, torch.where(index < 0, index + size, index))

    def finish(self) -> None:
        """Read the word, which waits for the device.

        Raises:
            DeviceIndexError: A kernel met an index outside of its axis.
        """
        number, value, size = self.word.tolist()
        if number == 0:
            return
        node = next(item for item, given in self.numbers.items() if given == number)
        raise DeviceIndexError(
            f"node {node.name!r} ({node.qualified}): index {value} is outside of [-{size}, {size}), "
            "the valid range of the indexed axis; check the indices that were fed",
            node=node.name,
            kind="index out of range",
            value=value,
        )
