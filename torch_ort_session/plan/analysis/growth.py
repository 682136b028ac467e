"""Growth: what of a run does not change, or changes by equal amounts, while dims of its feeds grow.

Two observed runs show numbers; they prove nothing. What is taken for granted here follows from the steps
alone: a value is constant when it is computed from constants, and a list of numbers grows evenly when it is
picked from, or added up of, dims that grow evenly. That the dims do is assumed, and checked at each run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis.specs import Observation
from torch_ort_session.plan.lowering import NOTHING, Step, Steps

_LONGEST = 256
"""Numbers that a value may have to be followed one by one."""

_LARGEST = 1 << 40
"""Magnitude up to which a number is followed."""

_WRAPS = 1 << 63
"""Where int64 ends."""

FARTHEST = 1 << 20
"""How far a dim may have grown."""


@dataclass(frozen=True, slots=True)
class Even:
    """Numbers that grow by equal amounts.

    Attributes:
        shape: Dims of the value.
        base: The numbers in the first run, flat.
        slope: What each grows by while the first grown dim grows by one.
    """

    shape: tuple[int, ...]
    base: tuple[int, ...]
    slope: tuple[int, ...]

    @property
    def still(self) -> bool:
        """Whether nothing grows."""
        return not any(self.slope)


@dataclass(frozen=True, slots=True, eq=False)
class GrowthAnalysis:
    """What is known of runs whose feeds grow.

    Attributes:
        constant: Values that are the same in every such run, by id.
        even: Numbers that grow by equal amounts, by id.
        dropped: Places of steps that make nothing else.
        assumed: Dims that are assumed to grow by equal amounts: by the place of the first dropped step that
            reads them, the value and its dims.
    """

    constant: dict[int, Value] = field(default_factory=dict)
    even: dict[int, Even] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    assumed: dict[int, tuple[int, Even]] = field(default_factory=dict)


def find_growth(
    steps: Steps, first: Observation, second: Observation, by: int, wild: Collection[int] = ()
) -> GrowthAnalysis:
    """Tell what does not change, or changes evenly, while feeds grow.

    Args:
        steps: The steps.
        first: What a run showed.
        second: What a run showed whose first grown dim was larger ...
        by: ... by this much.
        wild: Ids of values whose dims did not grow by equal amounts after all.

    Returns:
        What steps need not be run for.
    """
    found = GrowthAnalysis()
    fixed = {NOTHING} | {value for value, held in enumerate(steps.template) if held is not None}
    fixed -= set(steps.inputs)
    watched: set[int] = set(steps.inputs)
    for place, step in enumerate(steps.items):
        outputs = [value for value in step.outputs if value != NOTHING]
        if not outputs or step.bodies or step.kernel.varies:
            continue
        pairs = [(first.static.get(value), second.static.get(value)) for value in outputs]
        if not all(isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) for a, b in pairs):
            continue
        if all(value in fixed or value in found.constant for value in step.inputs):
            constant = True
        elif _is(step, "Shape"):
            dims = _dims(first, second, step.inputs[0], by)
            if dims is None or step.inputs[0] in wild:
                continue
            if step.inputs[0] not in watched:
                watched.add(step.inputs[0])
                found.assumed[place] = (step.inputs[0], dims)
            constant = dims.still
        else:
            inputs = [_numbers(value, steps, fixed, found) for value in step.inputs]
            rule = _RULES.get(step.kernel.op) if step.kernel.domain == "" else None
            if rule is None or not rule(inputs):
                continue
            constant = _is(step, "Equal")
        evens = [None if constant else _between(a, b, by) for a, b in pairs]
        if constant:
            if not all(torch.equal(a, b) for a, b in pairs):  # type: ignore[arg-type]
                continue
            found.constant.update(zip(outputs, (b for _, b in pairs), strict=True))
        elif any(even is None for even in evens):
            continue
        for value, even, (_, b) in zip(outputs, evens, pairs, strict=True):
            if even is not None and even.still:
                found.constant[value] = b
            elif even is not None:
                found.even[value] = even
        found.dropped.add(place)
    return found


def growing_values(
    first: Observation, second: Observation, found: GrowthAnalysis, wild: Collection[int] = ()
) -> frozenset[int]:
    """Values that are told apart from run to run by their dims, or by numbers that follow from dims.

    Of all others it is assumed that their dims stay what two runs have shown.

    Args:
        first: What a run showed.
        second: What a run on larger feeds showed.
        found: What is known of such runs.
        wild: Ids of values whose dims turned out to be other ones than assumed.

    Returns:
        Their ids.
    """
    grown = {*found.even, *wild}
    for value, (a, b) in enumerate(zip(first.specs, second.specs, strict=True)):
        if (a is None) != (b is None) or (a and b and (a.shape != b.shape or a.dtype != b.dtype)):
            grown.add(value)
    return frozenset(grown)


def _is(step: Step, op: str) -> bool:
    return step.kernel.op == op and step.kernel.domain == ""


def _dims(first: Observation, second: Observation, value: int, by: int) -> Even | None:
    a, b = first.specs[value], second.specs[value]
    if a is None or b is None or len(a.shape) != len(b.shape):
        return None
    return _even((len(a.shape),), a.shape, b.shape, by)


def _between(a: Value, b: Value, by: int) -> Even | None:
    """Numbers seen on the host in two runs; None for the rest, and where they do not grow in whole steps."""
    assert isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    if (
        a.device.type != "cpu"
        or a.dtype != torch.int64
        or b.dtype != torch.int64
        or a.shape != b.shape
        or a.numel() > _LONGEST
    ):
        return None
    return _even(tuple(a.shape), a.flatten().tolist(), b.flatten().tolist(), by)


def _even(shape: tuple[int, ...], a: Sequence[int], b: Sequence[int], by: int) -> Even | None:
    slopes = [divmod(after - before, by) for before, after in zip(a, b, strict=True)]
    if any(rest for _, rest in slopes) or any(abs(number) > _LARGEST for number in (*a, *b)):
        return None
    return Even(shape, tuple(a), tuple(slope for slope, _ in slopes))


def _numbers(value: int, steps: Steps, fixed: Collection[int], found: GrowthAnalysis) -> Even | None:
    """What is known of an input; None where that is nothing."""
    if value == NOTHING:
        return Even((), (), ())
    if value in found.even:
        return found.even[value]
    held = steps.template[value] if value in fixed else found.constant.get(value)
    if not isinstance(held, torch.Tensor) or held.numel() > _LONGEST or held.is_floating_point():
        return None
    if held.is_complex() or held.dtype not in (torch.int64, torch.int32, torch.bool):
        return None
    numbers = tuple(int(number) for number in held.flatten().tolist())
    return Even(tuple(held.shape), numbers, (0,) * len(numbers))


Known = Sequence[Even | None]


def _picks(inputs: Known) -> bool:
    """The first input's numbers in other places, which the rest decides."""
    return inputs[0] is not None and all(even is not None and even.still for even in inputs[1:])


