"""The protocols of recorders and recordings on every device, and how one is refused or goes wrong."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import torch

from torch_ort_session.plan.memory import Evidence, MemoryLayout


class Refused(RuntimeError):
    """The body does something that no replay could repeat. Its effects are undefined.

    When an exception of the body's own came of it, that one is the cause; it may name the node.

    Attributes:
        reason: What cannot be recorded.
        op: The torch op or method that asked for it; empty when none is to blame.
    """

    def __init__(self, reason: str, op: str = "") -> None:
        super().__init__(f"{op}: {reason}" if op else reason)
        self.reason = reason
        self.op = op


class Diverged(RuntimeError):
    """A replayed call gave something of another form than when it was recorded. The recording is retired.

    Attributes:
        op: The torch op.
        call: Its place among the recorded calls.
        what: What differs.
    """

    def __init__(self, op: str, call: int, what: str) -> None:
        super().__init__(f"call {call} ({op}) diverged: another replay changed {what}")
        self.op = op
        self.call = call
        self.what = what


@dataclass(frozen=True, slots=True)
class RecordingStats:
    """Calls and bytes of a recording. Bytes are 0 where the device's own allocator keeps them.

    Attributes:
        calls: Calls that a replay makes.
        views: Calls that made views, which a replay leaves out.
        arena: Bytes of the block that the recording's own slots take.
        bound: Bytes that live in slots at once, at least: no packing takes less.
        fresh: Most bytes at once that replayed calls allocate themselves.
        kept: Bytes of the results that outlive the recording's calls.
        naive: Bytes of all of the recording's own storages together.
        slotted: Bytes of those that have a slot together.
        functional: Bytes of those that calls make anew together.
        inputs: Bytes of the inputs that have a slot.
        live: Most bytes of the recording's own storages, in slots or not, that are needed at once.
        given: Bytes of the results that each replay gives away.
    """

    calls: int
    views: int = 0
    arena: int = 0
    bound: int = 0
    fresh: int = 0
    kept: int = 0
    naive: int = 0
    slotted: int = 0
    functional: int = 0
    inputs: int = 0
    live: int = 0
    given: int = 0


class Use(enum.Enum):
    """Leave to use memory that is read or written outside of recorded calls.

    Attributes:
        HELD: Nothing: it stays where it is, and nobody frees it.
        INPUT: It is written before each replay; it may lie in a slot.
        SHARED: A region writes it and another one, or the user, reads it; it may lie in a slot.
        GIVEN: The same, and it leaves as a result that nobody else reads: :meth:`Recording.donate`.
    """

    HELD = "held"
    INPUT = "input"
    SHARED = "shared"
    GIVEN = "given"


class Shared(NamedTuple):
    """Memory that several regions of a capture, or the user, read or write.

    Attributes:
        tensor: What lies there.
        use: What may be done with it.
        start: Number of the region that writes it outside of a recording; None where a recorded call does.
        stop: Number of the last region that reads it; the number of regions for a result.
    """

    tensor: torch.Tensor
    use: Use
    start: int | None
    stop: int


class Finished(NamedTuple):
    """The outcome of finishing the recordings of a capture.

    Attributes:
        stats: All of them together.
        given: Identities of the storages whose bytes leave as results.
        layout: Where their memory lies.
        evidence: What the layout is checked against; None where nobody does.
    """

    stats: RecordingStats
    given: frozenset[int]
    layout: MemoryLayout
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class CaptureMemory:
    """Bytes that a capture takes, in slots of the arena or beside it.

    Attributes:
        static_inputs: Its own copies of the feeds.
        placed: Those of them that lie in slots.
        landings: Results of seams that segments read.
        crossing: Results of segments that other regions or the user read.
        slots: What its recordings use of the arena.
        fresh: Most bytes at once that replayed calls allocate and free again, or give away.
        recorded: All of its recordings together.
    """

    static_inputs: int
    placed: int
    landings: int
    crossing: int
    slots: int
    fresh: int
    recorded: RecordingStats


class Recording(Protocol):
    """Calls that were made once and can be made again, on the same tensors."""

    def finish_all(
        self,
        regions: Sequence[Self | None],
        shared: Sequence[Shared],
        block: Callable[[int], torch.Tensor],
    ) -> Finished:
        """Give up the memory of everything that nobody reads after its last recorded reader.

        All recordings of a capture are planned as one. Tensors that their bodies made and `shared` does not
        name have no data from now on.

        Args:
            regions: The recordings in order, this one among them; None for a region that is not recorded.
            shared: Memory that is read or written outside of the recordings.
            block: Makes the 1-d uint8 tensor of at least so many bytes that the slots lie in; it may be
                shared with other recordings that never replay at the same time.

        Raises:
            Refused: Memory that others read was written by no recorded call.
        """

    def donate(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Move the bytes of results that leave by themselves into new tensors; once a replay."""

    def replay(self, word: torch.Tensor | None = None) -> bool:
        """Make every call again.

        What it writes is valid until the next replay: who wants it longer copies it.

        Args:
            word: A validation word on the recording's device, which is cleared first, and looked at once the
                device is done. None: whoever holds a ticket looks.

        Returns:
            Whether a call noted a fault in the word that was given.

        Raises:
            Diverged: A call gave a result of another form. The recording is retired.
            RuntimeError: The recording is retired, or is being replayed by another thread.
            Exception: What a call raises; the recording is retired then.
        """

    def close(self) -> None:
        """Give up everything. Recordings that share a pool are closed together."""

    @property
    def stats(self) -> RecordingStats:
        """Its calls and views; of the bytes :meth:`finish_all` tells, of all recordings together."""


class Recorder(Protocol):
    """Makes recordings, for one device."""

    def record(self, body: Callable[[], None]) -> Recording:
        """Run ``body`` and record it. Its effects have taken place exactly once when this returns.

        Raises:
            Refused: The body does what cannot be recorded.
            Exception: What the body raises otherwise.
        """
