"""FusedMatMulActivation: a product and what is applied to it.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from torch import Tensor

from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.microsoft.activations import OF_PRODUCTS, activated
from torch_ort_session.ops.microsoft.dense import fused_matmul


@kernel("FusedMatMulActivation", domain="com.microsoft", since=(1,))
def fused_matmul_activation(
    a: Tensor,
    b: Tensor,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    activation_axis: int | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Tensor:
    """FusedMatMul, then an activation.

    Args:
        a: Floats [..., M, K], with ``transA`` [..., K, M].
        b: [..., K, N], with ``transB`` [..., N, K].
        activation: The name of an operator of ai.onnx: Relu, Tanh, LeakyRelu, Softmax and their like.
        activation_alpha: Its first number, by default that of the operator.
        activation_beta: Its second number.
        activation_gamma: A third number; no activation here has one.
        activation_axis: Axis of Softmax and LogSoftmax, the last by default.
        alpha: Factor of the product.
        transA: Whether the last two axes of A are exchanged.
        transB: Whether the last two axes of B are exchanged.
        transBatchA: Whether the first axis of A stands for its last but one.
        transBatchB: Whether the first axis of B stands for its last but one.

    Raises:
        ValueError: An unknown activation.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    y = fused_matmul(
        a,
        b,
        alpha=alpha,
        transA=transA,
        transB=transB,
        transBatchA=transBatchA,
        transBatchB=transBatchB,
    )
    numbers = (activation_alpha, activation_beta, activation_gamma)
    axis = -1 if activation_axis is None else activation_axis
    return activated(y, activation, OF_PRODUCTS, numbers, axis)
