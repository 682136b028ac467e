"""Results without data of the layers of ``csrc/recurrent/recurrent.cpp``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def describe(known: Callable[[str], bool]) -> None:
    """Register shapes, once the extension is loaded.

    Args:
        known: Whether it has an op of a name.
    """
    if known("lstm_layer"):
        torch.library.register_fake("torch_ort_session::lstm_layer", _lstm_layer)
    if known("gru_layer"):
        torch.library.register_fake("torch_ort_session::gru_layer", _gru_layer)


def _output(gates: Tensor, h: Tensor) -> Tensor:
    return gates.new_empty((gates.shape[0], *h.shape))


def _lstm_layer(
    gates: Tensor,
    recurrence: Tensor,
    h: Tensor,
    c: Tensor,
    lengths: Tensor | None,
    direction: int,
    clip: float,
    instructions: int = -1,
) -> tuple[Tensor, Tensor, Tensor]:
    return _output(gates, h), h.new_empty(h.shape), c.new_empty(c.shape)


def _gru_layer(
    gates: Tensor,
    recurrence: Tensor,
    bias: Tensor,
    h: Tensor,
    lengths: Tensor | None,
    direction: int,
    clip: float,
    linear: bool,
    instructions: int = -1,
) -> tuple[Tensor, Tensor]:
    return _output(gates, h), h.new_empty(h.shape)
