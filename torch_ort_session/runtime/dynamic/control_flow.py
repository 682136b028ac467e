"""What a session keeps of its control-flow bodies: plans and captures of their own, by signature."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from torch_ort_session.ops.kernel import Body, Value
from torch_ort_session.plan.lowering.lists import growing_lists
from torch_ort_session.plan.lowering.steps import BodySteps
from torch_ort_session.runtime.captures.capture import Captured
from torch_ort_session.runtime.dispatch.policy import Entry, Policy
from torch_ort_session.runtime.dynamic.cost_model import hopeless, reads, steady, varies
from torch_ort_session.runtime.interpreter.program import Program, Values
from torch_ort_session.runtime.recorders.api import Recording
from torch_ort_session.runtime.values.context import stepwise
from torch_ort_session.runtime.values.results import storage_ids
from torch_ort_session.runtime.values.signature import Signature, signature_of
from torch_ort_session.trace import counters

if TYPE_CHECKING:
    from torch_ort_session.runtime.dispatch.state import Machine

_PLANS = 4
"""Captures that are kept of one body."""

_PATIENCE = 32
"""New signatures in a row after which the body runs step by step ..."""

_REST = 256
"""... for so many calls: where shapes grow from call to call none comes again."""

Enter = Callable[["Machine", "BodyPlan", Values], Body]
"""Binds a body to the values of a run."""


class Door:
    """Leads from the steps of bodies to the session that runs them, and keeps nothing of it alive."""

    __slots__ = ("machine",)

    def __init__(self) -> None:
        self.machine: weakref.ref[Machine] | None = None

    def enter(self, body: BodySteps, program: Program, outer: Values) -> Body | None:
        """What runs the body; None where it runs step by step: see :class:`~.plan.steps.BodyRuns`."""
        machine = None if self.machine is None else self.machine()
        if machine is None or machine.bodies.run is None or torch.is_grad_enabled() or stepwise():
            return None
        if machine.turns.depth > 1:
            return None
        plan = machine.bodies.plan(body, program, machine.device)
        return (
            None
            if plan.facts.hopeless and not plan.facts.lasting
            else machine.bodies.run(machine, plan, outer)
        )


class Bodies:
    """The plans of the bodies of one session.

    Attributes:
        run: How a body is bound to the values of a run; None where all run step by step.
        door: What the steps of bodies know of this.
        plans: By body; a plan goes with the steps of its body.
    """

    def __init__(self, run: Enter | None = None, door: Door | None = None) -> None:
        self.run = run
        self.door = Door() if door is None else door
        self.plans: weakref.WeakKeyDictionary[BodySteps, BodyPlan] = weakref.WeakKeyDictionary()

    def serve(self, machine: Machine) -> None:
        """Run bodies with this machine from now on."""
        self.door.machine = weakref.ref(machine)
        for plan in self.plans.values():
            plan.machine = None

    def renewed(self) -> Bodies:
        """The same, as before the first run."""
        return Bodies(self.run, self.door)

    def plan(self, body: BodySteps, program: Program, device: torch.device) -> BodyPlan:
        """The plan of a body, made when it is first asked for."""
        found = self.plans.get(body)
        if found is None:
            found = self.plans[body] = BodyPlan(facts_of(body, program, device))
        return found

    def forget_constants(self) -> None:
        """Let branches that read nothing be computed again."""
        for plan in self.plans.values():
            plan.kept = None

    def distrust(self) -> None:
        """The last run's data was bad: what was computed or observed is not relied on."""
        self.forget_constants()
        for entry in self.entries():
            if entry.captured is None:
                entry.warm = None

    def release(self) -> None:
        """Drop every capture and everything learnt by signature."""
        for plan in self.plans.values():
            plan.release()

    def told(self, body: BodySteps) -> dict[str, Any]:
        """What became of a body so far: see :data:`~torch_ort_session.explain.explain.Told`."""
        plan = self.plans.get(body)
        return {"note": "", "signatures": []} if plan is None else plan.told()

    def entries(self) -> Iterator[BodyEntry]:
        """Every entry of every body."""
        for plan in self.plans.values():
            for entry in () if plan.policy is None else plan.policy.entries.values():
                if isinstance(entry, BodyEntry):
                    yield entry


