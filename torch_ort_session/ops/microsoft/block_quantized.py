"""Operators of com.microsoft on weights quantized in blocks: GatherBlockQuantized, MatMulBnb4.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.nibbles import unpacked

# The sixteen levels of each data type, by code: those of FP4 repeat with the sign bit set.
# Elements of W that are taken out of their quantized form at once on a CPU: they stay in its cache, and the
# whole of W is never there.
_STRIP = 1 << 18
_FP4 = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_LEVELS = (
    (*_FP4, *(-level for level in _FP4)),
    (
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ),
)


@kernel("GatherBlockQuantized", domain="com.microsoft", since=(1,))
def gather_block_quantized(
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    ctx: KernelContext,
) -> Tensor:
    """The entries of ``data`` along an axis that ``indices`` names, taken out of their quantized form.

    Args:
        data: int4, uint4, an 8-bit or 4-bit float, or uint8 with numbers of ``bits`` packed along its last
            axis, the lowest bits first.
        indices: int32 or int64 of any shape; one outside of [-size, size) of the axis yields zeros.
        scales: float32, float16 or bfloat16 of the rank of ``data``, one a block along ``quantize_axis``.
        zero_points: Type of ``data``, one a scale, packed like it; None is 0, or half the range for uint8.
        bits: 2, 4 or 8, for uint8.
        block_size: Elements of a block; 0 makes the whole axis one.
        gather_axis: The axis; the result has the dims of ``indices`` in its place.
        quantize_axis: Axis of the blocks.
        ctx: Tells uint8 from uint4.

    Returns:
        Type of ``scales``.

    Raises:
        ValueError: The axis is one along which numbers lie packed.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GatherBlockQuantized
    """
    rank = data.dim()
    across, along = gather_axis % rank, quantize_axis % rank
    packing = 8 // bits if ctx.input_type(0) is ElementType.UINT8 else 1
    if packing > 1 and across == rank - 1:
        raise ValueError("numbers that lie packed along an axis cannot be gathered along it.")
    dims = [*data.shape[:-1], data.shape[-1] * packing]
    size, length = dims[across], dims[along]
    shape = (*dims[:across], *indices.shape, *dims[across + 1 :])
    if size == 0:
        return scales.new_zeros(shape)
    block = block_size or max(length, 1)
    index = indices.to(torch.int64).reshape(-1)
    inside = (index >= -size) & (index < size)
    index = torch.where(inside, torch.where(index < 0, index + size, index), 0)
    groups = index // block if across == along else index

    def entries(value: Tensor) -> Tensor:
        """The scales or zero points of the entries, repeated along the blocks."""
        if across == along:
            return torch.index_select(value, across, groups)
        part = value
        if value.shape[across] > 1 or size == 1:
            part = torch.index_select(value, across, groups)
        if packing > 1 and value is zero_points:
            part = unpacked(part, bits).narrow(-1, 0, scales.shape[-1])
        return part.repeat_interleave(block, along).narrow(along, 0, length)

    # Only what is asked for is unpacked.
    number = _selected(data, across, index)
    number = (unpacked(number, bits) if packing > 1 else number).to(scales.dtype)
    if zero_points is not None:
        number = number - entries(zero_points).to(scales.dtype)
    elif ctx.input_type(0) is ElementType.UINT8:
        number = number - (1 << (bits - 1))
    column = [1] * rank
    column[across] = -1
    return torch.where(inside.reshape(column), number * entries(scales), 0).reshape(shape)


@kernel("MatMulBnb4", domain="com.microsoft", since=(1,))
def matmul_bnb4(
    a: Tensor,
    b: Tensor,
    absmax: Tensor,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
    ctx: KernelContext,
) -> Tensor:
    """``a @ W.T``, or ``a @ W``, where W holds codes of sixteen levels in blocks of a scale each.

    Args:
        a: Floats [..., K], or [..., N] without ``transB``.
        b: uint8 [ceil(N * K / 2)], two codes of W [N, K] a byte, the first in the upper half.
        absmax: Type of ``a``, the scale of each block of ``block_size`` codes.
        K: Columns of W.
        N: Rows of W.
        block_size: Codes of a block, over row borders.
        quant_type: 0 for FP4, 1 for NF4.
        training_mode: Not used: gradients are there where they are asked for.
        transB: Whether W is transposed.
        ctx: Keeps the levels of each byte.

    Raises:
        ValueError: ``quant_type`` is neither.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulBnb4
    """
    if quant_type not in (0, 1):
        raise ValueError(f"quant_type {quant_type} is neither 0 (FP4) nor 1 (NF4).")
    pairs = prepared(ctx, lambda: _pairs(quant_type, a.dtype, ctx.device), str(a.dtype))
    packed, scales = b.reshape(-1), absmax.reshape(-1)
    # Whole bytes and whole blocks in each strip, but for the last.
    unit = math.lcm(2, block_size)
    step = unit // math.gcd(unit, K) if K else 1
    strip = max(_STRIP // max(K, 1) // step, 1) * step if a.is_cpu else max(N, 1)
    parts = []
    for start in range(0, max(N, 1), strip):
        end = min(start + strip, N)
        codes = packed[start * K // 2 : -(-end * K // 2)]
        scale = scales[start * K // block_size : -(-end * K // block_size)]
        weight = _levels_of(codes, scale, pairs, (end - start) * K, block_size).reshape(end - start, K)
        if transB:
            parts.append(F.linear(a, weight))
        else:
            part = torch.matmul(a[..., start:end], weight)
            parts = [part if not parts else parts[0] + part]
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts, -1)


def _pairs(kind: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The two levels of each byte [256, 2], that of its upper half first."""
    levels = torch.tensor(_LEVELS[kind], device=device).to(dtype)
    return torch.stack((levels.repeat_interleave(16), levels.repeat(16)), 1)


def _levels_of(codes: Tensor, scale: Tensor, pairs: Tensor, count: int, block_size: int) -> Tensor:
    """So many elements of W, from the bytes and the scales of blocks that hold them."""
    levels = torch.index_select(pairs, 0, codes.to(torch.int32)).reshape(-1)[:count]
    if count % block_size:
        return levels * scale.repeat_interleave(block_size)[:count]
    return (levels.reshape(-1, block_size) * scale.unsqueeze(1)).reshape(-1)


def _selected(data: Tensor, axis: int, index: Tensor) -> Tensor:
    if data.is_floating_point():
        return torch.index_select(data.view(torch.uint8), axis, index).view(data.dtype)
    return torch.index_select(data, axis, index)
