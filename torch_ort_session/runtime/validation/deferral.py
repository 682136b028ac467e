"""Deferral: who is to learn of bad data when it was not asked for at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from torch_ort_session.runtime.validation.faults import Fault
from torch_ort_session.runtime.validation.tickets import Ticket

if TYPE_CHECKING:
    from torch_ort_session.runtime.validation.validator import ValidationWord

ASK = "read an output of it with binding.read(), or call session.check(), before the next run"
"""What to do about a run that nobody asked about."""


class Together:
    """Runs under one ticket that are under way: whoever asks looks at the word, which stays theirs.

    Attributes:
        word: The session's word.
        ticket: Of the runs.
        advice: What another run has to wait for.
    """

    advice = (
        "runs of binding.together() are under way; make other runs of the session after its block, or with "
        "another session"
    )

    def __init__(self, word: ValidationWord, ticket: Ticket | None) -> None:
        self.word = word
        self.ticket = ticket
        word.deferral = self

    def tell(self) -> None:
        """Look at the word.

        Raises:
            DeviceValidationError: A run met bad data so far.
            Exception: The word cannot be read.
        """
        fault = self.word.peek()
        if fault is not None:
            raise fault.error()

    def over(self) -> None:
        """They are over."""
        if self.word.deferral is self:
            self.word.deferral = None


class Deferral:
    """The recipients of what the word says of one ticket.

    The first of them that reads waits for the device, and then the word is free for the next run. If the data
    was bad, each of them raises once.

    Attributes:
        word: The session's word.
        ticket: Of the runs.
        on_fault: Is told of bad data before anybody else.
        waiting: Outputs that nobody has read since.
        settled: Whether the word was read.
        fault: What was wrong.
        told: Whether anybody was told.
        advice: What another run has to wait for.
    """

    advice = ASK

    def __init__(
        self,
        word: ValidationWord,
        ticket: Ticket,
        on_fault: Callable[[Fault], None],
        outputs: Iterable[str] = (),
    ) -> None:
        self.word = word
        self.ticket = ticket
        self.on_fault = on_fault
        self.waiting = set(outputs)
        self.settled = False
        self.fault: Fault | None = None
        self.told = False
        word.deferral = self

    def look(self, names: Iterable[str]) -> None:
        """Somebody is about to read outputs.

        Raises:
            DeviceValidationError: The data was bad, and at least one of them was not read since.
            Exception: The word cannot be read; the next one who reads tries again.
        """
        found = self.waiting.intersection(names)
        if not found:
            return
        self._settle()
        self.waiting -= found
        if self.fault is not None:
            self.told = True
            raise self.fault.error()

    def tell(self) -> None:
        """Read the word if nobody has, and tell of bad data unless somebody was told.

        Raises:
            DeviceValidationError: The data was bad.
            Exception: The word cannot be read.
        """
        self._settle()
        if self.fault is not None and not self.told:
            self.told = True
            raise self.fault.error()

    @property
    def over(self) -> bool:
        """Whether nobody has anything to learn any more."""
        return self.settled and (self.fault is None or not self.waiting)

    def _settle(self) -> None:
        if self.settled:
            return
        self.fault = self.word.read(self.ticket)
        self.settled = True
        # Whoever had this read is told: the tensors need not stay for anybody else.
        self.word.deferral = None
        if self.fault is None:
            self.waiting.clear()
        else:
            self.on_fault(self.fault)
