"""Graphs drawn at random of every kind of step that plans tell apart."""

from __future__ import annotations

import random

import torch
from plan.planning import Seen, see
from textmodel import operator
from torch import Tensor

from torch_ort_session.ops.kernel import TensorSequence, kernel

X = torch.tensor([[1.0, -2.0, 3.0], [4.0, 0.5, 6.0]])


@kernel("Into", since=(1,), domain="tests")
def into(x: Tensor) -> Tensor:
    return torch.neg(x)


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
    """A graph of up to 40 steps: plain ones, views, seams, sequences, branches, static ones."""
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
