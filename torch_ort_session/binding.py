"""Bindings: tensors that stay attached to a session's inputs and outputs from run to run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import torch

from torch_ort_session.errors import CaptureError
from torch_ort_session.plan.partition import DeclineReport
from torch_ort_session.runtime.bindings import (
    Attached,
    Bound,
    Caches,
    Prepared,
    Recipients,
    Snapshot,
    bind_input,
    bind_output,
    bind_state,
    check_name,
    defers,
    fitting,
    switched_off,
    undelivered,
)
from torch_ort_session.runtime.dispatch import RunRequest, by_steps, deliver
from torch_ort_session.runtime.dynamic import growth_cache_of
from torch_ort_session.runtime.engine import Engine, capture_now, replay_now, run
from torch_ort_session.runtime.interpreter import Program, watch_program
from torch_ort_session.runtime.validation import ValidationScope
from torch_ort_session.runtime.values import Delivery, Owned, RunModes, not_replayed, overlap
from torch_ort_session.trace import counters

T = TypeVar("T")


class Binding:
    """Persistent tensors for a session's inputs, outputs and states; made by :meth:`Session.bind`.

    A bound input is read where it is, by recordings too: a run sees what is in it when it starts. A bound
    output holds its result after every run. A state is both: one tensor that the model reads as one input and
    makes anew as one output, and that advances exactly once a run. Nothing is written before a run has
    succeeded: a run that raises, or a capture that is declined, leaves every bound tensor as it was.

    Tensors may have any strides; no element of what is written may share memory with another. A binding holds
    its tensors until they are replaced or unbound, and gives up its captures first. Runs never record
    gradients, and serialise with all runs of the session.

    Caches that grow: with a ``capacity_dim`` the model reads the valid part of a state alone. Each length is
    another signature then, and a capture of one is of no use for the next. A model of fixed capacity is
    captured once and replays for every token: its cache has one shape in and out, it scatters the new entry
    to a position, and a mask hides what is not valid yet. Position and mask are bound inputs that the caller
    changes in place between runs, and the cache is a state without ``capacity_dim``.
    """

    def __init__(self, engine: Engine, source: str) -> None:
        self._engine = engine
        self._source = source
        state = engine.state
        # Captures live as long as the tensors that they bake, so their entries are the binding's.
        self._state = replace(
            state, dispatcher=state.dispatcher.child(), growth=growth_cache_of(state).child()
        )
        self._attached = Attached()
        self._recipients = Recipients(self._state, self._attached, defers(engine.options))
        self._gone = "no capture was made"
        self._caches = Caches(engine.graph)

    def input(self, name: str, tensor: torch.Tensor) -> None:
        """Attach a tensor that the model reads in place; with the same name again, replace it.

        Args:
            name: An input of the model.
            tensor: On the session's device, with the input's dtype and dims. Two inputs may share memory.

        Raises:
            InputError: The name is unknown, bound otherwise, or no tensor to the model; the tensor has
                another device, dtype, rank or static dim, or shares memory with one that is written.
        """
        with self._engine.lock:
            self._attach(bind_input(self._engine.graph, name, tensor, self._device_of(name)), 0)

    def output(self, name: str, tensor: torch.Tensor) -> None:
        """Attach a tensor that every run writes an output to; with the same name again, replace it.

        Args:
            name: An output of the model.
            tensor: On the session's device, with the output's dtype and dims.

        Raises:
            InputError: As for :meth:`input`; also when the tensor cannot be written.
        """
        engine = self._engine
        with engine.lock:
            self._attach(bind_output(engine.graph, name, tensor, engine.device), 0)

    def state(
        self,
        past: str,
        present: str,
        tensor: torch.Tensor,
        capacity_dim: int | None = None,
        length: int = 0,
    ) -> None:
        """Attach a tensor that is an input and, after the run, what the model made of it.

        Of a ``present`` that is ``past`` with entries behind it (with a ``capacity_dim``) and of a cache that
        GroupQueryAttention keeps (without one) only the new part is written; others are copied whole.

        Args:
            past: The input that reads it.
            present: The output that becomes its new value.
            tensor: On the session's device, with the dtype and dims of both; along ``capacity_dim`` it may be
                larger than either.
            capacity_dim: The dim along which only the first entries are valid: the model reads those, symbols
                of the model bind to their number, and after a run there are as many as ``present`` has.
            length: How many entries are valid now.

        Raises:
            InputError: As for :meth:`output`; also when past and present disagree, or the tensor holds fewer
                entries than ``length``.
        """
        engine = self._engine
        with engine.lock:
            room = (capacity_dim, length)
            bound = bind_state(engine.graph, (past, present), tensor, room, self._device_of(past))
            self._attach(bound, length)

    def unbind(self, name: str) -> None:
        """Give up the tensors attached under a name, and with them every capture.

        Raises:
            InputError: Nothing is bound to it.
        """
        with self._engine.lock:
            if self._attached.find(name) is None:
                raise self._attached.unknown(name, "bound")
            self._retire(f"{name!r} was unbound")
            growth_cache_of(self._state).unbind()
            self._attached.remove(name)

    def length(self, name: str) -> int:
        """Valid entries of a state, by the name of its input or its output.

        Raises:
            InputError: It is no state with a capacity_dim.
        """
        with self._engine.lock:
            return self._attached.length(self._attached.growing(name))

    def set_length(self, name: str, length: int) -> None:
        """Declare how many entries of a state are valid, by the name of its input or its output.

        Raises:
            InputError: It is no state with a capacity_dim, or does not hold so many.
        """
        with self._engine.lock:
            self._ready()
            self._recipients.settle()
            self._attached.set_length(self._attached.growing(name), length)

    def run(self, feed: Mapping[str, Any] | None = None) -> None:
        """Run once, as the session decides: eagerly at first, captured and replayed when it repeats.

        Args:
            feed: Inputs that are not bound, by name.

        Raises:
            InputError: A feed does not fit or is bound, a symbol has two values, or a result does not fit the
                tensor that it is bound to. Nothing was written.
            KernelError, DeviceValidationError: A kernel failed, or met bad data. Nothing was written.
        """

        def act(request: RunRequest) -> None:
            if self._off():
                deliver(request, by_steps(request.program, request.fed), self._state.device)
            else:
                run(self._state, request)

        self._perform(feed, act)

    def capture(self, feed: Mapping[str, Any] | None = None) -> DeclineReport | None:
        """Run once and record it, so that :meth:`replay` can follow; replay it where it is recorded already.

        Args:
            feed: Inputs that are not bound, by name.

        Returns:
            None when the run was made. Else why it cannot be captured; then nothing has happened: every bound
            tensor, length and random generator is as before, and :meth:`run` makes the run.

        Raises:
            CaptureError: It cannot be captured, and the session's options say that it must.
            InputError: As for :meth:`run`.
            KernelError, DeviceValidationError: A kernel failed, or met bad data. Nothing was written.
        """

        def act(request: RunRequest) -> DeclineReport | None:
            missing = undelivered(self._engine.graph, self._attached.ready().targets)
            report = self._off() or missing or capture_now(self._state, request)
            if report is None:
                self._gone = "the last one diverged, or was dropped to free memory"
            return report

        report = self._perform(feed, act)
        if report is not None and self._state.required:
            raise CaptureError(f"the run could not be captured:\n{report}", report=report)
        return report

    def replay(self, feed: Mapping[str, Any] | None = None) -> bool:
        """Run once by replaying a capture.

        Args:
            feed: Inputs that are not bound, by name.

        Returns:
            True; False when this run is right but came out otherwise than captured, so that the capture is
            retired and the next replay needs a new one.

        Raises:
            CaptureError: Nothing is captured, or what runs now is of another signature: then the capture is
                retired. Nothing was written.
            InputError: As for :meth:`run`.
            KernelError, DeviceValidationError: A kernel failed, or met bad data. Nothing was written.
        """

        def act(request: RunRequest) -> bool:
            outcome = replay_now(self._state, request)
            if isinstance(outcome, bool):
                return outcome
            error = not_replayed(outcome, self._gone)
            if isinstance(outcome, tuple):
                self._gone = "the last one was retired since its signature was no longer that of the runs"
            raise error

        return self._perform(feed, act)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Runs whose data is asked about once, at the end: ``with binding.together(): ...``.

        After bad data the runs that follow change nothing: tensors are those before the run that met it, and
        lengths too once it is known. Whatever reads an output in between asks right away.

        Raises:
            DeviceValidationError: A run met bad data; with ``validate="deferred"`` the readers are told.
        """
        with self._engine.lock, self._recipients.together(self._program(), self._engine.names):
            yield

    def reset(self) -> None:
        """Drop this binding's captures; tensors and lengths stay."""
        with self._engine.lock:
            self._retire("reset() dropped the last one")

    def read(self, name: str) -> Any:
        """A copy of what is bound to a name (of a state's valid part); of an unbound output, the last result.

        Raises:
            InputError: Nothing is bound to it, and no run has given it.
            DeviceValidationError: The run that made it met bad data, and this output was not read since.
        """
        with self._engine.lock:
            self._ready()
            bound = self._attached.find(name, output=True)
            self._recipients.look((name if bound is None else bound.target,))
            if bound is not None:
                with RunModes(self._engine.device, False, None):
                    return self._attached.valid(bound).clone()
            if name in self._attached.unbound:
                return self._attached.unbound[name]
            raise self._attached.unknown(name, "bound to anything, nor an output that a run has given")

    def write(self, name: str, value: Any) -> None:
        """Copy a value into what is bound to a name; with a capacity_dim it sets the length as well.

        Args:
            name: An input, a state by either name, or an output.
            value: What could be fed: of the same dtype and dims, along a capacity_dim up to its capacity.

        Raises:
            InputError: Nothing is bound to the name, or the value does not fit. Nothing was written.
        """
        with self._engine.lock:
            self._ready()
            bound = self._attached.find(name)
            if bound is None:
                raise self._attached.unknown(name, "bound")
            self._recipients.settle()
            with RunModes(self._engine.device, False, None):
                tensor = fitting(self._engine.graph, bound, value)
                place, part, after = bound.room(tensor, 0)
                place.copy_(part.clone() if overlap(place, part) else part)
            if bound.capacity_dim is not None:
                self._attached.set_length(bound, after)

    def snapshot(self) -> Snapshot:
        """Copies of every state's valid part, and the lengths."""
        with self._engine.lock, RunModes(self._engine.device, False, None):
            self._ready()
            self._recipients.look(bound.target for bound in self._attached if bound.role == "state")
            return self._attached.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Put states and lengths back.

        Raises:
            InputError: The states are not those of the snapshot. Nothing was written.
        """
        with self._engine.lock, RunModes(self._engine.device, False, None):
            self._ready()
            self._recipients.settle()
            self._attached.restore(snapshot)

    def __repr__(self) -> str:
        head = f"Binding of {self._source!r} on {self._engine.device}"
        return f"{head}\n{self._attached}".rstrip()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a binding holds memory and cannot be copied or pickled; bind tensors to the other session"
        )

    def _perform(self, feed: Mapping[str, Any] | None, act: Callable[[RunRequest], T]) -> T:
        tracer = self._state.tracer
        with self._engine.lock, self._state.reentrancy.alone("a run of a binding"):
            if not tracer.watching():
                return self._made(feed, act)
            with tracer.run("binding", self._state.dispatcher.counters):
                return self._made(feed, act)

    def _made(self, feed: Mapping[str, Any] | None, act: Callable[[RunRequest], T]) -> T:
        engine = self._engine
        ready, names = self._ready(), engine.names
        program, keys, feeds_of = engine.program(names)
        fed = self._attached.fed(feed, feeds_of)
        self._state = self._caches.state(self._state, self._attached.whole_states())
        program, outputs = self._caches.runs(program, names)
        tracer = self._state.tracer
        watched = watch_program(program, fed, tracer) if tracer.observer.on else program
        modes = RunModes(engine.device, False, engine.options.num_threads)
        with modes, self._recipients.run(program) as scope:
            return act(RunRequest(watched, outputs, keys, fed, self._delivery(ready, names, scope)))

    def _ready(self) -> Prepared:
        for bound in self._attached.moved():
            self._attach_again(bound)
        return self._attached.ready()

    def _delivery(self, ready: Prepared, names: tuple[str, ...], scope: ValidationScope | None) -> Delivery:
        def deliver(results: Sequence[Any], owned: Owned) -> list[Any]:
            nbytes = self._recipients.deliver(scope, names, self._caches.given(results), owned)
            self._state.dispatcher.counters[counters.DELIVERED] += nbytes
            return []

        return Delivery(ready.form, frozenset(ready.views), deliver)

    def _off(self) -> DeclineReport | None:
        return switched_off(self._engine.options.capture)

    def _attach(self, new: Bound, length: int) -> None:
        self._attached.check(new)
        self._retire(f"{new.label} was bound anew")
        self._attached.put(new, length)

    def _attach_again(self, bound: Bound) -> None:
        """Take a tensor as it is now, whose memory or form its owner changed since it was attached."""
        if bound.role == "input":
            self.input(bound.source, bound.tensor)
        elif bound.role == "output":
            self.output(bound.target, bound.tensor)
        else:
            length = self._attached.length(bound)
            self.state(bound.source, bound.target, bound.tensor, bound.capacity_dim, length)
        self._gone = f"the memory or the form of what is bound to {bound.name!r} changed"

    def _retire(self, why: str) -> None:
        """Give up every capture: they bake tensors that are about to go."""
        self._recipients.settle()
        if self._state.dispatcher.latest_capture() is not None:
            self._gone = why
        self._state.dispatcher.release()

    def _device_of(self, name: str) -> torch.device:
        check_name(name)
        on_host = name in self._program().steps.host_inputs
        return torch.device("cpu") if on_host else self._engine.device

    def _program(self) -> Program:
        return self._engine.program(self._engine.names).program
