"""Products with weights of a few bits, quantized in blocks: MatMulNBits of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops._helpers.index import check_index
from torch_ort_session.ops._helpers.nibbles import unpacked
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("MatMulNBits", domain="com.microsoft", since=(1,), checks=True)
def matmul_nbits(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
    ctx: KernelContext,
) -> Tensor:
    """``a @ W.T + bias``, where each block of a row of W has a scale and a zero point of its own.

    Args:
        a: Floats [..., K].
        b: uint8 [N, blocks, block_size * bits / 8], numbers packed from the lowest bits on; empty stands for
            zeros.
        scales: Type of ``a``, N * blocks elements.
        zero_points: N * blocks elements of the type of ``a``, or packed like ``b``; None is half the range.
        g_idx: int32 [K], the block of each column where they do not lie in order.
        bias: [N].
        K: Columns of W.
        N: Rows of W.
        accuracy_level: How coarse the product may be; it is computed in the type of ``a`` anyway.
        bits: 2, 4 or 8.
        block_size: Columns of a block.
        weight_prepacked: Not supported.
        ctx: Where a bad block is reported.

    Raises:
        ValueError: An option that is not supported.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
    """
    if weight_prepacked or bits not in (2, 4, 8):
        raise ValueError("weights packed for one device, and bits other than 2, 4 and 8, are not supported.")
    if b.numel() == 0:
        y = a.new_zeros(*a.shape[:-1], N)
        return y if bias is None else y + bias
    order = None if g_idx is None else check_index(g_idx[:K], -(-K // block_size), ctx)
    weight = _dequantized(b, scales, zero_points, order, bits, block_size, (N, K)).to(a.dtype)
    return torch.nn.functional.linear(a, weight, bias)


def _dequantized(
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    order: Tensor | None,
    bits: int,
    block_size: int,
    shape: tuple[int, int],
) -> Tensor:
    rows, columns = shape
    blocks = -(-columns // block_size)
    scale = scales.reshape(rows, blocks)
    if zero_points is None:
        zero = torch.full_like(scale, 1 << (bits - 1))
    elif zero_points.dtype is torch.uint8:
        zero = unpacked(zero_points.reshape(rows, -1), bits)[:, :blocks].to(scale.dtype)
    else:
        zero = zero_points.reshape(rows, blocks)
    numbers = unpacked(b.reshape(rows, -1), bits).to(scale.dtype)
    if order is not None:
        shifted = numbers[:, :columns] - torch.index_select(zero, 1, order)
        return shifted * torch.index_select(scale, 1, order)
    blocked = numbers.reshape(rows, blocks, block_size)
    weight = (blocked - zero.unsqueeze(2)) * scale.unsqueeze(2)
    return weight.reshape(rows, -1)[:, :columns]
