"""Taint: which values follow from the signature alone, in their data or in their shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from torch_ort_session.ir.types import ElementType
from torch_ort_session.plan.lowering import NOTHING, Step, Steps, input_params, runs_alike


@dataclass(frozen=True, slots=True, eq=False)
class StaticValues:
    """What is static under one signature, and what is taken to be.

    Attributes:
        data: Ids of values whose data is the same at every run of the signature.
        shape: Ids of values whose shape is.
        assumed: Values whose data follows from shapes that are not static, but are assumed to stay what the
            warm run saw: the data holds as long as those shapes do. With each the position of the last step
            whose result's shape it follows from.
        growing: Values that are other ones in each run, by their dims or as numbers; nothing that touches
            them is recorded.
    """

    data: frozenset[int]
    shape: frozenset[int]
    assumed: Mapping[int, int] = field(default_factory=dict)
    growing: frozenset[int] = frozenset()

    def constant(self, value: int) -> bool:
        """Whether the data of a value is a constant of the capture: static, or assumed to be."""
        return value in self.data or value in self.assumed


def find_static_values(
    steps: Steps,
    key_feeds: Collection[int] = (),
    unstable: Collection[str] = (),
    opaque: Collection[int] = (),
) -> StaticValues:
    """Tell static values from the rest.

    A feed's shape is part of the signature and its data is not, unless it is a key feed. Constants are
    static. ``Shape`` of a static shape is static data, and so is whatever is computed from static data by a
    step that neither varies nor keeps state. A shape is static unless it hangs on data: a seam's output, or
    that of a step with a host input whose data is not static. ``Shape`` of another shape is assumed data, and
    so is what is computed from that.

    Args:
        steps: The steps.
        key_feeds: Ids of feeds whose value is part of the signature.
        unstable: Names of nodes whose results change their shape from run to run: nothing is assumed of those
            shapes, nor of what hangs on them.
        opaque: Ids of values that a run has shown to be no tensors: they have no shape to compare.

    Returns:
        The static and the assumed ids.
    """
    data = {NOTHING, *key_feeds}
    data.update(value for value, held in enumerate(steps.template) if held is not None)
    data.difference_update(set(steps.inputs) - set(key_feeds))
    shape = data | set(steps.inputs)
    guesses = _Guesses(data, shape, frozenset(unstable), frozenset(opaque))
    for position, step in enumerate(steps.items):
        outputs = [value for value in step.outputs if value != NOTHING]
        if _data_is_static(step, data, shape):
            data.update(outputs)
            shape.update(outputs)
            continue
        if _shape_is_static(step, data, shape):
            shape.update(outputs)
        guesses.follow(position, step, outputs)
    return StaticValues(frozenset(data), frozenset(shape), guesses.assumed)


class _Guesses:
    """What follows from shapes that are not static, up to a step.

    Attributes:
        data: Values whose data is static.
        shape: Values whose shape is.
        unstable: Nodes whose results' shapes do not settle.
        opaque: Values that are no tensors.
        unsettled: Values whose shape does not settle.
        made: Where each value was made whose shape may be assumed.
        assumed: Values whose data is assumed, with the last of the places where such a shape was made.
    """

    def __init__(
        self, data: set[int], shape: set[int], unstable: frozenset[str], opaque: frozenset[int]
    ) -> None:
        self.data = data
        self.shape = shape
        self.unstable = unstable
        self.opaque = opaque
        self.unsettled: set[int] = set()
        self.made: dict[int, int] = {}
        self.assumed: dict[int, int] = {}

    def follow(self, position: int, step: Step, outputs: list[int]) -> None:
        """Note what a step makes that is not static."""
        if step.node.name in self.unstable:
            self.unsettled.update(outputs)
        elif not self.unsettled.isdisjoint(_reads(step)):
            self.unsettled.update(value for value in outputs if value not in self.shape)
        else:
            since = self.since(step)
            if since is not None:
                self.assumed.update(dict.fromkeys(outputs, since))
            self.made.update(dict.fromkeys(outputs, position if since is None else since))

    def since(self, step: Step) -> int | None:
        """The last step whose result's shape a step's data follows from; None when it follows from more."""
        if step.kernel.varies or step.bodies:
            return None
        if step.kernel.host_result:
            return self.made.get(step.inputs[0]) if self.opaque.isdisjoint(step.inputs) else None
        places = [self.assumed.get(value, -1) for value in step.inputs if value not in self.data]
        return None if not places or -1 in places else max(places)


def _reads(step: Step) -> list[int]:
    outside = [value for body in step.bodies.values() for value, _ in body.captured]
    return [*step.inputs, *outside]


def _data_is_static(step: Step, data: set[int], shape: set[int]) -> bool:
    if step.kernel.varies:
        return False
    if step.kernel.host_result and all(value in shape for value in step.inputs):
        return True
    # A body may hold random ops or state of its own, so what it makes is never taken to be static.
    return not step.bodies and all(value in data for value in step.inputs)


def _shape_is_static(step: Step, data: set[int], shape: set[int]) -> bool:
    if step.bodies and not runs_alike(step):
        return False
    if step.kernel.seam_reason(step.node) is not None:
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
