"""Routes: how often mixtures chose each expert in a run, read where it is asked whether data was bad."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from torch_ort_session.errors import DeviceValidationError
from torch_ort_session.ir.graph import Node
from torch_ort_session.options import Options
from torch_ort_session.runtime.validation.faults import Fault
from torch_ort_session.runtime.validation.tickets import Ticket
from torch_ort_session.runtime.validation.validator import Unvalidated, ValidationWord, validation_for

Receipt = Mapping[str, tuple[int, ...]]
"""How often each expert was chosen, by the name of the mixture's node."""


class CountingWord(ValidationWord):
    """A word beside which mixtures count. The counts are those of one ticket, and are given once.

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
        """Mixtures are asked to count."""
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
        """What takes back all that is counted from now on."""
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
            self.receipt = {name: tuple(found.tolist()) for (name, _, _), found in self.counts.items()}
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
    """Where the kernels of a session report to, as its options say."""
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
