"""Graphs drawn at random of every kind of step that plans tell apart, and a run that follows a plan's"
" slots."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from plan.planning import Seen, see
from textmodel import operator
from torch import Tensor

from torch_ort_session.ops.kernel import TensorSequence, kernel
from torch_ort_session.plan.plan import Plan
from torch_ort_session.runtime.interpreter.program import bind_steps, execute

X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 0.5, 6.0]])


@kernel("Into", since=(1,), domain="tests")
def into(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    return torch.neg(x, out=out)


@kernel("Make", since=(1,), domain="tests")
def make(x: Tensor) -> Tensor:
    return x + 1


@kernel("View", since=(1,), domain="tests", view_of="x")
def view(x: Tensor) -> Tensor:
    return x.view(-1).view(x.shape)


@kernel("Cut", since=(1,), domain="tests", seam="it cuts")
def cut(x: Tensor) -> Tensor:
    return x + 1


@kernel("CutView", since=(1,), domain="tests", seam="it cuts", view_of="x")
def cut_view(x: Tensor) -> Tensor:
    return x.view(-1).view(x.shape)


@kernel("Pair", since=(1,), domain="tests")
def pair(x: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.stack((x, -x))
    return both[0], both[1]


@kernel("Pack", since=(1,), domain="tests")
def pack(x: Tensor) -> TensorSequence:
    return (x,)


@kernel("Unpack", since=(1,), domain="tests", view_of="x")
def unpack(x: TensorSequence) -> Tensor:
    return x[0]


KERNELS = (into, make, view, cut, cut_view, pair, pack, unpack)


def drawn(seed: int) -> Seen:
    """A graph of up to 40 steps: plain ones, ones with ``out``, views, seams, sequences, branches, static"
    " ones."""
    draw = random.Random(seed)
    made, nodes = ["x"], []
    cuts = draw.choice([0, 1, 3])
    kinds = ["Into", "Into", "Make", "View", "Add", "Pair", "Shape", *["Cut", "CutView", "Pack", "If"] * cuts]
    for number in range(draw.randrange(1, 40)):
        name, source, other = f"v{number}", draw.choice(made[-4:]), draw.choice(made)
        kind = draw.choice(kinds)
        if kind == "Add":
            nodes.append(f"{name} = Add({source}, {other})")
        elif kind == "Shape":
            nodes.append(f"s{number} = Shape({source}) {name} = Reshape({source}, s{number})")
        elif kind == "Pack":
            nodes.append(f"q{number} = tests.Pack({source}) {name} = tests.Unpack(q{number})")
        elif kind == "Pair":
            nodes.append(f"{name}, p{number} = tests.Pair({source})")
            made.append(f"p{number}")
        elif kind == "If":
            branches = [f"{b}_branch = {b}{number} () => (float[2, 3] {b}_{name})" for b in ("then", "else")]
            bodies = [f"{{ then_{name} = Identity({source}) }}", f"{{ else_{name} = tests.Make({other}) }}"]
            nodes.append(f"{name} = If (c) <{branches[0]} {bodies[0]}, {branches[1]} {bodies[1]}>")
        else:
            nodes.append(f"{name} = tests.{kind}({source})")
        made.append(name)
    outputs = sorted({made[-1], *draw.choices(made[1:], k=draw.randrange(3))})
    declared = ", ".join(f"float[2, 3] {name}" for name in outputs)
    text = f"g (float[2, 3] x, bool c) => ({declared}) {{ {' '.join(nodes)} }}"
    with operator(*KERNELS):
        return see(text, {"x": X, "c": torch.tensor(draw.random() < 0.5)})


def follow(seen: Seen, plan: Plan, feed: dict[str, Any]) -> list[Any]:
    """Run the steps with every slotted value in its slot, and each slot destroyed after its interval.

    Returns:
        The results.
    """
    arena = torch.full((plan.packing.total,), 0xFF, dtype=torch.uint8)
    spans = {item.value: item for item in plan.intervals}
    values = list(plan.steps.template)
    for value, held in plan.observation.static.items():
        values[value] = held
    for name, place in zip(plan.steps.input_names, plan.steps.inputs, strict=True):
        values[place] = feed[name]
    program = bind_steps(plan.steps)
    calls = program.calls
    positions = [position for region in plan.regions for position in region.positions]
    recorded = {position for region in plan.segments for position in region.positions}
    landed = {value for position in recorded for value in plan.steps.items[position].inputs}
    for position in positions:
        execute(program, values, (replace(calls[position], release=()),))
        for value in calls[position].step.outputs:
            if value in spans:
                begin, count = plan.packing.offsets[value], values[value].nbytes
                slot = arena[begin : begin + count].view(values[value].dtype).view(values[value].shape)
                values[value] = slot.copy_(values[value])
            elif position not in recorded and value in landed and isinstance(values[value], Tensor):
                # Results have no slot; those that segments read are copied to a place of their own as well.
                values[value] = values[value].clone()
        for item in spans.values():
            if item.stop == position:
                begin = plan.packing.offsets[item.value]
                arena[begin : begin + item.nbytes] = 0xFF
    return [values[output] for output in plan.steps.outputs]
