"""Dropout whose mask comes as bits: BitmaskDropout and BitmaskBiasDropout of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.bias import bias_dropout

_BITS = 32


def _may_train(place: int, node: Node) -> str | None:
    has_mode = len(node.inputs) > place and node.inputs[place] != ""
    return "the dropped elements are drawn at random" if has_mode else None


def _packed(mask: Tensor | None) -> Tensor | None:
    """The mask's bools in row-major order, 32 a number from its lowest bit on: uint32."""
    if mask is None:
        return None
    flat = mask.reshape(-1)
    rows = F.pad(flat, (0, -flat.shape[0] % _BITS)).reshape(-1, _BITS).to(torch.int64)
    words = (rows << torch.arange(_BITS, device=rows.device)).sum(1)
    # Above the largest int32 the same bits are a negative one.
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32).view(torch.uint32)


@kernel(
    "BitmaskDropout",
    domain="com.microsoft",
    since=(1,),
    host=("ratio", "training_mode"),
    seam=functools.partial(_may_train, 2),
    varies=True,
)
def bitmask_dropout(
    data: Tensor,
    ratio: float | None = None,
    training_mode: bool | None = None,
    *,
    seed: int | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Dropout.

    Args:
        data: Floats.
        ratio: Probability of an element to be dropped; 0.5 when absent.
        training_mode: Whether to drop; no when absent.
        seed: Makes the choice repeatable.
        ctx: Tells whether the mask is wanted.

    Returns:
        The result, and where asked for the bits of the elements that were kept: uint32 [elements / 32].

    Raises:
        ValueError: ``ratio`` is not in [0, 1).

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BitmaskDropout
    """
    nothing = data.new_zeros(())
    y, mask = bias_dropout(data, nothing, None, ratio, training_mode, seed=seed, ctx=ctx)
    return y, _packed(mask if ctx.wants(1) else None)


@kernel(
    "BitmaskBiasDropout",
    domain="com.microsoft",
    since=(1,),
    host=("ratio", "training_mode"),
    seam=functools.partial(_may_train, 4),
    varies=True,
)
def bitmask_bias_dropout(
    data: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: float | None = None,
    training_mode: bool | None = None,
    *,
    seed: int | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Dropout of ``data + bias``, then a sum with ``residual``; the mask as of BitmaskDropout.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BitmaskBiasDropout
    """
    y, mask = bias_dropout(data, bias, residual, ratio, training_mode, seed=seed, ctx=ctx)
    return y, _packed(mask if ctx.wants(1) else None)
