"""The activation functions that RNN, GRU and LSTM name in their attributes.

Source: https://onnx.ai/onnx/operators/onnx__RNN.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]


def named(activations: Sequence[str] | None, usual: Sequence[str], directions: int) -> list[str]:
    """Activation names of every direction in lower case.

    Args:
        activations: The attribute.
        usual: The names of one direction when there is no attribute.
        directions: How many directions.

    Raises:
        ValueError: There are too few names.
    """
    names = [name.lower() for name in activations] if activations else list(usual) * directions
    needed = len(usual) * directions
    if len(names) < needed:
        raise ValueError(f"activations names {len(names)} functions where {needed} are needed.")
    return names[:needed]


def activations(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Activation]:
    """The functions that the three activation attributes name.

    Args:
        names: One name a function, in any case.
        alphas: Values taken in order by the functions that have an alpha; the rest take their default.
        betas: The same for beta.

    Returns:
        One function a name.

    Raises:
        ValueError: A name is not known.
    """
    alpha, beta = list(alphas or ()), list(betas or ())
    return [_activation(name, alpha, beta) for name in names]


_ALPHA = {
    "affine": 1.0,
    "leakyrelu": 0.01,
    "thresholdedrelu": 1.0,
    "scaledtanh": 1.0,
    "hardsigmoid": 0.2,
    "elu": 1.0,
}
_BETA = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}
_PLAIN: dict[str, Activation] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "softsign": F.softsign,
}


def _activation(name: str, alphas: list[float], betas: list[float]) -> Activation:
    key = name.lower()
    if key in _PLAIN:
        return _PLAIN[key]
    if key == "softplus":
        return lambda x: torch.logaddexp(x, torch.zeros_like(x))
    if key not in _ALPHA:
        raise ValueError(f"{name!r} is not an activation that RNN, GRU and LSTM define.")
    a = alphas.pop(0) if alphas else _ALPHA[key]
    if key == "leakyrelu":
        return lambda x: F.leaky_relu(x, a)
    if key == "thresholdedrelu":
        return lambda x: torch.where(x >= a, x, 0.0)
    if key == "elu":
        return lambda x: F.elu(x, a)
    b = betas.pop(0) if betas else _BETA[key]
    if key == "affine":
        return lambda x: x * a + b
    if key == "scaledtanh":
        return lambda x: torch.tanh(x * b) * a
    return lambda x: (x * a + b).clamp(0, 1)


def clipped(activation: Activation, clip: float | None) -> Activation:
    """The activation with its input bounded to ``[-clip, clip]``."""
    if clip is None:
        return activation
    return lambda x: activation(x.clamp(-clip, clip))


def by_direction(functions: list[Activation], directions: int) -> list[tuple[int | slice, list[Activation]]]:
    """Which directions are run together, with their functions: both at once where they share them.

    Args:
        functions: The same number for each direction.
        directions: How many directions.

    Returns:
        An index of the directions, and the functions of one of them.
    """
    each = len(functions) // directions
    if directions == 2 and functions[:each] == functions[each:]:
        return [(slice(None), functions[:each])]
    return [(d, functions[each * d : each * (d + 1)]) for d in range(directions)]
