"""Results without data of ops on rows of activations: for torch.compile and torch.export.

The ops are in ``norm``, ``elementwise``, ``sampling`` and ``attention`` of ``csrc``;
:mod:`.native` hands them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def describe(known: Callable[[str], bool]) -> None:
    """Tell torch, once the extension is loaded, of those of its ops that are known there.

    Args:
        known: Whether it has an op of a name.
    """
    for shape in (_skip_rms_norm, _activate, _sample_token, _rotary):
        name = shape.__name__.lstrip("_")
        if known(name):
            torch.library.register_fake(f"torch_ort_session::{name}", shape)
    for name in ("skip_rms_norm", "activate", "rotary"):
        if known(name):
            torch.library.register_fake(f"torch_ort_session::{name}.out", _written)


def _written(*args: object, **named: Any) -> Any:
    # What an op writes is named; the result is that very memory.
    results = tuple(named[name] for name in ("y", "total", "inverse", "out") if name in named)
    return results[0] if len(results) == 1 else results


def _skip_rms_norm(
    x: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
    gamma: Tensor,
    epsilon: float,
    wants_total: bool,
    wants_inverse: bool,
    instructions: int = -1,
) -> tuple[Tensor, Tensor, Tensor]:
    total = torch.empty_like(x) if wants_total else x.new_empty(0)
    one = (*x.shape[:-1], 1) if wants_inverse else (0,)
    return torch.empty_like(x), total, x.new_empty(one, dtype=torch.float32)


def _rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    heads: int,
    interleaved: bool,
    node: int,
    word: Tensor | None,
    instructions: int = -1,
) -> Tensor:
    return x.new_empty(x.shape)


def _activate(
    x: Tensor,
    up: Tensor | None,
    bias: Tensor | None,
    kind: int,
    halves: bool,
    alpha: float,
    beta: float,
    limit: float,
    rounded: bool,
    instructions: int = -1,
) -> Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2) if halves else x.shape)


def _sample_token(
    scores: Tensor, state: Tensor, temperature: float, top_k: int, top_p: float, keep: int, closed: bool
) -> Tensor:
    return scores.new_empty(scores.shape[:1], dtype=torch.int64)
