"""The state of an engine: what its runs need beyond a program."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

import torch

from torch_ort_session.errors import SessionError
from torch_ort_session.ir.graph import Graph
from torch_ort_session.runtime.dispatch.policy import Dispatcher
from torch_ort_session.runtime.interpreter import Program
from torch_ort_session.runtime.recorders import Arena, Recorder
from torch_ort_session.runtime.validation import ValidationScope, ValidationWord, validation_scope
from torch_ort_session.trace.tracer import Tracer


class Forked(Protocol):
    """What has to be put right in a child; hashable, and weakly held."""

    def after_fork(self) -> None:
        """Give up what belonged to threads that are not there."""


_FORKED: weakref.WeakSet[Forked] = weakref.WeakSet()


def reset_after_fork(one: Forked) -> None:
    """Call ``one.after_fork()`` in every child from now on, as long as it lives."""
    _FORKED.add(one)


def _in_child() -> None:
    for one in list(_FORKED):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


class Reentrancy:
    """Runs of one session that are under way; it lives as long as the session, and its lock guards it.

    Attributes:
        depth: How many there are, each within the one before.
        due: What was asked for within a run, and is done at the end of the outermost.
        abandon: Gives up the validation ticket that a run which was broken off has left unread.
    """

    __slots__ = ("abandon", "depth", "due")

    def __init__(self, abandon: Callable[[], None] = lambda: None) -> None:
        self.depth = 0
        self.due: Callable[[], None] | None = None
        self.abandon = abandon

    def later(self, due: Callable[[], None]) -> bool:
        """Do something at the end of the run that is under way; False when none is."""
        if self.depth:
            self.due = due
        return bool(self.depth)

    def give_up(self) -> None:
        """No run is under way any more: the thread that was in them is gone."""
        self.depth, self.due = 0, None

    def settle(self) -> None:
        """A run is over: do what was put off."""
        due = self.due
        if due is not None and not self.depth:
            self.due = None
            due()

    def broken_off(self, error: BaseException) -> None:
        """A run ends with an error, which is no :class:`Exception` where it was interrupted anywhere."""
        if self.depth == 1 and not isinstance(error, Exception):
            self.abandon()

    @contextlib.contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """A run that cannot take place within another one.

        Args:
            what: What it is called.

        Raises:
            SessionError: Another one is under way.
        """
        if self.depth:
            raise SessionError(
                f"{what} was asked for within a run of the same session, by a signal handler, a finalizer, a"
                " hook or a kernel; do it after that run, or with another session"
            )
        self.depth += 1
        try:
            yield
        except BaseException as error:
            self.broken_off(error)
            raise
        finally:
            self.depth -= 1
            if self.due is not None:
                self.settle()


class Remembered(Protocol):
    """What rooms above this one keep from run to run of a session."""

    def renewed(self) -> Self:
        """The same, as before the first run."""

    def distrust(self) -> None:
        """Give up what the last run showed: its data was bad."""


class RememberedBodies(Remembered, Protocol):
    """What is kept of control-flow bodies."""

    def serve(self, state: EngineState) -> None:
        """Run bodies with this state from now on."""

    def forget_constants(self) -> None:
        """Let branches that read nothing be computed again."""

    def without_captures(self) -> Self:
        """Bodies that all run step by step, for what runs within a body."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class EngineState:
    """What runs need beyond a program; a session's, a binding's or a body's, and it lives as long.

    Attributes:
        graph: The graph that runs.
        build: Makes a program of a graph and output names.
        dispatcher: Decides.
        recorder: Makes the recorder of a capture; a text says why there is none.
        arena: Memory that captures share, on the device where they run.
        growth: What is kept of runs whose feeds grow.
        bodies: What is kept of control-flow bodies.
        required: Whether a run that cannot be captured is an error.
        minimum: Launches from which on a segment is worth recording.
        verify: Whether plans are checked, and the first replay on other feeds is compared with an eager run.
        tracer: Who watches.
        reentrancy: Whether a run is under way.
    """

    graph: Graph
    build: Callable[[Graph, tuple[str, ...]], Program]
    dispatcher: Dispatcher
    recorder: Callable[[], Recorder | str]
    arena: Arena
    growth: Remembered
    bodies: RememberedBodies
    required: bool = False
    minimum: int = 1
    verify: bool = False
    tracer: Tracer = field(default_factory=Tracer)
    reentrancy: Reentrancy = field(default_factory=Reentrancy)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.arena.device

    def __post_init__(self) -> None:
        self.bodies.serve(self)

    def distrust(self) -> None:
        """Give up what the last run showed: its data was bad."""
        self.dispatcher.distrust()
        self.growth.distrust()
        self.bodies.distrust()

    def validation_scope(self, program: Program) -> AbstractContextManager[ValidationScope | None]:
        """The context that a run of a program is made in: see :func:`.validator.validation_scope`."""
        return validation_scope(program.validation, self.distrust, nested=self.reentrancy.depth > 1)

    def renewed(self) -> EngineState:
        """The same, as before its first run."""
        dispatcher = Dispatcher(self.dispatcher.rules)
        arena, bodies = Arena(self.device, self.arena.packing), self.bodies.renewed()
        cleared = replace(self, dispatcher=dispatcher, arena=arena, bodies=bodies)
        return replace(
            cleared,
            tracer=Tracer(),
            growth=self.growth.renewed(),
            reentrancy=Reentrancy(self.reentrancy.abandon),
        )

    def for_body(self, dispatcher: Dispatcher, depth: int) -> EngineState:
        """What records and replays a control-flow body, which is watched and counted as one step.

        Args:
            dispatcher: Of the body.
            depth: How many bodies it lies in.
        """
        # What is captured around the body has values in its arena while this runs.
        arena = self.arena.inner
        for _ in range(depth):
            arena = arena.inner
        growth, bodies = self.growth.renewed(), self.bodies.without_captures()
        return replace(
            self, dispatcher=dispatcher, arena=arena, tracer=Tracer(), growth=growth, bodies=bodies
        )


class Before(NamedTuple):
    """What a run changes beside its values, as it was before a run that may have to be made again.

    Attributes:
        random: The state of torch's own generators that a session's random steps draw from.
        uncount: Takes back what is counted from then on; None where nothing is.
    """

    random: tuple[torch.Tensor, ...]
    uncount: Callable[[], None] | None


def before_run(device: torch.device, validation: ValidationWord | None) -> Before:
    """What :func:`put_back` takes.

    Args:
        device: Where the run is.
        validation: Where its steps report to.
    """
    state = torch.get_rng_state()
    random = (state, torch.cuda.get_rng_state(device)) if device.type == "cuda" else (state,)
    return Before(random, None if validation is None else validation.uncounting())


def put_back(device: torch.device, before: Before) -> None:
    """Put the generators and the counts back: what is run again draws what it drew, and counts once."""
    torch.set_rng_state(before.random[0])
    if len(before.random) > 1:
        torch.cuda.set_rng_state(before.random[1], device)
    if before.uncount is not None:
        before.uncount()
