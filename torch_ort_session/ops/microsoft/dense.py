"""Products and convolutions of com.microsoft that carry more than one step.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.microsoft.activations import OF_CONVOLUTIONS, activated
from torch_ort_session.ops.onnx.images.conv import conv
from torch_ort_session.ops.onnx.matmul import gemm


@kernel("FusedMatMul", domain="com.microsoft", since=(1,))
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """``alpha * A' @ B'``.

    Args:
        a: [..., M, K], with ``transA`` [..., K, M].
        b: [..., K, N], with ``transB`` [..., N, K].
        alpha: Factor of the product.
        transA: Whether the last two axes of A are exchanged.
        transB: Whether the last two axes of B are exchanged.
        transBatchA: Whether the first axis of A stands for its last but one.
        transBatchB: Whether the first axis of B stands for its last but one.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.FusedMatMul
    """
    product = torch.matmul(_turned(a, transA, transBatchA), _turned(b, transB, transBatchB))
    return product if alpha == 1.0 else product * alpha


@kernel("TransposeMatMul", domain="com.microsoft", since=(1,))
def transpose_matmul(a: Tensor, b: Tensor, *, alpha: float = 1.0, transA: int = 0, transB: int = 0) -> Tensor:
    """FusedMatMul under its old name.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.TransposeMatMul
    """
    return fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB)


@kernel("FusedGemm", domain="com.microsoft", since=(1,), native=("gemv",))
def fused_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """Gemm, then an activation.

    Args:
        a: [M, K], or [K, M] when ``transA``.
        b: [K, N], or [N, K] when ``transB``.
        c: Broadcastable to [M, N].
        activation: Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid, or nothing.
        activation_alpha: First number of the activation.
        activation_beta: Second number of the activation.
        activation_gamma: Third number; no activation here has one.
        alpha: Factor of the product.
        beta: Factor of C.
        transA: Whether A comes transposed.
        transB: Whether B comes transposed.

    Raises:
        ValueError: An unknown activation.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.FusedGemm
    """
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    numbers = [n for n in (activation_alpha, activation_beta, activation_gamma) if n is not None]
    return activated(y, activation, OF_CONVOLUTIONS, numbers) if activation else y


@kernel("GemmFastGelu", domain="com.microsoft", since=(1,))
def gemm_fast_gelu(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """FastGelu of ``x @ w + bias``.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GemmFastGelu
    """
    y = torch.matmul(x, w)
    return F.gelu(y if bias is None else y + bias, approximate="tanh")


@kernel("FusedConv", domain="com.microsoft", since=(1,))
def fused_conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Conv, then a sum with ``z``, then an activation.

    Args:
        x: [N, C, D1..Dn].
        w: [M, C / group, K1..Kn].
        b: [M].
        z: Shape of the result.
        activation: Relu, Tanh, Sigmoid, LeakyRelu, Clip, HardSigmoid, or nothing.
        activation_params: Numbers of the activation, in the order of its attributes.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER.
        dilations: Dilation by axis.
        group: Number of channel groups.
        kernel_shape: K1..Kn once more.
        pads: Begins, then ends.
        strides: Stride by axis.

    Raises:
        ValueError: An unknown activation, or an attribute that does not fit the inputs.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.FusedConv
    """
    y = conv(
        x,
        w,
        b,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if z is not None:
        y = y + z
    return activated(y, activation, OF_CONVOLUTIONS, activation_params or []) if activation else y


def _turned(x: Tensor, last: int, first: int) -> Tensor:
    if first and x.dim() > 2:
        x = x.movedim(0, -2)
    return x.transpose(-2, -1) if last and x.dim() > 1 else x
