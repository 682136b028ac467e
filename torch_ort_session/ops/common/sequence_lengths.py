"""Sequences of different lengths in one batch: which steps count, and each sequence backwards.

Source: https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from __future__ import annotations

import torch
from torch import Tensor


def counting(x: Tensor, lengths: Tensor) -> Tensor:
    """Which steps belong to a sequence: bool ``[time, batch, 1]``."""
    time = torch.arange(x.shape[0], device=x.device)
    return (time[:, None] < lengths)[:, :, None]


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence backwards within its length; what follows stays."""
    if lengths is None:
        return x.flip(0)
    time = torch.arange(x.shape[0], device=x.device)[:, None]
    length = lengths.to(torch.int64).clamp(0, x.shape[0])
    index = torch.where(time < length, length - 1 - time, time)
    return x.gather(0, index[:, :, None].expand(-1, -1, x.shape[2]))


def at_end(y: Tensor, initial: Tensor, lengths: Tensor) -> Tensor:
    """The output at each sequence's last step, ``[1, batch, hidden]``; the initial one if it has none."""
    length = lengths.to(torch.int64).clamp(0, y.shape[0])[None, :, None]
    last = y.gather(0, (length - 1).clamp(min=0).expand(-1, -1, y.shape[2]))
    return torch.where(length > 0, last, initial)
