"""Elementwise, pooling and joining operators of com.microsoft on quantized tensors.

Each takes its inputs' numbers out of their quantized form, computes in float32 and quantizes the result.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.types import element_type_of
from torch_ort_session.ops.common.bytewise import of_each, pair, requantized, shifted
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx.images.pool import average_pool


@kernel("QLinearAdd", domain="com.microsoft", since=(1,), native=("quantized_pair",))
def qlinear_add(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor | None,
    c_scale: Tensor,
    c_zero_point: Tensor | None = None,
) -> Tensor:
    """Sum of two int8 or uint8 tensors, with broadcast; scales and zero points are scalars.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearAdd
    """
    left, right = (a, a_scale, a_zero_point), (b, b_scale, b_zero_point)
    return pair(left, right, c_scale, c_zero_point, product=False)


@kernel("QLinearMul", domain="com.microsoft", since=(1,), native=("quantized_pair",))
def qlinear_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor | None,
    c_scale: Tensor,
    c_zero_point: Tensor | None = None,
) -> Tensor:
    """Product of two int8 or uint8 tensors, with broadcast; scales and zero points are scalars.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearMul
    """
    left, right = (a, a_scale, a_zero_point), (b, b_scale, b_zero_point)
    return pair(left, right, c_scale, c_zero_point, product=True)


@kernel("QLinearSigmoid", domain="com.microsoft", since=(1,), native=("by_table", "requantize"))
def qlinear_sigmoid(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
) -> Tensor:
    """Sigmoid of an int8 or uint8 tensor.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearSigmoid
    """

    def of(codes: Tensor) -> Tensor:
        real = torch.sigmoid(_real(codes, x_scale, x_zero_point))
        return _quantized(real, y_scale, y_zero_point, codes.dtype)

    return of_each(x, of)


@kernel("QLinearLeakyRelu", domain="com.microsoft", since=(1,), native=("by_table", "requantize"))
def qlinear_leaky_relu(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    alpha: float = 0.009999999776482582,
) -> Tensor:
    """LeakyRelu of an int8 or uint8 tensor.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearLeakyRelu
    """

    def of(codes: Tensor) -> Tensor:
        real = F.leaky_relu(_real(codes, x_scale, x_zero_point), alpha)
        return _quantized(real, y_scale, y_zero_point, codes.dtype)

    return of_each(x, of)


@kernel("QLinearConcat", domain="com.microsoft", since=(1,), native=("requantize",))
def qlinear_concat(y_scale: Tensor, y_zero_point: Tensor, *inputs: Tensor, axis: int) -> Tensor:
    """Tensors joined along an axis, each brought to the result's scale.

    Args:
        y_scale: Scalar.
        y_zero_point: Scalar; its type is the result's.
        *inputs: Tensor, scale and zero point, over and over.
        axis: Axis to join along.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearConcat
    """
    element = element_type_of(y_zero_point.dtype)
    parts = [
        requantized(x, zero, scale / y_scale, y_zero_point, element)
        for x, scale, zero in zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    ]
    return torch.cat(parts, axis)


@kernel("QLinearAveragePool", domain="com.microsoft", since=(1,), native=("requantize",))
def qlinear_average_pool(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """AveragePool of an int8 or uint8 tensor; with ``channels_last`` its channels come last.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearAveragePool
    """
    real = _real(x, x_scale, x_zero_point)
    y = average_pool(
        real.movedim(-1, 1) if channels_last else real,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    result = _quantized(y, y_scale, y_zero_point, x.dtype)
    return result.movedim(1, -1).contiguous() if channels_last else result


@kernel("QLinearGlobalAveragePool", domain="com.microsoft", since=(1,), native=("requantize",))
def qlinear_global_average_pool(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    *,
    channels_last: int = 0,
) -> Tensor:
    """Mean over all spatial axes of an int8 or uint8 tensor, which are kept with size 1.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearGlobalAveragePool
    """
    dims = tuple(range(1, x.dim() - 1)) if channels_last else tuple(range(2, x.dim()))
    mean = shifted(x, x_zero_point).mean(dims, keepdim=True)
    return requantized(mean, None, x_scale / y_scale, y_zero_point, element_type_of(x.dtype))


@kernel("QLinearSoftmax", domain="com.microsoft", since=(1,), native=("requantize",))
def qlinear_softmax(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor,
    *,
    axis: int = -1,
    opset: int,
) -> Tensor:
    """Softmax of an int8 or uint8 tensor: along ``axis``, or before opset 13 over all axes from it on.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearSoftmax
    """
    real = _real(x, x_scale, x_zero_point)
    if opset >= 13:
        y = torch.softmax(real, axis)
    else:
        y = torch.softmax(real.flatten(axis), -1).reshape(x.shape)
    return _quantized(y, y_scale, y_zero_point, x.dtype)


@kernel("QLinearReduceMean", domain="com.microsoft", since=(1,), native=("requantize",))
def qlinear_reduce_mean(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor | None,
    y_scale: Tensor,
    y_zero_point: Tensor | None = None,
    *,
    axes: list[int],
    keepdims: int,
) -> Tensor:
    """Mean of an int8 or uint8 tensor over some axes.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearReduceMean
    """
    mean = _real(x, x_scale, x_zero_point).mean(axes or None, keepdim=keepdims != 0)
    return _quantized(mean, y_scale, y_zero_point, x.dtype)


@kernel("QLinearWhere", domain="com.microsoft", since=(1,), native=("requantize",))
def qlinear_where(
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    z_scale: Tensor,
    z_zero_point: Tensor,
) -> Tensor:
    """Elements of one of two int8 or uint8 tensors, brought to one scale.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QLinearWhere
    """
    real = torch.where(condition, _real(x, x_scale, x_zero_point), _real(y, y_scale, y_zero_point))
    return _quantized(real, z_scale, z_zero_point, x.dtype)


def _real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    return shifted(x, zero) * scale


def _quantized(y: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    return requantized(y, None, scale, zero, element_type_of(dtype), divide=True)
