"""Validation: bad data found on the device is noted in a word, and told once the device is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, NoReturn

import torch

from torch_ort_session.errors import DeviceValidationError, PlanError
from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.native import checks as native_checks
from torch_ort_session.ops.native.checks import RangeCheck
from torch_ort_session.options import Options, Validate
from torch_ort_session.runtime.validation import word as layout
from torch_ort_session.runtime.validation.word import Check, Fault, fault_of, reader
from torch_ort_session.runtime.values import transformed, watched


class Ticket(NamedTuple):
    """Leave to use a validation word.

    Attributes:
        owner: The word.
        generation: Its number among the owner's.
    """

    owner: ValidationWord
    generation: int


class ValidationScope:
    """The runs under one ticket, as a context; bodies of control flow run within it like any other step.

    Lives as long as those runs.

    However it ends, the device is waited for once and the word is read once: bad data outranks what else went
    wrong, since it may have been the cause. Where the word cannot be read the ticket stays, so that no run
    begins until ``session.check()`` has read it.

    Attributes:
        word: The session's word.
        distrust: Gives up what runs with bad data showed; None where nothing is noted of runs.
        ticket: What it runs under.
        open: Whether somebody has to read the word yet.
        on_fault: Is told of bad data as well, before the caller is.
    """

    __slots__ = ("distrust", "on_fault", "open", "ticket", "word")

    def __init__(self, word: ValidationWord, distrust: Callable[[], None] | None) -> None:
        self.word = word
        self.distrust = distrust
        self.ticket: Ticket | None = None
        self.open = False
        self.on_fault: Callable[[Fault], None] | None = None

    @property
    def unread(self) -> bool:
        """Whether the word of this ticket was not read yet."""
        return self.ticket is not None and self.word.ticket is self.ticket

    def __enter__(self) -> ValidationScope:
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
            if self.distrust is not None:
                self.distrust()
            raise
        if fault is not None:
            if self.distrust is not None:
                self.distrust()
            if self.on_fault is not None:
                self.on_fault(fault)
        return fault


class NestedScope:
    """A run within another one, which uses the word under the ticket of that one, as a context.

    Lives as long as that run.

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


def validation_scope(
    word: ValidationWord | None, distrust: Callable[[], None] | None = None, *, nested: bool = False
) -> AbstractContextManager[ValidationScope | None]:
    """The context that a run is made in: none where no kernel of it looks at data.

    Where a mode or transform of the caller's sees every call there is no word either: it may be of data that
    is not there.

    Args:
        word: Of the program that runs; None where no kernel of it looks at data.
        distrust: Gives up what runs with bad data showed; None where nothing is noted of runs.
        nested: Whether another run of the session is under way: the ticket of that one serves both.
    """
    if word is None or watched():
        return _NOTHING
    return NestedScope(word) if nested and word.ticket is not None else ValidationScope(word, distrust)


_NOTHING: contextlib.nullcontext[None] = contextlib.nullcontext()


def met_bad_data(word: ValidationWord | None) -> bool:
    """Whether the run that is under way met bad data so far; it waits for the device."""
    return word is not None and word.flagged


def counts_routes(word: ValidationWord | None) -> bool:
    """Whether steps of a run count, which one that is made again must not do twice."""
    return word is not None and word.counting


ASK = "read an output of it with binding.read(), or call session.check(), before the next run"
"""Advice on a run that nobody asked about."""


class Together:
    """Runs under one ticket that are under way: whoever asks looks at the word, which stays theirs.

    Lives as long as the block of ``binding.together()``.

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
        """End: the word is as free as it would be without them."""
        if self.word.deferral is self:
            self.word.deferral = None


class Deferral:
    """The recipients of what the word says of one ticket. Lives as long as one of them was not told.

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
        """Read the word for somebody who is about to read outputs.

        Raises:
            DeviceValidationError: The data was bad, and at least one of them was not read since.
            Exception: The word cannot be read; the next one who reads tries again.
        """
        unread = self.waiting.intersection(names)
        if not unread:
            return
        self._settle()
        self.waiting -= unread
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
        """Whether every recipient was told all there is."""
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


