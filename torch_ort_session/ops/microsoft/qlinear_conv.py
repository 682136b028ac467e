"""QLinearConv of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearConv
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx import qlinear


@kernel("QLinearConv", domain="com.microsoft", since=(1,), native=("requantize",))
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """QLinearConv of ai.onnx, whose images may have their channels last.

    Args:
        x: int8 or uint8 [N, C, D1..Dn], or [N, D1..Dn, C] with ``channels_last``.
        x_scale: Scalar.
        x_zero_point: Scalar.
        w: int8 or uint8 [M, C / group, K1..Kn].
        w_scale: Scalar or [M].
        w_zero_point: Scalar or [M].
        y_scale: Scalar.
        y_zero_point: Scalar; its type is the result's.
        b: int32 [M], in units of ``x_scale * w_scale``.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        channels_last: Whether the channels of the input and the result come last.
        dilations: Dilation by axis.
        group: Number of channel groups.
        kernel_shape: K1..Kn once more.
        pads: Begins, then ends.
        strides: Stride by axis.

    Raises:
        ValueError: An attribute does not fit the inputs.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearConv
    """
    y = qlinear.qlinear_conv(
        x.movedim(-1, 1) if channels_last else x,
        x_scale,
        x_zero_point,
        w,
        w_scale,
        w_zero_point,
        y_scale,
        y_zero_point,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return y.movedim(1, -1).clone(memory_format=torch.contiguous_format) if channels_last else y
