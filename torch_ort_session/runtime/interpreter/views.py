"""Views that are kept: steps that would make a view of what stays where it is are not run again.

Two kinds of memory stay: a constant's, of which it is proven, so that views of it are found once; and that
of tensors which are bound to a session, or which a capture owns, of which it is checked. A step that makes a
view of such a tensor is a candidate in its first run, is used once a second run has made the same view, and
is left out from then on for as long as its source has the same address and the same bytes behind it. Views of
feeds and of what a run computes are none of these: their memory is another one in each run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering import NOTHING, Step, Steps, input_params
from torch_ort_session.runtime.interpreter.program import BoundStep, Call, Frame, Program
from torch_ort_session.trace import counters

_STREAK = 2
"""Mismatches on end after which a view plan is given up."""


class Views:
    """The view plan of some steps that run again and again. Lives as long as the capture or binding of those.

    Attributes:
        counters: Where it counts.
        verify: Whether views are made again all the same and compared.
        nodes: The steps that may be left out.
        streak: Mismatches since the last run that had none.
        latched: Whether there were too many.
        entered: Nodes that the run that is under way came to.
        missed: Whether that run had a mismatch.
    """

    def __init__(self, counted: dict[str, int], *, verify: bool = False) -> None:
        self.counters = counted
        self.verify = verify
        self.nodes: list[_Node] = []
        self.streak = 0
        self.latched = False
        self.entered: set[_Node] = set()
        self.missed = False

    def over(
        self, calls: Sequence[BoundStep], template: Sequence[Value], roots: set[int]
    ) -> tuple[BoundStep, ...]:
        """Steps of which those that make views of what stays are left out once it is known what they make.

        Args:
            calls: The steps, made callable.
            template: Initial values by id.
            roots: Ids of tensors that stay where they are; views of them are added.
        """
        thinned = []
        for bound in calls:
            source = _source(bound.step, template, roots)
            if source != NOTHING:
                node = _Node(self, bound.call, source, bound.step.outputs[0])
                self.nodes.append(node)
                roots.add(bound.step.outputs[0])
                bound = replace(bound, call=node)
            thinned.append(bound)
        return tuple(thinned)

    def done(self) -> None:
        """A run has succeeded; what it made counts from now on."""
        if self.entered and not self.missed:
            self.streak = 0
        self.entered.clear()
        self.missed = False

    def drop(self) -> None:
        """Forget every view, candidates too."""
        for node in self.nodes:
            node.kept = None
        self.entered.clear()

    def enter(self, node: _Node) -> None:
        """A run comes to a node; where that is so twice, the run before broke off."""
        if node in self.entered:
            self.drop()
            self.missed = False
        self.entered.add(node)

    def mismatch(self) -> None:
        """Forget every view: a tensor that was to stay has moved."""
        self.drop()
        self.missed = True
        self.streak += 1
        self.counters[counters.MOVED] += 1
        if self.streak >= _STREAK:
            self.latched = True
            self.counters[counters.UNVIEWED] += 1


class BoundProgram(NamedTuple):
    """A program that makes no views again of tensors that are bound.

    Attributes:
        source: The program it was made of.
        names: Bound inputs.
        program: The same, with calls that may be left out.
        views: Its view plan.
    """

    source: Program
    names: frozenset[str]
    program: Program
    views: Views


def bound_program(program: Program, names: frozenset[str], views: Views) -> BoundProgram:
    """A program of which views of bound tensors are kept.

    Args:
        program: The full program.
        names: Inputs that are bound to tensors of which all is valid.
        views: An empty view plan.
    """
    steps = program.steps
    roots = {place for name, place in zip(steps.input_names, steps.inputs, strict=True) if name in names}
    calls = views.over(program.calls, steps.template, roots)
    return BoundProgram(program, names, replace(program, calls=calls), views)


class _Kept(NamedTuple):
    """The view that a node made, of what, and whether two runs did."""

    guard: tuple[object, ...]
    view: torch.Tensor
    sure: bool


class _Node:
    """A step that makes a view, as a call that may leave it out. Lives as long as its view plan.

    Attributes:
        plan: What it belongs to.
        call: The step.
        source: Id of what it makes a view of.
        output: Id of the view.
        kept: The view that it made before.
        off: Whether it does not make the same view each time.
    """

    __slots__ = ("call", "kept", "off", "output", "plan", "source")

    def __init__(self, plan: Views, call: Call, source: int, output: int) -> None:
        self.plan = plan
        self.call = call
        self.source = source
        self.output = output
        self.kept: _Kept | None = None
        self.off = False

    def __call__(self, values: Frame) -> None:
        plan = self.plan
        source = values[self.source]
        if plan.latched or self.off or not isinstance(source, torch.Tensor):
            self.call(values)
            return
        plan.enter(self)
        guard = _guard(source)
        if self.kept is not None and self.kept.guard != guard:
            plan.mismatch()
        kept = self.kept
        if kept is not None and kept.sure:
            plan.counters[counters.VIEWS] += 1
            if not plan.verify:
                plan.counters[counters.SKIPPED] += 1
                values[self.output] = kept.view
                return
        self.call(values)
        view = values[self.output]
        if not isinstance(view, torch.Tensor) or _memory(view) != _memory(source):
            self.give_up()
        elif kept is None:
            self.kept = None if plan.latched else _Kept(guard, view, False)
        elif _layout(kept.view) == _layout(view):
            self.kept = kept._replace(sure=True)
        else:
            if kept.sure:
                plan.mismatch()
            self.give_up()

    def give_up(self) -> None:
        """Run this step each time from now on."""
        self.off, self.kept = True, None


def _source(step: Step, template: Sequence[Value], roots: Collection[int]) -> int:
    """The root that a step makes a view of, where nothing but constants decides how; NOTHING otherwise."""
    kernel = step.kernel
    if kernel.view_of is None or kernel.varies or step.bodies or len(step.outputs) != 1:
        return NOTHING
    source = NOTHING
    for param, value in zip(input_params(kernel, len(step.inputs)), step.inputs, strict=True):
        if param.name == kernel.view_of:
            source = value if value in roots else NOTHING
        elif value != NOTHING and template[value] is None:
            return NOTHING
    return source


def _guard(source: torch.Tensor) -> tuple[object, ...]:
    nbytes = source.untyped_storage().nbytes()
    return source.data_ptr(), nbytes, source.shape, source.stride(), source.dtype


class View(NamedTuple):
    """A step that is not run because it would make a view of what stays the same.

    Attributes:
        place: Of the step.
        inputs: What it reads, by id.
        outputs: What it made, by id.
    """

    place: int
    inputs: dict[int, Value]
    outputs: dict[int, torch.Tensor]


def find_views(steps: Steps, dropped: Collection[int], constant: Mapping[int, Value]) -> tuple[View, ...]:
    """The steps among those that are not run whose results lie in the memory of what they read.

    Args:
        steps: The steps.
        dropped: Places of those that are not run.
        constant: What they made, by id, where it stays the same.
    """
    views = []
    for place in sorted(dropped):
        step = steps.items[place]
        held = {
            value: constant.get(value, steps.template[value]) for value in step.inputs if value != NOTHING
        }
        results = {value: constant.get(value) for value in step.outputs if value != NOTHING}
        memory = {_memory(value) for value in held.values() if isinstance(value, torch.Tensor)}
        tensors = {value: one for value, one in results.items() if isinstance(one, torch.Tensor)}
        if len(tensors) == len(results) and memory.issuperset(map(_memory, tensors.values())):
            views.append(View(place, held, tensors))
    return tuple(views)


def view_difference(program: Program, views: tuple[View, ...]) -> str:
    """The difference between kept views and the same made again; empty when there is none.

    Args:
        program: The full program.
        views: Kept views of its steps.
    """
    for view in views:
        values: Frame = list(program.steps.template)
        for value, held in view.inputs.items():
            values[value] = held
        program.calls[view.place].call(values)
        for value, kept in view.outputs.items():
            remade = values[value]
            for what, one, other in zip(_LAYOUT, _layout(kept), _layout(remade), strict=True):
                if one != other:
                    return f"{program.steps.names[value]!r} has {what} {one}, made again {other}"
    return ""


_LAYOUT = ("dtype", "shape", "stride", "offset", "memory")


def _layout(tensor: torch.Tensor) -> tuple[object, ...]:
    place = (tensor.data_ptr(), tensor.untyped_storage().nbytes())
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), place


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
