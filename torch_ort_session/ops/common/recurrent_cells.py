"""One step of RNN, GRU and LSTM with every attribute; see :mod:`recurrent` for how they are run.

Weights are those of one direction, or of both with the directions as first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_ort_session.ops.common.recurrent import Cell, States
from torch_ort_session.ops.common.recurrent_activations import Activation

Gates = tuple[Tensor, ...]


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
    recurrence, add_product = r.mT, _product(r)

    def step(gates: Gates, states: States) -> States:
        return (f(add_product(gates[0], states[0], recurrence)),)

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
    hidden = r.shape[-1]
    add_product = _product(r)
    for_gates, for_hidden = r.mT[..., : 2 * hidden], r.mT[..., 2 * hidden :]

    def step(gates: Gates, states: States) -> States:
        (h,) = states
        update, reset = f(add_product(gates[0], h, for_gates)).chunk(2, -1)
        fresh = g(add_product(gates[1], reset * h, for_hidden))
        return (torch.lerp(fresh, h, update),)

    return Cell(_split_projection(w, _sum_of_halves(b), 2 * hidden), step)


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
    hidden = r.shape[-1]
    recurrence, add_product = r.mT, _product(r)
    own, bias = (None, r.new_zeros(())) if b is None else b.chunk(2, -1)
    bias = bias if r.dim() == 2 or b is None else bias.unsqueeze(-2)

    def step(gates: Gates, states: States) -> States:
        (h,) = states
        products = add_product(bias, h, recurrence)
        update, reset = f(gates[0] + products[..., : 2 * hidden]).chunk(2, -1)
        fresh = g(torch.addcmul(gates[1], reset, products[..., 2 * hidden :]))
        return (torch.lerp(fresh, h, update),)

    return Cell(_split_projection(w, own, 2 * hidden), step)


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
    hidden = r.shape[-1]
    recurrence, add_product = r.mT, _product(r)
    peepholes = None if p is None else (p if p.dim() == 1 else p.unsqueeze(-2)).chunk(3, -1)

    def step(gates: Gates, states: States) -> States:
        total = add_product(gates[0], states[0], recurrence)
        cell = states[1]
        if peepholes is None:
            enter, leave, keep = f(total[..., : 3 * hidden]).chunk(3, -1)
        else:
            enter, leave, keep, _ = total.chunk(4, -1)
            enter = f(torch.addcmul(enter, peepholes[0], cell))
            keep = f(torch.addcmul(keep, peepholes[2], cell))
        if input_forget:
            keep = 1 - enter
        cell = torch.addcmul(keep * cell, enter, g(total[..., 3 * hidden :]))
        if peepholes is not None:
            leave = f(torch.addcmul(leave, peepholes[1], cell))
        return leave * h(cell), cell

    return Cell(_projection(w, _sum_of_halves(b)), step)


def _product(r: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Sum and matrix product in one call."""
    return torch.addmm if r.dim() == 2 else torch.baddbmm


def _projection(w: Tensor, bias: Tensor | None) -> Callable[[Tensor], Gates]:
    def project(x: Tensor) -> Gates:
        if w.dim() == 2:
            return (F.linear(x, w, bias),)
        flat = x.flatten(1, 2)
        gates = torch.bmm(flat, w.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), flat, w.mT)
        return (gates.reshape(*x.shape[:3], w.shape[1]),)

    return project


def _split_projection(w: Tensor, bias: Tensor | None, at: int) -> Callable[[Tensor], Gates]:
    whole = _projection(w, bias)

    def project(x: Tensor) -> Gates:
        (gates,) = whole(x)
        return gates[..., :at], gates[..., at:]

    return project


def _sum_of_halves(b: Tensor | None) -> Tensor | None:
    if b is None:
        return None
    own, recurrent = b.chunk(2, -1)
    return own + recurrent
