"""Runs that a tracer watches: arithmetic on shapes is done at once, on numbers and symbols, not traced.

A tracer's tensors have no data, so that a shape which is computed with tensors, as exporters write it, would
be unknown where a kernel needs it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from torch_ort_session.ir.graph import Node
from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.lowering import NOTHING, Step, input_params
from torch_ort_session.runtime.interpreter.program import BoundStep, Program, execute

SizeArray: TypeAlias = np.ndarray[Any, np.dtype[np.object_]]
"""Integers and symbols, in the shape of the int64 tensor that they stand for; or bools, of one of bools."""


def is_traced(values: Iterable[Value]) -> bool:
    """Whether a run on values is watched by a mode, or they are a tracer's own.

    Args:
        values: What is fed.
    """
    if torch._C._len_torch_dispatch_stack():
        return True
    return any(
        isinstance(value, torch.Tensor)
        and type(value).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
        for value in values
    )


def execute_traced(program: Program, values: list[Any]) -> None:
    """Run steps as :func:`execute` does it; what follows from shapes alone is computed apart from the tracer.

    Args:
        program: What to run; steps of control-flow bodies run as they are.
        values: The frame; results in it are tensors again.

    Raises:
        KernelError: A kernel failed.
    """
    run = _Run(program)
    calls = [
        BoundStep(functools.partial(run.call, bound), bound.release, bound.step) for bound in program.calls
    ]
    execute(replace(program, calls=tuple(calls)), values)
    for output in set(program.steps.outputs) & run.sizes:
        values[output] = _tensor(values[output])


class _Run:
    """The kinds of values of one run, by id. Lives as long as that run.

    Attributes:
        known: Ids of values that are plain tensors whatever is fed.
        sizes: Ids of values that are :data:`SizeArray`.
        lifted: Those that are known, as the tracer's own.
    """

    def __init__(self, program: Program) -> None:
        fed = set(program.steps.inputs)
        template = enumerate(program.steps.template)
        self.known = {i for i, value in template if value is not None and i not in fed}
        self.sizes: set[int] = set()
        self.lifted: dict[int, torch.Tensor] = {}

    def call(self, bound: BoundStep, values: list[Any]) -> None:
        step = bound.step
        inputs = {value for value in step.inputs if value != NOTHING}
        if step.kernel.host_result and step.node.op in ("Shape", "Size") and not inputs & self.sizes:
            self._measure(bound, values)
        elif step.bodies or step.kernel.varies or step.kernel.host_result or not inputs:
            self._traced(bound, values)
        elif inputs <= self.known:
            with _disable_current_modes():
                bound.call(values)
            self.known.update(step.outputs)
        elif inputs & self.sizes and inputs <= self.known | self.sizes and self._compute(bound, values):
            pass
        else:
            self._traced(bound, values)

    def _measure(self, bound: BoundStep, values: list[Any]) -> None:
        """Run Shape or Size."""
        step = bound.step
        dims = tuple(values[step.inputs[0]].shape)
        if all(type(size) is int for size in dims):
            with _disable_current_modes():
                bound.call(values)
            self.known.update(step.outputs)
        elif step.node.op == "Size":
            self._store(step, values, _boxed(math.prod(dims)))
        else:
            attributes = step.node.attributes
            part = dims[attributes.get("start", 0) : attributes.get("end")]  # type: ignore[index]
            self._store(step, values, _listed(part))

    def _compute(self, bound: BoundStep, values: list[Any]) -> bool:
        """Run a step on sizes; whether that is possible."""
        step = bound.step
        numbers = _NUMBERS.get(step.node.op) if step.node.domain == "" else None
        if numbers is not None:
            result = numbers(step.node, *[_sizes(values[value]) for value in step.inputs])
            if result is not None:
                self._store(step, values, result)
            return result is not None
        moved = _MOVED.get(step.node.op) if step.node.domain == "" else None
        if moved is None or not self.sizes.isdisjoint(set(step.inputs) - set(step.inputs[moved])):
            return False
        frame = list(values)
        for value in step.inputs[moved]:
            frame[value] = _sizes(values[value])
        with _disable_current_modes():
            bound.call(frame)
        for output in step.outputs:
            if output != NOTHING:
                values[output] = frame[output]
                self.sizes.add(output)
        return True

    def _store(self, step: Step, values: list[Any], result: SizeArray) -> None:
        (output,) = step.outputs
        values[output] = result
        self.sizes.add(output)

    def _traced(self, bound: BoundStep, values: list[Any]) -> None:
        """Run a step with the tracer's tensors in the place of sizes and known ones, or with numbers."""
        step = bound.step
        outside = {value for body in step.bodies.values() for value, _ in body.captured}
        read = set()
        for param, value in zip(input_params(step.kernel, len(step.inputs)), step.inputs, strict=True):
            if param.read and param.host != "constant" and value not in outside:
                read.add(value)
        frame = list(values)
        for value in self.sizes.intersection((*step.inputs, *outside)):
            frame[value] = _Numbers(values[value]) if value in read else _tensor(values[value])
        for value in self.known.intersection((*step.inputs, *outside)) - read:
            # A tracer of gradients takes no tensor that it has not seen being made.
            if isinstance(values[value], torch.Tensor):
                if value not in self.lifted:
                    self.lifted[value] = torch.ops.aten.lift_fresh_copy(values[value])
                frame[value] = self.lifted[value]
        bound.call(frame)
        for output in step.outputs:
            if output != NOTHING:
                values[output] = frame[output]


