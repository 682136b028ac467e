"""Sums with a bias, and what follows them in diffusion models and transformers.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common.gates import Gate, activated
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.dropout import dropped


@kernel("BiasAdd", domain="com.microsoft", since=(1,))
def bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """``x + bias + skip``.

    Args:
        x: Floats [N, S, C].
        bias: [C].
        skip: [N, S, C].

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BiasAdd
    """
    return x + bias + skip


@kernel("BiasSplitGelu", domain="com.microsoft", since=(1,), native=("activate",))
def bias_split_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """The first half of ``x + bias`` times the Gelu of the second half.

    Args:
        x: Floats [N, S, D] with an even D.
        bias: [D].

    Returns:
        [N, S, D / 2].

    Raises:
        ValueError: D is odd.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BiasSplitGelu
    """
    if x.shape[-1] % 2:
        raise ValueError(f"BiasSplitGelu halves the last dim of X, which is {x.shape[-1]}.")
    y = activated(Gate.GELU, x, bias=bias, halves=True)
    if y is not None:
        return y
    left, right = (x + bias).chunk(2, -1)
    return left * F.gelu(right)


def _may_train(node: Node) -> str | None:
    has_mode = len(node.inputs) > 4 and node.inputs[4] != ""
    return "the dropped elements are drawn at random" if has_mode else None


@kernel(
    "BiasDropout",
    domain="com.microsoft",
    since=(1,),
    host=("ratio", "training_mode"),
    seam=_may_train,
    varies=True,
)
def bias_dropout(
    data: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: float | None = None,
    training_mode: bool | None = None,
    *,
    seed: int | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Dropout of ``data + bias``, then a sum with ``residual``.

    Args:
        data: Floats [..., D].
        bias: [D], or of the shape of ``data``.
        residual: Of the shape of ``data``.
        ratio: Probability of an element to be dropped; 0.5 when absent.
        training_mode: Whether to drop; no when absent.
        seed: Makes the choice the same in every run.
        ctx: Tells whether the mask is wanted.

    Returns:
        The result, and a bool mask of the elements that were kept.

    Raises:
        ValueError: ``ratio`` is not in [0, 1).

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.BiasDropout
    """
    y = data + bias
    mask = None
    if training_mode:
        share = 0.5 if ratio is None else ratio
        if not 0.0 <= share < 1.0:
            raise ValueError(f"The ratio of dropped elements lies in [0, 1), unlike {share}.")
        y, mask = dropped(y, share, seed)
    elif ctx.wants(1):
        mask = torch.ones_like(y, dtype=torch.bool)
    return y if residual is None else y + residual, mask
