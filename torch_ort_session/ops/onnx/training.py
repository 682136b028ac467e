"""Optimizer steps of the preview training domain.

Source: https://onnx.ai/onnx/operators/index.html (ai.onnx.preview.training)
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel

_DOMAIN = "ai.onnx.preview.training"


@kernel("Adagrad", since=(1,), domain=_DOMAIN)
def adagrad(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:
    """A step of Adagrad for each of several tensors.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adagrad.html

    Args:
        rate: Initial learning rate, one element.
        step: Training iteration, one element.
        tensors: Values, their gradients, their accumulated squared gradients.
        decay_factor: Decay of the learning rate.
        epsilon: Keeps the divisor from zero.
        norm_coefficient: Weight of the regularisation.

    Returns:
        New values, new accumulated squared gradients.

    Raises:
        ValueError: The tensors do not make three groups.
    """
    values, gradients, squares = _groups(tensors, 3)
    slowed = rate.reshape(()) / (1 + step.reshape(()) * decay_factor)
    fresh, sums = [], []
    for x, g, h in zip(values, gradients, squares, strict=True):
        total = norm_coefficient * x + g
        sums.append(h + total * total)
        fresh.append((x - slowed * total / (sums[-1].sqrt() + epsilon)).to(x.dtype))
    return (*fresh, *sums)


@kernel("Adam", since=(1,), domain=_DOMAIN)
def adam(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:
    """A step of Adam for each of several tensors.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html

    Args:
        rate: Learning rate, one element.
        step: Training iteration, one element; 0 leaves the averages uncorrected.
        tensors: Values, their gradients, running averages of gradients and of their squares.
        alpha: Decay of the average.
        beta: Decay of the average of squares.
        epsilon: Keeps the divisor from zero.
        norm_coefficient: Weight of the regularisation before the step.
        norm_coefficient_post: Weight of the regularisation after the step.

    Returns:
        New values, new averages, new averages of squares.

    Raises:
        ValueError: The tensors do not make four groups.
    """
    values, gradients, averages, squares = _groups(tensors, 4)
    rate, time = rate.reshape(()), step.reshape(()).to(torch.float64)
    correction = (1 - beta**time).sqrt() / (1 - alpha**time)
    adjusted = rate * torch.where(time > 0, correction, 1.0)
    fresh, firsts, seconds = [], [], []
    for x, g, v, h in zip(values, gradients, averages, squares, strict=True):
        total = norm_coefficient * x + g
        firsts.append(alpha * v + (1 - alpha) * total)
        seconds.append(beta * h + (1 - beta) * (total * total))
        moved = x - adjusted * (firsts[-1] / (seconds[-1].sqrt() + epsilon))
        fresh.append(((1 - norm_coefficient_post) * moved).to(x.dtype))
    return (*fresh, *firsts, *seconds)


@kernel("Momentum", since=(1,), domain=_DOMAIN)
def momentum(
    rate: Tensor,
    step: Tensor,
    *tensors: Tensor,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> tuple[Tensor, ...]:
    """A step of gradient descent with momentum for each of several tensors.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Momentum.html

    Args:
        rate: Learning rate, one element.
        step: Training iteration, one element; at 0 the gradient counts in full.
        tensors: Values, their gradients, their momenta.
        alpha: Decay of the momentum.
        beta: Weight of the gradient.
        mode: ``standard`` or ``nesterov``.
        norm_coefficient: Weight of the regularisation.

    Returns:
        New values, new momenta.

    Raises:
        ValueError: The mode is not known or the tensors do not make three groups.
    """
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode {mode!r} is not standard or nesterov.")
    values, gradients, momenta = _groups(tensors, 3)
    rate = rate.reshape(())
    weight = torch.where(step.reshape(()) > 0, beta, 1.0)
    fresh, speeds = [], []
    for x, g, v in zip(values, gradients, momenta, strict=True):
        total = norm_coefficient * x + g
        speeds.append((alpha * v + weight * total).to(v.dtype))
        direction = speeds[-1] if mode == "standard" else total + alpha * speeds[-1]
        fresh.append((x - rate * direction).to(x.dtype))
    return (*fresh, *speeds)


def _groups(tensors: tuple[Tensor, ...], count: int) -> list[tuple[Tensor, ...]]:
    if not tensors or len(tensors) % count:
        raise ValueError(f"{len(tensors)} tensors do not make {count} groups of the same length.")
    size = len(tensors) // count
    return [tensors[group * size : (group + 1) * size] for group in range(count)]