class _Numbers:
    """Sizes for whoever reads a tensor on the host.

    Attributes:
        shape: Of the tensor.
    """

    def __init__(self, sizes: SizeArray) -> None:
        self._sizes = sizes
        self.shape = sizes.shape

    def numel(self) -> int:
        """Their number."""
        return self._sizes.size

    def tolist(self) -> Any:
        """Nested lists, or the number itself."""
        return self._sizes.tolist()

    def item(self) -> Any:
        """The only one."""
        return self._sizes.reshape(-1)[0]


def _boxed(value: object, shape: tuple[int, ...] = ()) -> SizeArray:
    boxed = np.empty(shape, dtype=object)
    boxed[...] = value
    return boxed


def _listed(values: Iterable[object]) -> SizeArray:
    items = list(values)
    listed = np.empty(len(items), dtype=object)
    for place, value in enumerate(items):
        listed[place] = value
    return listed


def _sizes(value: Any) -> SizeArray:
    """A known tensor as sizes."""
    if not isinstance(value, torch.Tensor):
        return value  # type: ignore[no-any-return]
    with _disable_current_modes():
        return _listed(value.reshape(-1).tolist()).reshape(tuple(value.shape))


def _tensor(sizes: SizeArray) -> torch.Tensor:
    """Sizes as a tensor that the tracer knows."""
    numbers = sizes.reshape(-1).tolist()
    dtype = torch.bool if numbers and all(type(value) is bool for value in numbers) else torch.int64
    items = [torch.scalar_tensor(value, dtype=dtype) for value in numbers]
    flat = torch.stack(items) if items else torch.empty(0, dtype=dtype)
    return flat.reshape(sizes.shape)


def _elementwise(fn: Callable[..., Any]) -> Callable[..., SizeArray]:
    def compute(node: Node, *values: SizeArray) -> SizeArray:
        whole = np.broadcast_arrays(*values)
        places = zip(*(part.reshape(-1).tolist() for part in whole), strict=True)
        return _listed(fn(*items) for items in places).reshape(whole[0].shape)

    return compute


def _divided(a: Any, b: Any) -> Any:
    """Rounded towards zero."""
    return a // b if (a >= 0) == (b > 0) else -((-a) // b)


def _cast(node: Node, value: SizeArray) -> SizeArray | None:
    if node.attributes.get("to") != ElementType.INT64.value:
        return None
    return _elementwise(lambda item: int(item) if type(item) is bool else item)(node, value)


def _product(node: Node, value: SizeArray, axes: SizeArray | None = None) -> SizeArray | None:
    if value.ndim != 1 or (axes is None and node.attributes.get("noop_with_empty_axes")):
        return None
    return _boxed(math.prod(value.tolist()), (1,) if node.attributes.get("keepdims", 1) else ())


_NUMBERS: Mapping[str, Callable[..., SizeArray | None]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Div": _elementwise(_divided),
    "Max": _elementwise(lambda *items: functools.reduce(torch.sym_max, items)),
    "Min": _elementwise(lambda *items: functools.reduce(torch.sym_min, items)),
    "Equal": _elementwise(lambda a, b: bool(a == b)),
    "Where": _elementwise(lambda condition, a, b: a if condition else b),
    "Cast": _cast,
    "ReduceProd": _product,
}
_MOVED: Mapping[str, slice] = {
    "Concat": slice(None),
    **dict.fromkeys(
        ("Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"), slice(0, 1)
    ),
}
"""The inputs whose elements are moved; the others say where, and are plain numbers."""
