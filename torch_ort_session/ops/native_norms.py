"""What ops on rows of activations give where there is no data: for torch.compile and torch.export.

The ops are in ``csrc/cpu`` and ``csrc/cuda``; :mod:`.native` hands them out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def describe(known: Callable[[str], bool]) -> None:
    """Tell torch, once the extension is loaded, of those of its ops that are known there.

    Args:
        known: Whether it has an op of a name.
    """
    if known("skip_rms_norm"):
        torch.library.register_fake("torch_ort_session::skip_rms_norm", _skip_rms_norm)
    if known("activate"):
        torch.library.register_fake("torch_ort_session::activate", _activate)
    if known("sample_token"):
        torch.library.register_fake("torch_ort_session::sample_token", _sample_token)
    if known("rotary"):
        torch.library.register_fake("torch_ort_session::rotary", _rotary)


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
