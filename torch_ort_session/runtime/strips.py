"""Strips: steps that grow, as native calls whose sizes follow from how much a run has grown.

Two replays show which ATen calls the steps come to. What differs between the two are sizes, and those follow
from numbers that are known beforehand, as long as the kernels hand these on as they are: of the operators
below that is so. A strip checks the dims of all that its steps make, and its first run is compared with a
full one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ort_session.plan.growth import FARTHEST
from torch_ort_session.plan.specs import Spec
from torch_ort_session.plan.steps import NOTHING, Step, Steps
from torch_ort_session.runtime.capture import Captured, Stage
from torch_ort_session.runtime.execute import BoundStep, Values
from torch_ort_session.runtime.facts import facts_of
from torch_ort_session.runtime.nativetape import NativeStrip
from torch_ort_session.runtime.shortened import Otherwise

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


class _Call(NamedTuple):
    """An ATen call that took place: its op, its arguments with defaults filled in, and its results."""

    name: tuple[str, str]
    arguments: list[Any]
    results: list[torch.Tensor]


class _Seen(NamedTuple):
    """What a step came to: its calls, and the tensors that it read and made, by id."""

    calls: list[_Call]
    read: dict[int, torch.Tensor]
    made: dict[int, Any]

    def handed_on(self) -> list[int]:
        """Those values read that are an argument of a call, or the result."""
        used = {id(tensor) for call in self.calls for tensor in _tensors(call.arguments)}
        used |= set(map(id, self.made.values()))
        return [value for value, tensor in self.read.items() if id(tensor) in used]


class _Trace(NamedTuple):
    """What the seams of a run came to, by stage and step; and how much it had grown."""

    by: int
    seen: dict[tuple[int, int], _Seen]


class Weave:
    """The seams of a growing capture, first watched and then made of strips.

    Attributes:
        stages: The capture's, with strips in their seams once these are known.
        steps: Its steps.
        known: Of two runs how much they had grown, and the specs that values had.
        make: Makes an empty strip that is given so many tensors.
        traces: Runs that were watched.
        current: What was seen of the run that is under way.
        proven: Whether a run of strips was compared with a full one.
    """

    def __init__(
        self,
        captured: Captured,
        known: Sequence[tuple[int, Sequence[Spec | None]]],
        make: Callable[[int], NativeStrip] | None,
    ) -> None:
        self.stages = captured.stages
        self.steps = captured.warm.program.steps
        self.known = known
        self.make = make
        self.traces: list[_Trace] = []
        self.current: dict[tuple[int, int], _Seen] = {}
        self.proven = make is None

    @property
    def watching(self) -> bool:
        """Whether runs are watched."""
        return self.make is not None and len(self.traces) < 2

    @property
    def woven(self) -> bool:
        """Whether there are strips of which no run was compared yet."""
        return not self.proven and not self.watching

    def unravel(self, captured: Captured) -> None:
        """Go on without strips."""
        self.stages, self.make, self.proven = captured.stages, None, True

    def watch(self, number: int, calls: Sequence[BoundStep], values: Values) -> None:
        """Run a seam's steps and note what they come to."""
        for place, bound in enumerate(calls):
            if not _transparent(bound.step, self.steps):
                bound.call(values)
            else:
                read = {v: values[v] for v in bound.step.inputs if isinstance(values[v], torch.Tensor)}
                tracer = _Tracer()
                with tracer:
                    bound.call(values)
                if tracer.calls is not None:
                    made = {value: values[value] for value in bound.step.outputs if value != NOTHING}
                    self.current[number, place] = _Seen(tracer.calls, read, made)
            for value in bound.release:
                values[value] = None

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
            self.stages = tuple(
                stage if stage.recording is not None else self._woven(number, stage)
                for number, stage in enumerate(self.stages)
            )
            self.traces = [_Trace(trace.by, {}) for trace in self.traces]

    def _woven(self, number: int, stage: Stage) -> Stage:
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
        made = {value for _, bound in stretch for value in bound.step.outputs}
        given = list(dict.fromkeys(v for seen, _ in pairs for v in seen.handed_on() if v not in made))
        strip = _Strip(self.make(len(given)), given, (first.by, second.by), self.known)
        for at, ((_, bound), pair) in enumerate(zip(stretch, pairs, strict=True)):
            try:
                strip.add(bound.step, *pair)
            except _Unlike:
                before, after = self._strip(number, stretch[:at]), self._strip(number, stretch[at + 1 :])
                return [*before, bound, *after]
        released = tuple(value for _, bound in stretch for value in bound.release)
        wanted = [value for value in strip.slots if value in made and value not in released]
        by = self.steps.inputs[-1]
        return [BoundStep(strip.call(wanted, by), released, stretch[0][1].step)]


class _Unlike(Exception):
    """Two runs of a step do not differ in sizes alone."""


class _Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the calls that take place; None where one of them cannot be repeated."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] | None = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping it would import the compiler and wrap every call, and nothing compiles here.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = func(*args, **(kwargs or {}))
        facts = facts_of(func)
        results = list(given) if isinstance(given, list | tuple) else [given]
        if facts.refusal or facts.random or not all(isinstance(r, torch.Tensor) for r in results):
            self.calls = None
        elif self.calls is not None:
            arguments = facts.full(args, kwargs or {})
            if facts.dtype >= 0 and arguments[facts.dtype] is None and not _tensors(arguments):
                # Else the default dtype of a later run would decide.
                arguments[facts.dtype] = results[0].dtype
            self.calls.append(_Call(facts.name, arguments, results))
        return given


