"""Protocols of what the compiled extension gives to Python; `csrc/tape/tape.h` says how it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch


class NativeTape(Protocol):
    """A list of ATen calls on fixed tensors."""

    def own(self, made: Sequence[torch.Tensor]) -> None:
        """Note tensors whose storages the recording made."""

    def add(self, name: str, overload: str, args: list[Any], results: Sequence[torch.Tensor | None]) -> None:
        """Append a call; no results when it writes into its arguments."""

    def settled(self) -> bool:
        """Whether no noted storage was resized."""

    def intervals(self) -> list[tuple[int, int, int, bool, int]]:
        """Rows, one for each of the tape's own storages that a call touches.

        Returns:
            The first call that touches it, the last one, its bytes, whether every replay makes it anew (else
            calls write into it in place), and its key.
        """

    def plan(
        self,
        block: torch.Tensor,
        slots: list[tuple[int, int]],
        supplied: list[int],
        released: list[int],
        poisoned: list[int],
    ) -> None:
        """Place intervals, by number, at byte offsets; say which get bytes of their own before their first
        call, which are freed after their last one, and which slots are filled with 0xFF then.
        """

    def replay(self, word: torch.Tensor | None = None) -> tuple[int, str, str] | Literal[True] | None:
        """Make every call; gives the place of a call that diverged, its op, and what differed.

        Args:
            word: A validation word, which is cleared before; True says that a call noted a fault in it.
        """

    def close(self) -> None:
        """Drop everything."""

    def name(self, call: int) -> str:
        """The op of a call."""

    def __len__(self) -> int: ...

    @property
    def position(self) -> int:
        """The call that a replay came to."""


class NativeStrip(Protocol):
    """A list of ATen calls whose sizes are `base + slope * by` in a run that has grown by `by`."""

    def add(
        self,
        name: str,
        overload: str,
        args: list[Any],
        tensors: list[tuple[int, bool, list[int]]],
        numbers: list[tuple[int, int, list[int], list[int]]],
        results: list[int],
        forms: list[tuple[int, list[int], list[int]]],
    ) -> None:
        """Append a call.

        Args:
            name: Its op.
            overload: Its overload.
            args: Its arguments; None in the place of those that a run gives.
            tensors: The place of an argument, whether it is a list, and the slots that it takes.
            numbers: The place of an argument, 1 for a list and 0 for a number, its base and its slope.
            results: The slots of its results; -1 for one that is no new tensor.
            forms: Slots, with base and slope of the dims that they must have now.
        """

    def finish(self, wanted: Sequence[int]) -> None:
        """Say which slots a run gives back; no call is appended any more."""

    def run(self, given: Sequence[torch.Tensor], by: int) -> list[torch.Tensor] | int:
        """Make every call; gives the slot that has other dims than it must have, if one has."""


class NativeFeeds(Protocol):
    """Feeds of a run that is like the one before, checked and copied in one go."""

    def add(self, name: str, like: torch.Tensor, target: torch.Tensor | None, number: int | None) -> None:
        """Append a feed: of the form of `like`, into `target`; it holds `number` where one is given.

        Raises:
            ValueError: The target is of another form, or `like` can hold no number.
        """

    def take(self, feed: object) -> bool:
        """Copy all feeds; False, and nothing is written, when they are not surely such ones."""


class NativeModule(Protocol):
    """The compiled extension."""

    def Feeds(self, threads: int) -> NativeFeeds:
        """No feeds yet, for runs with so many threads of CPU kernels."""

    def Strip(self, given: int) -> NativeStrip:
        """An empty strip, whose first slots take what a run is given."""

    def Tape(self) -> NativeTape:
        """An empty tape."""

    def storage_keys(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """A number for each tensor's storage; 0 for an opaque tensor."""

    def place(self, tensor: torch.Tensor, block: torch.Tensor, offset: int) -> None:
        """Move a tensor's storage to a slot of a block."""

    def give(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors of the same form that take over the bytes behind these, each with a storage of its own."""

    def holders(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """The number of tensors that share each one's storage, or hold it otherwise."""
