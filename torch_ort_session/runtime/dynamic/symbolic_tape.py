"""Strips: steps that grow, as native calls whose sizes follow from how much a run has grown.

Two replays show which ATen calls the steps come to. What differs between the two are sizes, and those follow
from numbers that are known beforehand, as long as the kernels hand these on as they are: of the operators
below that is so. A strip checks the dims of all that its steps make, and its first run is compared with a
full one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ort_session.plan.analysis import FARTHEST, Spec
from torch_ort_session.plan.lowering import NOTHING, Step, Steps, input_params
from torch_ort_session.runtime.captures import CapturedGraph, CapturedRegion
from torch_ort_session.runtime.dynamic.residual import AssumptionFailed
from torch_ort_session.runtime.interpreter import BoundStep, Frame
from torch_ort_session.runtime.recorders import NativeStrip, traits_of


class ValueRef(NamedTuple):
    """In the place of a tensor: what a step read, by id; or a result, by its call and its place there."""

    value: int
    call: int = -1
    result: int = -1


class TracedCall(NamedTuple):
    """An ATen call that took place, without its tensors.

    Attributes:
        name: Its op.
        arguments: Its arguments with defaults filled in.
        results: Where each result is.
    """

    name: tuple[str, str]
    arguments: list[Any]
    results: list[ValueRef]


class TracedStep(NamedTuple):
    """What a step came to: its calls; where what it made is, and its dims, by id."""

    calls: list[TracedCall]
    made: dict[int, tuple[ValueRef, tuple[int, ...]]]


class CallTracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the calls that take place.

    It lives while one seam is watched.

    Attributes:
        calls: Of each its op, its arguments with defaults filled in, and its results; None where one of the
            calls cannot be repeated.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[tuple[str, str], list[Any], list[torch.Tensor]]] | None = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping it would import the compiler and wrap every call, and nothing compiles here.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        outcome = func(*args, **(kwargs or {}))
        facts = traits_of(func)
        results = list(outcome) if isinstance(outcome, list | tuple) else [outcome]
        if facts.refusal or facts.random or not all(isinstance(r, torch.Tensor) for r in results):
            self.calls = None
        elif self.calls is not None:
            arguments = facts.full(args, kwargs or {})
            if facts.dtype >= 0 and arguments[facts.dtype] is None and not _tensors(arguments):
                # Else the default dtype of a later run would decide.
                arguments[facts.dtype] = results[0].dtype
            self.calls.append((facts.name, arguments, results))
        return outcome


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors += _tensors(value)
    return tensors


def traced_step(
    calls: list[tuple[tuple[str, str], list[Any], list[torch.Tensor]]] | None,
    read: dict[int, torch.Tensor],
    outputs: dict[int, Any],
) -> TracedStep | None:
    """What a step came to, without its tensors: none of them is held.

    Args:
        calls: Its calls, with their tensors; None where one of them cannot be repeated.
        read: What it read, by id.
        outputs: What it made, by id.

    Returns:
        None where the step cannot be repeated.
    """
    places = {id(tensor): ValueRef(value) for value, tensor in read.items()}
    if len(places) < len(read):
        # Which of two inputs a call was given is not to be told when both are one tensor.
        return None
    traced = []
    for at, (name, arguments, results) in enumerate(calls or ()):
        placed = [_placed(argument, places) for argument in arguments]
        for number, result in enumerate(results):
            places.setdefault(id(result), ValueRef(NOTHING, at, number))
        traced.append(TracedCall(name, placed, [places[id(result)] for result in results]))
    if calls is None or any(id(tensor) not in places for tensor in outputs.values()):
        return None
    return TracedStep(traced, {v: (places[id(tensor)], tuple(tensor.shape)) for v, tensor in outputs.items()})


def _placed(argument: Any, places: dict[int, ValueRef]) -> Any:
    """An argument with places for tensors; what is none of the run's, such as an attribute, stays."""
    if isinstance(argument, torch.Tensor):
        return places.get(id(argument), argument)
    if isinstance(argument, list | tuple):
        return [_placed(item, places) for item in argument]
    return argument


