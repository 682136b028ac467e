"""Products with weights of 8-bit and 4-bit floats in blocks, and of sparse matrices, of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.casting import convert
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.microsoft.nibbles import unpacked
from torch_ort_session.ops.microsoft.single_precision import single

# The largest 8-bit float (e4m3fn).
_LARGEST = 448.0


def _float4(codes: Tensor) -> Tensor:
    """float32 of 4-bit floats: a sign, two bits of exponent, one of fraction."""
    fraction, exponent = codes & 1, codes >> 1 & 3
    size = torch.where(exponent == 0, fraction * 2, (fraction + 2) << exponent).to(torch.float32) / 4
    return torch.where(codes >= 8, -size, size)


def _spread(scale: Tensor, block_size: int, columns: int) -> Tensor:
    return scale.repeat_interleave(block_size, 1)[:, :columns]


@kernel("MatMulBlockQuantizedFp8Weight", domain="com.microsoft", since=(1,))
def matmul_fp8_weight(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    a_scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    block_size: int = 128,
) -> Tensor:
    """``a @ W.T + bias`` with a scale for each block of a row of W.

    Args:
        a: float16 or bfloat16 [..., K].
        b: float8 (e4m3fn) [N, K].
        b_scale: float32 [N, blocks].
        a_scale: float32, a scalar: ``a`` is rounded to 8-bit floats of this scale, which saturate.
        bias: [N].
        block_size: Columns of a block.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulBlockQuantizedFp8Weight
    """
    wide = a.to(torch.float32)
    if a_scale is not None:
        scale = a_scale.reshape(())
        coarse = (wide / scale).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)
        wide = coarse.to(torch.float32) * scale
    weight = b.to(torch.float32) * _spread(b_scale, block_size, b.shape[1])
    y = F.linear(wide, weight)
    return (y if bias is None else y + bias.to(torch.float32)).to(a.dtype)


@kernel("MatMulBlockQuantizedFp4Weight", domain="com.microsoft", since=(1,))
def matmul_fp4_weight(
    a: Tensor,
    b: Tensor,
    weight_scale: Tensor,
    weight_scale_2: Tensor,
    input_scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    block_size: int = 16,
) -> Tensor:
    """``a @ W.T + bias`` with a scale for each block of a row of W, and one for all.

    Args:
        a: float16 or bfloat16 [..., K].
        b: uint8 [N, K / 2], two 4-bit floats each, the lower bits first.
        weight_scale: uint8 [N, blocks], the bits of 8-bit floats (e4m3fn).
        weight_scale_2: float32, a scalar.
        input_scale: Not used: it is for products of 4-bit floats.
        bias: [N].
        block_size: Columns of a block.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulBlockQuantizedFp4Weight
    """
    number = _float4(unpacked(b, 4).to(torch.int32))
    scale = weight_scale.view(torch.float8_e4m3fn).to(torch.float32) * weight_scale_2.reshape(())
    weight = (number * _spread(scale, block_size, number.shape[1])).to(a.dtype)
    y = F.linear(a.to(torch.float32), weight.to(torch.float32))
    return (y if bias is None else y + bias.to(torch.float32)).to(a.dtype)


@kernel("SparseToDenseMatMul", domain="com.microsoft", since=(1,))
def sparse_to_dense_matmul(
    a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> Tensor:
    """``alpha * A' @ B'`` of a matrix that the model stores sparsely; it comes dense, as loading makes it.

    Args:
        a: [M, K].
        b: [K, N].
        alpha: Factor of the product.
        transA: Whether A comes transposed.
        transB: Whether B comes transposed.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.SparseToDenseMatMul
    """
    product = torch.matmul(a.t() if transA else a, b.transpose(-1, -2) if transB else b)
    return product if alpha == 1.0 else product * alpha


@kernel("GemmFloat8", domain="com.microsoft", since=(1,))
def gemm_float8(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    scale_y: Tensor | None = None,
    *,
    activation: str = "NONE",
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: int = int(ElementType.FLOAT),
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """``activation(alpha * A' @ B' + beta * C)`` of floats of any size, computed in float32.

    Args:
        a: [M, K], or [K, M] when ``transA``.
        b: [K, N], or [N, K] when ``transB``.
        c: Broadcastable to [M, N].
        scale_a: Factor of an 8-bit A.
        scale_b: Factor of an 8-bit B.
        scale_y: Factor of the result, when A or B is of 8 bits.
        activation: NONE, RELU or GELU.
        alpha: Factor of the product.
        beta: Factor of C.
        dtype: Element type of the result.
        transA: Whether A comes transposed.
        transB: Whether B comes transposed.

    Raises:
        ValueError: An unknown activation.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GemmFloat8
    """
    if activation not in ("", "NONE", "RELU", "GELU"):
        raise ValueError(f"activation must be NONE, RELU or GELU, not {activation!r}.")
    left, right = single(a), single(b)
    y = torch.matmul(left.t() if transA else left, right.t() if transB else right) * alpha
    for scale in (scale_a, scale_b):
        y = y if scale is None else y * scale.reshape(())
    if c is not None and beta:
        y = y + beta * single(c)
    if activation == "RELU":
        y = torch.relu(y)
    elif activation == "GELU":
        y = F.gelu(y)
    return convert(y if scale_y is None else y * scale_y.reshape(()), ElementType(dtype))
