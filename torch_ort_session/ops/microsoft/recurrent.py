"""Recurrent layers of com.microsoft."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from torch_ort_session.ops.common import recurrent
from torch_ort_session.ops.common import recurrent_activations as functions_of
from torch_ort_session.ops.common.checks import check_lengths, has_input
from torch_ort_session.ops.common.recurrent import Cell, States
from torch_ort_session.ops.common.recurrent_cells import lstm_cell
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.quantize import dynamic_quantize_linear


@kernel(
    "DynamicQuantizeLSTM",
    domain="com.microsoft",
    since=(1,),
    checks=has_input(4),
    native=("check_range", "requantize"),
)
def dynamic_quantize_lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    p: Tensor | None,
    w_scale: Tensor,
    w_zero_point: Tensor,
    r_scale: Tensor,
    r_zero_point: Tensor,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """An LSTM with 8-bit weights.

    As onnxruntime does, the whole input and each step's hidden state are rounded to 8 bits, each with one
    scale, before they meet the weights; the products are summed in float, which is exact enough.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md

    Args:
        x: Float ``[time, batch, input]``.
        w: int8 or uint8 ``[directions, input, 4 * hidden]``, gates in the order input, output, forget, cell.
        r: int8 or uint8 ``[directions, hidden, 4 * hidden]``.
        b: Float ``[directions, 8 * hidden]`` or None.
        sequence_lens: int32 ``[batch]`` or None.
        initial_h: ``[directions, batch, hidden]`` or None for zeros.
        initial_c: The same for the cell.
        p: Peepholes ``[directions, 3 * hidden]`` or None.
        w_scale: ``[directions]`` or ``[directions, 4 * hidden]``.
        w_zero_point: As ``w_scale``, in the dtype of ``w``.
        r_scale: As ``w_scale``.
        r_zero_point: As ``w_scale``.
        activations: Three functions a direction.
        activation_alpha: Their alphas.
        activation_beta: Their betas.
        clip: Bound of their inputs.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        hidden_size: As in ``r``.
        input_forget: Whether the forget gate is one minus the input gate.
        ctx: Tells which outputs are wanted.

    Returns:
        Y ``[time, directions, batch, hidden]``, Y_h and Y_c ``[directions, batch, hidden]``.
    """
    count = recurrent.count_directions(direction, w)
    names = functions_of.named(activations, ("sigmoid", "tanh", "tanh"), count)
    functions = functions_of.activations(names, activation_alpha, activation_beta)
    functions = [f if i % 3 == 2 else functions_of.clipped(f, clip) for i, f in enumerate(functions)]
    weights = _dequantized(w, w_scale, w_zero_point, x).transpose(1, 2)
    recurrence = _dequantized(r, r_scale, r_zero_point, x).transpose(1, 2)
    x, states = recurrent.inputs(x, weights, recurrence, 4, hidden_size, 0, initial_h, initial_c)
    cells = [
        _quantizing(
            lstm_cell(
                weights[d],
                recurrence[d],
                None if b is None else b[d],
                None if p is None else p[d],
                functions[3 * d : 3 * d + 3],
                bool(input_forget),
            )
        )
        for d in range(count)
    ]
    lengths = check_lengths(sequence_lens, x.shape[0], ctx)
    y, states = recurrent.unroll(cells, x, states, direction, lengths)
    y_out, h_out, c_out = recurrent.outputs(y, states, 0, x.dtype, ctx.wanted)
    return y_out, h_out, c_out


def _quantizing(cell: Cell) -> Cell:
    """The cell, with what it multiplies by its weights rounded to 8 bits."""

    def project(x: Tensor) -> tuple[Tensor, ...]:
        return cell.project(_rounded(x))

    def step(gates: tuple[Tensor, ...], states: States) -> States:
        return cell.step(gates, (_rounded(states[0]), *states[1:]))

    return Cell(project, step)


def _rounded(x: Tensor) -> Tensor:
    if x.numel() == 0:
        return x
    quantized, scale, zero_point = dynamic_quantize_linear(x)
    return (quantized.to(x.dtype) - zero_point.to(x.dtype)) * scale


def _dequantized(weight: Tensor, scale: Tensor, zero_point: Tensor, like: Tensor) -> Tensor:
    directions = weight.shape[0]
    offset = zero_point.reshape(directions, 1, -1).to(like.dtype)
    return (weight.to(like.dtype) - offset) * scale.reshape(directions, 1, -1)