def handed_on(seen: TracedStep) -> list[int]:
    """Values that a step read and handed on to a call, or gave back as they were; by id."""
    refs = [place for call in seen.calls for place in _flat(call.arguments)]
    refs += [place for place, _ in seen.made.values()]
    return [place.value for place in refs if place.call < 0]


def _flat(values: Sequence[Any]) -> list[ValueRef]:
    refs: list[ValueRef] = []
    for value in values:
        if isinstance(value, ValueRef):
            refs.append(value)
        elif isinstance(value, list):
            refs += _flat(value)
    return refs


_TRANSPARENT = frozenset(
    (
        *("Concat", "Unsqueeze", "Squeeze", "Expand", "Reshape", "Transpose", "Identity", "Cast"),
        *("MatMul", "Add", "Sub", "Mul", "Div", "Neg", "Pow", "Sqrt", "Exp", "Tanh", "Sigmoid", "Softmax"),
        *("Where", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Not"),
        *("Slice", "Range", "ConstantOfShape", "Trilu"),
    )
)
"""Operators whose kernels hand the numbers that they are given on to torch as they are, and decide nothing by
dims that may change."""

_SHORTEST = 2
"""Steps from which on a strip is worth it."""


class _Trace(NamedTuple):
    """What the seams of a run came to, by stage and step; and how much it had grown."""

    by: int
    seen: dict[tuple[int, int], TracedStep]


class SymbolicTape:
    """The seams of a growing capture, first watched and then made of strips; it lives as long.

    Attributes:
        regions: The capture's, with strips in their seams once these are known.
        steps: Its steps.
        known: Of two runs how much they had grown, and the specs that values had.
        make: Makes an empty strip that is given so many tensors.
        traces: Runs that were watched.
        current: What was seen of the run that is under way.
        told: Ids of numbers that are known of a run beforehand.
        proven: Whether a run of strips was compared with a full one.
    """

    def __init__(
        self,
        captured: CapturedGraph,
        observed: Sequence[tuple[int, Sequence[Spec | None]]],
        make: Callable[[int], NativeStrip] | None,
        numbers: Collection[str] = (),
    ) -> None:
        self.regions = captured.regions
        self.steps = captured.plan.steps
        self.known = observed
        self.make = make
        self.traces: list[_Trace] = []
        self.current: dict[tuple[int, int], TracedStep] = {}
        places = zip(self.steps.input_names, self.steps.inputs, strict=True)
        self.told = frozenset(place for name, place in places if name in numbers)
        self.proven = make is None

    @property
    def watching(self) -> bool:
        """Whether runs are watched."""
        return self.make is not None and len(self.traces) < 2

    @property
    def woven(self) -> bool:
        """Whether there are strips of which no run was compared yet."""
        return not self.proven and not self.watching

    def unravel(self, captured: CapturedGraph) -> None:
        """Go on without strips."""
        self.regions, self.make, self.proven = captured.regions, None, True

    def watch(self, number: int, calls: Sequence[BoundStep], values: Frame) -> None:
        """Run a seam's steps and note what they come to."""
        for place, bound in enumerate(calls):
            if not _transparent(bound.step, self.steps) or self._reads_data(bound.step):
                bound.call(values)
            else:
                read = {v: values[v] for v in bound.step.inputs if isinstance(values[v], torch.Tensor)}
                tracer = CallTracer()
                with tracer:
                    bound.call(values)
                outputs = {value: values[value] for value in bound.step.outputs if value != NOTHING}
                seen = traced_step(tracer.calls, read, outputs)
                if seen is not None:
                    self.current[number, place] = seen
            for value in bound.release:
                values[value] = None

    def _reads_data(self, step: Step) -> bool:
        """Whether a step is given numbers that nobody knows beforehand: no call tells whence they came."""
        params = zip(input_params(step.kernel, len(step.inputs)), step.inputs, strict=True)
        read = [value for param, value in params if param.read and value != NOTHING]
        return any(self.steps.template[value] is None and value not in self.told for value in read)

    def begin(self) -> None:
        """A run that is watched begins."""
        self.current = {}

    def done(self, by: int) -> None:
        """It has succeeded.

        Args:
            by: How much it has grown.
        """
        self.traces = [trace for trace in self.traces if trace.by != by]
        self.traces.append(_Trace(by, self.current))
        self.current = {}
        if not self.watching:
            self.regions = tuple(
                stage if stage.recording is not None else self._woven(number, stage)
                for number, stage in enumerate(self.regions)
            )
            self.traces = [_Trace(trace.by, {}) for trace in self.traces]

    def _woven(self, number: int, stage: CapturedRegion) -> CapturedRegion:
        assert self.make is not None
        calls: list[BoundStep] = []
        stretch: list[int] = []

        def close() -> None:
            calls.extend(self._strip(number, [(p, stage.calls[p]) for p in stretch]))
            stretch.clear()

        for place, bound in enumerate(stage.calls):
            if all((number, place) in trace.seen for trace in self.traces):
                stretch.append(place)
                continue
            close()
            calls.append(bound)
        close()
        return replace(stage, calls=tuple(calls))

    def _strip(self, number: int, stretch: list[tuple[int, BoundStep]]) -> list[BoundStep]:
        """Steps as one strip; as they are where that cannot be, and as two where one of them cannot."""
        assert self.make is not None
        if len(stretch) < _SHORTEST:
            return [bound for _, bound in stretch]
        first, second = self.traces
        pairs = [(first.seen[number, place], second.seen[number, place]) for place, _ in stretch]
        outputs = {value for _, bound in stretch for value in bound.step.outputs}
        inputs = list(dict.fromkeys(v for seen, _ in pairs for v in handed_on(seen) if v not in outputs))
        strip = _Strip(self.make(len(inputs)), inputs, (first.by, second.by), self.known)
        for at, ((_, bound), pair) in enumerate(zip(stretch, pairs, strict=True)):
            try:
                strip.add(bound.step, *pair)
            except _Unlike:
                before, after = self._strip(number, stretch[:at]), self._strip(number, stretch[at + 1 :])
                return [*before, bound, *after]
        released = tuple(value for _, bound in stretch for value in bound.release)
        results = [value for value in strip.slots if value in outputs and value not in released]
        by = self.steps.inputs[-1]
        return [BoundStep(strip.call(results, by), released, stretch[0][1].step)]


class _Unlike(Exception):
    """Two runs of a step do not differ in sizes alone."""


class _Strip:
    """A strip that is being made.

    It lives as long as the symbolic tape that it belongs to.

    Attributes:
        native: The strip.
        given: Ids of values that a run gives to it.
        runs: How much the two runs had grown.
        known: See :class:`SymbolicTape`.
        slots: Of values, where they are.
        count: Slots so far.
    """

    def __init__(
        self,
        native: NativeStrip,
        inputs: list[int],
        runs: tuple[int, int],
        observed: Sequence[tuple[int, Sequence[Spec | None]]],
    ) -> None:
        self.native = native
        self.given = inputs
        self.runs = runs
        self.known = observed
        self.slots = {value: slot for slot, value in enumerate(inputs)}
        self.count = len(inputs)

    def add(self, step: Step, one: TracedStep, other: TracedStep) -> None:
        """Append a step.

        Raises:
            _Unlike: It cannot be.
        """
        if len(one.calls) != len(other.calls) or not one.calls:
            raise _Unlike
        places: dict[ValueRef, int] = {}
        rows = [self._row(a, b, places) for a, b in zip(one.calls, other.calls, strict=True)]
        numbers = [(b, s) for row in rows for _, _, bs, ss in row[4] for b, s in zip(bs, ss, strict=True)]
        if step.kernel.op in ("Expand", "Reshape") and any(s and b < 1 for b, s in numbers):
            # There 0 and -1 stand for something else.
            raise _Unlike
        forms = []
        for value, (place, dims) in one.made.items():
            if other.made[value][0] != place:
                raise _Unlike
            self.slots[value] = self._slot(place, places)
            base, slope = self._even(dims, other.made[value][1])
            for by, specs in self.known:
                spec = specs[value]
                expected = tuple([b + s * by for b, s in zip(base, slope, strict=True)])
                if spec is None or tuple(spec.shape) != expected:
                    raise _Unlike
            forms.append((self.slots[value], base, slope))
        for at, row in enumerate(rows):
            name, overload, arguments, tensors, grown, results = row
            last = forms if at == len(rows) - 1 else []
            self.native.add(name, overload, arguments, tensors, grown, results, last)

    def call(self, results: list[int], by: int) -> Callable[[Frame], None]:
        """What runs it.

        Args:
            results: Values that others read.
            by: Id of the value that tells how much a run has grown.
        """
        self.native.finish([self.slots[value] for value in results])
        run, inputs = self.native.run, tuple(self.given)
        values_of = {slot: value for value, slot in self.slots.items()}
        outputs = tuple(results)

        def call_strip(values: Frame) -> None:
            outcome = run([values[value] for value in inputs], values[by])
            if isinstance(outcome, int):
                raise AssumptionFailed(values_of[outcome])
            for value, tensor in zip(outputs, outcome, strict=True):
                values[value] = tensor

        return call_strip

    def _row(self, one: TracedCall, other: TracedCall, places: dict[ValueRef, int]) -> tuple[Any, ...]:
        if one.name != other.name or one.results != other.results:
            raise _Unlike
        constants: list[Any] = []
        tensors: list[tuple[int, bool, list[int]]] = []
        numbers: list[tuple[int, int, list[int], list[int]]] = []
        for at, (a, b) in enumerate(zip(one.arguments, other.arguments, strict=True)):
            constants.append(None)
            if isinstance(a, ValueRef):
                if a != b:
                    raise _Unlike
                tensors.append((at, False, [self._slot(a, places)]))
            elif isinstance(a, list) and any(isinstance(item, ValueRef) for item in a):
                if a != b:
                    raise _Unlike
                tensors.append((at, True, [self._slot(item, places) for item in a]))
            elif isinstance(a, torch.Tensor):
                if a is not b:
                    raise _Unlike
                constants[-1] = a
            elif type(a) is int and type(b) is int and a != b:
                numbers.append((at, 0, *self._even([a], [b])))
            elif isinstance(a, list) and isinstance(b, list) and a != b:
                if any(type(item) is not int for item in (*a, *b)):
                    raise _Unlike
                numbers.append((at, 1, *self._even(a, b)))
            elif type(a) is not type(b) or a != b:
                raise _Unlike
            else:
                constants[-1] = a
        results = []
        for place in one.results:
            if place in places or place.call < 0:
                results.append(-1)
                continue
            places[place] = self.count
            results.append(self.count)
            self.count += 1
        return (*one.name, constants, tensors, numbers, results)

    def _slot(self, place: Any, places: dict[ValueRef, int]) -> int:
        slot = None
        if isinstance(place, ValueRef):
            slot = self.slots.get(place.value) if place.call < 0 else places.get(place)
        if slot is None:
            raise _Unlike
        return slot

    def _even(self, one: Sequence[int], other: Sequence[int]) -> tuple[list[int], list[int]]:
        """What two runs' numbers are at first, and what they grow by."""
        start, end = self.runs
        if len(one) != len(other):
            raise _Unlike
        pairs = [divmod(b - a, end - start) for a, b in zip(one, other, strict=True)]
        if any(rest for _, rest in pairs) or any(abs(slope) > FARTHEST for slope, _ in pairs):
            raise _Unlike
        slopes = [slope for slope, _ in pairs]
        return [a - slope * start for a, slope in zip(one, slopes, strict=True)], slopes


def _transparent(step: Step, steps: Steps) -> bool:
    """Whether a step's calls hang on nothing but the numbers that it is given."""
    op = step.kernel.op
    if step.kernel.domain != "" or op not in _TRANSPARENT or step.kernel.seam_reason(step.node) is not None:
        return False
    if op == "Range":
        return _is_one(steps.template[step.inputs[2]])
    if op == "Slice":
        return len(step.inputs) < 5 or step.inputs[4] == NOTHING or _is_one(steps.template[step.inputs[4]])
    return True


def _is_one(held: Any) -> bool:
    return isinstance(held, torch.Tensor) and bool((held == 1).all())
