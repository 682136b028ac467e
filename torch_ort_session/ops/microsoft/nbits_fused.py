"""Several products with weights of a few bits in one node: MatMulNBitsMlp, MatMulNBitsQkv, MatMulNBitsQLoRA.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.matmul_nbits import Sizes, Weight, product

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "gelu": F.gelu,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
}


def _normed(
    a: Tensor, skip: Tensor | None, scale: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor | None]:
    """What the products share, and the sum before its normalization where there is one."""
    total = a if skip is None else a + skip
    if scale is None:
        return total, None
    return torch.rms_norm(total, total.shape[-1:], scale, epsilon), None if skip is None else total


@kernel("MatMulNBitsMlp", domain="com.microsoft", since=(1,), native=("matmul_nbits",))
def matmul_nbits_mlp(
    a: Tensor,
    skip: Tensor | None,
    norm_scale: Tensor | None,
    gate_b: Tensor,
    gate_scales: Tensor,
    gate_bias: Tensor | None,
    up_b: Tensor,
    up_scales: Tensor,
    up_bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    activation: str,
    bits: int = 4,
    block_size: int,
    epsilon: float = 9.999999747378752e-06,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """``activation(gate) * up`` of two products, after a root mean square normalization where it has a scale.

    Args:
        a: Floats [..., K].
        skip: Added to ``a`` first.
        norm_scale: [K].
        gate_b: Weight of the gate, as of MatMulNBits.
        gate_scales: Its scales.
        gate_bias: [N].
        up_b: Weight of the linear half.
        up_scales: Its scales.
        up_bias: [N].
        K: Columns of the weights.
        N: Rows of the weights.
        accuracy_level: As of MatMulNBits.
        activation: silu (or swish), gelu, relu or sigmoid.
        bits: 2, 4 or 8.
        block_size: Columns of a block.
        epsilon: Added to the mean square.
        ctx: Tells whether the sum is wanted.

    Returns:
        [..., N], and where asked for ``a + skip``.

    Raises:
        ValueError: An unknown activation.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBitsMlp
    """
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(_ACTIVATIONS)}, not {activation!r}.")
    x, total = _normed(a, skip, norm_scale, epsilon)
    gate, up = (
        product(x, Weight(b, scales, Sizes(N, K, bits, block_size)), bias, accuracy_level)
        for b, scales, bias in ((gate_b, gate_scales, gate_bias), (up_b, up_scales, up_bias))
    )
    return _ACTIVATIONS[activation](gate) * up, total if ctx.wants(1) else None


@kernel("MatMulNBitsQkv", domain="com.microsoft", since=(1,), native=("matmul_nbits",))
def matmul_nbits_qkv(
    a: Tensor,
    skip: Tensor | None,
    norm_scale: Tensor,
    q_b: Tensor,
    q_scales: Tensor,
    q_bias: Tensor | None,
    k_b: Tensor,
    k_scales: Tensor,
    k_bias: Tensor | None,
    v_b: Tensor,
    v_scales: Tensor,
    v_bias: Tensor | None = None,
    *,
    K: int,
    Nkv: int,
    Nq: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    epsilon: float = 9.999999974752427e-07,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries, keys and values of what a root mean square normalization makes of ``a + skip``.

    Args:
        a: Floats [..., K].
        skip: Added to ``a`` first.
        norm_scale: [K].
        q_b: Weight of the queries, as of MatMulNBits.
        q_scales: Its scales.
        q_bias: [Nq].
        k_b: Weight of the keys.
        k_scales: Its scales.
        k_bias: [Nkv].
        v_b: Weight of the values.
        v_scales: Its scales.
        v_bias: [Nkv].
        K: Columns of the weights.
        Nkv: Rows of those of keys and values.
        Nq: Rows of that of the queries.
        accuracy_level: As of MatMulNBits.
        bits: 2, 4 or 8.
        block_size: Columns of a block.
        epsilon: Added to the mean square.
        ctx: Tells whether the sum is wanted.

    Returns:
        The three, and where asked for ``a + skip``.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBitsQkv
    """
    x, total = _normed(a, skip, norm_scale, epsilon)
    three = ((q_b, q_scales, q_bias, Nq), (k_b, k_scales, k_bias, Nkv), (v_b, v_scales, v_bias, Nkv))
    q, k, v = (
        product(x, Weight(b, scales, Sizes(rows, K, bits, block_size)), bias, accuracy_level)
        for b, scales, bias, rows in three
    )
    return q, k, v, total if ctx.wants(3) else None


@kernel("MatMulNBitsQLoRA", domain="com.microsoft", since=(1,), native=("matmul_nbits",))
def matmul_nbits_qlora(
    x: Tensor,
    w: Tensor,
    scales: Tensor,
    lora_a: Tensor,
    lora_a_scales: Tensor,
    lora_b: Tensor,
    lora_b_scales: Tensor,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int = 32,
    lora_bits: int = 8,
    lora_block_size: int = 32,
    ctx: KernelContext,
) -> Tensor:
    """``x @ W.T + (x @ A.T) @ B.T``, all three weights of a few bits.

    Args:
        x: Floats [..., K].
        w: W, as of MatMulNBits.
        scales: Its scales.
        lora_a: A, of R rows, or of none, which stands for zeros.
        lora_a_scales: [R, blocks].
        lora_b: B, of N rows; empty stands for zeros.
        lora_b_scales: [N, blocks].
        K: Columns of W and A.
        N: Rows of W and B.
        accuracy_level: As of MatMulNBits, for W and A.
        bits: Of W.
        block_size: Of W.
        lora_bits: Of A and B.
        lora_block_size: Of A and B.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBitsQLoRA
    """
    y = product(x, Weight(w, scales, Sizes(N, K, bits, block_size)), None, accuracy_level)
    if not lora_b.numel():
        return y
    rank = lora_a_scales.shape[0]
    first, second = Sizes(rank, K, lora_bits, lora_block_size), Sizes(N, rank, lora_bits, lora_block_size)
    down = product(x, Weight(lora_a, lora_a_scales, first), None, accuracy_level)
    return y + product(down, Weight(lora_b, lora_b_scales, second))
