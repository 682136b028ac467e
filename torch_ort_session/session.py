"""The door: what users hold. It wires loading, steps and execution together and delegates to them."""

from __future__ import annotations

import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_ort_session.errors import InputError
from torch_ort_session.explain.entries import describe_entries, statistics
from torch_ort_session.explain.explain import explain
from torch_ort_session.explain.planned import plan_of
from torch_ort_session.ir.graph import Graph, Model
from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.ports import Port, port_of
from torch_ort_session.ir.text import byte_size, weight_bytes
from torch_ort_session.ops.kernel import Value
from torch_ort_session.options import Options
from torch_ort_session.plan.analysis.static_values import key_feed_candidates
from torch_ort_session.plan.lowering.lower import lower
from torch_ort_session.plan.plan import Plan
from torch_ort_session.runtime.dispatch.policy import Policy, Rules
from torch_ort_session.runtime.dispatch.state import Machine, Turns, put_right
from torch_ort_session.runtime.dynamic.control_flow import Bodies, enter
from torch_ort_session.runtime.engine.fast_path import at_once
from torch_ort_session.runtime.engine.run import PaddedRun, as_run, completed, run_eagerly
from torch_ort_session.runtime.interpreter.profile import watch_program
from torch_ort_session.runtime.interpreter.program import Program, builder
from torch_ort_session.runtime.recorders.arena import Arena
from torch_ort_session.runtime.recorders.backend import BackendReport, backend_report, ready_on, recorders
from torch_ort_session.runtime.recorders.cuda import recorder_or_reason
from torch_ort_session.runtime.validation.validator import routes_of, submission, word_for
from torch_ort_session.runtime.values import feeds
from torch_ort_session.runtime.values.context import RunModes, resolve_device, stepwise
from torch_ort_session.runtime.values.feeds import Intake
from torch_ort_session.runtime.values.results import Outputs, wanted_names
from torch_ort_session.runtime.values.shapes import allowed, padding

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch_ort_session.binding import Binding
    from torch_ort_session.module import SessionModule
    from torch_ort_session.trace.timeline import Timeline

_PROGRAMS = 8
"""Choices of outputs whose steps a session keeps; the least recently used goes first."""


