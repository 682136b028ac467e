"""FusedMatMulActivation: a product and what is applied to it.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.microsoft.dense import fused_matmul

_Numbers = tuple[float | None, float | None, float | None]


def _or(number: float | None, default: float) -> float:
    return default if number is None else number


_ACTIVATIONS: dict[str, Callable[[Tensor, _Numbers, int], Tensor]] = {
    "Affine": lambda y, n, _: y * _or(n[0], 1.0) + _or(n[1], 0.0),
    "Elu": lambda y, n, _: F.elu(y, _or(n[0], 1.0)),
    "HardSigmoid": lambda y, n, _: torch.clamp(y * _or(n[0], 0.2) + _or(n[1], 0.5), 0.0, 1.0),
    "LeakyRelu": lambda y, n, _: F.leaky_relu(y, _or(n[0], 0.01)),
    "LogSoftmax": lambda y, _, axis: torch.log_softmax(y, axis),
    "Relu": lambda y, *_: torch.relu(y),
    "ScaledTanh": lambda y, n, _: torch.tanh(y * _or(n[1], 1.0)) * _or(n[0], 1.0),
    "Selu": lambda y, n, _: (
        torch.where(y > 0, y, torch.expm1(torch.clamp(y, max=0.0)) * _or(n[0], 1.6732631921768188))
        * _or(n[1], 1.0507010221481323)
    ),
    "Sigmoid": lambda y, *_: torch.sigmoid(y),
    "Softmax": lambda y, _, axis: torch.softmax(y, axis),
    "Softplus": lambda y, *_: F.softplus(y, threshold=1e6),
    "Softsign": lambda y, *_: F.softsign(y),
    "Tanh": lambda y, *_: torch.tanh(y),
    "ThresholdedRelu": lambda y, n, _: torch.where(y > _or(n[0], 1.0), y, torch.zeros_like(y)),
}


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
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(_ACTIVATIONS)}, not {activation!r}.")
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
    return _ACTIVATIONS[activation](y, numbers, -1 if activation_axis is None else activation_axis)
