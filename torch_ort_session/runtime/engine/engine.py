"""The engine: what is kept from run to run of one model, and a run from feeds to results."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch

from torch_ort_session.errors import InputError
from torch_ort_session.ir.graph import Graph
from torch_ort_session.ir.ports import port_of
from torch_ort_session.ops.kernel import Value
from torch_ort_session.options import Options
from torch_ort_session.plan.analysis import key_feed_candidates
from torch_ort_session.runtime.dispatch import (
    Dispatcher,
    EngineState,
    GraphEntry,
    Reentrancy,
    Rules,
    RunRequest,
    reset_after_fork,
)
from torch_ort_session.runtime.dynamic import Bodies, GrowthCache, bodies_of, enter, growth_cache_of
from torch_ort_session.runtime.engine.fast_path import FastReplay, fast_replay_of, try_replay
from torch_ort_session.runtime.engine.run import PaddedRun, as_run, completed, run_eagerly
from torch_ort_session.runtime.interpreter import Program, builder, watch_program
from torch_ort_session.runtime.recorders import Arena, recorder_or_reason, recorders, stamp_of
from torch_ort_session.runtime.validation import routes_of, word_for
from torch_ort_session.runtime.values import (
    FeedConverter,
    RunModes,
    allowed,
    any_requires_grad,
    padding,
    recordable,
    stepwise,
)

_T = TypeVar("_T")

_PROGRAMS = 8
"""Choices of outputs whose steps are kept; the least recently used goes first."""


class OutputProgram(NamedTuple):
    """What runs for one choice of outputs need, whatever their signature.

    Attributes:
        program: The steps.
        keys: Names of feeds whose value may be part of the signature.
        feeds_of: Converts and checks feeds.
    """

    program: Program
    keys: frozenset[str]
    feeds_of: FeedConverter


class Engine:
    """Runs of one graph on one device; it lives as long as its session.

    Attributes:
        graph: The graph that runs.
        options: How it runs.
        device: Where it runs.
        lock: Held during a run: runs of one session serialise.
        validation: Where kernels report bad data.
        state: What runs need beyond a program.
        fast: The shortest way of runs like the last one, once that was replayed.
        names: The graph's outputs.
    """

    def __init__(self, graph: Graph, device: torch.device, options: Options) -> None:
        self.graph = graph
        self.options = options
        self.device = device
        self.lock = threading.RLock()
        self.validation = word_for(device, options)
        self.names = tuple(info.name for info in graph.outputs)
        self.fast: FastReplay | None = None
        self._weights: dict[str, Value] = {}
        self._programs: OrderedDict[tuple[str, ...], OutputProgram] = OrderedDict()
        bodies = Bodies(None if options.capture == "off" else enter)
        arena, rules = Arena(device), _rules(graph, device, options)
        self.state = EngineState(
            graph=graph,
            build=builder(device, self._weights, self.validation, bodies.link),
            dispatcher=Dispatcher(rules),
            recorder=recorders(
                rules.stamp, functools.partial(recorder_or_reason, device, options.verify, arena.packing)
            ),
            arena=arena,
            growth=GrowthCache(),
            bodies=bodies,
            required=options.capture == "required",
            minimum=1 if device.type == "cpu" else 4,
            verify=options.verify,
            reentrancy=Reentrancy(self.validation.abandon),
        )
        self.program(self.names)
        reset_after_fork(self)

    def run(self, outputs: tuple[str, ...] | None, feed: Mapping[str, Any]) -> list[Any]:
        """One run, from feeds to results.

        Args:
            outputs: Requested output names; None for the graph's.
            feed: Inputs by name, as they came.

        Returns:
            The results, in memory of their own.

        Raises:
            InputError: A feed does not fit.
            CaptureError: A capture is required and cannot be had.
            KernelError, DeviceValidationError: A kernel failed, or met bad data.
        """
        with self.lock:
            reentrancy, tracer = self.state.reentrancy, self.state.tracer
            reentrancy.depth += 1
            try:
                if reentrancy.depth == 1 and tracer.watching():
                    names = self.names if outputs is None else outputs
                    with tracer.run(", ".join(names), self.state.dispatcher.counters):
                        return self._run(names, feed)
                failed = None
                if reentrancy.depth == 1 and self.fast is not None:
                    replayed = try_replay(self.fast, self.state, outputs, feed)
                    if isinstance(replayed, list):
                        return replayed
                    failed = replayed
                return self._run(self.names if outputs is None else outputs, feed, failed)
            except BaseException as error:
                reentrancy.broken_off(error)
                raise
            finally:
                # A call before it could be interrupted.
                reentrancy.depth -= 1
                if reentrancy.due is not None:
                    reentrancy.settle()

    def feed_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """A feed by name from what a call was given.

        Raises:
            InputError: Too many positional inputs, or one given twice.
        """
        if len(args) == 1 and isinstance(args[0], Mapping) and not kwargs:
            return args[0]
        names = [info.name for info in self.graph.inputs if info.name not in self.graph.initializers]
        if len(args) > len(names):
            raise InputError(
                f"{len(args)} positional inputs were given, the model takes {len(names)}: {', '.join(names)}",
                got=str(len(args)),
                expected=str(len(names)),
            )
        feed = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name in feed:
                raise InputError(f"input {name!r} was given by position and by name", name=name)
        return {**feed, **kwargs}

    def inspect(
        self, outputs: tuple[str, ...], feed: Mapping[str, Any], look: Callable[[EngineState, RunRequest], _T]
    ) -> _T:
        """The answer to a question about a run, asked in its place and under its modes; none is made.

        Args:
            outputs: Requested output names.
            feed: Inputs by name, as they came.
            look: Answers it.

        Raises:
            InputError: A feed does not fit.
        """
        state = self.state
        with self.lock, state.reentrancy.alone("a plan"):
            program, keys, feeds_of = self.program(outputs)
            fed = as_run(state, outputs, feeds_of(completed(state, feed)))
            modes = RunModes(self.device, False, self.options.num_threads)
            with modes, state.validation_scope(program):
                return look(state, RunRequest(program, outputs, keys, fed))

    def check(self) -> None:
        """Ask whether a run that was not asked about met bad data.

        Raises:
            DeviceValidationError: It did, and no run has told.
        """
        with self.lock:
            self.validation.check()

    def routes(self) -> Mapping[str, tuple[int, ...]]:
        """How often mixtures chose each expert in the last run, by node; once, else DeviceValidationError."""
        with self.lock:
            return routes_of(self.validation)

    def _run(
        self, names: tuple[str, ...], feed: Mapping[str, Any], failed: Exception | None = None
    ) -> list[Any]:
        """The long way: feeds are converted and checked, and the dispatcher decides.

        Args:
            names: Requested output names.
            feed: Inputs by name, as they came.
            failed: What the recording raised when this run was replayed at once.
        """
        state = self.state
        program, keys, feeds_of = self.program(names)
        fed = feeds_of(completed(state, feed))
        if state.tracer.observer.on:
            program = watch_program(program, fed, state.tracer)
        grad = torch.is_grad_enabled() and any_requires_grad(fed.values())
        modes = RunModes(self.device, grad, self.options.num_threads)
        padded = PaddedRun(state, names, fed)
        before = state.dispatcher.recent
        replayed = (None, 0) if before is None else (before.captured, before.runs)
        with padded, modes, state.validation_scope(program):
            if grad:
                return run_eagerly(program, recordable(fed), self.device)
            if self.options.capture == "off" or stepwise() or state.reentrancy.depth > 1:
                return run_eagerly(program, fed, self.device)
            try:
                results = padded.run(program, keys, failed)
            finally:
                if self.fast is not None and self.fast.entry.captured is not self.fast.captured:
                    # It would keep the memory of a capture that is gone.
                    self.fast = None
            if (
                before is not None
                and before is state.dispatcher.recent
                and before.captured is not None
                and replayed == (before.captured, before.runs - 1)
                and padded.padded is None
            ):
                self._find_fast_path(before, names, fed)
            return results

    def _find_fast_path(self, entry: GraphEntry, names: tuple[str, ...], fed: Mapping[str, Value]) -> None:
        """Note how runs like the last one, a replay of an entry that came twice, are replayed at once."""
        if self.device.type == "cpu" and not self.state.verify:
            self.fast = fast_replay_of(entry, names, fed, names == self.names)

    def program(self, names: tuple[str, ...]) -> OutputProgram:
        """What runs for some outputs need; made when it is first asked for.

        Raises:
            ModelError: A name is no value of the model.
        """
        compiled = self._programs.get(names)
        if compiled is None:
            program = self.state.build(self.graph, names)
            candidates = key_feed_candidates(program.steps)
            places = zip(program.steps.input_names, program.steps.inputs, strict=True)
            keys = frozenset(name for name, place in places if place in candidates)
            on_host = program.steps.host_inputs
            feeds_of = FeedConverter(self.graph.inputs, self.graph.initializers, self.device, on_host)
            compiled = self._programs[names] = OutputProgram(program, keys, feeds_of)
            while len(self._programs) > _PROGRAMS:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(names)
        return compiled

    def release_memory(self) -> None:
        """Drop every capture and its memory, at the end of a run within one."""
        with self.lock:
            if self.state.reentrancy.later(self.release_memory):
                return
            self.fast = None
            self.state.dispatcher.release()
            growth_cache_of(self.state).clear()
            bodies_of(self.state).release()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Engine, (self.graph, self.device, self.options))

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return Engine(self.graph, self.device, self.options)

    def after_fork(self) -> None:
        """In a forked child: give up a run that another thread of the parent was in."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:
            self.lock = threading.RLock()
            self.fast = None
            # Bindings go on with their own states, which share the reentrancy and belong to the dispatcher.
            self.state.reentrancy.give_up()
            self.state.dispatcher.abandon()
            self.state = self.state.renewed()
            self.validation.forget()


def _rules(graph: Graph, device: torch.device, options: Options) -> Rules:
    inputs = tuple(port_of(info) for info in graph.inputs if info.name not in graph.initializers)
    outputs = tuple(port_of(info) for info in graph.outputs)
    may, plans, fuse = options.capture_only, options.max_plans, options.fuse
    padded = padding(options.buckets, inputs, outputs, device)
    return Rules(allowed(may, inputs), padded, stamp_of(device), plans, fuse=fuse)
