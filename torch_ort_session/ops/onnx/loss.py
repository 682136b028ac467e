"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.

Sources: https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html,
https://onnx.ai/onnx/operators/onnx__SoftmaxCrossEntropyLoss.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.widen import HALF
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("NegativeLogLikelihoodLoss", since=(12, 13, 22), checks=True, native=("check_range",))
def negative_log_likelihood_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    ctx: KernelContext,
) -> Tensor:
    """Minus the log probability of each target class, weighted and reduced.

    Args:
        x: Log probabilities ``[N, C, d1, ...]``.
        target: int32 or int64 classes ``[N, d1, ...]``.
        weight: Weight of each class ``[C]``.
        ignore_index: A target that counts neither in the loss nor in the mean.
        reduction: ``"none"``, ``"sum"`` or ``"mean"`` (over the weights that count).
        ctx: Context.

    Returns:
        ``[N, d1, ...]`` or a scalar, in the dtype of ``x``.

    Raises:
        ValueError: Shapes do not fit, or an unknown ``reduction``.
    """
    wide = x.to(torch.float32) if x.dtype in HALF else x
    return _picked(wide, target, weight, ignore_index, reduction, ctx).to(x.dtype)


@kernel("SoftmaxCrossEntropyLoss", since=(12, 13), checks=True, native=("check_range",))
def softmax_cross_entropy_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """Log softmax over the classes, then :func:`negative_log_likelihood_loss` with the same arguments.

    Returns:
        The loss, and the log probabilities in the shape of ``scores``.

    Raises:
        ValueError: Shapes do not fit, or an unknown ``reduction``.
    """
    wide = scores.to(torch.float32) if scores.dtype in HALF else scores
    log_prob = torch.log_softmax(wide, 1)
    loss = _picked(log_prob, labels, weights, ignore_index, reduction, ctx).to(scores.dtype)
    return loss, log_prob.to(scores.dtype) if ctx.wants(1) else None


def _picked(
    log_prob: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int | None,
    reduction: str,
    ctx: KernelContext,
) -> Tensor:
    if log_prob.ndim < 2 or target.shape != log_prob.shape[:1] + log_prob.shape[2:]:
        raise ValueError(
            f"Classes of shape {tuple(target.shape)} do not belong to probabilities {tuple(log_prob.shape)}: "
            "the latter have one more dim, the classes, in second place."
        )
    classes = target.to(torch.int64)
    ignored = None if ignore_index is None else classes == ignore_index
    if ignored is not None:
        classes = classes.masked_fill(ignored, 0)
    classes = check_places(classes, log_prob.shape[1], Flag.CLASS, ctx)
    loss = -log_prob.gather(1, classes.unsqueeze(1)).squeeze(1)
    counted = None
    if weight is not None:
        counted = weight.to(log_prob.dtype)[classes]
        loss = loss * counted
    if ignored is not None:
        loss = loss.masked_fill(ignored, 0)
        counted = torch.ones_like(loss) if counted is None else counted
        counted = counted.masked_fill(ignored, 0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return torch.sum(loss)
    if reduction == "mean":
        return torch.mean(loss) if counted is None else torch.sum(loss) / torch.sum(counted)
    raise ValueError(f'reduction is "none", "sum" or "mean", not {reduction!r}.')
