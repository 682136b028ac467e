"""Views that are kept: steps that would make a view of what stays the same are not run while feeds grow.

A constant's memory never moves and a run never writes to it, so that a view of it, once made, is what the
step would make again. Views of feeds and of what a run computes are none of these: their memory is another
one in each run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.steps import NOTHING, Steps
from torch_ort_session.runtime.execute import Program, Values


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
    found = []
    for place in sorted(dropped):
        step = steps.items[place]
        held = {
            value: constant.get(value, steps.template[value]) for value in step.inputs if value != NOTHING
        }
        made = {value: constant.get(value) for value in step.outputs if value != NOTHING}
        memory = {_memory(value) for value in held.values() if isinstance(value, torch.Tensor)}
        views = {value: one for value, one in made.items() if isinstance(one, torch.Tensor)}
        if len(views) == len(made) and memory.issuperset(map(_memory, views.values())):
            found.append(View(place, held, views))
    return tuple(found)


def view_difference(program: Program, views: tuple[View, ...]) -> str:
    """Make kept views again and say what is different; empty when nothing is.

    Args:
        program: The full program.
        views: Kept views of its steps.
    """
    for view in views:
        values: Values = list(program.steps.template)
        for value, held in view.inputs.items():
            values[value] = held
        program.calls[view.place].call(values)
        for value, kept in view.outputs.items():
            made = values[value]
            for what, one, other in zip(_LAYOUT, _layout(kept), _layout(made), strict=True):
                if one != other:
                    return f"{program.steps.names[value]!r} has {what} {one}, made again {other}"
    return ""


_LAYOUT = ("dtype", "shape", "stride", "offset", "memory")


def _layout(tensor: torch.Tensor) -> tuple[object, ...]:
    place = (tensor.data_ptr(), tensor.untyped_storage().nbytes())
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), place


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
