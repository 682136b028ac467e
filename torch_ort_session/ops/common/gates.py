"""Activations of a sum, and products with them, by the compiled op."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from torch_ort_session.ops import native

_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


class Gate(IntEnum):
    """Factor of x; the numbers are those of ``csrc/elementwise/activate/activations.h``."""

    GELU = 0
    """The normal distribution function of x."""
    TANH_GELU = 1
    """Its form by ``tanh``."""
    SIGMOID = 2
    """``sigmoid(alpha * x)``."""


@dataclass(frozen=True, slots=True)
class Gating:
    """Numbers of an activation and of the product with it.

    Attributes:
        alpha: Of the sigmoid.
        beta: Added to the other factor.
        limit: Above 0 the gate is cut there, and the other factor there and at its negative.
        rounded: Whether the activation is rounded to the dtype before the product.
    """

    alpha: float = 1.0
    beta: float = 0.0
    limit: float = 0.0
    rounded: bool = False


_PLAIN = Gating()


def activated(
    kind: Gate,
    x: Tensor,
    up: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    halves: bool = False,
    gating: Gating = _PLAIN,
) -> Tensor | None:
    """``act(x + bias)``, or ``act(x) * (up + beta)``, in one pass with sums in float32.

    None where plain ops have to do it: where :func:`.native.device_op` gives none, and for what is not of one
    float type and of the shapes below.

    Args:
        kind: The activation.
        x: float32, float16 or bfloat16 [..., D].
        up: Like ``x``.
        bias: [D], without ``up``.
        halves: Whether ``x`` [..., 2 * D] and the bias [2 * D] hold both factors: the gate and the other one,
            of GELU the other one and the gate.
        gating: Numbers of the activation and of the product.

    Returns:
        [..., D].
    """
    dtype = x.dtype
    if dtype not in _DTYPES or x.dim() == 0 or (halves and x.shape[-1] % 2):
        return None
    if up is not None and (up.dtype != dtype or up.shape != x.shape):
        return None
    if bias is not None and (bias.dtype != dtype or bias.shape != x.shape[-1:] or up is not None):
        return None
    op = native.device_op("activate", x, up, bias)
    if op is None:
        return None
    bias = None if bias is None else bias.contiguous()
    y: Tensor = op(x, up, bias, int(kind), halves, gating.alpha, gating.beta, gating.limit, gating.rounded)
    return y