@dataclass(frozen=True, slots=True, eq=False)
class BodyFacts:
    """What is known of a body before its first call.

    Attributes:
        name: What it is called.
        depth: How many bodies it lies in.
        program: Its steps; inputs are its formal inputs, then the enclosing values that it reads.
        formals: How many of them are formal inputs.
        outside: Ids of the enclosing values outside.
        read: Of each input, whether a step or the caller reads it.
        steady: Of each input, whether it comes out again as it is.
        lists: Places of inputs that, as lists, only grow.
        results: Names of its outputs.
        hopeless: Why nothing of it is ever recorded; empty where something may be.
        lasting: Whether its results are the same in every call.
    """

    name: str
    depth: int
    program: Program
    formals: int
    outside: tuple[int, ...]
    read: tuple[bool, ...]
    steady: tuple[bool, ...]
    lists: tuple[int, ...]
    results: tuple[str, ...]
    hopeless: str
    lasting: bool


def facts_of(body: BodySteps, program: Program, device: torch.device) -> BodyFacts:
    """What there is to know of a body before its first call.

    Args:
        body: The body.
        program: Its steps made callable.
        device: The session's device.
    """
    steps = body.steps
    inside = tuple(place for _, place in body.captured)
    names = (*steps.input_names, *(f"{steps.names[place]} (outer)" for place in inside))
    whole = replace(steps, inputs=(*steps.inputs, *inside), input_names=names)
    found, same, lists = reads(whole), steady(whole), growing_lists(whole)
    return BodyFacts(
        name=body.name,
        depth=body.depth,
        program=replace(program, steps=whole),
        formals=len(steps.inputs),
        outside=tuple(place for place, _ in body.captured),
        read=tuple(place in found for place in whole.inputs),
        steady=tuple(place in same for place in whole.inputs),
        lists=tuple(n for n, place in enumerate(whole.inputs) if place in lists),
        results=tuple(steps.names[output] for output in steps.outputs),
        hopeless=hopeless(whole, len(steps.inputs), device),
        lasting=not whole.inputs and not varies(steps),
    )


class BodyPlan:
    """What is kept of one body.

    Attributes:
        facts: What was known of it before the first call.
        kept: Its results, where they are the same in every call, once they were computed.
        policy: Entries by signature; None before the first.
        machine: What records and replays it; None until that is needed.
    """

    def __init__(self, facts: BodyFacts) -> None:
        self.facts = facts
        self.kept: tuple[Value, ...] | None = None
        self.policy: BodyPolicy | None = None
        self.machine: Machine | None = None

    def told(self) -> dict[str, Any]:
        """What became of it so far: see :data:`~torch_ort_session.explain.explain.Told`."""
        note = f"not recorded: {self.facts.hopeless}" if self.facts.hopeless else ""
        if self.facts.lasting:
            note = "computed once: it reads nothing" if self.kept is not None else note
        elif self.policy is not None and self.policy.resting:
            note = "not recorded: no signature comes again"
        known = () if self.policy is None else reversed(self.policy.entries.items())
        return {"note": note, "signatures": [_told(signature, entry) for signature, entry in known]}

    def served(self, machine: Machine) -> tuple[BodyPolicy, Machine]:
        """Its policy, which learns with the session's, and a machine that goes by it."""
        if self.policy is None:
            self.policy = BodyPolicy(machine.policy)
        if self.machine is None:
            self.machine = machine.for_body(self.policy, self.facts.depth)
        return self.policy, self.machine

    def release(self) -> None:
        """Drop every capture and everything learnt by signature."""
        self.kept = None
        if self.policy is not None:
            self.policy.release()


@dataclass(slots=True, eq=False)
class BodyEntry(Entry):
    """What is known of one signature of a body.

    Attributes:
        program: The steps of the body with branches in the place of Ifs whose predicate is static under the
            signature; None where there are none, or none was observed yet.
        ready: Its capture, ready for calls.
    """

    program: Program | None = None
    ready: Ready | None = None


Row: TypeAlias = tuple[torch.dtype, torch.Size, torch.device, torch.Tensor, bool]
"""What a tensor has to be that a recording reads, where it reads it, and whether it may be the same again."""


class Made(NamedTuple):
    """A result in the memory of a recording.

    Attributes:
        tensor: The result.
        copied: Whether later calls write its memory.
        lendable: Whether it may be used until the next call is made, its inputs included.
        source: The input that it is, handed on; -1 where it is none.
    """

    tensor: torch.Tensor
    copied: bool
    lendable: bool
    source: int


