"""What a session keeps of its control-flow bodies: plans and captures of their own, by signature."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from torch_ort_session.ops.kernel import Body, Value
from torch_ort_session.plan.lowering import BodySteps, growing_lists, inline, static_branches
from torch_ort_session.plan.partition import DeclineReport, Reason
from torch_ort_session.runtime.captures import CapturedGraph, Source, planned_program, replay_whole, warm_up
from torch_ort_session.runtime.dispatch import (
    Decision,
    Dispatcher,
    EngineState,
    GraphEntry,
    Refusal,
    RunRequest,
    plan_rules,
    record,
    replay_entry,
)
from torch_ort_session.runtime.dynamic.cost_model import hopeless, not_worth, read_inputs, steady, varies
from torch_ort_session.runtime.interpreter import Frame, Program, bind_steps, check_formals, execute
from torch_ort_session.runtime.recorders import Recording
from torch_ort_session.runtime.validation import met_bad_data
from torch_ort_session.runtime.values import (
    Delivery,
    FeedGuard,
    Signature,
    apart,
    guard_of,
    signature_of,
    stepwise,
    storage_ids,
    storages,
)
from torch_ort_session.trace import counters
from torch_ort_session.trace.observer import OP

_PLANS = 4
"""Captures that are kept of one body."""

_PATIENCE = 32
"""New signatures in a row after which the body runs step by step ..."""

_REST = 256
"""... for so many calls: where shapes grow from call to call none comes again."""

Enter = Callable[["EngineState", "BodyPlan", Frame], Body]
"""Binds a body to the values of a run."""


class StateLink:
    """A weak link from the steps of bodies to the state that runs them; it lives as long as the steps."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: weakref.ref[EngineState] | None = None

    def enter(self, body: BodySteps, program: Program, outer: Frame) -> Body | None:
        """What runs the body; None where it runs step by step: see :class:`~.plan.steps.BodyRuns`."""
        state = None if self.state is None else self.state()
        if state is None or torch.is_grad_enabled() or stepwise() or state.reentrancy.depth > 1:
            return None
        bodies = bodies_of(state)
        if bodies.run is None:
            return None
        plan = bodies.plan(body, program, state.device)
        return None if plan.facts.hopeless and not plan.facts.lasting else bodies.run(state, plan, outer)


class Bodies:
    """The plans of the bodies of one session; they live as long.

    Attributes:
        run: How a body is bound to the values of a run; None where all run step by step.
        link: What the steps of bodies know of this.
        plans: By body; a plan goes with the steps of its body.
    """

    def __init__(self, run: Enter | None = None, link: StateLink | None = None) -> None:
        self.run = run
        self.link = StateLink() if link is None else link
        self.plans: weakref.WeakKeyDictionary[BodySteps, BodyPlan] = weakref.WeakKeyDictionary()

    def serve(self, state: EngineState) -> None:
        """Run bodies with this state from now on."""
        self.link.state = weakref.ref(state)
        for plan in self.plans.values():
            plan.state = None

    def renewed(self) -> Bodies:
        """The same, as before the first run."""
        return Bodies(self.run, self.link)

    def without_captures(self) -> Bodies:
        """Bodies that all run step by step, for what runs within a body."""
        return Bodies()

    def plan(self, body: BodySteps, program: Program, device: torch.device) -> BodyPlan:
        """The plan of a body, made when it is first asked for."""
        plan = self.plans.get(body)
        if plan is None:
            plan = self.plans[body] = BodyPlan(body_facts(body, program, device))
        return plan

    def forget_constants(self) -> None:
        """Let branches that read nothing be computed again."""
        for plan in self.plans.values():
            plan.kept = None

    def distrust(self) -> None:
        """The last run's data was bad: what was computed or observed is not relied on."""
        self.forget_constants()
        for entry in self.entries():
            if entry.captured is None:
                entry.planned = None

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
            for entry in () if plan.dispatcher is None else plan.dispatcher.entries.values():
                if isinstance(entry, BodyEntry):
                    yield entry


