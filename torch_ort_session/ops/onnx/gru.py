"""GRU: a fused layer, of the extension or of torch, where it means the same, else step by step.

Source: https://onnx.ai/onnx/operators/onnx__GRU.html
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

_ORDER = (1, 0, 2)  # torch's reset, update, new in ONNX's update, reset, hidden


@kernel("GRU", since=(3, 7, 14, 22), checks=has_input(4), native=("check_range", "gru_layer"))
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor | None, Tensor | None]:
    """A gated recurrent layer; gates are update, reset, hidden.

    Source: https://onnx.ai/onnx/operators/onnx__GRU.html

    Args:
        x: ``[time, batch, input]``, or batch first when ``layout`` is 1.
        w: ``[directions, 3 * hidden, input]``.
        r: ``[directions, 3 * hidden, hidden]``.
        b: ``[directions, 6 * hidden]`` or None.
        sequence_lens: int32 ``[batch]`` or None.
        initial_h: ``[directions, batch, hidden]`` or None for zeros.
        activations: Two functions a direction.
        activation_alpha: Their alphas.
        activation_beta: Their betas.
        clip: Bound of their inputs.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        hidden_size: As in ``r``.
        layout: 0, or 1 for batch first everywhere.
        linear_before_reset: Whether the reset gate multiplies the product, not its input.
        output_sequence: Of old revisions; the outputs that the node names say the same.
        ctx: Tells which outputs are wanted.

    Returns:
        Y ``[time, directions, batch, hidden]`` and Y_h ``[directions, batch, hidden]``.

    Raises:
        ValueError: Shapes or attributes contradict each other.
    """
    count = recurrent.count_directions(direction, w)
    names = functions_of.named(activations, ("sigmoid", "tanh"), count)
    dtype = x.dtype
    x, states = recurrent.inputs(x, w, r, 3, hidden_size, layout, initial_h)
    w, r, b, lengths = ready(x, w, r, b, sequence_lens, ctx)
    usual = names == ["sigmoid", "tanh"] * count
    # Both directions of a small batch at once are faster than torch's layer, which runs one after the other.
    few = x.shape[0] <= 4 or (count == 2 and x.shape[1] <= 2)
    linear = bool(linear_before_reset)
    results = None
    if usual:
        results = recurrent_native.gru_layer(x, states, (w, r, b), direction, lengths, clip, linear)
    if results is not None:
        y, states = results
    elif usual and clip is None and linear and not few:

        def layer(xs: Tensor, initial: States, flat: list[Tensor], both: bool) -> tuple[Tensor, ...]:
            trains = torch.is_grad_enabled()
            return torch.gru(xs, initial[0], flat, b is not None, 1, 0.0, trains, both, False)

        parameters = recurrent.torch_parameters(w, r, b, _ORDER)
        y, states = recurrent.fuse(layer, x, states, parameters, direction, lengths)
    else:
        functions = functions_of.activations(names, activation_alpha, activation_beta)
        functions = [functions_of.clipped(function, clip) for function in functions]
        cell = recurrent_cells.gru_cell_linear if linear else recurrent_cells.gru_cell
        cells = [
            cell(w[at], r[at], None if b is None else b[at], own)
            for at, own in functions_of.by_direction(functions, count)
        ]
        y, states = recurrent.unroll(cells, x, states, direction, lengths)
    y_out, h_out = recurrent.outputs(y, states, layout, dtype, ctx.wanted)
    return y_out, h_out


@kernel("GRU", since=(1,), checks=has_input(4), native=("check_range", "gru_layer"))
def gru_1(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "foward",
    hidden_size: int | None = None,
    output_sequence: int = 0,
    ctx: KernelContext,
) -> tuple[Tensor | None, Tensor | None]:
    """The first GRU, whose schema misspells its default direction; see :func:`gru`."""
    return gru(
        x,
        w,
        r,
        b,
        sequence_lens,
        initial_h,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction="forward" if direction == "foward" else direction,
        hidden_size=hidden_size,
        ctx=ctx,
    )
