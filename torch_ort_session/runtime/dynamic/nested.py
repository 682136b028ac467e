"""Calls of control-flow bodies: step by step, observed, captured, or replayed, as each body's policy says."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering.inline import inline, static_branches
from torch_ort_session.plan.partition.report import DeclineReport, Reason
from torch_ort_session.runtime.captures.warmup import warm_up
from torch_ort_session.runtime.dispatch.paths import Refused, record, replayed
from torch_ort_session.runtime.dispatch.policy import Decision
from torch_ort_session.runtime.dispatch.state import Machine
from torch_ort_session.runtime.dynamic.control_flow import (
    BodyEntry,
    BodyFacts,
    BodyPlan,
    BodyPolicy,
    Made,
    Ready,
    ready_for,
)
from torch_ort_session.runtime.dynamic.cost_model import not_worth
from torch_ort_session.runtime.interpreter.program import Values, bind_steps, check_formals, execute
from torch_ort_session.runtime.validation.tickets import met_bad_data
from torch_ort_session.runtime.values.delivery import Delivery
from torch_ort_session.runtime.values.results import apart, storage_ids, storages
from torch_ort_session.trace import counters
from torch_ort_session.trace.observer import OP

_Tensor = torch.Tensor
Places = tuple[torch.Tensor | None, ...]


class Nested:
    """A body bound to the values of a run; see :class:`~torch_ort_session.ops.kernel.Body`.

    Attributes:
        machine: What runs of the session need.
        plan: What is kept of the body.
        facts: What is known of it beforehand.
        outer: The enclosing values that it reads.
        filled: The capture that has them in its places.
        lent: Identities of the storages that replays of this body write.
        same: What was last copied, by input, of what may come again.
    """

    __slots__ = ("facts", "filled", "lent", "machine", "outer", "plan", "same")

    def __init__(self, machine: Machine, plan: BodyPlan, outer: Values) -> None:
        self.machine = machine
        self.plan = plan
        self.facts = plan.facts
        self.outer = [outer[place] for place in plan.facts.outside]
        self.filled: Ready | None = None
        self.lent: frozenset[int] = frozenset()
        self.same: dict[int, Value] = {}

    def __call__(self, *inputs: Value, lend: int = 0) -> tuple[Value, ...]:
        """Run the body on its formal inputs."""
        facts = self.facts
        check_formals(facts.formals, inputs)
        if facts.lasting:
            return self._lasting()
        observer = self.machine.tracer.observer
        if observer.on:
            with observer.span(OP, "body", {"body": facts.name}):
                return self._soonest(inputs, lend)
        return self._soonest(inputs, lend)

    def _soonest(self, inputs: tuple[Value, ...], lend: int) -> tuple[Value, ...]:
        """A call like the one before is replayed at once."""
        machine, policy = self.machine, self.plan.policy
        entry = None if policy is None else policy.last
        ready = None if entry is None else entry.ready
        if entry is None or ready is None or ready.recording is None or (machine.verify and not entry.proven):
            return self._call((*inputs, *self.outer))
        filled = self.filled is ready
        given = inputs if filled else (*inputs, *self.outer)
        for row, value in zip(ready.rows, given, strict=False):
            # A recording is short: a call an input would show.
            if row is not None and not (
                isinstance(value, _Tensor)
                and value.dtype is row[0]
                and value.shape == row[1]
                and value.device == row[2]
            ):
                return self._call((*inputs, *self.outer))
        if not filled:
            self._switch(ready)
        same = self.same
        for number, (row, value) in enumerate(zip(ready.rows, given, strict=False)):
            if row is None or (row[4] and same.get(number) is value):
                continue
            row[3].copy_(value)  # type: ignore[arg-type]
            if row[4]:
                # What a replay lends is another one each time, under the same name.
                same[number] = None if self._is_lent(value) else value
        try:
            ready.recording.replay()
        except Exception as error:
            return self._replay(entry, ready, (*inputs, *self.outer), error)
        entry.runs += 1
        machine.policy.counters[counters.BODY_REPLAYS] += 1
        return tuple([self._result(made, inputs, n < lend) for n, made in enumerate(ready.results)])

    def _result(self, made: Made, inputs: Sequence[Value], lent: bool) -> torch.Tensor:
        tensor, copied, lendable, source = made
        if not copied or (lent and lendable):
            return tensor
        if source >= 0:
            own = len(inputs)
            value = inputs[source] if source < own else self.outer[source - own]
            # What a replay lent is written by the next one: the place still has what came in.
            if isinstance(value, _Tensor) and not self._is_lent(value):
                return value
        return tensor.clone()

    def keep(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """Values in memory that no later call writes."""
        return tuple(apart(values, self.lent)) if self.lent else values

    def _lasting(self) -> tuple[Value, ...]:
        """The results of a body that reads nothing, which are computed once."""
        plan = self.plan
        if plan.kept is None:
            results = self._by_steps(())
            if not all(isinstance(value, torch.Tensor) for value in results):
                return results
            plan.kept = results
        # The model's own constants are nobody's to write, which whoever hands out results knows.
        constants = self.facts.program.constants
        return tuple([v if storages((v,)) <= constants else v.clone() for v in plan.kept])  # type: ignore[union-attr]

    def _call(self, given: Sequence[Value]) -> tuple[Value, ...]:
        """A call whose signature is to be looked for."""
        policy, machine = self.plan.served(self.machine)
        entry = policy.of_call(self.facts.program.steps.input_names, self._told_apart(given))
        if entry is None:
            return self._by_steps(given)
        decision = policy.decide(entry)
        if decision is Decision.REPLAY and entry.ready is not None:
            return self._replay(entry, entry.ready, given)
        entry.runs += 1
        if decision is Decision.EAGER or not policy.has_room():
            return self._by_steps(given)
        if decision is Decision.OBSERVE:
            return self._observe(policy, machine, entry, given)
        return self._record(policy, machine, entry, given)

    def _told_apart(self, given: Sequence[Value]) -> Sequence[Value]:
        """What a signature is made of: nothing is recorded of how long a list is that only grows."""
        if not any(isinstance(given[place], tuple) for place in self.facts.lists):
            return given
        lists = self.facts.lists
        return [() if n in lists and isinstance(v, tuple) else v for n, v in enumerate(given)]

    def _by_steps(self, given: Sequence[Value]) -> tuple[Value, ...]:
        steps = self.facts.program.steps
        values = list(steps.template)
        for place, value in zip(steps.inputs, given, strict=True):
            values[place] = value
        execute(self.facts.program, values)
        return self.keep(tuple([values[output] for output in steps.outputs]))

    def _observe(
        self, policy: BodyPolicy, machine: Machine, entry: BodyEntry, given: Sequence[Value]
    ) -> tuple[Value, ...]:
        facts, program = self.facts, entry.program or self.facts.program
        policy.count(counters.OBSERVED)
        fed = dict(zip(facts.program.steps.input_names, given, strict=True))
        parts = None, machine.build, program, facts.results, (), fed
        warm, results = warm_up(*parts, machine.minimum, policy.loose)
        # What is static under the signature is a constant of the plan from now on.
        fixed = storage_ids(warm.observation.static.values())
        if met_bad_data(facts.program):
            # Constants would stay as this data made them, and no replay would look at it again.
            return tuple(apart(results, self.lent | fixed))
        known = {v: held for v, held in warm.observation.static.items() if v in warm.taint.data}
        branches = static_branches(program.steps, known)
        if branches:
            # What lies in them is observed in the next call.
            entry.program = bind_steps(inline(program.steps, branches))
            return tuple(apart(results, self.lent | fixed))
        why = not_worth(warm, facts.formals, machine.device, policy.quarantined)
        if why:
            policy.declined(entry, DeclineReport.of(Reason.SHORT, why), lasting=True)
        else:
            entry.warm = warm
        return tuple(apart(results, self.lent | fixed))

    def _record(
        self, policy: BodyPolicy, machine: Machine, entry: BodyEntry, given: Sequence[Value]
    ) -> tuple[Value, ...]:
        facts = self.facts
        places: Places = tuple(
            [
                torch.empty_like(value, memory_format=torch.contiguous_format).copy_(value)
                if read and isinstance(value, torch.Tensor)
                else None
                for value, read in zip(given, facts.read, strict=True)
            ]
        )
        fed, delivery = _deliveries(facts, places, given)
        found = record(machine, entry, fed, delivery)
        if isinstance(found, Refused):
            # Where this call's data is at fault the steps say so, and nothing was declined.
            results = self._by_steps(given)
            if not met_bad_data(facts.program):
                policy.declined(entry, found.report, lasting=found.lasting)
            return results
        captured, made = found
        ready = entry.ready = ready_for(facts, captured, places)
        self._switch(ready)
        return tuple(apart(made, ready.written))

    def _switch(self, ready: Ready) -> None:
        self.filled = ready
        self.lent |= ready.written
        self.same.clear()

    def _is_lent(self, value: Value) -> bool:
        return not isinstance(value, _Tensor) or value.untyped_storage()._cdata in self.lent

    def _replay(
        self, entry: BodyEntry, ready: Ready, given: Sequence[Value], failed: Exception | None = None
    ) -> tuple[Value, ...]:
        """A replay with all that may come of it: a divergence, a failure, a comparison with an eager run."""
        facts, (_, machine) = self.facts, self.plan.served(self.machine)
        self._switch(ready)
        if failed is None:
            for place, value in zip(ready.places, given, strict=True):
                if place is not None:
                    place.copy_(value)  # type: ignore[arg-type]
        fed, delivery = _deliveries(facts, ready.places, given)
        entry.runs += 1
        results = replayed(machine, facts.program, facts.results, entry, fed, delivery, failed)
        return tuple(apart(results, ready.written))


def _deliveries(
    facts: BodyFacts, places: Places, given: Sequence[Value]
) -> tuple[dict[str, Value], Delivery]:
    """What a capture is fed, and what becomes of its results: they stay where they are."""
    names = facts.program.steps.input_names
    fed = {
        name: value if place is None else place
        for name, place, value in zip(names, places, given, strict=True)
    }
    in_place = frozenset(name for name, place in zip(names, places, strict=True) if place is not None)
    # No recording of a body writes to its places, so that they hold what came in however a replay ends; what
    # came in may be lent by the recording itself, and be gone.
    return fed, Delivery((), in_place, lambda results, _: list(results))


def enter(machine: Machine, plan: BodyPlan, outer: Values) -> Nested:
    """Bind a body to the values of a run.

    Args:
        machine: What runs of the session need.
        plan: What is kept of the body.
        outer: The enclosing values; they stay as they are while the body is called.
    """
    return Nested(machine, plan, outer)