def bodies_of(state: EngineState) -> Bodies:
    """What a session keeps of its control-flow bodies."""
    bodies: Bodies = state.bodies  # type: ignore[assignment]
    return bodies


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


def body_facts(body: BodySteps, program: Program, device: torch.device) -> BodyFacts:
    """The facts of a body before its first call.

    Args:
        body: The body.
        program: Its steps made callable.
        device: The session's device.
    """
    steps = body.steps
    inside = tuple(place for _, place in body.captured)
    names = (*steps.input_names, *(f"{steps.names[place]} (outer)" for place in inside))
    whole = replace(steps, inputs=(*steps.inputs, *inside), input_names=names)
    read, same, lists = read_inputs(whole), steady(whole), growing_lists(whole)
    return BodyFacts(
        name=body.name,
        depth=body.depth,
        program=replace(program, steps=whole),
        formals=len(steps.inputs),
        outside=tuple(place for place, _ in body.captured),
        read=tuple(place in read for place in whole.inputs),
        steady=tuple(place in same for place in whole.inputs),
        lists=tuple(n for n, place in enumerate(whole.inputs) if place in lists),
        results=tuple(steps.names[output] for output in steps.outputs),
        hopeless=hopeless(whole, len(steps.inputs), device),
        lasting=not whole.inputs and not varies(steps),
    )


class BodyPlan:
    """What is kept of one body; it lives as long as its steps.

    Attributes:
        facts: What was known of it before the first call.
        kept: Its results, where they are the same in every call, once they were computed.
        dispatcher: Entries by signature; None before the first.
        state: What records and replays it; None until that is needed.
    """

    def __init__(self, facts: BodyFacts) -> None:
        self.facts = facts
        self.kept: tuple[Value, ...] | None = None
        self.dispatcher: BodyDispatcher | None = None
        self.state: EngineState | None = None

    def told(self) -> dict[str, Any]:
        """What became of it so far: see :data:`~torch_ort_session.explain.explain.Told`."""
        note = f"not recorded: {self.facts.hopeless}" if self.facts.hopeless else ""
        if self.facts.lasting:
            note = "computed once: it reads nothing" if self.kept is not None else note
        elif self.dispatcher is not None and self.dispatcher.resting:
            note = "not recorded: no signature comes again"
        entries = () if self.dispatcher is None else reversed(self.dispatcher.entries.items())
        return {"note": note, "signatures": [_told(signature, entry) for signature, entry in entries]}

    def served(self, state: EngineState) -> tuple[BodyDispatcher, EngineState]:
        """Its dispatcher, which learns with the session's, and a state that goes by it."""
        if self.dispatcher is None:
            self.dispatcher = BodyDispatcher(state.dispatcher)
        if self.state is None:
            self.state = state.for_body(self.dispatcher, self.facts.depth)
        return self.dispatcher, self.state

    def release(self) -> None:
        """Drop every capture and everything learnt by signature."""
        self.kept = None
        if self.dispatcher is not None:
            self.dispatcher.release()


@dataclass(slots=True, eq=False)
class BodyEntry(GraphEntry):
    """What is known of one signature of a body; it lives until the body's dispatcher forgets it.

    Attributes:
        program: The steps of the body with branches in the place of Ifs whose predicate is static under the
            signature; None where there are none, or none was observed yet.
        ready: Its capture, ready for calls.
    """

    program: Program | None = None
    ready: BodyReplay | None = None


