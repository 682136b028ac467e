"""Validation: bad data found on the device is noted in a word, and told once the device is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import torch

from torch_ort_session.errors import DeviceValidationError, PlanError
from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.native import checks as native_checks
from torch_ort_session.ops.native.checks import RangeCheck
from torch_ort_session.options import Validate
from torch_ort_session.runtime.validation import word as layout
from torch_ort_session.runtime.validation.deferral import ASK
from torch_ort_session.runtime.validation.faults import Fault
from torch_ort_session.runtime.validation.tickets import Ticket
from torch_ort_session.runtime.validation.word import Check, fault_of, reader
from torch_ort_session.runtime.values.context import transformed

if TYPE_CHECKING:
    from torch_ort_session.runtime.validation.deferral import Deferral, Together


_CLEAR = [0] * layout.SIZE


@dataclass(frozen=True, slots=True)
class Checks:
    """What makes numbers safe on a device.

    Attributes:
        index: See :func:`.word.check_index`.
        range: See :func:`.word.check_range`.
    """

    index: Check
    range: RangeCheck


PLAIN = Checks(layout.check_index, layout.check_range)
"""Plain ops, for every device and under transforms."""


class ValidationWord:
    """A session's word, and the ticket of the run that it belongs to.

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
        """Nobody asks for routes: see :class:`.routes.CountingWord`."""
        return False

    def count_routes(self, experts: torch.Tensor, count: int, node: Node) -> None:
        """Nobody asks."""

    def uncounting(self) -> Callable[[], None] | None:
        """What takes back all that is counted from now on; None where nothing is counted."""
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
        found = self.fetch()
        if not found[layout.FLAGS]:
            return None
        nodes = [(name, f"{domain or 'ai.onnx'}::{op}") for name, domain, op in self.numbers]
        return fault_of(found, nodes)

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
    """What makes indices safe where nobody is told of bad ones.

    Attributes:
        on: Always.
    """

    on = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._checks: Checks | None = None

    def check(self) -> None:
        """Nobody was told of anything."""

    def abandon(self) -> None:
        """There is nothing to give up."""

    def forget(self) -> None:
        """There is nothing to forget."""

    @property
    def counting(self) -> bool:
        """Nobody asks for routes."""
        return False

    def count_routes(self, experts: torch.Tensor, count: int, node: Node) -> None:
        """Nobody asks."""

    def check_index(self, index: torch.Tensor, size: int, node: Node) -> torch.Tensor:
        """A safe index: see :meth:`ValidationWord.check_index`."""
        return self._found().index(index, size, 0, None)

    def check_range(self, values: torch.Tensor, low: int, high: int, flag: Flag, node: Node) -> torch.Tensor:
        """Safe numbers: see :meth:`ValidationWord.check_range`."""
        return self._found().range(values, low, high, int(flag), 0, None)

    def noting(self, node: Node) -> tuple[int, torch.Tensor | None]:
        """No number, and no word."""
        return 0, None

    def _found(self) -> Checks:
        if transformed():
            return PLAIN
        checks = self._checks
        if checks is None:
            checks = self._checks = checks_on(self._device)
        return checks


def validation_for(device: torch.device, validate: Validate) -> ValidationWord | Unvalidated:
    """Where the kernels of a session report bad data, as its options say."""
    return Unvalidated(device) if validate == "off" else ValidationWord(device)


def checks_on(device: torch.device) -> Checks:
    """What makes numbers safe on a device: the native ops, or plain ones where there are none."""
    index, bounds = native_checks.index_check(device.type), native_checks.range_check(device.type)
    return PLAIN if index is None or bounds is None else Checks(index, bounds)
