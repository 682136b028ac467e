"""Sums and products of small integers of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("MatMulInteger16", domain="com.microsoft", since=(1,))
def matmul_integer_16(a: Tensor, b: Tensor) -> Tensor:
    """The product of matrices of 16 bit integers, its sums wrapped at 32 bits.

    Args:
        a: int16 or uint16 [..., M, K].
        b: int16 or uint16 [..., K, N].

    Returns:
        int32, or uint32 of two unsigned inputs.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulInteger16
    """
    unsigned = a.dtype == b.dtype == torch.uint16
    # A float64 holds every sum of 2**21 such products exactly, and torch multiplies floats fastest.
    product = torch.matmul(a.to(torch.float64), b.to(torch.float64)).to(torch.int64)
    return product.to(torch.uint32 if unsigned else torch.int32)


@kernel("MulInteger", domain="com.microsoft", since=(1,))
def mul_integer(
    a: Tensor, a_zero_point: Tensor | None, b: Tensor, b_zero_point: Tensor | None = None
) -> Tensor:
    """``(a - a_zero_point) * (b - b_zero_point)`` in int32.

    Args:
        a: int8 or uint8.
        a_zero_point: A number of its dtype, 0 when absent.
        b: int8 or uint8, broadcast with ``a``.
        b_zero_point: A number of its dtype, 0 when absent.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MulInteger
    """
    return _centred(a, a_zero_point) * _centred(b, b_zero_point)


def _centred(x: Tensor, zero_point: Tensor | None) -> Tensor:
    wide = x.to(torch.int32)
    return wide if zero_point is None else wide - zero_point.reshape(()).to(torch.int32)


@kernel("ReduceSumInteger", domain="com.microsoft", since=(1,))
def reduce_sum_integer(data: Tensor, *, axes: list[int], keepdims: int, ctx: KernelContext) -> Tensor:
    """The sum along axes in 32 bits.

    Args:
        data: int8 or uint8.
        axes: The axes.
        keepdims: Whether they are kept with size 1.
        ctx: Tells the type of the result.

    Returns:
        int32, or uint32 where the model says so.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.ReduceSumInteger
    """
    element = ctx.output_type(0)
    total = torch.sum(data, axes, keepdim=bool(keepdims), dtype=torch.int64)
    return total.to(torch.int32 if element is None else element.torch_dtype)
