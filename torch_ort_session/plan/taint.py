"""Taint: which values follow from the signature alone, in their data or in their shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from torch_ort_session.ir.types import ElementType
from torch_ort_session.plan.steps import NOTHING, Step, Steps, input_params


@dataclass(frozen=True, slots=True, eq=False)
class Taint:
    """What is static under one signature.

    Attributes:
        data: Ids of values whose data is the same at every run of the signature.
        shape: Ids of values whose shape is.
    """

    data: frozenset[int]
    shape: frozenset[int]


def taint(steps: Steps, key_feeds: Collection[int] = ()) -> Taint:
    """Tell static values from the rest.

    A feed's shape is part of the signature and its data is not, unless it is a key feed. Constants are
    static. ``Shape`` of a static shape is static data, and so is whatever is computed from static data by a
    step that neither varies nor keeps state. A shape is static unless it hangs on data: a seam's output, or
    that of a step with a host input whose data is not static.

    Args:
        steps: The steps.
        key_feeds: Ids of feeds whose value is part of the signature.

    Returns:
        The static ids.
    """
    data = {NOTHING, *key_feeds}
    data.update(value for value, held in enumerate(steps.template) if held is not None)
    data.difference_update(set(steps.inputs) - set(key_feeds))
    shape = data | set(steps.inputs)
    for step in steps.items:
        outputs = [value for value in step.outputs if value != NOTHING]
        if _data_is_static(step, data, shape):
            data.update(outputs)
            shape.update(outputs)
        elif _shape_is_static(step, data, shape):
            shape.update(outputs)
    return Taint(frozenset(data), frozenset(shape))


def _reads(step: Step) -> list[int]:
    outside = [value for body in step.bodies.values() for value, _ in body.captured]
    return [*step.inputs, *outside]


def _data_is_static(step: Step, data: set[int], shape: set[int]) -> bool:
    if step.kernel.varies or step.kernel.state:
        return False
    if step.kernel.host_result and all(value in shape for value in step.inputs):
        return True
    # A body may hold random ops or state of its own, so what it makes is never taken to be static.
    return not step.bodies and all(value in data for value in step.inputs)


def _shape_is_static(step: Step, data: set[int], shape: set[int]) -> bool:
    if step.bodies or step.kernel.seam_reason(step.node) is not None:
        return False
    params = input_params(step.kernel, len(step.inputs))
    return all(
        value in (data if param.read else shape) for param, value in zip(params, step.inputs, strict=True)
    )


_KEY_TYPES = frozenset(
    {
        ElementType.BOOL,
        ElementType.INT8,
        ElementType.INT16,
        ElementType.INT32,
        ElementType.INT64,
        ElementType.UINT8,
        ElementType.UINT16,
        ElementType.UINT32,
        ElementType.UINT64,
    }
)


def key_feed_candidates(steps: Steps) -> frozenset[int]:
    """Feeds of integers or bools that reach a host input or a predicate, through any steps.

    Args:
        steps: The steps.

    Returns:
        Their ids; whether one holds a single element is known when it is fed.
    """
    wanted = _reach_host(steps.items)
    types = _input_types(steps)
    return frozenset(value for value in steps.inputs if value in wanted and types.get(value) in _KEY_TYPES)


def _reach_host(items: Iterable[Step]) -> set[int]:
    """Values from which a host input is computed."""
    wanted: set[int] = set()
    for step in reversed(list(items)):
        params = input_params(step.kernel, len(step.inputs))
        wanted.update(value for param, value in zip(params, step.inputs, strict=True) if param.read)
        for body in step.bodies.values():
            inner = _reach_host(body.steps.items)
            wanted.update(outside for outside, inside in body.captured if inside in inner)
        # What is read of a shape alone does not hang on the data.
        if not step.kernel.host_result and not wanted.isdisjoint(step.outputs):
            wanted.update(_reads(step))
    return wanted - {NOTHING}


def _input_types(steps: Steps) -> dict[int, ElementType | None]:
    types: dict[int, ElementType | None] = {}
    for step in steps.items:
        for value, element in zip(step.inputs, step.ctx.input_types, strict=False):
            types.setdefault(value, element)
        for body in step.bodies.values():
            inner = _input_types(body.steps)
            for outside, inside in body.captured:
                types.setdefault(outside, inner.get(inside))
    return types
