"""What tests of captured control-flow bodies share: bodies worth a recording, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import torch_ort_session as tos
from torch_ort_session.runtime.dynamic.control_flow import BodyEntry, BodyPlan


def long(source: str, result: str, prefix: str = "l") -> str:
    """Twelve steps from one value to another of the same shape: enough to be worth a recording."""
    nodes, current = [], source
    for number in range(6):
        nodes.append(f"{prefix}t{number} = Tanh({current})")
        current = f"{prefix}m{number}" if number < 5 else result
        nodes.append(f"{current} = Add({prefix}t{number}, w)")
    return " ".join(nodes)


def looped(body: str, *, state: str = "float[n] x", more: str = "", outputs: str = "float[n] y") -> str:
    """A model that is one Loop of ``k`` trips over a state, with ``w`` from outside."""
    names = [part.split()[-1] for part in outputs.split(", ")]
    carried = ", ".join(part.split()[-1] for part in state.split(", "))
    return (
        f"g ({state}, int64 k, float[n] w{more}) => ({outputs})"
        f" {{ {', '.join(names)} = Loop (k, , {carried}) <body = {body}> }}"
    )


STEADY = looped(
    "b (int64 i, bool c, float[n] s) => (bool d, float[n] r, float[n] o)"
    f" {{ d = Identity(c) {long('s', 'r')} o = Neg(r) }}",
    outputs="float[n] y, float[k,n] z",
)
CHOICE = (
    "g (float[n] x, float[n] w) => (float[n] y) { p = ReduceSum <keepdims = 0> (x)"
    " zero = Constant <value_float = 0.0> () q = Greater(p, zero)"
    f" y = If (q) <then_branch = t () => (float[n] a) {{ {long('x', 'a')} }},"
    f" else_branch = e () => (float[n] b) {{ n = Neg(x) {long('n', 'b')} }}> }}"
)


def plans(session: tos.Session) -> list[BodyPlan]:
    return list(session._engine.state.bodies.plans.values())


def body_entries(session: tos.Session) -> Iterator[BodyEntry]:
    return session._engine.state.bodies.entries()


def body_states(session: tos.Session) -> list[str]:
    """The states of all signatures of all bodies, in the order of the alphabet."""
    return sorted(entry.state for entry in body_entries(session))


def fed(length: int = 4, trips: int = 5, sign: float = 1.0) -> dict[str, torch.Tensor]:
    return {
        "x": (torch.rand(length) + 0.1) * sign,
        "k": torch.tensor(trips),
        "w": torch.randn(length),
    }


def chosen(sign: float = 1.0, length: int = 4) -> dict[str, torch.Tensor]:
    given = fed(length, sign=sign)
    return {"x": given["x"], "w": given["w"]}
