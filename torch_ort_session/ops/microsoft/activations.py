"""What fused operators of com.microsoft apply to their result, by the names of ai.onnx's operators.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

_Numbers = Sequence[float | None]


def _at(numbers: _Numbers, place: int, default: float) -> float:
    number = numbers[place] if place < len(numbers) else None
    return default if number is None else number


_ALL: dict[str, Callable[[Tensor, _Numbers, int], Tensor]] = {
    "Affine": lambda y, n, _: y * _at(n, 0, 1.0) + _at(n, 1, 0.0),
    "Clip": lambda y, n, _: torch.clamp(y, n[0], n[1]),
    "Elu": lambda y, n, _: F.elu(y, _at(n, 0, 1.0)),
    "HardSigmoid": lambda y, n, _: torch.clamp(y * _at(n, 0, 0.2) + _at(n, 1, 0.5), 0.0, 1.0),
    "LeakyRelu": lambda y, n, _: F.leaky_relu(y, _at(n, 0, 0.01)),
    "LogSoftmax": lambda y, _, axis: torch.log_softmax(y, axis),
    "Relu": lambda y, *_: torch.relu(y),
    "ScaledTanh": lambda y, n, _: torch.tanh(y * _at(n, 1, 1.0)) * _at(n, 0, 1.0),
    "Selu": lambda y, n, _: (
        torch.where(y > 0, y, torch.expm1(torch.clamp(y, max=0.0)) * _at(n, 0, 1.6732631921768188))
        * _at(n, 1, 1.0507010221481323)
    ),
    "Sigmoid": lambda y, *_: torch.sigmoid(y),
    "Softmax": lambda y, _, axis: torch.softmax(y, axis),
    "Softplus": lambda y, *_: F.softplus(y, threshold=1e6),
    "Softsign": lambda y, *_: F.softsign(y),
    "Tanh": lambda y, *_: torch.tanh(y),
    "ThresholdedRelu": lambda y, n, _: torch.where(y > _at(n, 0, 1.0), y, torch.zeros_like(y)),
}

OF_CONVOLUTIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")
"""Those that FusedConv and FusedGemm know."""

OF_PRODUCTS = tuple(name for name in _ALL if name != "Clip")
"""Those that FusedMatMulActivation knows."""


def activated(
    y: Tensor, name: str, known: Sequence[str], numbers: Sequence[float | None] = (), axis: int = -1
) -> Tensor:
    """An activation of a tensor.

    Args:
        y: Floats.
        name: Of an operator of ai.onnx.
        known: The names that the operator takes.
        numbers: Those that the activation has, in the order of its attributes; what is missing or None is
            its default.
        axis: Of Softmax and LogSoftmax.

    Raises:
        ValueError: An unknown activation.
    """
    if name not in known:
        raise ValueError(f"activation must be one of {', '.join(known)}, not {name!r}.")
    return _ALL[name](y, numbers, axis)
