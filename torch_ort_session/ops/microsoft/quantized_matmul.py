"""Products of com.microsoft with quantized weights.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.types import element_type_of
from torch_ort_session.ops.common.bytes_mm import byte_matmul
from torch_ort_session.ops.common.bytewise import requantized
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx.quantize import dynamic_quantize_linear


@kernel("DynamicQuantizeMatMul", domain="com.microsoft", since=(1,), native=("requantize",))
def dynamic_quantize_matmul(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """``a`` quantized by its own range, times quantized ``b``.

    Args:
        a: float32 [..., M, K].
        b: int8 or uint8 [..., K, N].
        b_scale: Scalar, [N], or [..., 1, N] by matrix.
        b_zero_point: Scalar, [N], or [..., 1, N] by matrix.
        bias: [N].

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DynamicQuantizeMatMul
    """
    if not a.numel():
        # Nothing has no range.
        y = torch.matmul(a, b.to(a.dtype))
    else:
        quantized, scale, zero = dynamic_quantize_linear(a)
        y = byte_matmul(quantized, b, zero, b_zero_point) * (scale * b_scale)
    return y if bias is None else y + bias


@kernel("MatMulIntegerToFloat", domain="com.microsoft", since=(1,))
def matmul_integer_to_float(
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Product of two quantized tensors in floats.

    Args:
        a: int8 or uint8 [..., M, K].
        b: int8 or uint8 [..., K, N].
        a_scale: Scalar, or [K] by column of ``a``.
        b_scale: Scalar, [N], or [..., 1, N] by matrix.
        a_zero_point: Scalar, or [K] by column of ``a``.
        b_zero_point: Scalar, [N], or [..., 1, N] by matrix.
        bias: [N].

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulIntegerToFloat
    """
    if a_zero_point is not None and a_zero_point.numel() > 1:
        a_zero_point = a_zero_point.unsqueeze(0)
    if a_scale.numel() > 1:
        left, right = a.to(torch.float32), b.to(torch.float32)
        left = left if a_zero_point is None else left - a_zero_point
        right = right if b_zero_point is None else right - b_zero_point
        y = (left * a_scale) @ right * b_scale
    else:
        product = byte_matmul(a, b, a_zero_point, b_zero_point).to(torch.float32)
        y = product * (a_scale.to(torch.float32) * b_scale.to(torch.float32))
    y = y.to(a_scale.dtype)
    return y if bias is None else y + bias


@kernel("QGemm", domain="com.microsoft", since=(1,), native=("requantize",))
def qgemm(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero_point: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """Gemm of quantized matrices.

    Args:
        a: int8 or uint8 [M, K], or [K, M] when ``transA``.
        a_scale: Scalar.
        a_zero_point: Scalar.
        b: int8 or uint8 [K, N], or [N, K] when ``transB``.
        b_scale: Scalar or [N].
        b_zero_point: Scalar or [N].
        c: int32, broadcastable to [M, N], in units of ``a_scale * b_scale``.
        y_scale: Scalar; without it the result is float32.
        y_zero_point: Scalar; its type is the result's.
        alpha: Factor of the result.
        transA: Whether A comes transposed.
        transB: Whether B comes transposed.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QGemm
    """
    product = byte_matmul(a.t() if transA else a, b.t() if transB else b, a_zero_point, b_zero_point)
    if c is not None:
        product = product + c
    scale = a_scale * b_scale * alpha
    if y_scale is None or y_zero_point is None:
        return product * scale
    return requantized(product, None, scale / y_scale, y_zero_point, element_type_of(y_zero_point.dtype))
