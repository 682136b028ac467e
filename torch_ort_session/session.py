"""The door: what users hold. It wires loading, steps and execution together and delegates to them."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_ort_session.binding import Binding
from torch_ort_session.errors import InputError
from torch_ort_session.explain.backend import BackendReport, backend_report
from torch_ort_session.explain.entries import describe_entries, statistics
from torch_ort_session.explain.explain import explain
from torch_ort_session.explain.planned import plan_of
from torch_ort_session.ir.graph import Graph, Model
from torch_ort_session.ir.load import load_model
from torch_ort_session.ir.ports import Port, port_of
from torch_ort_session.ir.text import byte_size, weight_bytes
from torch_ort_session.module import SessionModule
from torch_ort_session.options import Options
from torch_ort_session.plan.lowering import lower
from torch_ort_session.plan.plan import Plan
from torch_ort_session.runtime.engine import Engine
from torch_ort_session.runtime.values import Outputs, resolve_device, wanted_names

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch_ort_session.trace.timeline import Timeline


class Session:
    """A loaded model, ready to run; made by :func:`load`.

    Runs of one session serialise; independent sessions run concurrently. Sessions pickle and deepcopy.
    """

    def __init__(self, model: Model, device: torch.device, options: Options) -> None:
        self._model = Model(
            lower(model.graph), model.opsets, model.ir_version, model.producer, model.metadata, model.source
        )
        self._engine = Engine(self._model.graph, device, options)

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
        return self._engine.device

    @property
    def options(self) -> Options:
        """How it runs."""
        return self._engine.options

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
        results = self._engine.run(None, self._engine.feed_of(args, kwargs))
        return results[0] if len(results) == 1 else Outputs(self._engine.names, results)

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
            return self._engine.run(None, feed)
        return self._engine.run(wanted_names(output_names), feed)

    def module(self, *, trainable: bool = False) -> SessionModule:
        """The model as a ``torch.nn.Module`` with weights of its own.

        Args:
            trainable: Float initializers become Parameters, the rest buffers; else all are buffers.
        """
        return SessionModule(self._engine, self._model.source, trainable=trainable)

    def bind(self) -> Binding:
        """Tensors that stay attached to inputs and outputs from run to run: see :class:`Binding`."""
        return Binding(self._engine, self._model.source)

    def trace(self) -> AbstractContextManager[Timeline]:
        """Watch runs: ``with session.trace() as timeline: ...``, then print or save the timeline."""
        return self._engine.state.tracer.trace(self._engine.lock, self._model.source)

    def stats(self) -> dict[str, int]:
        """Counters since the session was made: captures, replays, declines, retirements and so on."""
        with self._engine.lock:
            return statistics(self._engine.state)

    def plan(self, feed: Mapping[str, Any], output_names: Sequence[str] | None = None) -> Plan:
        """When and where runs on feeds like this one happen, and the memory that a capture of them takes.

        It runs once, eagerly, and records what can be recorded once, to find out; nothing of that is kept.

        Args:
            feed: Inputs by name, as for :meth:`run`.
            output_names: Names of outputs or of any intermediate value; None asks for the model's outputs.

        Returns:
            The plan; no capture of the session is made or changed. ``explain.explain.explain`` puts it into
            words.

        Raises:
            InputError: A feed does not fit.
            KernelError, DeviceValidationError: A kernel failed, or met bad data.
        """
        names = self._engine.names if output_names is None else wanted_names(output_names)
        off = "capture is off" if self._engine.options.capture == "off" else ""
        return self._engine.inspect(names, feed, functools.partial(plan_of, off=off))

    def explain(self, feed: Mapping[str, Any] | None = None) -> str:
        """What runs and why, in words.

        Args:
            feed: Inputs by name: the plan of runs on feeds like this one, see :meth:`plan`.
                None: every signature that was run, with its state, its plan, and what kept it from being
                captured.
        """
        if feed is not None:
            return explain(self.plan(feed))
        if self._engine.options.capture == "off":
            return "capture is off: every run is eager"
        with self._engine.lock:
            return describe_entries(self._engine.state)

    def backend_report(self) -> BackendReport:
        """What the session runs with: torch, the compiled extension, what records, which kernels use it."""
        with self._engine.lock:
            dispatcher, capture = self._engine.state.dispatcher, self._engine.options.capture
            return backend_report(dispatcher.rules.stamp, capture, self.graph, dispatcher.quarantined)

    def release_memory(self) -> None:
        """Drop every capture and its memory, at the end of a run within one; signatures warm up again."""
        self._engine.release_memory()

    def check(self) -> None:
        """Ask whether a run that was not asked about met bad data: a binding's with ``validate="deferred"``.

        Raises:
            DeviceValidationError: It did, and nobody was told.
        """
        self._engine.check()

    def routes(self) -> Mapping[str, tuple[int, ...]]:
        """How often mixtures chose each expert in the last run, by node; once, else DeviceValidationError."""
        return self._engine.routes()

    def __repr__(self) -> str:
        lines = [f"Session({self._model.source!r}, device={str(self._engine.device)!r})"]
        lines += [f"  input  {port}" for port in self.inputs]
        lines += [f"  output {port}" for port in self.outputs]
        nodes = sum(1 for _ in self._model.graph.all_nodes())
        lines.append(f"  {nodes} nodes, {byte_size(weight_bytes(self._model.graph))} of weights")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Session, (self._model, self._engine.device, self._engine.options))

    def __deepcopy__(self, memo: dict[int, Any]) -> Session:
        return Session(self._model, self._engine.device, self._engine.options)


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
