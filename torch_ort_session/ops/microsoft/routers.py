"""What chooses experts: MoEGroupRouter and RouterGateUpProj of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.gates import swiglu

_SENTINEL = -10000.0
_LEAST = 1e-20


def _first(scores: Tensor, count: int) -> Tensor:
    """Bools of the ``count`` largest of each row; of equals the first ones."""
    order = torch.argsort(scores, dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True)


@kernel("MoEGroupRouter", domain="com.microsoft", since=(1,))
def moe_group_router(
    logits: Tensor,
    expert_bias: Tensor,
    projection_weight: Tensor | None = None,
    *,
    group_topk: int = 2,
    n_group: int = 1,
    router_sentinel: float = _SENTINEL,
    top_k: int,
    topk_group: int = 1,
    ctx: KernelContext,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The experts of the best groups by sigmoid and bias, as logarithms that MoE takes.

    Args:
        logits: [..., experts], or beside a projection [tokens, width].
        expert_bias: float32 [experts]; it counts for the choice alone.
        projection_weight: [experts, width].
        group_topk: How many experts of a group tell how good it is.
        n_group: Groups of experts.
        router_sentinel: What stands for an expert that was not chosen.
        top_k: Experts that are chosen.
        topk_group: Groups to choose from.
        ctx: Tells which outputs are wanted.

    Returns:
        [tokens, experts]: the logarithms, and where asked for, in float32, the sigmoids with the bias and
        without.

    Raises:
        ValueError: The groups do not divide the experts.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MoEGroupRouter
    """
    rows = logits.reshape(-1, logits.shape[-1]).to(torch.float32)
    if projection_weight is not None:
        rows = torch.matmul(rows, projection_weight.to(torch.float32).t())
    experts = rows.shape[1]
    if experts % n_group:
        raise ValueError(f"{n_group} groups do not divide {experts} experts.")
    score = torch.sigmoid(rows)
    biased = score + expert_bias
    chosen = None
    if ctx.wants(0):
        grouped = biased.reshape(-1, n_group, experts // n_group)
        best = torch.topk(grouped, min(group_topk, grouped.shape[2]), -1).values.sum(-1)
        open_ = _first(best, topk_group).unsqueeze(-1).expand_as(grouped).reshape(biased.shape)
        taken = _first(torch.where(open_, biased, float("-inf")), top_k) & open_
        chosen = torch.where(taken, torch.log(score.clamp(min=_LEAST)), router_sentinel).to(logits.dtype)
    return chosen, biased if ctx.wants(1) else None, score if ctx.wants(2) else None


@kernel("RouterGateUpProj", domain="com.microsoft", since=(1,), native=("activate",))
def router_gate_up_proj(
    x: Tensor,
    w: Tensor,
    *,
    activation: str = "swiglu",
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    router_size: int,
) -> tuple[Tensor, Tensor]:
    """One product for the logits of a router and the gate and linear half of an expert that all tokens share.

    Args:
        x: [..., K].
        w: [K, R + 2 * D].
        activation: swiglu.
        activation_alpha: As of SwiGLU.
        activation_beta: As of SwiGLU.
        limit: As of SwiGLU.
        router_size: R.

    Returns:
        The logits [..., R] and the activated gate [..., D].

    Raises:
        ValueError: Another activation.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.RouterGateUpProj
    """
    if activation != "swiglu":
        raise ValueError(f"activation must be swiglu, not {activation!r}.")
    product = torch.matmul(x, w)
    router, rest = product[..., :router_size], product[..., router_size:]
    active = swiglu(rest, activation_alpha=activation_alpha, activation_beta=activation_beta, limit=limit)
    return router.contiguous(), active
