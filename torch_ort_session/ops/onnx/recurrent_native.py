"""Layers of LSTM and GRU as one native call: products of the input at once, then all steps of all directions.

For the usual functions, where no gradient is wanted; see ``csrc/recurrent/recurrent.cpp``. Weights are
read as the model has them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_ort_session.ops import native
from torch_ort_session.ops.common.recurrent import States

_DIRECTIONS = ("forward", "reverse", "bidirectional")


def lstm_layer(
    x: Tensor,
    states: States,
    weights: tuple[Tensor, Tensor, Tensor | None],
    direction: str,
    lengths: Tensor | None,
    clip: float | None,
) -> tuple[Tensor, States] | None:
    """An LSTM of the usual functions; None where the native op cannot serve.

    Args:
        x: float32 ``[time, batch, input]``.
        states: Output and cell before the first step, each ``[directions, batch, hidden]``.
        weights: W ``[directions, 4 * hidden, input]``, R ``[directions, 4 * hidden, hidden]`` and B
            ``[directions, 8 * hidden]`` or None.
        direction: The attribute.
        lengths: Sequence lengths ``[batch]`` or None.
        clip: Bound of the gates before their function.

    Returns:
        As :func:`.recurrent.unroll`.
    """
    w, r, b = weights
    op = native.device_op("lstm_layer", x, w, r, b, *states)
    if op is None or not _floats(x, w, r, *states):
        return None
    gates = _project(x, w, None if b is None else torch.add(*b.chunk(2, 1)))
    y, h, c = op(gates, r, *states, _counts(lengths), _DIRECTIONS.index(direction), _bound(clip))
    return y, (h, c)


def gru_layer(
    x: Tensor,
    states: States,
    weights: tuple[Tensor, Tensor, Tensor | None],
    direction: str,
    lengths: Tensor | None,
    clip: float | None,
    linear: bool,
) -> tuple[Tensor, States] | None:
    """A GRU of the usual functions; None where the native op cannot serve.

    Args:
        x: float32 ``[time, batch, input]``.
        states: Output before the first step ``[directions, batch, hidden]``, alone.
        weights: W ``[directions, 3 * hidden, input]``, R ``[directions, 3 * hidden, hidden]`` and B
            ``[directions, 6 * hidden]`` or None.
        direction: The attribute.
        lengths: Sequence lengths ``[batch]`` or None.
        clip: Bound of the gates before their function.
        linear: Whether the reset gate multiplies the product, not its input.

    Returns:
        As :func:`.recurrent.unroll`.
    """
    w, r, b = weights
    op = native.device_op("gru_layer", x, w, r, b, *states)
    if op is None or not _floats(x, w, r, *states):
        return None
    hidden = r.shape[2]
    if b is None:
        bias, own = None, x.new_zeros(w.shape[0], hidden)
    else:
        # What the reset gate multiplies as well is no part of the input's product.
        bias, recurrent = b.chunk(2, 1)
        own = recurrent[:, 2 * hidden :]
        added = F.pad(recurrent[:, : 2 * hidden], (0, hidden)) if linear else recurrent
        bias = bias + added
    gates = _project(x, w, bias)
    y, h = op(gates, r, own, *states, _counts(lengths), _DIRECTIONS.index(direction), _bound(clip), linear)
    return y, (h,)


def _floats(*tensors: Tensor) -> bool:
    return all(tensor.dtype is torch.float32 for tensor in tensors)


def _project(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """The input's products for all steps and directions: ``[time, batch, directions * gates * hidden]``."""
    return F.linear(x, w.flatten(0, 1), None if bias is None else bias.flatten())


def _counts(lengths: Tensor | None) -> Tensor | None:
    return None if lengths is None else lengths.to(torch.int32)


def _bound(clip: float | None) -> float:
    return math.inf if clip is None else clip
