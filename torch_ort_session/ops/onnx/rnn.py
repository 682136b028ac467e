"""RNN and LSTM: a fused layer, of the extension or of torch, where it means the same, else step by step.

Source: https://onnx.ai/onnx/operators/onnx__RNN.html, https://onnx.ai/onnx/operators/onnx__LSTM.html
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ort_session.ops.common import recurrent, recurrent_cells
from torch_ort_session.ops.common import recurrent_activations as functions_of
from torch_ort_session.ops.common.checks import has_input
from torch_ort_session.ops.common.recurrent import States, ready
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx import recurrent_native

_LSTM_ORDER = (0, 2, 3, 1)  # torch's input, forget, cell, output in ONNX's input, output, forget, cell


@kernel("RNN", since=(1, 7, 14, 22), checks=has_input(4), native=("check_range",))
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: Sequence[str] = ("Tanh", "Tanh"),
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor | None, Tensor | None]:
    """A simple recurrent layer.

    Source: https://onnx.ai/onnx/operators/onnx__RNN.html

    Args:
        x: ``[time, batch, input]``, or batch first when ``layout`` is 1.
        w: ``[directions, hidden, input]``.
        r: ``[directions, hidden, hidden]``.
        b: ``[directions, 2 * hidden]`` or None.
        sequence_lens: int32 ``[batch]`` or None.
        initial_h: ``[directions, batch, hidden]`` or None for zeros.
        activations: One function a direction.
        activation_alpha: Their alphas.
        activation_beta: Their betas.
        clip: Bound of their inputs.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        hidden_size: As in ``r``.
        layout: 0, or 1 for batch first everywhere.
        output_sequence: Of revision 1; the outputs that the node names say the same.
        ctx: Tells which outputs are wanted.

    Returns:
        Y ``[time, directions, batch, hidden]`` and Y_h ``[directions, batch, hidden]``.

    Raises:
        ValueError: Shapes or attributes contradict each other.
    """
    count = recurrent.count_directions(direction, w)
    names = functions_of.named(activations, ("tanh",), count)
    dtype = x.dtype
    x, states = recurrent.inputs(x, w, r, 1, hidden_size, layout, initial_h)
    w, r, b, lengths = ready(x, w, r, b, sequence_lens, ctx)
    if clip is None and x.shape[0] > 0 and set(names) in ({"tanh"}, {"relu"}):
        parameters = recurrent.torch_parameters(w, r, b, (0,))
        function = torch.rnn_tanh if names[0] == "tanh" else torch.rnn_relu

        def layer(xs: Tensor, initial: States, flat: list[Tensor], both: bool) -> tuple[Tensor, ...]:
            return function(xs, initial[0], flat, b is not None, 1, 0.0, torch.is_grad_enabled(), both, False)

        y, states = recurrent.fuse(layer, x, states, parameters, direction, lengths)
    else:
        functions = functions_of.activations(names, activation_alpha, activation_beta)
        functions = [functions_of.clipped(function, clip) for function in functions]
        cells = [
            recurrent_cells.rnn_cell(w[at], r[at], None if b is None else b[at], *own)
            for at, own in functions_of.by_direction(functions, count)
        ]
        y, states = recurrent.unroll(cells, x, states, direction, lengths)
    y_out, h_out = recurrent.outputs(y, states, layout, dtype, ctx.wanted)
    return y_out, h_out


@kernel("LSTM", since=(1, 7, 14, 22), checks=has_input(4), native=("check_range", "lstm_layer"))
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """A long short-term memory layer; gates are input, output, forget, cell.

    Source: https://onnx.ai/onnx/operators/onnx__LSTM.html

    Args:
        x: ``[time, batch, input]``, or batch first when ``layout`` is 1.
        w: ``[directions, 4 * hidden, input]``.
        r: ``[directions, 4 * hidden, hidden]``.
        b: ``[directions, 8 * hidden]`` or None.
        sequence_lens: int32 ``[batch]`` or None.
        initial_h: ``[directions, batch, hidden]`` or None for zeros.
        initial_c: The same for the cell.
        p: Peepholes of input, output and forget gate, ``[directions, 3 * hidden]``, or None.
        activations: Three functions a direction.
        activation_alpha: Their alphas.
        activation_beta: Their betas.
        clip: Bound of the gates before their function.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        hidden_size: As in ``r``.
        input_forget: Whether the forget gate is one less the input gate.
        layout: 0, or 1 for batch first everywhere.
        output_sequence: Of revision 1; the outputs that the node names say the same.
        ctx: Tells which outputs are wanted.

    Returns:
        Y ``[time, directions, batch, hidden]``, Y_h and Y_c ``[directions, batch, hidden]``.

    Raises:
        ValueError: Shapes or attributes contradict each other.
    """
    count = recurrent.count_directions(direction, w)
    names = functions_of.named(activations, ("sigmoid", "tanh", "tanh"), count)
    dtype = x.dtype
    x, states = recurrent.inputs(x, w, r, 4, hidden_size, layout, initial_h, initial_c)
    w, r, b, lengths = ready(x, w, r, b, sequence_lens, ctx)
    usual = p is None and not input_forget and names == ["sigmoid", "tanh", "tanh"] * count
    # Products of many rows are as fast in torch's layer, which has its own for whole sequences.
    many = x.shape[1] >= 16 and clip is None and lengths is None
    results = None
    if usual and not many:
        results = recurrent_native.lstm_layer(x, states, (w, r, b), direction, lengths, clip)
    # Few steps cost less than copying the weights into torch's order, which takes longer than the steps where
    # the weights are large. With lengths the fused layer does not tell the cell at a sequence's end.
    few = x.shape[0] <= (8 if w.numel() + r.numel() <= 1 << 20 else 64)
    if results is not None:
        y, states = results
    elif usual and clip is None and not few and (lengths is None or not ctx.wants(2)):

        def layer(xs: Tensor, initial: States, flat: list[Tensor], both: bool) -> tuple[Tensor, ...]:
            trains = torch.is_grad_enabled()
            return torch.lstm(xs, list(initial), flat, b is not None, 1, 0.0, trains, both, False)

        parameters = recurrent.torch_parameters(w, r, b, _LSTM_ORDER)
        y, states = recurrent.fuse(layer, x, states, parameters, direction, lengths)
    else:
        functions = functions_of.activations(names, activation_alpha, activation_beta)
        # Gates are clipped; the cell on its way out is a state, which is not.
        functions = [f if i % 3 == 2 else functions_of.clipped(f, clip) for i, f in enumerate(functions)]
        p = None if p is None else p.to(x.dtype)
        cells = [
            recurrent_cells.lstm_cell(
                w[at],
                r[at],
                None if b is None else b[at],
                None if p is None else p[at],
                own,
                bool(input_forget),
            )
            for at, own in functions_of.by_direction(functions, count)
        ]
        y, states = recurrent.unroll(cells, x, states, direction, lengths)
    y_out, h_out, c_out = recurrent.outputs(y, states, layout, dtype, ctx.wanted)
    return y_out, h_out, c_out
