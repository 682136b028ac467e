"""Attention with the model's own steps in between: FlexAttention of ai.onnx.preview.

Source: https://onnx.ai/onnx/operators/onnx_aionnxpreview_FlexAttention.html
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.attention import fused, scores, weighted
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("FlexAttention", domain="ai.onnx.preview", since=(1,), native=("gqa_decode",))
def flex_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    softmax_precision: int | None = None,
    ctx: KernelContext,
) -> Tensor:
    """Attention whose scores and probabilities the bodies ``score_mod`` and ``prob_mod`` may change.

    Args:
        q: [B, H, L, D].
        k: [B, G, S, D].
        v: [B, G, S, E].
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
        softmax_precision: Element type of scores and probabilities; None is at least float32.

    Raises:
        ValueError: Inputs do not fit each other, or a body gives no tensor.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxpreview_FlexAttention.html
    """
    if q.dim() != 4 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"queries of shape {list(q.shape)} need rank 4 and a multiple of {k.shape[1]} key heads."
        )
    if not ctx.bodies and softmax_precision in (None, ElementType.FLOAT):
        return fused(q, k, v, None, scale=scale)
    if softmax_precision is None:
        wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    else:
        named = ElementType(softmax_precision).torch_dtype
        assert named is not None
        wide = named
    values = scores(q, k, 1.0 / math.sqrt(q.shape[3]) if scale is None else scale).to(wide)
    values = _changed("score_mod", values, ctx)
    probabilities = _changed("prob_mod", torch.softmax(values, -1), ctx)
    return weighted(probabilities, v.to(wide)).to(v.dtype)


def _changed(name: str, values: Tensor, ctx: KernelContext) -> Tensor:
    body = ctx.bodies.get(name)
    if body is None:
        return values
    (result,) = body(values)
    if not isinstance(result, Tensor):
        raise ValueError(f"{name} must give one tensor.")
    return result.to(values.dtype)