class Session:
    """A loaded model, ready to run; made by :func:`load`.

    Runs of one session serialise; independent sessions run concurrently. Sessions pickle and deepcopy.
    """

    def __init__(self, model: Model, device: torch.device, options: Options) -> None:
        self._model = Model(
            lower(model.graph), model.opsets, model.ir_version, model.producer, model.metadata, model.source
        )
        self._device = device
        self._options = options
        self._weights: dict[str, Value] = {}
        self._programs: OrderedDict[tuple[str, ...], tuple[Program, frozenset[str], Intake]] = OrderedDict()
        self._validation = word_for(device, options)
        self._lock = threading.RLock()
        bodies = Bodies(None if options.capture == "off" else enter)
        arena, rules = Arena(device), self._rules(options)
        self._machine = Machine(
            graph=self._model.graph,
            build=builder(device, self._weights, self._validation, bodies.door),
            policy=Policy(rules),
            recorder=recorders(
                rules.ready, functools.partial(recorder_or_reason, device, options.verify, arena.packing)
            ),
            arena=arena,
            required=options.capture == "required",
            minimum=1 if device.type == "cpu" else 4,
            verify=options.verify,
            bodies=bodies,
            turns=Turns(self._validation.abandon),
        )
        self._program(tuple(info.name for info in self._model.graph.outputs))
        put_right(self)

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What must be fed, in order."""
        graph = self._model.graph
        return tuple(port_of(info) for info in graph.inputs if info.name not in graph.initializers)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What a run gives, in order."""
        return tuple(port_of(info) for info in self._model.graph.outputs)

    @property
    def device(self) -> torch.device:
        """Where the session runs."""
        return self._device

    @property
    def options(self) -> Options:
        """How it runs."""
        return self._options

    @property
    def graph(self) -> Graph:
        """The graph that runs: functions expanded, every node with a kernel."""
        return self._model.graph

    @property
    def model(self) -> Model:
        """What was loaded: graph, opsets, producer, metadata and where it came from."""
        return self._model

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run on positional inputs, keyword inputs, or one mapping.

        Returns:
            The output of a model with one, else :class:`Outputs`.

        Raises:
            InputError: A feed does not fit.
            KernelError, DeviceValidationError: A kernel failed, or met bad data.
        """
        results = self._run(None, self.feed_of(args, kwargs))
        return results[0] if len(results) == 1 else Outputs(self._names(), results)

    def run(self, output_names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[Any]:
        """Run with onnxruntime's order of arguments.

        Args:
            output_names: Names of outputs or of any intermediate value; None asks for the model's outputs.
            feed: Inputs by name: torch tensors, numpy arrays, Python numbers, DLPack producers.

        Returns:
            One result a name: a tensor, a tuple of tensors for a sequence, None for an absent optional, a
            numpy object array for strings. Results share no memory with feeds, weights or one another.

        Raises:
            InputError: A feed does not fit, or a name is no text.
            ModelError: A name is no value of the model.
            KernelError, DeviceValidationError: A kernel failed, or met bad data.
        """
        if type(feed) is not dict and not isinstance(feed, Mapping):
            kind = type(feed).__name__
            raise InputError(f"feed is a mapping from input names to values, not a {kind}", got=kind)
        if output_names is None:
            return self._run(None, feed)
        return self._run(wanted_names(output_names), feed)

    def module(self, *, trainable: bool = False) -> SessionModule:
        """The model as a ``torch.nn.Module`` with weights of its own.

        Args:
            trainable: Float initializers become Parameters, the rest buffers; else all are buffers.
        """
        from torch_ort_session.module import SessionModule

        return SessionModule(self, trainable=trainable)

    def bind(self) -> Binding:
        """Tensors that stay attached to inputs and outputs from run to run: see :class:`Binding`."""
        from torch_ort_session.binding import Binding

        return Binding(self)

    def trace(self) -> AbstractContextManager[Timeline]:
        """Watch runs: ``with session.trace() as timeline: ...``, then print or save the timeline."""
        return self._machine.tracer.trace(self._lock, self._model.source)

    def stats(self) -> dict[str, int]:
        """Counters since the session was made: captures, replays, declines, retirements and so on."""
        with self._lock:
            return statistics(self._machine)

    def plan(self, feed: Mapping[str, Any], output_names: Sequence[str] | None = None) -> Plan:
        """When and where runs on feeds like this one happen; it runs once, eagerly, to find out.

        Args:
            feed: Inputs by name, as for :meth:`run`.
            output_names: Names of outputs or of any intermediate value; None asks for the model's outputs.

        Returns:
            The plan; no capture is made or changed. ``explain.explain.explain`` puts it into words.

        Raises:
            InputError: A feed does not fit.
            KernelError, DeviceValidationError: A kernel failed, or met bad data.
        """
        names = self._names() if output_names is None else wanted_names(output_names)
        with self._lock, self._machine.turns.alone("a plan"):
            program, keys, intake = self._program(names)
            fed = as_run(self._machine, names, intake(completed(self._machine, feed)))
            modes = RunModes(self._device, False, self._options.num_threads)
            with modes, submission(program, self._machine):
                return plan_of(self._machine, program, names, keys, fed)

    def explain(self, feed: Mapping[str, Any] | None = None) -> str:
        """What runs and why, in words.

        Args:
            feed: Inputs by name: the plan of runs on feeds like this one, which takes an eager run to find
                out. None: every signature that was run, with its state, its plan, and what kept it from being
                captured.
        """
        if feed is not None:
            return explain(self.plan(feed))
        if self._options.capture == "off":
            return "capture is off: every run is eager"
        with self._lock:
            return describe_entries(self._machine)

    def backend_report(self) -> BackendReport:
        """What the session runs with: torch, the compiled extension, what records, which kernels use it."""
        with self._lock:
            policy, ready = self._machine.policy, self._machine.policy.rules.ready
            return backend_report(ready, self._options.capture, self.graph, policy.quarantined)

    def release_memory(self) -> None:
        """Drop every capture and its memory, at the end of a run within one; signatures warm up again."""
        with self._lock:
            if self._machine.turns.later(self.release_memory):
                return
            self._machine.policy.release()
            self._machine.memo.clear()
            self._machine.bodies.release()

    def check(self) -> None:
        """Ask whether a run that was not asked about met bad data: a binding's with ``validate="deferred"``.

        Raises:
            DeviceValidationError: It did, and nobody was told.
        """
        with self._lock:
            self._validation.check()

    def routes(self) -> Mapping[str, tuple[int, ...]]:
        """How often mixtures chose each expert in the last run, by node; once, else DeviceValidationError."""
        with self._lock:
            return routes_of(self._validation)

    def feed_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        """A feed by name from what a call was given.

        Raises:
            InputError: Too many positional inputs, or one given twice.
        """
        if len(args) == 1 and isinstance(args[0], Mapping) and not kwargs:
            return args[0]
        names = [port.name for port in self.inputs]
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

    def _names(self, wanted: tuple[str, ...] | None = None) -> tuple[str, ...]:
        return tuple([info.name for info in self._model.graph.outputs]) if wanted is None else wanted

    def _run(self, wanted: tuple[str, ...] | None, feed: Mapping[str, Any]) -> list[Any]:
        with self._lock:
            turns = self._machine.turns
            turns.depth += 1
            try:
                return self._turn(turns.depth > 1, wanted, feed)
            except BaseException as error:
                turns.broken_off(error)
                raise
            finally:
                # A call before it could be interrupted.
                turns.depth -= 1
                if turns.due is not None:
                    turns.settle()

    def _turn(self, inner: bool, wanted: tuple[str, ...] | None, feed: Mapping[str, Any]) -> list[Any]:
        tracer = self._machine.tracer
        if inner or not tracer.watching():
            again = None if inner or self._options.num_threads else at_once(self._machine, wanted, feed)
            return again if isinstance(again, list) else self._perform(self._names(wanted), feed, again)
        names = self._names(wanted)
        with tracer.run(", ".join(names), self._machine.policy.counters):
            return self._perform(names, feed)

    def _perform(
        self, names: tuple[str, ...], feed: Mapping[str, Any], failed: Exception | None = None
    ) -> list[Any]:
        program, keys, intake = self._program(names)
        fed = intake(completed(self._machine, feed))
        if self._machine.tracer.observer.on:
            program = watch_program(program, fed, self._machine.tracer)
        grad = torch.is_grad_enabled() and feeds.any_requires_grad(fed.values())
        modes = RunModes(self._device, grad, self._options.num_threads)
        padded = PaddedRun(self._machine, names, fed)
        with padded, modes, submission(program, self._machine):
            if grad:
                return run_eagerly(program, feeds.recordable(fed), self._device)
            if self._options.capture == "off" or stepwise() or self._machine.turns.depth > 1:
                return run_eagerly(program, fed, self._device)
            return padded.run(program, keys, failed)

    def _program(self, names: tuple[str, ...]) -> tuple[Program, frozenset[str], Intake]:
        """The steps for some outputs, feeds whose value may be part of the signature, and their intake."""
        found = self._programs.get(names)
        if found is None:
            graph = self._model.graph
            program = self._machine.build(graph, names)
            candidates = key_feed_candidates(program.steps)
            places = zip(program.steps.input_names, program.steps.inputs, strict=True)
            keys = frozenset(name for name, place in places if place in candidates)
            on_host = program.steps.host_inputs
            intake = Intake(graph.inputs, graph.initializers, self._device, on_host)
            found = self._programs[names] = (program, keys, intake)
            while len(self._programs) > _PROGRAMS:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(names)
        return found

    def __repr__(self) -> str:
        lines = [f"Session({self._model.source!r}, device={str(self._device)!r})"]
        lines += [f"  input  {port}" for port in self.inputs]
        lines += [f"  output {port}" for port in self.outputs]
        nodes = sum(1 for _ in self._model.graph.all_nodes())
        lines.append(f"  {nodes} nodes, {byte_size(weight_bytes(self._model.graph))} of weights")
        return "\n".join(lines)

    def _rules(self, options: Options) -> Rules:
        may, plans, fuse = options.capture_only, options.max_plans, options.fuse
        found = padding(options.buckets, self.inputs, self.outputs, self._device)
        return Rules(allowed(may, self.inputs), found, ready_on(self._device), plans, fuse=fuse)

    def after_fork(self) -> None:
        """In a forked child: give up a run that another thread of the parent was in."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()
            # Bindings go on with their own machines, which share the turns and belong to the policy.
            self._machine.turns.give_up()
            self._machine.policy.abandon()
            self._machine = self._machine.renewed()
            self._validation.forget()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Session, (self._model, self._device, self._options))

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return Session(self._model, self._device, self._options)


def load(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    device: str | torch.device | None = None,
    options: Options | None = None,
    base_dir: str | os.PathLike[str] | None = None,
) -> Session:
    """Load an ONNX model.

    Args:
        model: A path, the bytes of a model, or an ``onnx.ModelProto``.
        device: Where it runs; None is torch's default device.
        options: How it runs.
        base_dir: Folder of the external data of a model given as bytes or proto.

    Returns:
        A session.

    Raises:
        ModelError: The model is malformed.
        UnsupportedOpError: It uses operators without a kernel; all of them are named.
        InputError: The device is not available.
    """
    target = resolve_device(device)
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise TypeError(f"options is a torch_ort_session.Options, not a {type(options).__name__}")
    with torch.inference_mode(False):
        # A weight made in inference mode would keep every later run from being differentiable.
        return Session(load_model(model, base_dir=base_dir, limits=options.limits), target, options)
