"""Runs steps: every step becomes one call on the list of values, and a run is a loop over the calls."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeAlias

import torch

from torch_ort_session.errors import KernelError, ModelError, SessionError
from torch_ort_session.ir.graph import AttributeValue, Graph, Weight
from torch_ort_session.ops.kernel import Body, Kernel, Validation, Value
from torch_ort_session.ops.signature import InputParam
from torch_ort_session.plan.lowering import (
    NOTHING,
    BodyRuns,
    BodySteps,
    Setting,
    Step,
    Steps,
    build_steps,
    input_params,
)
from torch_ort_session.runtime.validation import ValidationWord
from torch_ort_session.runtime.values import storages

Frame: TypeAlias = list[Any]
Call: TypeAlias = Callable[[Frame], None]

_FIXED = "fixed"
"""Form of an argument that is bound once, a constant's number."""

_HOST_LIMIT = 1 << 24
"""Elements a host input may have: shapes and axes are short, so a longer one is a fault of the model."""


@dataclass(frozen=True, slots=True, eq=False)
class BoundStep:
    """A step made callable.

    Attributes:
        call: Reads its inputs from the values and writes its outputs there.
        release: Values to drop afterwards.
        step: The step itself, for messages.
    """

    call: Call
    release: tuple[int, ...]
    step: Step


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Steps made callable.

    Attributes:
        steps: What they were made from.
        calls: One a step.
        constants: Memory addresses of the constants among the initial values.
        validation: The word that kernels of it report bad data into; None where none does.
    """

    steps: Steps
    calls: tuple[BoundStep, ...]
    constants: frozenset[int]
    validation: ValidationWord | None = None


def bind_steps(steps: Steps) -> Program:
    """Make every step callable."""
    calls = tuple(BoundStep(_bind(step, steps), step.release, step) for step in steps.items)
    return Program(steps, calls, frozenset(storages(steps.template)), _validation(steps))


def _validation(steps: Steps) -> ValidationWord | None:
    for step in steps.items:
        if isinstance(step.ctx.validation, ValidationWord):
            return step.ctx.validation
        for body in step.bodies.values():
            word = _validation(body.steps)
            if word is not None:
                return word
    return None


def execute(program: Program, values: Frame) -> None:
    """Run steps on ``values``, dropping each value after its last use.

    Args:
        program: What to run.
        values: The frame: one entry a value id, with constants and feeds in place.

    Raises:
        KernelError: A kernel failed; it names the node and its inputs, and the cause is chained.
    """
    bound = None
    try:
        for bound in program.calls:
            bound.call(values)
            for value in bound.release:
                values[value] = None
    except Exception as error:
        if bound is None:
            raise
        raise_failure(bound.step, program.steps, values, error)


def raise_failure(step: Step, steps: Steps, values: Frame, error: Exception) -> NoReturn:
    """Raise what a step's failure is to its user.

    Raises:
        SessionError: As it came, from inside of a body.
        torch.OutOfMemoryError: As it came, with the node in a note.
        KernelError: Anything else, naming node, op and inputs, with the cause chained.
    """
    try:
        if isinstance(error, SessionError):
            raise error
        if isinstance(error, torch.OutOfMemoryError):
            error.add_note(f"while running node {step.node.name!r} ({step.node.qualified})")
            raise error
        inputs = [
            f"{name or '(absent)'}: {describe_value(values[value])}"
            for name, value in zip(step.node.inputs, step.inputs, strict=True)
        ]
        text = str(error).strip() or type(error).__name__
        raise KernelError(text, node=step.node.name, op=step.node.qualified, inputs=inputs) from error
    finally:
        # An error that holds this frame, which holds the error, would keep the run's values until collected.
        del error


def describe_value(value: object) -> str:
    """One readable description of a run-time value, such as ``float32[2, 3] cpu``."""
    if value is None:
        return "absent"
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype}{list(value.shape)} {value.device}"
    if isinstance(value, tuple):
        return f"sequence of {len(value)}"
    shape = getattr(value, "shape", None)
    return f"string{list(shape)}" if shape is not None else type(value).__name__


def _bind(step: Step, steps: Steps) -> Call:
    kernel, signature = step.kernel, step.kernel.signature
    keywords: dict[str, Any] = {
        name: _attribute(value, step.ctx.device)
        for name, value in step.node.attributes.items()
        if name not in step.bodies
    }
    if signature.takes_ctx:
        keywords["ctx"] = step.ctx
    params = input_params(kernel, len(step.inputs))
    # A node may leave trailing optional inputs out of its list; a kernel need not give them a default.
    without_default = len(signature.inputs) - len(kernel.fn.__defaults__ or ())
    for param in signature.inputs[len(step.inputs) : without_default]:
        if not param.variadic:
            keywords[param.name] = None
    inputs = list(step.inputs)
    while inputs and _foldable(params[len(inputs) - 1], inputs[-1], steps):
        param, value = params[len(inputs) - 1], inputs.pop()
        if value != NOTHING or param.host is not None:
            keywords[param.name] = _constant_host(steps.template[value], param, step)
        elif len(inputs) < without_default:
            keywords[param.name] = None
    call = functools.partial(kernel.fn, **keywords) if keywords else kernel.fn
    if step.bodies:
        return _with_bodies(kernel, keywords, step, inputs, params)
    sources: list[tuple[Any, str | None]] = []
    for param, value in zip(params, inputs, strict=False):
        if param.host is not None and _is_constant(value, steps):
            sources.append((_constant_host(steps.template[value], param, step), _FIXED))
        else:
            sources.append((value, param.host if param.read else None))
    return _positional(call, tuple(sources), step.outputs, signature.several_outputs)


def _constant_host(value: object, param: InputParam, step: Step) -> object:
    try:
        return _host(value, param.host)
    except (TypeError, ValueError, RuntimeError) as error:
        place = f"node {step.node.name!r} ({step.node.qualified})"
        raise ModelError(f"its constant input {param.name!r} does not fit: {error}", place=place) from error


def _foldable(param: InputParam, value: int, steps: Steps) -> bool:
    """Whether a trailing input can be bound once: absent, or a host input whose value is constant."""
    if param.variadic:
        return False
    if value == NOTHING:
        return True
    return param.host is not None and _is_constant(value, steps)


def _is_constant(value: int, steps: Steps) -> bool:
    return steps.template[value] is not None and value not in steps.inputs


def _positional(
    fn: Callable[..., Any],
    sources: tuple[tuple[Any, str | None], ...],
    outputs: tuple[int, ...],
    several: bool,
) -> Call:
    if not several and len(outputs) == 1 and all(form is None for _, form in sources):
        return _single(fn, tuple(value for value, _ in sources), outputs[0])

    def arguments(values: Frame) -> list[Any]:
        return [
            values[source] if form is None else source if form is _FIXED else _host(values[source], form)
            for source, form in sources
        ]

    if several:

        def call_several(values: Frame) -> None:
            _store(values, outputs, fn(*arguments(values)))

        return call_several
    output = outputs[0]

    def call_general(values: Frame) -> None:
        values[output] = fn(*arguments(values))

    return call_general


def _single(fn: Callable[..., Any], inputs: tuple[int, ...], output: int) -> Call:
    # One closure per arity: unpacking a generic argument list costs a third of a microsecond a step.
    if len(inputs) == 1:
        (a,) = inputs

        def call_one(values: Frame) -> None:
            values[output] = fn(values[a])

        return call_one
    if len(inputs) == 2:
        a, b = inputs

        def call_two(values: Frame) -> None:
            values[output] = fn(values[a], values[b])

        return call_two
    if len(inputs) == 3:
        a, b, c = inputs

        def call_three(values: Frame) -> None:
            values[output] = fn(values[a], values[b], values[c])

        return call_three

    def call_many(values: Frame) -> None:
        values[output] = fn(*[values[i] for i in inputs])

    return call_many


def _store(values: Frame, outputs: tuple[int, ...], results: tuple[Value, ...]) -> None:
    if len(results) < len(outputs):
        raise ValueError(f"the kernel gave {len(results)} outputs, the node names {len(outputs)}")
    for output, result in zip(outputs, results, strict=False):
        if output != NOTHING:
            values[output] = result


def _with_bodies(
    kernel: Kernel, keywords: dict[str, Any], step: Step, inputs: list[int], params: list[InputParam]
) -> Call:
    programs = {name: (body, bind_steps(body.steps)) for name, body in step.bodies.items()}
    rest = {name: value for name, value in keywords.items() if name != "ctx"}
    fn = functools.partial(kernel.fn, **rest)
    plan = tuple((value, params[i].host) for i, value in enumerate(inputs))
    outputs, several = step.outputs, kernel.signature.several_outputs
    # As `replace(step.ctx, ...)` does, without looking up at each call what there is to replace.
    same = {part.name: getattr(step.ctx, part.name) for part in fields(step.ctx) if part.name != "bodies"}
    make = functools.partial(type(step.ctx), **same)

    def call_bodies(values: Frame) -> None:
        ctx = make(bodies=_Entered(programs, values))
        result = fn(*[values[i] if form is None else _host(values[i], form) for i, form in plan], ctx=ctx)
        _store(values, outputs, result if several else (result,))

    return call_bodies


class _Entered(Mapping[str, Body]):
    """The bodies of a step in one run; a branch that is not taken is bound to nothing."""

    __slots__ = ("_outer", "_programs")

    def __init__(self, programs: Mapping[str, tuple[BodySteps, Program]], outer: Frame) -> None:
        self._programs = programs
        self._outer = outer

    def __getitem__(self, name: str) -> Body:
        body, program = self._programs[name]
        captured = None if body.runs is None else body.runs.enter(body, program, self._outer)
        return StepByStep(body, program, self._outer) if captured is None else captured

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)


class StepByStep:
    """A body bound to the values of a run, whose steps run one by one.

    Args:
        body: The body.
        program: Its steps made callable.
        outer: The enclosing values; they are read at each call.
    """

    __slots__ = ("_body", "_outer", "_program")

    def __init__(self, body: BodySteps, program: Program, outer: Frame) -> None:
        self._body = body
        self._program = program
        self._outer = outer

    def __call__(self, *inputs: Value, lend: int = 0) -> tuple[Value, ...]:
        """Run the body: see :class:`~torch_ort_session.ops.kernel.Body`."""
        steps, outer = self._body.steps, self._outer
        check_formals(len(steps.inputs), inputs)
        values = list(steps.template)
        for outside, inside in self._body.captured:
            values[inside] = outer[outside]
        for place, value in zip(steps.inputs, inputs, strict=True):
            values[place] = value
        execute(self._program, values)
        return tuple([values[output] for output in steps.outputs])

    def keep(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The values: nothing that was made is written again."""
        return values


