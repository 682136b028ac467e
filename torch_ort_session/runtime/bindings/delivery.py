"""Recipients: how the results of validated runs reach a binding's tensors, and who learns of bad data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch_ort_session.options import Options
from torch_ort_session.runtime.bindings.attached import Attached
from torch_ort_session.runtime.dispatch import EngineState
from torch_ort_session.runtime.interpreter import Program
from torch_ort_session.runtime.validation import Deferral, Fault, Together, ValidationScope
from torch_ort_session.runtime.values import Owned
from torch_ort_session.trace import counters

_FIRSTS = (
    *(counters.OBSERVED, counters.CAPTURES, counters.PRIMED, counters.REBUILT),
    *(counters.BODY_OBSERVED, counters.BODY_CAPTURES),
)
"""Counters of runs that show what later ones rely on."""


def defers(options: Options) -> bool:
    """Whether the word is read when results are, rather than at the end of a run."""
    return options.validate == "deferred" and not options.routes


class Recipients:
    """The readers of one binding's outputs; they live as long as the binding.

    Where the word is read before results are delivered, nothing is written after bad data. Where it is read
    later, writing asks the word on the device: tensors then stay as they were before the run that met bad
    data, and lengths are put back as soon as it is known.

    Attributes:
        state: The binding's.
        attached: Its tensors.
        late: Whether the word is read as late as it can be.
        firsts: Observed and captured runs before the last ticket: what such runs show is noted at once.
        group: The ticket of several runs that are under way.
        lengths: Before each run under the last ticket that was read late.
        deferrals: Of tickets that no reader has learnt of.
    """

    def __init__(self, state: EngineState, attached: Attached, late: bool) -> None:
        self.state = state
        self.attached = attached
        self.late = late
        self.firsts = 0
        self.group: ValidationScope | None = None
        self.lengths: list[dict[str, int]] = []
        self.deferrals: list[Deferral] = []

    @contextlib.contextmanager
    def run(self, program: Program) -> Iterator[ValidationScope | None]:
        """What one run is made in: a ticket of its own, that of several runs, or none.

        Raises:
            DeviceValidationError: The run met bad data, or the word was not read since the run before.
        """
        if self.group is None:
            with self.state.validation_scope(program) as scope:
                self.firsts = self._counted()
                yield scope
            return
        word, shown = self.group.word, self._counted()
        word.on = True
        try:
            yield self.group
        finally:
            # Later runs of the ticket would rely on what this one showed before anybody has asked.
            if shown != self._counted() and word.flagged:
                self.state.distrust()
            word.on = False

    @contextlib.contextmanager
    def together(self, program: Program, names: tuple[str, ...]) -> Iterator[None]:
        """Put runs under one ticket; within runs that are, nothing changes.

        Args:
            program: What they run.
            names: Of its outputs.

        Raises:
            DeviceValidationError: A run met bad data, or the word was not read since the run before.
        """
        scope = self.state.validation_scope(program) if self.group is None else None
        if not isinstance(scope, ValidationScope) or scope.word.counting:
            # Routes are told for each run.
            yield
            return
        scope.on_fault = self._put_back
        try:
            with scope:
                scope.word.on = False
                self.group, self.lengths, self.firsts = scope, [], self._counted()
                going = Together(scope.word, scope.word.ticket)
                try:
                    yield
                finally:
                    going.over()
                if self._may_wait(names):
                    self._defer(scope)
        finally:
            self.group = None
            deferral = scope.word.deferral
            if scope.unread and (deferral is None or deferral.ticket is not scope.ticket):
                # It could not be read; whoever can puts the lengths back.
                Deferral(scope.word, scope.leave(), self._put_back)

    def deliver(
        self, scope: ValidationScope | None, names: tuple[str, ...], results: Sequence[Any], owned: Owned
    ) -> int:
        """Write the results of a run to where they belong; see :meth:`Attached.deliver`.

        Args:
            scope: What the run is made in.
            names: Of the outputs.
            results: Of the run.
            owned: Gives memory to those that are not bound.

        Raises:
            DeviceValidationError: The run met bad data, unless it is asked for later.
            InputError: A result does not fit.
        """
        if scope is None:
            return self.attached.deliver(names, results, owned)
        if not self._can_ask(scope):
            if self.group is None:
                scope.finish()
            else:
                scope.peek()
            return self.attached.deliver(names, results, owned)
        if self.group is None:
            if not self._may_wait(names):
                scope.finish()
                return self.attached.deliver(names, results, owned)
            self.lengths = []
        before = self.attached.lengths
        nbytes = self.attached.deliver(names, results, owned, scope.word.word)
        self.lengths.append(before)
        if self.group is None:
            self._defer(scope)
        return nbytes

    def look(self, names: Iterator[str] | Sequence[str]) -> None:
        """Ask about the runs whose outputs are about to be read.

        Raises:
            DeviceValidationError: The data of the run was bad; the next look is at what is there.
        """
        if self.group is not None:
            self.group.peek()
        outputs = list(names)
        for deferral in self.deferrals:
            deferral.look(outputs)
        self._forget()

    def settle(self) -> None:
        """Tensors or lengths are about to change.

        Raises:
            DeviceValidationError: The data of a run was bad, and no reader was told.
        """
        if self.group is not None:
            self.group.peek()
        for deferral in self.deferrals:
            deferral.tell()

    def _may_wait(self, names: tuple[str, ...]) -> bool:
        """Whether results may be written before the word is read: what they show must be noted nowhere."""
        bound = {target.target for target in self.attached}
        return self.late and bool(bound) and bound.issuperset(names) and self.firsts == self._counted()

    def _counted(self) -> int:
        return sum(self.state.dispatcher.counters[name] for name in _FIRSTS)

    def _can_ask(self, scope: ValidationScope) -> bool:
        """Whether everything that is written lies where the word does."""
        place = scope.word.word.device.type
        return all(bound.tensor.device.type == place for bound in self.attached if bound.target)

    def _defer(self, scope: ValidationScope) -> None:
        outputs = [bound.target for bound in self.attached if bound.target]
        # Whoever asks by session.check() alone never looks.
        self._forget()
        self.deferrals.append(Deferral(scope.word, scope.leave(), self._put_back, outputs))

    def _forget(self) -> None:
        self.deferrals = [deferral for deferral in self.deferrals if not deferral.over]

    def _put_back(self, fault: Fault) -> None:
        self.state.distrust()
        if fault.done < len(self.lengths):
            self.attached.put_lengths(self.lengths[fault.done])
            self.attached.unbound = {}