_CLEAR = [0] * layout.SIZE


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks that make numbers safe on a device.

    Attributes:
        index: See :func:`.word.check_index`.
        range: See :func:`.word.check_range`.
    """

    index: Check
    range: RangeCheck


PLAIN = Checks(layout.check_index, layout.check_range)
"""Plain ops, for every device and under transforms."""


class ValidationWord:
    """A session's word, and the ticket of the run that it belongs to. Lives as long as the session.

    Kernels note the first fault of a ticket. :meth:`begin` alone clears the word, so that whatever comes
    later under the same ticket sees that it must not write. The session's runs serialise, those of its
    bindings too: there is one ticket at a time.

    Attributes:
        word: See :mod:`.word`.
        on: Whether a run under the ticket is under way; outside of one kernels note nothing.
        numbers: Of nodes that look at data, by name, domain and operator, from 1 on.
        fetch: Waits for the device and gives the word's elements.
        ticket: The one for which nobody has read the word yet; None when a run may begin.
        generation: How many tickets there were.
        deferral: Who is to learn of the last ticket that was not read when its run ended, or runs together.
    """

    def __init__(self, device: torch.device) -> None:
        # Made in inference mode it could not be written outside of it.
        with torch.inference_mode(False):
            self.word = torch.zeros(layout.SIZE, dtype=torch.int32, device=device)
        self.on = False
        self.numbers: dict[tuple[str, str, str], int] = {}
        self.fetch = reader(self.word)
        self.ticket: Ticket | None = None
        self.generation = 0
        self.deferral: Deferral | Together | None = None
        self._checks: Checks | None = None

    @property
    def counting(self) -> bool:
        """Whether somebody asks for routes: see :class:`CountingWord`."""
        return False

    def count_routes(self, experts: torch.Tensor, count: int, node: Node) -> None:
        """Nothing: nobody asks for routes."""

    def uncounting(self) -> Callable[[], None] | None:
        """The function that takes back all that is counted from now on; None where nothing is counted."""
        return None

    def check_index(self, index: torch.Tensor, size: int, node: Node) -> torch.Tensor:
        """Note an index outside of ``[-size, size)`` and return a safe, wrapped index.

        Args:
            index: Integer tensor of any shape on the word's device.
            size: Length of the indexed axis.
            node: The node to name.

        Returns:
            int64 of the same shape: negative indices wrapped, bad ones clamped to the axis.

        Raises:
            IndexError: The axis is empty, and an index is given.
        """
        checks = self._checks
        if checks is None:
            checks = self._checks = checks_on(self.word.device)
        return checks.index(index, size, self._number(node), self.word)

    def check_range(self, values: torch.Tensor, low: int, high: int, flag: Flag, node: Node) -> torch.Tensor:
        """Note a number outside of ``[low, high]`` and return one that lies within.

        Args:
            values: Integer tensor of any shape on the word's device.
            low: The least valid number.
            high: The greatest valid number.
            flag: What it is noted as.
            node: The node to name.

        Returns:
            int64 of the same shape.

        Raises:
            IndexError: No number is valid, and one is given.
        """
        checks = self._checks
        if checks is None:
            checks = self._checks = checks_on(self.word.device)
        return checks.range(values, low, high, int(flag), self._number(node), self.word)

    def noting(self, node: Node) -> tuple[int, torch.Tensor | None]:
        """The number of a node, and the word."""
        return self._number(node), self.word

    def _number(self, node: Node) -> int:
        key = (node.name, node.domain, node.op)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.numbers) + 1
        return number

    def begin(self) -> Ticket:
        """Clear the word for the next ticket.

        Raises:
            DeviceValidationError: The word was not read for the last one.
        """
        if self.ticket is not None:
            self.refuse()
        if not self.word.is_cpu or self.fetch() != _CLEAR:
            self.word.zero_()
        self.generation += 1
        self.ticket = Ticket(self, self.generation)
        return self.ticket

    def refuse(self) -> NoReturn:
        """Refuse a run, since nobody has asked about the one before.

        Raises:
            DeviceValidationError: Always.
        """
        advice = ASK if self.deferral is None else self.deferral.advice
        raise DeviceValidationError(
            f"whether the run before met bad data was not asked yet; {advice}", kind="not asked yet"
        )

    def read(self, ticket: Ticket) -> Fault | None:
        """Wait for the device and read the word: the ticket is consumed then, and a run may begin.

        Returns:
            What was wrong; None when nothing was.

        Raises:
            PlanError: The ticket is another session's, or is consumed.
            Exception: The word cannot be read; the ticket stays as it is.
        """
        if ticket is not self.ticket:
            what = "of another session" if ticket.owner is not self else "consumed already"
            raise PlanError(f"validation ticket {ticket.generation} is {what}")
        fault = self.peek()
        self.ticket = None
        return fault

    def peek(self) -> Fault | None:
        """Wait for the device and look at the word."""
        elements = self.fetch()
        if not elements[layout.FLAGS]:
            return None
        nodes = [(name, f"{domain or 'ai.onnx'}::{op}") for name, domain, op in self.numbers]
        return fault_of(elements, nodes)

    @property
    def flagged(self) -> bool:
        """Whether the run that is under way met bad data so far; it waits for the device."""
        return self.on and self.peek() is not None

    def check(self) -> None:
        """Tell of bad data that nobody was told of.

        Raises:
            DeviceValidationError: A run met bad data.
            Exception: The word cannot be read.
        """
        deferral = self.deferral
        if deferral is not None:
            deferral.tell()
        elif self.ticket is not None and not self.on:
            fault = self.read(self.ticket)
            if fault is not None:
                raise fault.error()

    def abandon(self) -> None:
        """Give up the ticket of a run that was interrupted before anybody read the word: it gave nothing."""
        if self.deferral is None:
            self.ticket, self.on = None, False

    def forget(self) -> None:
        """Give up the ticket of a run that never ends, in a forked child."""
        self.ticket, self.deferral, self.on = None, None, False
        self.word.zero_()


class Unvalidated:
    """The checks of indices where nobody is told of bad ones. Lives as long as its session.

    Attributes:
        on: Always.
    """

    on = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._checks: Checks | None = None

    def check(self) -> None:
        """Nothing: there is no word to ask."""

    def abandon(self) -> None:
        """Nothing: there is no ticket to give up."""

    def forget(self) -> None:
        """Nothing: there is no ticket to forget."""

    @property
    def counting(self) -> bool:
        """Whether somebody asks for routes: nobody does."""
        return False

    def count_routes(self, experts: torch.Tensor, count: int, node: Node) -> None:
        """Nothing: nobody asks for routes."""

    def check_index(self, index: torch.Tensor, size: int, node: Node) -> torch.Tensor:
        """A safe index: see :meth:`ValidationWord.check_index`."""
        return self._on_device().index(index, size, 0, None)

    def check_range(self, values: torch.Tensor, low: int, high: int, flag: Flag, node: Node) -> torch.Tensor:
        """Safe numbers: see :meth:`ValidationWord.check_range`."""
        return self._on_device().range(values, low, high, int(flag), 0, None)

    def noting(self, node: Node) -> tuple[int, torch.Tensor | None]:
        """No number, and no word."""
        return 0, None

    def _on_device(self) -> Checks:
        if transformed():
            return PLAIN
        checks = self._checks
        if checks is None:
            checks = self._checks = checks_on(self._device)
        return checks


def validation_for(device: torch.device, validate: Validate) -> ValidationWord | Unvalidated:
    """The receiver of bad data that the kernels of a session report, as its options say."""
    return Unvalidated(device) if validate == "off" else ValidationWord(device)


def checks_on(device: torch.device) -> Checks:
    """The checks that make numbers safe on a device: the native ops, or plain ones where there are none."""
    index, bounds = native_checks.index_check(device.type), native_checks.range_check(device.type)
    return PLAIN if index is None or bounds is None else Checks(index, bounds)


Receipt = Mapping[str, tuple[int, ...]]
"""Counts of how often each expert was chosen, by the name of the mixture's node."""


