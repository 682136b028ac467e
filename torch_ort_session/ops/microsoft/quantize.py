"""QuantizeLinear and DequantizeLinear of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx import quantize


@kernel("QuantizeLinear", domain="com.microsoft", since=(1,), native=("requantize",))
def quantize_linear(
    x: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    axis: int | None = None,
    ctx: KernelContext,
) -> Tensor:
    """``saturate(round(x / y_scale) + y_zero_point)``, ties to even.

    Args:
        x: float32 or float16.
        y_scale: Scalar, or 1-D along ``axis``.
        y_zero_point: Same shape; its type is the result's, uint8 without it.
        axis: Quantization axis.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QuantizeLinear
    """
    return quantize.quantize_linear(x, y_scale, y_zero_point, axis=1 if axis is None else axis, ctx=ctx)


@kernel("DequantizeLinear", domain="com.microsoft", since=(1,))
def dequantize_linear(
    x: Tensor, x_scale: Tensor, x_zero_point: Tensor | None = None, *, axis: int | None = None
) -> Tensor:
    """``(x - x_zero_point) * x_scale``.

    Args:
        x: A quantized type, or int32.
        x_scale: Scalar, or 1-D along ``axis``.
        x_zero_point: Same shape, type of ``x``.
        axis: Quantization axis.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DequantizeLinear
    """
    return quantize.dequantize_linear(x, x_scale, x_zero_point, axis=1 if axis is None else axis)
