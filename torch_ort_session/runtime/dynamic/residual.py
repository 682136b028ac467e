"""Residual programs: without the steps whose results are known beforehand, and in another order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torch_ort_session.errors import SessionError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis import Even, GrowthAnalysis
from torch_ort_session.plan.lowering import Step, Steps, input_params
from torch_ort_session.plan.partition import regroup
from torch_ort_session.runtime.dynamic.shape_family import GrowthPattern
from torch_ort_session.runtime.interpreter import Call, Frame, Program, View, bind_steps, find_views

BY = "(growth)"
"""Name under which a growing run is fed by how much its first grown dim has grown."""


class Numbers:
    """Numbers that kernels want as such: what a small int64 tensor on the host tells, without the tensor."""

    __slots__ = ("_flat", "shape")

    def __init__(self, shape: tuple[int, ...], flat: list[int]) -> None:
        self.shape = shape
        self._flat = flat

    def numel(self) -> int:
        """How many there are."""
        return len(self._flat)

    def item(self) -> int:
        """The only one."""
        (number,) = self._flat
        return number

    def tolist(self) -> list[int]:
        """All of them; a list of the reader's own."""
        return self._flat.copy()


@dataclass(frozen=True, slots=True, eq=False)
class ResidualProgram:
    """A program without the steps whose results are known.

    Attributes:
        program: The other steps, with what is constant in place; those that touch nothing that grows are next
            to each other. Its inputs are the feeds, the numbers that grow, and :data:`BY`. Steps refuse
            results whose dims are not what is assumed of them.
        slopes: What each grown dim grows by while the first grows by one.
        pattern: What tells such runs from others at once; None where a feed is no tensor.
        even: Numbers to feed: what they are, the names of the values that hold them, and whether those are
            wanted as tensors.
        growing: Ids of values that are other ones in each run, by their dims or as numbers.
        dropped: Steps that are not run.
        views: Those of them that would make a view of what stays the same.
        random: Whether the other ones may draw random numbers.
    """

    program: Program
    slopes: tuple[int, ...]
    pattern: GrowthPattern | None
    even: tuple[tuple[Even, tuple[str, ...], bool], ...]
    growing: frozenset[int]
    dropped: int
    views: tuple[View, ...]
    random: bool

    @property
    def total(self) -> int:
        """Steps of a full run."""
        return len(self.program.steps.items) + self.dropped

    def fed(self, fed: Mapping[str, Value], by: int) -> dict[str, Value]:
        """The feeds of a run, and the numbers that are known of it beforehand.

        Args:
            fed: Its feeds.
            by: How much the first grown dim has grown.
        """
        feeds: dict[str, Any] = {**fed, BY: by}
        for even, names, wants_tensor in self.even:
            flat = [base + slope * by for base, slope in zip(even.base, even.slope, strict=True)]
            numbers = torch.tensor(flat).view(even.shape) if wants_tensor else Numbers(even.shape, flat)
            for name in names:
                feeds[name] = numbers
        return feeds


class AssumptionFailed(SessionError):
    """The dims of a value are not what was assumed; caught where the run was begun."""

    def __init__(self, value: int) -> None:
        super().__init__(f"value {value} has other dims than assumed")
        self.value = value


def residual_program(steps: Steps, analysis: GrowthAnalysis, growing: Collection[int]) -> ResidualProgram:
    """Bind steps again, without those whose results are known.

    Args:
        steps: All steps.
        analysis: What is known of runs whose feeds grow.
        growing: Ids of values that grow.

    Returns:
        The rest; its slopes and its pattern are to be filled in.
    """
    items = tuple(step for place, step in enumerate(steps.items) if place not in analysis.dropped)
    numbers, tensors = _readers(items, steps.outputs, analysis)
    template: list[Any] = [*steps.template, None]
    for value, held in analysis.constant.items():
        if value in numbers or value in tensors:
            template[value] = held
    by = len(steps.template)
    even: dict[tuple[Even, bool], list[int]] = {}
    for value, numbers_of in analysis.even.items():
        if value in numbers or value in tensors:
            even.setdefault((numbers_of, value in tensors), []).append(value)
    placed = [value for values in even.values() for value in values]
    program = bind_steps(
        replace(
            steps,
            items=regroup(items, growing, steps.outputs, template),
            template=tuple(template),
            inputs=(*steps.inputs, *placed, by),
            input_names=(*steps.input_names, *(steps.names[value] for value in placed), BY),
            names=(*steps.names, BY),
        )
    )
    assumed = dict(analysis.assumed.values())
    calls = tuple(
        replace(
            bound,
            call=_checked(bound.call, [(v, assumed[v]) for v in bound.step.outputs if v in assumed], by),
        )
        for bound in program.calls
    )
    return ResidualProgram(
        program=replace(program, calls=calls),
        slopes=(),
        pattern=None,
        even=tuple(
            (numbers_of, tuple(steps.names[v] for v in vs), wants) for (numbers_of, wants), vs in even.items()
        ),
        growing=frozenset((*growing, by)),
        dropped=len(analysis.dropped),
        views=find_views(steps, analysis.dropped, analysis.constant),
        random=any(step.kernel.varies or step.bodies for step in items),
    )


def _readers(
    items: tuple[Step, ...], outputs: tuple[int, ...], analysis: GrowthAnalysis
) -> tuple[set[int], set[int]]:
    """Known values that are read as numbers, and those that are read as tensors."""
    numbers: set[int] = set()
    tensors: set[int] = set(outputs)
    for step in items:
        for param, value in zip(input_params(step.kernel, len(step.inputs)), step.inputs, strict=True):
            (numbers if param.read else tensors).add(value)
        tensors.update(outside for body in step.bodies.values() for outside, _ in body.captured)
    values = analysis.constant.keys() | analysis.even.keys()
    return numbers & values, tensors & values


def _checked(call: Call, assumed: Sequence[tuple[int, Even]], by: int) -> Call:
    """A call that refuses results whose dims are not what is assumed of them."""
    for value, dims in assumed:
        call = _checked_still(call, value, dims.base) if dims.still else _checked_even(call, value, dims, by)
    return call


def _checked_still(call: Call, value: int, dims: tuple[int, ...]) -> Call:
    def checked(values: Frame) -> None:
        call(values)
        if values[value].shape != dims:
            raise AssumptionFailed(value)

    return checked


def _checked_even(call: Call, value: int, dims: Even, by: int) -> Call:
    base, slope = dims.base, dims.slope

    def checked(values: Frame) -> None:
        call(values)
        grown = values[by]
        if values[value].shape != tuple([a + b * grown for a, b in zip(base, slope, strict=True)]):
            raise AssumptionFailed(value)

    return checked