class CountingWord(ValidationWord):
    """A word beside which mixtures count. Lives as long as its session.

    The counts are those of one ticket, and are given once.

    Attributes:
        counts: int64 [experts] on the word's device, by name, domain and operator of the node.
        receipt: The counts of the last ticket that was read and told of no bad data.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.counts: dict[tuple[str, str, str], torch.Tensor] = {}
        self.receipt: Receipt | None = None

    @property
    def counting(self) -> bool:
        """Whether somebody asks for routes: each mixture counts."""
        return True

    def count_routes(self, experts: torch.Tensor, count: int, node: Node) -> None:
        """Count the experts that a node chose: see :class:`~torch_ort_session.ops.kernel.Validation`."""
        key = (node.name, node.domain, node.op)
        counts = self.counts.get(key)
        if counts is None:
            with torch.inference_mode(False):
                counts = torch.zeros(count, dtype=torch.int64, device=self.word.device)
            self.counts[key] = counts
        chosen = experts.detach().reshape(-1)
        counts.scatter_add_(0, chosen, torch.ones_like(chosen))

    def uncounting(self) -> Callable[[], None]:
        """The function that takes back all that is counted from now on."""
        before = {key: counts.clone() for key, counts in self.counts.items()}

        def uncount() -> None:
            for key, counts in self.counts.items():
                if key in before:
                    counts.copy_(before[key])
                else:
                    counts.zero_()

        return uncount

    def begin(self) -> Ticket:
        """Clear the word and the counts for the next ticket."""
        ticket = super().begin()
        self.receipt = None
        for counts in self.counts.values():
            counts.zero_()
        return ticket

    def read(self, ticket: Ticket) -> Fault | None:
        """Read the word, and where it tells of nothing the counts."""
        fault = super().read(ticket)
        if fault is None:
            self.receipt = {name: tuple(counts.tolist()) for (name, _, _), counts in self.counts.items()}
        return fault

    def take(self) -> Receipt:
        """The counts of the last run; once.

        Raises:
            DeviceValidationError: There are none: no run has ended well since they were given.
        """
        if self.receipt is None:
            raise DeviceValidationError(
                "there are no routes: no run has ended well since they were given; run the model, and ask "
                "once after each run",
                kind="no routes",
            )
        receipt, self.receipt = self.receipt, None
        return receipt


def word_for(device: torch.device, options: Options) -> ValidationWord | Unvalidated:
    """The receiver of what the kernels of a session report, as its options say."""
    return CountingWord(device) if options.routes else validation_for(device, options.validate)


def routes_of(validation: ValidationWord | Unvalidated) -> Receipt:
    """The counts of a session's last run; see :meth:`CountingWord.take`.

    Raises:
        DeviceValidationError: There are none, or the session does not count.
    """
    if isinstance(validation, CountingWord):
        return validation.take()
    raise DeviceValidationError(
        "the session counts no routes; load it with Options(routes=True)", kind="no routes"
    )