@dataclass(frozen=True, slots=True, eq=False)
class Ready:
    """A captured signature of a body, ready for calls.

    Attributes:
        rows: Of each input that is read, what it has to be; None for one that is not.
        places: Where the capture reads each; None where it reads it not at all, or as it comes.
        written: Identities of all storages that later calls write, these places included.
        recording: All of a call; None where there are seams, or something else than tensors.
        results: The outputs of the recording.
    """

    rows: tuple[Row | None, ...]
    places: tuple[torch.Tensor | None, ...]
    written: frozenset[int]
    recording: Recording | None
    results: tuple[Made, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the places."""
        return sum(place.nbytes for place in self.places if place is not None)


class BodyPolicy(Policy):
    """The policy of one body: it learns and counts with the session's, under names of its own.

    Attributes:
        last: The entry of the last call whose signature was looked for.
        new: New signatures in a row.
        resting: Calls that are still to be made without a look at their signature.
        denied: Captures that were not made because there are enough, since the least recently used one was
            replayed.
        oldest: Runs of that one when it was last looked at.
    """

    def __init__(self, session: Policy) -> None:
        super().__init__(replace(session.rules, plans=_PLANS, allowed=None, padding=None))
        self.counters, self.learnt = session.counters, session.learnt
        self.last: BodyEntry | None = None
        self.new = self.resting = self.denied = 0
        self.oldest: tuple[Entry, int] | None = None

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter: what bodies have in common with runs is counted apart."""
        super().count(counters.OF_BODIES.get(name, name), by)

    def of_call(self, names: Sequence[str], given: Sequence[Value]) -> BodyEntry | None:
        """The entry of a call, made when it is new; None where none is to be looked for."""
        if self.resting:
            self.resting -= 1
            return None
        signature = signature_of((), dict(zip(names, given, strict=True)), ())
        found = self.entries.get(signature)
        if isinstance(found, BodyEntry):
            self.new = 0
            if found is not self.last:
                self.entries.move_to_end(signature)
                self.last = found
            return found
        self.new += 1
        if self.new > _PATIENCE:
            self.new, self.resting = 0, _REST
        made = self.last = BodyEntry()
        self.entries[signature] = made
        self._forget()
        return made

    def _close(self, entry: Entry) -> None:
        super()._close(entry)
        if isinstance(entry, BodyEntry):
            entry.ready = None

    def has_room(self) -> bool:
        """Whether one more capture costs none that is in use.

        Where more signatures take turns than are kept, those that were captured first stay.
        """
        held = [entry for entry in self.entries.values() if entry.captured is not None]
        if len(held) < self.rules.plans:
            return True
        oldest = held[0], held[0].runs
        if oldest != self.oldest:
            self.oldest, self.denied = oldest, 0
        self.denied += 1
        return self.denied > self.rules.plans * self.rules.waiting

    def release(self) -> None:
        """Drop every capture and everything learnt by signature."""
        super().release()
        self.last = self.oldest = None
        self.new = self.resting = self.denied = 0


def _told(signature: Signature, entry: Entry) -> dict[str, Any]:
    feeds, _, _ = str(signature).rpartition(" -> ")
    rows = () if entry.captured is not None or entry.report is None else entry.report.rows
    why = "; ".join(f"{row.node + ': ' if row.node else ''}{row.reason.value}: {row.message}" for row in rows)
    return {"signature": feeds, "state": entry.state, "calls": entry.runs, "why": why}


def ready_for(facts: BodyFacts, captured: Captured, places: tuple[torch.Tensor | None, ...]) -> Ready:
    """A capture, ready for calls.

    Args:
        facts: Of the body.
        captured: Its capture.
        places: Where the capture reads what it is given; None where it reads it not at all, or as it comes.
    """
    # Constants of the model are protected wherever results are handed out; those of this plan are not.
    changing = (captured.lasting - storage_ids(facts.program.steps.template)) | storage_ids(places)
    plain = all(place is not None or not read for place, read in zip(places, facts.read, strict=True))
    results = tuple(_made(tensor, changing, places) for tensor in captured.results or ())
    return Ready(
        rows=tuple(_row(place, same) for place, same in zip(places, facts.steady, strict=True)),
        places=places,
        written=frozenset(changing),
        recording=captured.whole if plain and captured.results is not None else None,
        results=results,
    )


def _row(place: torch.Tensor | None, steady: bool) -> Row | None:
    return None if place is None else (place.dtype, place.shape, place.device, place, steady)


def _made(tensor: torch.Tensor, changing: Collection[int], places: Sequence[torch.Tensor | None]) -> Made:
    """What becomes of a result."""
    storage = tensor.untyped_storage()._cdata
    source = next((n for n, p in enumerate(places) if p is not None and _same(p, tensor)), -1)
    # A place that is lent would be written while other places still have to be filled from it.
    return Made(tensor, storage in changing, storage not in storage_ids(places), source)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    return a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