class _Strip:
    """A strip that is being made.

    Attributes:
        native: The strip.
        given: Ids of values that a run gives to it.
        runs: How much the two runs had grown.
        known: See :class:`Weave`.
        slots: Of values, where they are.
        held: Of tensors of the two runs, by identity, where they are.
        count: Slots so far.
    """

    def __init__(
        self,
        native: NativeStrip,
        given: list[int],
        runs: tuple[int, int],
        known: Sequence[tuple[int, Sequence[Spec | None]]],
    ) -> None:
        self.native = native
        self.given = given
        self.runs = runs
        self.known = known
        self.slots = {value: slot for slot, value in enumerate(given)}
        self.held: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.count = len(given)

    def add(self, step: Step, one: _Seen, other: _Seen) -> None:
        """Append a step.

        Raises:
            _Unlike: It cannot be.
        """
        if len(one.calls) != len(other.calls) or one.read.keys() != other.read.keys():
            raise _Unlike
        for seen, held in zip((one, other), self.held, strict=True):
            for value, tensor in seen.read.items():
                if value in self.slots:
                    held.setdefault(id(tensor), self.slots[value])
        rows = [self._row(a, b) for a, b in zip(one.calls, other.calls, strict=True)]
        if step.kernel.op in ("Expand", "Reshape"):
            for row in rows:
                if any(
                    b < 1 and s for _, _, bases, slopes in row[4] for b, s in zip(bases, slopes, strict=True)
                ):
                    raise _Unlike
        forms = []
        for value in one.made:
            slot = self._slot(one.made[value], other.made[value])
            self.slots[value] = slot
            base, slope = self._even(one.made[value].shape, other.made[value].shape)
            for by, specs in self.known:
                spec = specs[value]
                if spec is None or tuple(spec.shape) != tuple(
                    [b + s * by for b, s in zip(base, slope, strict=True)]
                ):
                    raise _Unlike
            forms.append((slot, base, slope))
        if not rows and forms:
            raise _Unlike
        for at, (name, overload, arguments, tensors, numbers, results) in enumerate(rows):
            last = forms if at == len(rows) - 1 else []
            self.native.add(name, overload, arguments, tensors, numbers, results, last)

    def call(self, wanted: list[int], by: int) -> Callable[[Values], None]:
        """What runs it.

        Args:
            wanted: Values that others read.
            by: Id of the value that tells how much a run has grown.
        """
        self.native.finish([self.slots[value] for value in wanted])
        run, given = self.native.run, tuple(self.given)
        values_of = {slot: value for value, slot in self.slots.items()}
        outputs = tuple(wanted)

        def call_strip(values: Values) -> None:
            made = run([values[value] for value in given], values[by])
            if isinstance(made, int):
                raise Otherwise(values_of[made])
            for value, tensor in zip(outputs, made, strict=True):
                values[value] = tensor

        return call_strip

    def _row(self, one: _Call, other: _Call) -> tuple[Any, ...]:
        if one.name != other.name or len(one.results) != len(other.results):
            raise _Unlike
        constants: list[Any] = []
        tensors: list[tuple[int, bool, list[int]]] = []
        numbers: list[tuple[int, int, list[int], list[int]]] = []
        for place, (a, b) in enumerate(zip(one.arguments, other.arguments, strict=True)):
            constants.append(None)
            if isinstance(a, torch.Tensor):
                if a is b and id(a) not in self.held[0]:
                    # A kernel's own, such as an attribute.
                    constants[-1] = a
                else:
                    tensors.append((place, False, [self._slot(a, b)]))
            elif isinstance(a, list | tuple) and _tensors(a):
                if not isinstance(b, list | tuple) or len(a) != len(b):
                    raise _Unlike
                tensors.append((place, True, [self._slot(x, y) for x, y in zip(a, b, strict=True)]))
            elif _is_int(a) and _is_int(b) and a != b:
                numbers.append((place, 0, *self._even([a], [b])))
            elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and list(a) != list(b):
                if not all(map(_is_int, (*a, *b))):
                    raise _Unlike
                numbers.append((place, 1, *self._even(a, b)))
            elif type(a) is not type(b) or a != b:
                raise _Unlike
            else:
                constants[-1] = a
        results = [self._result(a, b) for a, b in zip(one.results, other.results, strict=True)]
        return (*one.name, constants, tensors, numbers, results)

    def _slot(self, one: Any, other: Any) -> int:
        """Where a tensor is."""
        slots = [held.get(id(tensor)) for held, tensor in zip(self.held, (one, other), strict=True)]
        if slots[0] is None or slots[0] != slots[1]:
            raise _Unlike
        return slots[0]

    def _result(self, one: torch.Tensor, other: torch.Tensor) -> int:
        slots = [held.get(id(tensor)) for held, tensor in zip(self.held, (one, other), strict=True)]
        if slots[0] != slots[1]:
            raise _Unlike
        if slots[0] is not None:
            return -1
        slot, self.count = self.count, self.count + 1
        for held, tensor in zip(self.held, (one, other), strict=True):
            held[id(tensor)] = slot
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


def _is_int(value: Any) -> bool:
    return type(value) is int


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found