def check_formals(count: int, inputs: Sequence[Value]) -> None:
    """Refuse a call with another number of inputs than a body has.

    Raises:
        ValueError: It says both numbers.
    """
    if len(inputs) != count:
        raise ValueError(f"the body takes {count} inputs, {len(inputs)} were given")


def _attribute(value: AttributeValue, device: torch.device) -> object:
    if isinstance(value, Weight):
        return value.data.to(device) if isinstance(value.data, torch.Tensor) else value.data
    if isinstance(value, tuple):
        return [_attribute(item, device) for item in value]
    return value


def _host(value: Any, form: str | None) -> Any:
    """A value as Python numbers. For a tensor on a device this waits for it."""
    if value is None or form is None:
        return value
    if form in ("ints", "floats"):
        if value.numel() > _HOST_LIMIT:
            raise ValueError(f"{value.numel()} elements are too many for a list of sizes, axes or scales")
        listed = value.tolist()
        return listed if isinstance(listed, list) else [listed]
    if form == "constant" and len(value.shape):
        # Dims, even of one element, take part in a broadcast, which a number would not.
        return value
    if math.prod(value.shape) != 1:
        raise ValueError(f"a single number is expected, not a tensor of shape {list(value.shape)}")
    number = value.item()
    if form == "int":
        return int(number)
    if form == "float":
        return float(number)
    return bool(number) if form == "bool" else number


Builder = Callable[[Graph, tuple[str, ...]], Program]


def builder(
    device: torch.device,
    placed: dict[str, Value],
    validation: Validation | None,
    bodies: BodyRuns | None = None,
) -> Builder:
    """A function that makes a program of a graph and output names.

    Args:
        device: Where it runs.
        placed: Weights on that device, filled as they are needed; nothing else is kept of a session, so that
            its memory goes when it goes.
        validation: Where kernels report bad data.
        bodies: Where control-flow bodies may be run otherwise than step by step.
    """
    constant = functools.partial(_placed, placed)
    return functools.partial(_built, Setting(device, constant, validation=validation, bodies=bodies))


def _built(setting: Setting, graph: Graph, names: tuple[str, ...]) -> Program:
    return bind_steps(build_steps(graph, setting, names))


def _placed(placed: dict[str, Value], name: str, weight: Weight, device: torch.device) -> Value:
    if device.type == "cpu" or not isinstance(weight.data, torch.Tensor):
        return weight.data
    if name not in placed:
        placed[name] = weight.data.to(device)
    return placed[name]
