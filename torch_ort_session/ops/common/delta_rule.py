"""A matrix state that each step decays, corrects, adds to and reads: the recurrence of linear attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""By the name of an update rule: whether the state decays, and whether what it knows is taken off."""


def rule(name: str, decay: Tensor | None, beta: Tensor | None) -> tuple[bool, bool]:
    """Whether a rule decays and corrects.

    Raises:
        ValueError: An unknown rule, or one that needs an input that is absent.
    """
    if name not in RULES:
        raise ValueError(f"update_rule must be one of {', '.join(RULES)}, not {name!r}.")
    gated, corrected = RULES[name]
    if (gated and decay is None) or (corrected and beta is None):
        needed = " and ".join(["decay"] * gated + ["beta"] * corrected)
        raise ValueError(f"update_rule {name!r} needs {needed}.")
    return gated, corrected


@dataclass(frozen=True, slots=True)
class Walk:
    """Results of a walk along the steps.

    Attributes:
        reads: What each step reads [..., T, E], in the leading dims of the queries.
        states: The last states [B, G, D, E], oldest first.
        writes: What each step adds at its key [B, G, T, E]: the value, or the corrected part of it.
    """

    reads: Tensor
    states: tuple[Tensor, ...]
    writes: Tensor


def walk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    state: Tensor,
    factor: Tensor | None,
    strength: Tensor | None,
    *,
    kept: int = 1,
) -> Walk:
    """``S = factor * S + k (strength * (v - factor * S' k))'`` step by step, read by ``S' q``.

    Args:
        q: Scaled queries [B, G, R, T, D], R of each state.
        k: Keys [B, G, T, D].
        v: Values [B, G, T, E].
        state: [B, G, D, E] before the first step.
        factor: Decay [B, G, T, D] or [B, G, T, 1]; None is 1.
        strength: [B, G, T, 1] or [B, 1, T, 1]; None adds values as they are.
        kept: How many of the last states are wanted; there are no more than steps, but always one.
    """
    states, reads, writes = [state], [], []
    for step in range(k.shape[2]):
        if factor is not None:
            state = state * factor[:, :, step].unsqueeze(-1)
        one, new = k[:, :, step], v[:, :, step]
        if strength is not None:
            known = torch.matmul(one.unsqueeze(-2), state).squeeze(-2)
            new = strength[:, :, step] * (new - known)
        state = state + one.unsqueeze(-1) * new.unsqueeze(-2)
        states = [*states, state][-max(kept, 1) :]
        reads.append(torch.matmul(q[:, :, :, step], state))
        writes.append(new)
    if not reads:
        return Walk(q.new_zeros(*q.shape[:3], 0, v.shape[3]), (state,), v)
    return Walk(torch.stack(reads, 3), tuple(states), torch.stack(writes, 2))


def walk_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    states: Tensor,
    factor: Tensor | None,
    strength: Tensor | None,
    rows: Tensor,
) -> Walk:
    """The same along tokens of several sequences behind one another, each with a state of its own.

    Args:
        q: Scaled queries [T, G, D].
        k: Keys [T, G, D].
        v: Values [T, G, E].
        states: [B, G, D, E].
        factor: Decay [T, G, D] or [T, G, 1]; None is 1.
        strength: [T, G, 1]; None adds values as they are.
        rows: int64 [T], the sequence of each token.

    Returns:
        Reads and writes by token [T, G, E]; one entry of states, all that are after their last tokens.
    """
    reads, writes = [], []
    for step in range(k.shape[0]):
        row, one, new = rows[step : step + 1], k[step], v[step]
        state = torch.index_select(states, 0, row).squeeze(0)
        if factor is not None:
            state = state * factor[step].unsqueeze(-1)
        if strength is not None:
            known = torch.matmul(one.unsqueeze(-2), state).squeeze(-2)
            new = strength[step] * (new - known)
        state = state + one.unsqueeze(-1) * new.unsqueeze(-2)
        states = torch.index_copy(states, 0, row, state.unsqueeze(0))
        reads.append(torch.matmul(q[step].unsqueeze(-2), state).squeeze(-2))
        writes.append(new)
    if not reads:
        return Walk(v, (states,), v)
    return Walk(torch.stack(reads), (states,), torch.stack(writes))
