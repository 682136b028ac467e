"""One step of RNN, GRU and LSTM with every attribute; see :mod:`recurrent` for how they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_ort_session.ops._helpers.recurrent import Cell, States
from torch_ort_session.ops._helpers.recurrent_activations import Activation


def rnn_cell(w: Tensor, r: Tensor, b: Tensor | None, f: Activation) -> Cell:
    """A step of RNN: ``f(x W^T + h R^T + b)``.

    Args:
        w: ``[hidden, input]``.
        r: ``[hidden, hidden]``.
        b: ``[2 * hidden]`` or None.
        f: The activation.

    Returns:
        The cell; its only state is the output.
    """
    recurrence = r.t()

    def step(gates: Tensor, states: States) -> States:
        return (f(torch.addmm(gates, states[0], recurrence)),)

    return Cell(_projection(w, _sum_of_halves(b)), step)


def gru_cell(w: Tensor, r: Tensor, b: Tensor | None, functions: Sequence[Activation]) -> Cell:
    """A step of GRU whose reset gate multiplies the state before the hidden gate's product.

    Args:
        w: ``[3 * hidden, input]``, gates update, reset, hidden.
        r: ``[3 * hidden, hidden]``.
        b: ``[6 * hidden]`` or None.
        functions: Of the gates, and of the hidden value.

    Returns:
        The cell; its only state is the output.
    """
    f, g = functions
    hidden = r.shape[1]
    for_gates, for_hidden = r[: 2 * hidden].t(), r[2 * hidden :].t()

    def step(gates: Tensor, states: States) -> States:
        (h,) = states
        update, reset = f(torch.addmm(gates[:, : 2 * hidden], h, for_gates)).chunk(2, 1)
        fresh = g(torch.addmm(gates[:, 2 * hidden :], reset * h, for_hidden))
        return (torch.lerp(fresh, h, update),)

    return Cell(_projection(w, _sum_of_halves(b)), step)


def gru_cell_linear(w: Tensor, r: Tensor, b: Tensor | None, functions: Sequence[Activation]) -> Cell:
    """A step of GRU with ``linear_before_reset``: the reset gate multiplies the hidden gate's product.

    Args:
        w: ``[3 * hidden, input]``, gates update, reset, hidden.
        r: ``[3 * hidden, hidden]``.
        b: ``[6 * hidden]`` or None.
        functions: Of the gates, and of the hidden value.

    Returns:
        The cell; its only state is the output.
    """
    f, g = functions
    hidden = r.shape[1]
    own, recurrent = (None, None) if b is None else b.chunk(2)

    def step(gates: Tensor, states: States) -> States:
        (h,) = states
        products = F.linear(h, r, recurrent)
        update, reset = f(gates[:, : 2 * hidden] + products[:, : 2 * hidden]).chunk(2, 1)
        fresh = g(torch.addcmul(gates[:, 2 * hidden :], reset, products[:, 2 * hidden :]))
        return (torch.lerp(fresh, h, update),)

    return Cell(_projection(w, own), step)


def lstm_cell(
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    p: Tensor | None,
    functions: Sequence[Activation],
    input_forget: bool,
) -> Cell:
    """A step of LSTM.

    Args:
        w: ``[4 * hidden, input]``, gates input, output, forget, cell.
        r: ``[4 * hidden, hidden]``.
        b: ``[8 * hidden]`` or None.
        p: Peepholes of input, output and forget gate, ``[3 * hidden]``, or None.
        functions: Of the gates, of the cell's input and of its output.
        input_forget: Whether the forget gate is one less the input gate.

    Returns:
        The cell; its states are the output and the cell.
    """
    f, g, h = functions
    hidden = r.shape[1]
    recurrence = r.t()
    p_input, p_output, p_forget = (None, None, None) if p is None else p.chunk(3)

    def step(gates: Tensor, states: States) -> States:
        total = torch.addmm(gates, states[0], recurrence)
        cell = states[1]
        if p_input is None or p_output is None or p_forget is None:
            enter, leave, keep = f(total[:, : 3 * hidden]).chunk(3, 1)
        else:
            enter, leave, keep, _ = total.chunk(4, 1)
            enter = f(torch.addcmul(enter, p_input, cell))
            keep = f(torch.addcmul(keep, p_forget, cell))
        if input_forget:
            keep = 1 - enter
        cell = torch.addcmul(keep * cell, enter, g(total[:, 3 * hidden :]))
        if p_output is not None:
            leave = f(torch.addcmul(leave, p_output, cell))
        return leave * h(cell), cell

    return Cell(_projection(w, _sum_of_halves(b)), step)


def _projection(w: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    return lambda x: F.linear(x, w, bias)


def _sum_of_halves(b: Tensor | None) -> Tensor | None:
    if b is None:
        return None
    own, recurrent = b.chunk(2)
    return own + recurrent
