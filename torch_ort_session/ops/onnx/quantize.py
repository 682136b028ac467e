"""Between numbers and their quantized form: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.

Sources: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html and the pages of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType, element_type_of
from torch_ort_session.ops.common.bytewise import requantized
from torch_ort_session.ops.common.quantization import round_into, spread
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("QuantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28), native=("requantize",))
def quantize_linear(
    x: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    ctx: KernelContext,
) -> Tensor:
    """``saturate(round(x / y_scale) + y_zero_point)``, ties to even.

    Args:
        x: Floats or int32.
        y_scale: A scalar, 1-D along ``axis``, or blocked along ``axis``.
        y_zero_point: Same shape; its type is the result's.
        axis: Quantization axis.
        block_size: Length of a block, 0 for none.
        output_dtype: Element type of the result where there is no zero point; 0 is uint8.
        precision: Element type of the division; 0 is the scale's.
        saturate: Whether 8-bit floats saturate.

    Returns:
        A tensor like ``x`` of the quantized type.

    Raises:
        ValueError: Shapes or types do not fit each other.

    Source: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
    """
    if y_zero_point is None:
        element = ElementType(output_dtype) if output_dtype else ElementType.UINT8
    else:
        element = ctx.input_type(2) or element_type_of(y_zero_point.dtype)
        if output_dtype and output_dtype != element:
            # A zero point of less than a byte may come as the type that carries it.
            if element.torch_dtype is not ElementType(output_dtype).torch_dtype:
                raise ValueError(f"output_dtype is {output_dtype}, but the zero point is {element.label}.")
            element = ElementType(output_dtype)
        y_zero_point = spread(y_zero_point, x, axis, block_size)
    y_scale = spread(y_scale, x, axis, block_size)
    if precision:
        wide = ElementType(precision).torch_dtype
        x, y_scale = x.to(wide), y_scale.to(wide)
    elif x.dtype is not y_scale.dtype and y_scale.is_floating_point():
        x = x.to(y_scale.dtype)
    if element is ElementType.UINT8 or element is ElementType.INT8:
        return requantized(x, None, y_scale, y_zero_point, element, divide=True)
    return round_into(torch.div(x, y_scale), y_zero_point, element, saturate != 0)


@kernel("DequantizeLinear", since=(10, 13, 19, 21, 23, 24, 25, 28))
def dequantize_linear(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    """``(x - x_zero_point) * x_scale``.

    Args:
        x: A quantized type, or int32.
        x_scale: A scalar, 1-D along ``axis``, or blocked along ``axis``.
        x_zero_point: Same shape, type of ``x``.
        axis: Quantization axis.
        block_size: Length of a block, 0 for none.
        output_dtype: Element type of the result; 0 is the scale's.

    Raises:
        ValueError: Shapes do not fit each other.

    Source: https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html
    """
    wide = x.to(torch.float32)
    if x_zero_point is not None:
        wide = wide.sub_(spread(x_zero_point, x, axis, block_size))
    scale = spread(x_scale, x, axis, block_size)
    y = wide * scale
    dtype = ElementType(output_dtype).torch_dtype if output_dtype else scale.dtype
    return y.to(dtype)


@kernel("DynamicQuantizeLinear", since=(11,), native=("requantize",))
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantized to uint8 by the range of the data itself, widened to hold 0.

    Of no data the scale is 1 and the zero point 0, as onnxruntime has it.

    Args:
        x: float32.

    Returns:
        The quantized tensor, its scale (float32 scalar) and its zero point (uint8 scalar).

    Source: https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
    """
    if x.numel() == 0:
        return x.to(torch.uint8), x.new_ones(()), x.new_zeros((), dtype=torch.uint8)
    low, high = torch.aminmax(x.detach())
    low, high = low.clamp(max=0), high.clamp(min=0)
    span = high - low
    scale = torch.where(span == 0, 1.0, span) / 255.0
    zero = torch.round(-low / scale)
    zero = zero.to(torch.uint8)
    return requantized(x.detach(), None, scale, zero, ElementType.UINT8, divide=True), scale, zero
