"""Recurrent layers of com.microsoft."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.rnn import lstm


@kernel("DynamicQuantizeLSTM", domain="com.microsoft", since=(1,))
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

    The activations stay in float: onnxruntime quantizes them too, at each time step, to multiply integers, so
    this result is the closer one to the float layer and differs from onnxruntime's by that quantization.

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
    weights = _dequantized(w, w_scale, w_zero_point, x).transpose(1, 2)
    recurrence = _dequantized(r, r_scale, r_zero_point, x).transpose(1, 2)
    return lstm(
        x,
        weights,
        recurrence,
        b,
        sequence_lens,
        initial_h,
        initial_c,
        p,
        activations=activations,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
        input_forget=input_forget,
        ctx=ctx,
    )


def _dequantized(weight: Tensor, scale: Tensor, zero_point: Tensor, like: Tensor) -> Tensor:
    directions = weight.shape[0]
    offset = zero_point.reshape(directions, 1, -1).to(like.dtype)
    return (weight.to(like.dtype) - offset) * scale.reshape(directions, 1, -1)
