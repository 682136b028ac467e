"""8-bit matrices in the memory orders of one library: the QOrdered operators of com.microsoft.

An order tells where an element of a matrix lies; the tensor keeps its shape.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.bytes_mm import byte_matmul
from torch_ort_session.ops.common.quantization import round_into
from torch_ort_session.ops.kernel import kernel

_COL, _ROW, _COL32 = 0, 1, 2


def _to_rows(x: Tensor, order: int) -> Tensor:
    """The matrices [..., R, C] that lie in an order, row by row."""
    if order == _ROW or x.dim() < 2:
        return x
    rows, columns = x.shape[-2:]
    if order == _COL:
        return x.reshape(*x.shape[:-2], columns, rows).transpose(-1, -2)
    if order == _COL32 and columns % 32 == 0:
        return x.reshape(*x.shape[:-2], columns // 32, rows, 32).transpose(-2, -3).reshape(x.shape)
    raise ValueError(f"the order {order} of a matrix of {columns} columns is not supported.")


def _from_rows(x: Tensor, order: int) -> Tensor:
    """The other way about."""
    if order == _ROW or x.dim() < 2:
        return x
    rows, columns = x.shape[-2:]
    if order == _COL:
        return x.transpose(-1, -2).reshape(x.shape)
    if order == _COL32 and columns % 32 == 0:
        return x.reshape(*x.shape[:-2], rows, columns // 32, 32).transpose(-2, -3).reshape(x.shape)
    raise ValueError(f"the order {order} of a matrix of {columns} columns is not supported.")


def _bytes(real: Tensor, scale: Tensor) -> Tensor:
    return round_into(real / scale, None, ElementType.INT8)


@kernel("QuantizeWithOrder", domain="com.microsoft", since=(1,))
def quantize_with_order(x: Tensor, scale_input: Tensor, *, order_input: int, order_output: int) -> Tensor:
    """``saturate(round(x / scale))`` as int8, ties to even.

    Args:
        x: float32 or float16 [..., R, C].
        scale_input: float32, a scalar.
        order_input: 0 by column, 1 by row, 2 by row in tiles of 32 columns.
        order_output: The order of the result.

    Raises:
        ValueError: Another order.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QuantizeWithOrder
    """
    return _from_rows(_bytes(_to_rows(x, order_input).to(torch.float32), scale_input), order_output)


@kernel("DequantizeWithOrder", domain="com.microsoft", since=(1,))
def dequantize_with_order(
    x: Tensor, scale_input: Tensor, *, order_input: int, order_output: int, to: int
) -> Tensor:
    """``x * scale``.

    Args:
        x: int8 [..., R, C].
        scale_input: float32, a scalar.
        order_input: As of QuantizeWithOrder.
        order_output: The order of the result.
        to: The element type of the result: float32 or float16.

    Raises:
        ValueError: Another order or type.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DequantizeWithOrder
    """
    if to not in (ElementType.FLOAT, ElementType.FLOAT16):
        raise ValueError(f"to must be float32 (1) or float16 (10), not {to}.")
    real = _to_rows(x, order_input).to(torch.float32) * scale_input
    kind = torch.float32 if to == ElementType.FLOAT else torch.float16
    return _from_rows(real.to(kind), order_output)


@kernel("QOrderedMatMul", domain="com.microsoft", since=(1,))
def q_ordered_matmul(
    a: Tensor,
    scale_a: Tensor,
    b: Tensor,
    scale_b: Tensor,
    scale_y: Tensor,
    bias: Tensor | None = None,
    c: Tensor | None = None,
    scale_c: Tensor | None = None,
    *,
    order_A: int,
    order_B: int,
    order_Y: int,
) -> Tensor:
    """``a @ b + bias + c`` of int8 matrices, as int8.

    Args:
        a: int8 [B, M, K].
        scale_a: Scalar.
        b: int8 [K, N].
        scale_b: Scalar or [N].
        scale_y: Scalar.
        bias: float32 [N].
        c: int8 [B, M, N] or [M, N].
        scale_c: Scalar.
        order_A: 1, by row.
        order_B: 0, by column.
        order_Y: 1, by row, that of C too.

    Raises:
        ValueError: Other orders.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QOrderedMatMul
    """
    if (order_A, order_B, order_Y) != (_ROW, _COL, _ROW):
        raise ValueError("rows times columns are supported, orders 1, 0 and 1.")
    real = byte_matmul(a, _to_rows(b, order_B), None, None) * (scale_a * scale_b)
    real = real if bias is None else real + bias
    if c is not None and scale_c is not None:
        real = real + c.to(torch.float32) * scale_c
    return _bytes(real, scale_y)


@kernel("QOrderedGelu", domain="com.microsoft", since=(1,))
def q_ordered_gelu(
    x: Tensor, scale_x: Tensor, scale_y: Tensor, *, order_X: int | None = None, order_Y: int | None = None
) -> Tensor:
    """Gelu of int8, in whatever order they lie.

    Args:
        x: int8.
        scale_x: Scalar.
        scale_y: Scalar.
        order_X: The order.
        order_Y: The same.

    Raises:
        ValueError: The orders differ.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QOrderedGelu
    """
    if order_X is not None and order_Y is not None and order_X != order_Y:
        raise ValueError(f"order_X {order_X} and order_Y {order_Y} differ.")
    return _bytes(F.gelu(x.to(torch.float32) * scale_x), scale_y)


@kernel("QOrderedLayerNormalization", domain="com.microsoft", since=(1,))
def q_ordered_layer_normalization(
    x: Tensor,
    scale_x: Tensor,
    scale: Tensor,
    b: Tensor | None,
    scale_y: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 9.999999747378752e-06,
    order_X: int = _ROW,
    order_Y: int = _ROW,
) -> Tensor:
    """Layer normalization of int8 over the last axis.

    Args:
        x: int8 [..., R, C].
        scale_x: Scalar.
        scale: [C].
        b: [C].
        scale_y: Scalar.
        axis: The last one.
        epsilon: Added to the variance.
        order_X: As of QuantizeWithOrder.
        order_Y: The same.

    Raises:
        ValueError: Another axis or order, or the orders differ.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QOrderedLayerNormalization
    """
    if order_X != order_Y or axis not in (-1, x.dim() - 1):
        raise ValueError("the last axis is supported, with one order for both.")
    real = _to_rows(x, order_X).to(torch.float32) * scale_x
    shift = None if b is None else b.to(torch.float32)
    y = torch.layer_norm(real, real.shape[-1:], scale.to(torch.float32), shift, epsilon)
    return _from_rows(_bytes(y, scale_y), order_Y)