def _joins(inputs: Known) -> bool:
    return None not in inputs


def _adds(inputs: Known) -> bool:
    return None not in inputs and sum(map(_extent, inputs)) < _WRAPS


def _multiplies(inputs: Known) -> bool:
    if None in inputs or math.prod(map(_extent, inputs)) >= _WRAPS:
        return False
    return any(even is not None and even.still for even in inputs)


def _extent(even: Even | None) -> int:
    """The largest magnitude that a number may come to have."""
    if even is None or not even.base:
        return 0
    return max(abs(base) + abs(slope) * FARTHEST for base, slope in zip(even.base, even.slope, strict=True))


def _chooses(inputs: Known) -> bool:
    return None not in inputs and inputs[0] is not None and inputs[0].still


def _differs(inputs: Known) -> bool:
    """Whether numbers that grow can never become equal, so that the answer stays as it is."""
    left, right = inputs
    if left is None or right is None:
        return False
    a, b = torch.tensor(left.base).view(left.shape), torch.tensor(right.base).view(right.shape)
    p, q = torch.tensor(left.slope).view(left.shape), torch.tensor(right.slope).view(right.shape)
    apart, growing = (a - b).flatten().tolist(), (p - q).flatten().tolist()
    return all(
        not slope or (gap > 0 and slope > 0) or (gap < 0 and slope < 0)
        for gap, slope in zip(apart, growing, strict=True)
    )


def _rules() -> Iterable[tuple[str, Callable[[Known], bool]]]:
    for op in (
        "Gather",
        "Slice",
        "Unsqueeze",
        "Squeeze",
        "Reshape",
        "Expand",
        "Transpose",
        "Identity",
        "Cast",
    ):
        yield op, _picks
    yield "Concat", _joins
    for op in ("Add", "Sub"):
        yield op, _adds
    yield "Mul", _multiplies
    yield "Where", _chooses
    yield "Equal", _differs


_RULES: Mapping[str, Callable[[Known], bool]] = dict(_rules())
"""By operator: whether its result grows evenly (Equal's: not at all) when so much is known of its inputs."""
