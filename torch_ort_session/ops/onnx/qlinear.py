"""Products and convolutions of quantized tensors: MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv.

Sources: https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html and the pages of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.types import element_type_of
from torch_ort_session.ops.common.bytes_mm import byte_conv, byte_matmul
from torch_ort_session.ops.common.bytewise import requantized
from torch_ort_session.ops.common.windows import Geometry, geometry
from torch_ort_session.ops.kernel import kernel


@kernel("MatMulInteger", since=(10,))
def matmul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor | None = None, b_zero_point: Tensor | None = None
) -> Tensor:
    """``(a - a_zero_point) @ (b - b_zero_point)`` in int32.

    Args:
        a: int8 or uint8 [..., M, K] or [K].
        b: int8 or uint8 [..., K, N] or [K].
        a_zero_point: Scalar, [M] by row, or broadcastable to ``a``.
        b_zero_point: Scalar, [N] by column, or broadcastable to ``b``.

    Source: https://onnx.ai/onnx/operators/onnx__MatMulInteger.html
    """
    return byte_matmul(a, b, a_zero_point, b_zero_point)


@kernel("ConvInteger", since=(10,))
def conv_integer(
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Convolution of quantized tensors, in int32; pads are worth the zero point.

    Args:
        x: int8 or uint8 [N, C, D1..Dn].
        w: int8 or uint8 [M, C / group, K1..Kn].
        x_zero_point: Scalar.
        w_zero_point: Scalar or [M].
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        dilations: Dilation by axis.
        group: Number of channel groups.
        kernel_shape: K1..Kn once more.
        pads: Begins, then ends.
        strides: Stride by axis.

    Raises:
        ValueError: An attribute does not fit the inputs.

    Source: https://onnx.ai/onnx/operators/onnx__ConvInteger.html
    """
    over = _geometry(x, w, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    return byte_conv(x, w, x_zero_point, w_zero_point, over, group)


@kernel("QLinearMatMul", since=(10, 21), native=("requantize",))
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
) -> Tensor:
    """Product of quantized tensors, quantized again.

    Args:
        a: int8, uint8 or an 8-bit float [..., M, K] or [K].
        a_scale: Scalar, [M] by row, or broadcastable to ``a``.
        a_zero_point: Shape of ``a_scale``.
        b: int8, uint8 or an 8-bit float [..., K, N] or [K].
        b_scale: Scalar, [N] by column, or broadcastable to ``b``.
        b_zero_point: Shape of ``b_scale``.
        y_scale: Scalar, [M] by row, or broadcastable to the result.
        y_zero_point: Shape of ``y_scale``; its type is the result's.

    Source: https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html
    """
    if a.is_floating_point() or b.is_floating_point():
        left = a.to(torch.float32) - _by_row(a_zero_point).to(torch.float32)
        product = torch.matmul(left, b.to(torch.float32) - b_zero_point.to(torch.float32))
    else:
        product = byte_matmul(a, b, a_zero_point, b_zero_point)
    scale = _by_row(a_scale).to(torch.float32) * b_scale.to(torch.float32)
    scale = scale / _by_row(y_scale).to(torch.float32)
    zero = _by_row(y_zero_point)
    if zero.is_floating_point():
        zero = zero.to(torch.float32)
    return requantized(product, None, scale, zero, element_type_of(y_zero_point.dtype))


@kernel("QLinearConv", since=(10,), native=("requantize",))
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
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Convolution of quantized tensors, quantized again; pads are worth the zero point.

    Args:
        x: int8 or uint8 [N, C, D1..Dn].
        x_scale: Scalar.
        x_zero_point: Scalar.
        w: int8 or uint8 [M, C / group, K1..Kn].
        w_scale: Scalar or [M].
        w_zero_point: Scalar or [M].
        y_scale: Scalar.
        y_zero_point: Scalar; its type is the result's.
        b: int32 [M], in units of ``x_scale * w_scale``.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        dilations: Dilation by axis.
        group: Number of channel groups.
        kernel_shape: K1..Kn once more.
        pads: Begins, then ends.
        strides: Stride by axis.

    Raises:
        ValueError: An attribute does not fit the inputs.

    Source: https://onnx.ai/onnx/operators/onnx__QLinearConv.html
    """
    over = _geometry(x, w, kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    y = byte_conv(x, w, x_zero_point, w_zero_point, over, group)
    by_channel = (-1, *[1] * (w.dim() - 2))
    if b is not None:
        y = y + b.reshape(by_channel)
    scale = x_scale * w_scale.reshape(by_channel) / y_scale
    return requantized(y, None, scale, y_zero_point, element_type_of(y_zero_point.dtype))


def _geometry(
    x: Tensor,
    w: Tensor,
    kernel_shape: list[int] | None,
    *,
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
    auto_pad: str,
) -> Geometry:
    kernel_size = w.shape[2:]
    if kernel_shape is not None and tuple(kernel_shape) != tuple(kernel_size):
        raise ValueError(
            f"kernel_shape is {kernel_shape}, but the weight's spatial shape is {list(kernel_size)}."
        )
    return geometry(
        x.shape[2:], kernel_size, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )


def _by_row(value: Tensor) -> Tensor:
    """A 1-D value by row as a column; a single number stays."""
    return value.unsqueeze(-1) if value.dim() == 1 and value.shape[0] > 1 else value
