"""Tickets: which runs a validation word speaks of, and when it is read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from torch_ort_session.errors import DeviceValidationError
from torch_ort_session.runtime.validation.faults import Fault
from torch_ort_session.runtime.values.context import watched

if TYPE_CHECKING:
    from torch_ort_session.runtime.dispatch.state import Machine
    from torch_ort_session.runtime.interpreter.program import Program
    from torch_ort_session.runtime.validation.validator import ValidationWord


class Ticket(NamedTuple):
    """Leave to use a validation word.

    Attributes:
        owner: The word.
        generation: Its number among the owner's.
    """

    owner: ValidationWord
    generation: int


class Submission:
    """The runs under one ticket, as a context; bodies of control flow run within it like any other step.

    However it ends, the device is waited for once and the word is read once: bad data outranks what else went
    wrong, since it may have been the cause. Where the word cannot be read the ticket stays, so that no run
    begins until ``session.check()`` has read it.

    Attributes:
        word: The session's word.
        machine: Relies on nothing that a run with bad data showed; None where nothing is noted of runs.
        ticket: What it runs under.
        open: Whether somebody has to read the word yet.
        on_fault: Is told of bad data as well, before the caller is.
    """

    __slots__ = ("machine", "on_fault", "open", "ticket", "word")

    def __init__(self, word: ValidationWord, machine: Machine | None) -> None:
        self.word = word
        self.machine = machine
        self.ticket: Ticket | None = None
        self.open = False
        self.on_fault: Callable[[Fault], None] | None = None

    @property
    def unread(self) -> bool:
        """Whether nobody has read the word."""
        return self.ticket is not None and self.word.ticket is self.ticket

    def __enter__(self) -> Submission:
        """Begin.

        Raises:
            DeviceValidationError: The word was not read for the ticket before.
        """
        self.ticket = self.word.begin()
        self.open = self.word.on = True
        return self

    def finish(self) -> None:
        """Wait for the device, and read the word; once.

        Raises:
            DeviceValidationError: A kernel met bad data.
            Exception: The word cannot be read.
        """
        if self.open and self.ticket is not None:
            self.open = False
            fault = self._read(self.ticket)
            if fault is not None:
                raise fault.error()

    def peek(self) -> None:
        """Wait for the device and look at the word, which stays as it is.

        Raises:
            DeviceValidationError: A kernel met bad data.
            Exception: The word cannot be read.
        """
        fault = self.word.peek()
        if fault is not None:
            raise fault.error()

    def leave(self) -> Ticket:
        """Leave the word to be read by whoever reads the results."""
        assert self.ticket is not None
        self.open = False
        return self.ticket

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.word.on = False
        if error is None:
            self.finish()
        elif self.open and self.ticket is not None:
            self.open = False
            try:
                fault = self._read(self.ticket)
            except Exception as unread:
                error.add_note(f"whether it met bad data is not known ({unread}); session.check() asks again")
                return
            if (
                fault is not None
                and isinstance(error, Exception)
                and not isinstance(error, DeviceValidationError)
            ):
                raise fault.error() from error

    def _read(self, ticket: Ticket) -> Fault | None:
        try:
            fault = self.word.read(ticket)
        except Exception:
            distrust(self.machine)
            raise
        if fault is not None:
            distrust(self.machine)
            if self.on_fault is not None:
                self.on_fault(fault)
        return fault


class Within:
    """A run within another one, which uses the word under the ticket of that one, as a context.

    Attributes:
        word: The session's word.
        before: Whether it was on.
    """

    __slots__ = ("before", "word")

    def __init__(self, word: ValidationWord) -> None:
        self.word = word
        self.before = word.on

    def __enter__(self) -> None:
        self.before, self.word.on = self.word.on, True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End.

        Raises:
            DeviceValidationError: A kernel met bad data, in this run or in the other one so far.
        """
        self.word.on = self.before
        fault = self.word.peek() if error is None else None
        if fault is not None:
            raise fault.error()


def submission(program: Program, machine: Machine | None) -> AbstractContextManager[Submission | None]:
    """What a run is made in: nothing where none of its kernels looks at data, or nobody asks.

    Where a mode or transform of the caller's sees every call there is no word either: it may be of data that
    is not there.
    """
    word = program.validation
    if word is None or watched():
        return _NOTHING
    inner = machine is not None and machine.turns.depth > 1 and word.ticket is not None
    return Within(word) if inner else Submission(word, machine)


_NOTHING: contextlib.nullcontext[None] = contextlib.nullcontext()


def met_bad_data(program: Program) -> bool:
    """Whether the run of a program that is under way met bad data so far; it waits for the device."""
    return program.validation is not None and program.validation.flagged


def counts(program: Program) -> bool:
    """Whether steps of a program count, which a run that is made again must not do twice."""
    return program.validation is not None and program.validation.counting


def distrust(machine: Machine | None) -> None:
    """Rely on nothing that the last run showed: its data was bad."""
    if machine is not None:
        machine.policy.distrust()
        machine.memo.distrust()
        machine.bodies.distrust()
