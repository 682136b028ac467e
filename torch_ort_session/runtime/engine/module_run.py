"""Runs of a module: one run, from feeds to results, on weights that are given to it."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from torch_ort_session.ir.graph import Weight
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering import Setting, build_steps
from torch_ort_session.runtime.captures import frame_of
from torch_ort_session.runtime.engine.engine import Engine
from torch_ort_session.runtime.interpreter import Program, bind_steps, execute, execute_traced, is_traced
from torch_ort_session.runtime.validation import validation_for, validation_scope
from torch_ort_session.runtime.values import (
    Outputs,
    RunModes,
    any_requires_grad,
    convert_all,
    own,
    recordable,
)

_REFUSING = ("cpu", "meta")
"""Types of devices where torch itself refuses bad data."""


class Handle:
    """What ``torch.compile`` takes for a constant: a run whose Python is none of its business.

    Compilers keep their constants, and would keep the weights of a model that is gone.

    Args:
        run: What is called.
    """

    __slots__ = ("_run",)

    def __init__(self, run: ModuleRun) -> None:
        self._run = weakref.ref(run)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run."""
        run = self._run()
        assert run is not None
        return run(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


pytree.register_constant(Handle)


class DeviceProgram(NamedTuple):
    """What runs on one device.

    Attributes:
        program: The steps, with the weights among their inputs.
        turn: Held during a run.
    """

    program: Program
    turn: AbstractContextManager[Any]


class ModuleRun:
    """Runs of a module on weights that it is given; it lives as long as the module.

    Attributes:
        engine: Of the session that the module was made from; nothing of its state takes part.
        names: Of the weights, in the order in which they are given.
        programs: What runs, by device; emptied when the module's weights are converted.
        handle: For ``torch.compile``.
    """

    def __init__(self, engine: Engine, names: tuple[str, ...]) -> None:
        self.engine = engine
        self.names = names
        self.programs: dict[torch.device, DeviceProgram] = {}
        self.handle = Handle(self)

    def __call__(self, weights: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        """One run, from feeds to results, with gradients where grad mode is on and anything requires them.

        Args:
            weights: Those that are named, and behind them others that the module has.
            args: Positional inputs, or one mapping.
            kwargs: Keyword inputs.

        Returns:
            The output of a model with one, else :class:`Outputs`.

        Raises:
            InputError: A feed does not fit.
            KernelError, DeviceValidationError: A kernel failed, or met bad data.
        """
        engine = self.engine
        feed = engine.feed_of(args, kwargs)
        device = weights[0].device if weights else engine.device
        program, turn = self._program(device)
        graph, on_host = engine.graph, program.steps.host_inputs
        fed: dict[str, Value] = convert_all(graph.inputs, graph.initializers, feed, device, on_host)
        inputs: dict[str, Value] = {**dict(zip(self.names, weights, strict=False)), **fed}
        grad = torch.is_grad_enabled() and any_requires_grad(inputs.values())
        if grad:
            inputs = recordable(inputs)
        values = frame_of(program, inputs)
        # A graph that is exported would switch gradients itself, and an error in between leave them off.
        mode = torch.is_grad_enabled() if torch.compiler.is_exporting() else grad
        modes = RunModes(device, mode, engine.options.num_threads)
        with turn, modes, validation_scope(program.validation):
            (execute_traced if is_traced(inputs.values()) else execute)(program, values)
            results = [values[i] for i in program.steps.outputs]
            results = own(results, program.constants, inputs.values(), device)
        return results[0] if len(results) == 1 else Outputs(engine.names, results)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ModuleRun, (self.engine, self.names))

    def _program(self, device: torch.device) -> DeviceProgram:
        bound = self.programs.get(device)
        if bound is None:
            # Where torch itself refuses bad data forward runs in several threads at once; a word is for one
            # at a time.
            validated = device.type not in _REFUSING
            validation = validation_for(device, self.engine.options.validate) if validated else None
            setting = Setting(device, _constant, frozenset(self.names), validation)
            # What a tracer saw of it would be its own, and of no use to anybody else.
            with _disable_current_modes():
                program = bind_steps(build_steps(self.engine.graph, setting))
            turn = contextlib.nullcontext() if program.validation is None else threading.RLock()
            bound = self.programs[device] = DeviceProgram(program, turn)
        return bound


def _constant(name: str, weight: Weight, device: torch.device) -> Value:
    return weight.data.to(device) if isinstance(weight.data, torch.Tensor) else weight.data
