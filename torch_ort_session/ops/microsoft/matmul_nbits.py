"""Products with weights of a few bits, quantized in blocks: MatMulNBits of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.nibbles import unpacked

_FLOATS = frozenset((torch.float32, torch.float16, torch.bfloat16))

# The widest block that the compiled op takes.
_WIDEST_BLOCK = 1 << 16

# The accuracy level that allows to round the first factor to bytes.
_BYTES = 4

# Elements of W that are taken out of their quantized form at once on a CPU: they stay in its cache, and the
# whole of W is never there.
_STRIP = 1 << 18


@kernel(
    "MatMulNBits", domain="com.microsoft", since=(1,), checks=True, native=("check_range", "matmul_nbits")
)
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
        accuracy_level: With 4 the compiled op rounds few rows of ``a`` to 8 bits in blocks; otherwise it
            multiplies floats.
        bits: 2, 4 or 8.
        block_size: Columns of a block.
        weight_prepacked: Not supported.
        ctx: Where a bad block is reported.

    Raises:
        ValueError: An option that is not supported, or scales, zero points or a bias of other sizes.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
    """
    if weight_prepacked:
        raise ValueError("weights packed for one device are not supported.")
    sizes = Sizes(N, K, bits, block_size)
    order = None if g_idx is None or not b.numel() else check_places(g_idx[:K], sizes.blocks, Flag.INDEX, ctx)
    return product(a, Weight(b, scales, sizes, zero_points, order), bias, accuracy_level)


class Sizes(NamedTuple):
    """What is known of W beside its numbers.

    Attributes:
        rows: N.
        columns: K.
        bits: Of a number.
        block_size: Columns of a block.
    """

    rows: int
    columns: int
    bits: int
    block_size: int

    @property
    def blocks(self) -> int:
        """Blocks of a row."""
        return -(-self.columns // self.block_size)


class Weight(NamedTuple):
    """W in blocks of few bits.

    Attributes:
        numbers: The packed numbers.
        scales: One for each block.
        sizes: Of W.
        zero_points: One for each block.
        order: The block of each column, int64 [K], safe; None where they lie in order.
    """

    numbers: Tensor
    scales: Tensor
    sizes: Sizes
    zero_points: Tensor | None = None
    order: Tensor | None = None


def product(a: Tensor, weight: Weight, bias: Tensor | None = None, accuracy_level: int = 0) -> Tensor:
    """``a @ W.T + bias``; see :func:`matmul_nbits`.

    Args:
        a: Floats [..., K].
        weight: W.
        bias: [N].
        accuracy_level: How coarse the product may be.

    Raises:
        ValueError: Numbers of other bits, or scales, zero points or a bias of other sizes.
    """
    b, scales, sizes, zero_points, order = weight
    rows, columns, bits, block_size = sizes
    if bits not in (2, 4, 8):
        raise ValueError("bits other than 2, 4 and 8 are not supported.")
    if b.numel() == 0:
        y = a.new_zeros(*a.shape[:-1], rows)
        return y if bias is None else y + bias
    _check_sizes(scales, zero_points, bias, sizes)
    if order is None:
        by_codes = _by_codes(a, weight, bias, accuracy_level)
        if by_codes is not None:
            return by_codes
    codes, scale = b.reshape(rows, -1), scales.reshape(rows, -1)
    zeros = None if zero_points is None else zero_points.reshape(rows, -1)
    strip = max(_STRIP // columns, 1) if a.is_cpu else rows
    parts = []
    for start in range(0, rows, strip):
        some = slice(start, start + strip)
        zero = None if zeros is None else zeros[some]
        dense = _dequantized(codes[some], scale[some], zero, order, bits, block_size, columns)
        parts.append(F.linear(a, dense.to(a.dtype), None if bias is None else bias[some]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _check_sizes(scales: Tensor, zero_points: Tensor | None, bias: Tensor | None, sizes: Sizes) -> None:
    rows, columns, bits, block_size = sizes
    blocks = -(-columns // block_size)
    wanted = [("scales", scales, blocks), ("bias", bias, 1)]
    packed = zero_points is not None and zero_points.dtype is torch.uint8
    wanted.append(("zero_points", zero_points, -(-blocks * bits // 8) if packed else blocks))
    for name, tensor, each in wanted:
        if tensor is not None and tensor.numel() != rows * each:
            shape, count = list(tensor.shape), rows * each
            raise ValueError(f"{name} of shape {shape} are not {count} elements, {each} for each row of W.")


def _by_codes(a: Tensor, weight: Weight, bias: Tensor | None, accuracy_level: int) -> Tensor | None:
    """The product by the compiled op, which reads the packed weight itself; None where it does not serve."""
    b, scales, (rows, columns, bits, block_size), zero_points, _ = weight
    blocks = -(-columns // block_size)
    if block_size < 16 or block_size & (block_size - 1) or block_size > _WIDEST_BLOCK:
        return None
    if a.dtype not in _FLOATS or scales.dtype not in _FLOATS:
        return None
    if a.dim() == 0 or a.shape[-1] != columns or scales.numel() != rows * blocks:
        return None
    if b.dtype is not torch.uint8 or b.numel() != rows * blocks * block_size * bits // 8:
        return None
    if bias is not None and (bias.dtype not in _FLOATS or bias.numel() != rows):
        return None
    if zero_points is not None:
        packed = zero_points.dtype is torch.uint8
        each = -(-blocks * bits // 8) if packed else blocks
        if not (packed or zero_points.dtype in _FLOATS) or zero_points.numel() != rows * each:
            return None
    tensors = [t for t in (a, b, scales, zero_points, bias) if t is not None]
    op = native.device_op("matmul_nbits", *tensors)
    if op is None:
        return None
    product: Tensor = op(a, b, scales, zero_points, bias, rows, bits, block_size, accuracy_level == _BYTES)
    return product


def _dequantized(
    b: Tensor,
    scale: Tensor,
    zero_points: Tensor | None,
    order: Tensor | None,
    bits: int,
    block_size: int,
    columns: int,
) -> Tensor:
    """Some rows of W [rows, columns] from theirs of the inputs."""
    rows, blocks = scale.shape
    zero: Tensor | int = 1 << (bits - 1)
    if zero_points is not None:
        packed = zero_points.dtype is torch.uint8
        zero = unpacked(zero_points, bits)[:, :blocks].to(scale.dtype) if packed else zero_points
    numbers = unpacked(b, bits).to(scale.dtype)
    if order is not None:
        zero = torch.index_select(zero, 1, order) if isinstance(zero, Tensor) else zero
        return (numbers[:, :columns] - zero) * torch.index_select(scale, 1, order)
    blocked = numbers.reshape(rows, blocks, block_size)
    weight = (blocked - (zero.unsqueeze(2) if isinstance(zero, Tensor) else zero)) * scale.unsqueeze(2)
    return weight.reshape(rows, -1)[:, :columns]