class BodyResult(NamedTuple):
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
class BodyReplay:
    """A captured signature of a body, ready for calls.

    Attributes:
        guard: What the inputs have to be that are read.
        places: Where the capture reads each; None where it reads it not at all, or as it comes.
        written: Identities of all storages that later calls write, these places included.
        recording: All of a call; None where there are seams, or something else than tensors.
        results: The outputs of the recording.
    """

    guard: FeedGuard
    places: tuple[torch.Tensor | None, ...]
    written: frozenset[int]
    recording: Recording | None
    results: tuple[BodyResult, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the places."""
        return sum(place.nbytes for place in self.places if place is not None)


class BodyDispatcher(Dispatcher):
    """The dispatcher of one body: it learns and counts with the session's, under names of its own.

    It lives as long as the body's plan.

    Attributes:
        last: The entry of the last call whose signature was looked for.
        new: New signatures in a row.
        resting: Calls that are still to be made without a look at their signature.
        denied: Captures that were not made because there are enough, since the least recently used one was
            replayed.
        oldest: Runs of that one when it was last looked at.
    """

    def __init__(self, session: Dispatcher) -> None:
        super().__init__(replace(session.rules, plans=_PLANS, allowed=None, padding=None))
        self.counters, self.learnt = session.counters, session.learnt
        self.last: BodyEntry | None = None
        self.new = self.resting = self.denied = 0
        self.oldest: tuple[GraphEntry, int] | None = None

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter: what bodies have in common with runs is counted apart."""
        super().count(counters.OF_BODIES.get(name, name), by)

    def of_call(self, names: Sequence[str], values: Sequence[Value]) -> BodyEntry | None:
        """The entry of a call, made when it is new; None where none is to be looked for."""
        if self.resting:
            self.resting -= 1
            return None
        signature = signature_of((), dict(zip(names, values, strict=True)), ())
        entry = self.entries.get(signature)
        if isinstance(entry, BodyEntry):
            self.new = 0
            if entry is not self.last:
                self.entries.move_to_end(signature)
                self.last = entry
            return entry
        self.new += 1
        if self.new > _PATIENCE:
            self.new, self.resting = 0, _REST
        new_entry = self.last = BodyEntry()
        self.entries[signature] = new_entry
        self._forget()
        return new_entry

    def _close(self, entry: GraphEntry) -> None:
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


def _told(signature: Signature, entry: GraphEntry) -> dict[str, Any]:
    feeds, _, _ = str(signature).rpartition(" -> ")
    rows = () if entry.captured is not None or entry.report is None else entry.report.rows
    why = "; ".join(f"{row.node + ': ' if row.node else ''}{row.reason.value}: {row.message}" for row in rows)
    return {"signature": feeds, "state": entry.state, "calls": entry.runs, "why": why}


def body_replay(
    facts: BodyFacts, captured: CapturedGraph, places: tuple[torch.Tensor | None, ...]
) -> BodyReplay:
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
    return BodyReplay(
        guard=guard_of(zip(facts.program.steps.input_names, places, strict=True)),
        places=places,
        written=frozenset(changing),
        recording=captured.whole if plain and captured.results is not None else None,
        results=results,
    )


def _made(
    tensor: torch.Tensor, changing: Collection[int], places: Sequence[torch.Tensor | None]
) -> BodyResult:
    """What becomes of a result."""
    storage = tensor.untyped_storage()._cdata
    source = next((n for n, p in enumerate(places) if p is not None and _same(p, tensor)), -1)
    # A place that is lent would be written while other places still have to be filled from it.
    return BodyResult(tensor, storage in changing, storage not in storage_ids(places), source)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata:
        return False
    return a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()


_Tensor = torch.Tensor
Places = tuple[torch.Tensor | None, ...]


class BodyCall:
    """A body bound to the values of a run, and gone with it: :class:`~torch_ort_session.ops.kernel.Body`.

    It lives as long as the step whose body it is runs, in one run.

    Attributes:
        state: What runs of the session need.
        plan: What is kept of the body.
        facts: What is known of it beforehand.
        outer: The enclosing values that it reads.
        filled: The capture that has them in its places.
        lent: Identities of the storages that replays of this body write.
        same: What was last copied, by input, of what may come again.
    """

    __slots__ = ("facts", "filled", "lent", "outer", "plan", "same", "state")

    def __init__(self, state: EngineState, plan: BodyPlan, outer: Frame) -> None:
        self.state = state
        self.plan = plan
        self.facts = plan.facts
        self.outer = [outer[place] for place in plan.facts.outside]
        self.filled: BodyReplay | None = None
        self.lent: frozenset[int] = frozenset()
        self.same: dict[int, Value] = {}

    def __call__(self, *inputs: Value, lend: int = 0) -> tuple[Value, ...]:
        """Run the body on its formal inputs."""
        facts = self.facts
        check_formals(facts.formals, inputs)
        if facts.lasting:
            return self._lasting()
        observer = self.state.tracer.observer
        if observer.on:
            with observer.span(OP, "body", {"body": facts.name}):
                return self._once_more(inputs, lend)
        return self._once_more(inputs, lend)

    def _once_more(self, inputs: tuple[Value, ...], lend: int) -> tuple[Value, ...]:
        """A call like the one before is replayed without a look at its signature."""
        state, dispatcher = self.state, self.plan.dispatcher
        entry = None if dispatcher is None else dispatcher.last
        ready = None if entry is None else entry.ready
        if entry is None or ready is None or ready.recording is None or (state.verify and not entry.proven):
            return self._call((*inputs, *self.outer))
        filled = self.filled is ready
        values = inputs if filled else (*inputs, *self.outer)
        if not ready.guard.fits(values):
            return self._call((*inputs, *self.outer))
        if not filled:
            self._switch(ready)
        same = self.same
        statics: list[tuple[int, torch.Tensor]] = []
        # A recording is short: a call for these would show.
        pairs = zip(ready.places, self.facts.steady, values, strict=False)
        for number, (place, may_stay, value) in enumerate(pairs):
            if place is None or (may_stay and same.get(number) is value):
                continue
            statics.append((number, place))
            if may_stay:
                # What a replay lends is another one each time, under the same name.
                same[number] = None if self._is_lent(value) else value
        try:
            replay_whole(ready.recording, statics, values)
        except Exception as error:
            return self._replay(entry, ready, (*inputs, *self.outer), error)
        entry.runs += 1
        state.dispatcher.counters[counters.BODY_REPLAYS] += 1
        return tuple([self._result(result, inputs, n < lend) for n, result in enumerate(ready.results)])

    def _result(self, result: BodyResult, inputs: Sequence[Value], lent: bool) -> torch.Tensor:
        tensor, copied, lendable, source = result
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
        # No one writes the model's own constants: whoever hands out results copies them.
        constants = self.facts.program.constants
        return tuple([v if storages((v,)) <= constants else v.clone() for v in plan.kept])  # type: ignore[union-attr]

    def _call(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """A call whose signature is to be looked for."""
        dispatcher, state = self.plan.served(self.state)
        entry = dispatcher.of_call(self.facts.program.steps.input_names, self._told_apart(values))
        if entry is None:
            return self._by_steps(values)
        decision = dispatcher.decide(entry)
        if decision is Decision.REPLAY and entry.ready is not None:
            return self._replay(entry, entry.ready, values)
        entry.runs += 1
        if decision is Decision.EAGER or not dispatcher.has_room():
            return self._by_steps(values)
        if decision is Decision.OBSERVE:
            return self._observe(dispatcher, state, entry, values)
        return self._record(dispatcher, state, entry, values)

    def _told_apart(self, values: Sequence[Value]) -> Sequence[Value]:
        """What a signature is made of: nothing is recorded of how long a list is that only grows."""
        if not any(isinstance(values[place], tuple) for place in self.facts.lists):
            return values
        lists = self.facts.lists
        return [() if n in lists and isinstance(v, tuple) else v for n, v in enumerate(values)]

    def _by_steps(self, inputs: Sequence[Value]) -> tuple[Value, ...]:
        steps = self.facts.program.steps
        values = list(steps.template)
        for place, value in zip(steps.inputs, inputs, strict=True):
            values[place] = value
        execute(self.facts.program, values)
        return self.keep(tuple([values[output] for output in steps.outputs]))

    def _observe(
        self, dispatcher: BodyDispatcher, state: EngineState, entry: BodyEntry, values: Sequence[Value]
    ) -> tuple[Value, ...]:
        facts, program = self.facts, entry.program or self.facts.program
        dispatcher.count(counters.OBSERVED)
        fed = dict(zip(facts.program.steps.input_names, values, strict=True))
        source = Source(None, state.build, program, facts.results)
        warm, results = warm_up(source, (), fed, dispatcher.unstable)
        # What is static under the signature is a constant of the plan from now on.
        fixed = storage_ids(warm.observation.static.values())
        if met_bad_data(facts.program.validation):
            # Constants would stay as this data made them, and no replay would look at it again.
            return tuple(apart(results, self.lent | fixed))
        static = {v: held for v, held in warm.observation.static.items() if v in warm.static_values.data}
        branches = static_branches(program.steps, static)
        if branches:
            # What lies in them is observed in the next call.
            entry.program = bind_steps(inline(program.steps, branches))
            return tuple(apart(results, self.lent | fixed))
        planned = planned_program(warm, plan_rules(state))
        why = not_worth(planned, facts.formals)
        if why:
            dispatcher.declined(entry, DeclineReport.of(Reason.SHORT, why), lasting=True)
        else:
            entry.planned = planned
        return tuple(apart(results, self.lent | fixed))

    def _record(
        self, dispatcher: BodyDispatcher, state: EngineState, entry: BodyEntry, values: Sequence[Value]
    ) -> tuple[Value, ...]:
        facts = self.facts
        places: Places = tuple(
            [
                torch.empty_like(value, memory_format=torch.contiguous_format).copy_(value)
                if read and isinstance(value, torch.Tensor)
                else None
                for value, read in zip(values, facts.read, strict=True)
            ]
        )
        fed, delivery = _deliveries(facts, places, values)
        recorded = record(state, entry, fed, delivery)
        if isinstance(recorded, Refusal):
            # Where this call's data is at fault the steps say so, and nothing was declined.
            results = self._by_steps(values)
            if not met_bad_data(facts.program.validation):
                dispatcher.declined(entry, recorded.report, lasting=recorded.lasting)
            return results
        captured, results_now = recorded
        ready = entry.ready = body_replay(facts, captured, places)
        self._switch(ready)
        return tuple(apart(results_now, ready.written))

    def _switch(self, ready: BodyReplay) -> None:
        self.filled = ready
        self.lent |= ready.written
        self.same.clear()

    def _is_lent(self, value: Value) -> bool:
        return not isinstance(value, _Tensor) or value.untyped_storage()._cdata in self.lent

    def _replay(
        self, entry: BodyEntry, ready: BodyReplay, values: Sequence[Value], failed: Exception | None = None
    ) -> tuple[Value, ...]:
        """A replay with all that may come of it: a divergence, a failure, a comparison with an eager run."""
        facts, (_, state) = self.facts, self.plan.served(self.state)
        self._switch(ready)
        if failed is None:
            for place, value in zip(ready.places, values, strict=True):
                if place is not None:
                    place.copy_(value)  # type: ignore[arg-type]
        fed, delivery = _deliveries(facts, ready.places, values)
        entry.runs += 1
        request = RunRequest(facts.program, facts.results, frozenset(), fed, delivery)
        results = replay_entry(state, request, entry, failed)
        return tuple(apart(results, ready.written))


def _deliveries(
    facts: BodyFacts, places: Places, values: Sequence[Value]
) -> tuple[dict[str, Value], Delivery]:
    """What a capture is fed, and what becomes of its results: they stay where they are."""
    names = facts.program.steps.input_names
    fed = {
        name: value if place is None else place
        for name, place, value in zip(names, places, values, strict=True)
    }
    in_place = frozenset(name for name, place in zip(names, places, strict=True) if place is not None)
    # No recording of a body writes to its places, so that they hold what came in however a replay ends; what
    # came in may be lent by the recording itself, and be gone.
    return fed, Delivery((), in_place, lambda results, _: list(results))


def enter(state: EngineState, plan: BodyPlan, outer: Frame) -> BodyCall:
    """Bind a body to the values of a run.

    Args:
        state: What runs of the session need.
        plan: What is kept of the body.
        outer: The enclosing values; they stay as they are while the body is called.
    """
    return BodyCall(state, plan, outer)
