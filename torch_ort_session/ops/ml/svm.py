"""Support vector machines: SVMClassifier, SVMRegressor.

Source: https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.ml.coupling import couple
from torch_ort_session.ops.ml.scores import labels, text_labels, wide_enough
from torch_ort_session.ops.ml.scores import post_transform as transform


@dataclass(frozen=True, slots=True, eq=False)
class _Machine:
    """Attributes as float32 tensors, each flat."""

    coefficients: Tensor
    support_vectors: Tensor
    rho: Tensor
    prob_a: Tensor
    prob_b: Tensor


def _machine(
    ctx: KernelContext,
    coefficients: list[float] | None,
    support_vectors: list[float] | None,
    rho: list[float] | None,
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
) -> _Machine:
    attributes = (coefficients, support_vectors, rho, prob_a, prob_b)
    return _Machine(*[torch.tensor(x or [], dtype=torch.float32, device=ctx.device) for x in attributes])


@kernel("SVMRegressor", domain="ai.onnx.ml", since=(1,))
def svm_regressor(
    X: Tensor,
    *,
    coefficients: list[float] | None = None,
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: list[float] | None = None,
    support_vectors: list[float] | None = None,
    ctx: KernelContext,
) -> Tensor:
    """The weighted similarity of each row to the support vectors: float32 [n, 1].

    Args:
        X: Features [n, f].
        coefficients: Weight of each support vector; of each feature where there are none.
        kernel_params: gamma, coef0 and degree.
        kernel_type: ``"LINEAR"``, ``"POLY"``, ``"RBF"`` or ``"SIGMOID"``.
        n_supports: Number of support vectors.
        one_class: Whether only the sign is wanted, as 1 or -1.
        post_transform: ``"NONE"``, ``"SOFTMAX"``, ``"LOGISTIC"``, ``"SOFTMAX_ZERO"`` or ``"PROBIT"``.
        rho: Added at the end.
        support_vectors: [supports, f] in a row.
        ctx: The step.

    Raises:
        ValueError: The kernel is another.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html
    """
    machine = prepared(ctx, lambda: _machine(ctx, coefficients, support_vectors, rho))
    x = wide_enough(X)
    weight = machine.coefficients.to(x.dtype)
    if n_supports > 0:
        vectors = machine.support_vectors.reshape(n_supports, -1).to(x.dtype)
        score = torch.matmul(_similarity(x, vectors, kernel_type, kernel_params), weight)
    else:
        score = torch.matmul(x, weight)
    score = (score + machine.rho[:1].to(x.dtype)).unsqueeze(1)
    if one_class:
        score = torch.where(score > 0, 1.0, -1.0)
    return transform(score, post_transform).to(torch.float32)


def _seam(node: Node) -> str | None:
    if node.attributes.get("prob_a"):
        return "the probabilities are refined until they converge"
    return text_labels(node)


@kernel("SVMClassifier", domain="ai.onnx.ml", since=(1,), seam=_seam)
def svm_classifier(
    X: Tensor,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float] | None = None,
    kernel_params: list[float] | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
    rho: list[float] | None = None,
    support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor]:
    """The class of each row, and scores.

    With support vectors each pair of classes is told apart by a score of its own, and the class that wins
    most pairs is the row's. Without them the model is linear, with one score a class.

    Args:
        X: Features [n, f].
        classlabels_ints: Labels.
        classlabels_strings: The same as strings.
        coefficients: [classes - 1, supports] in a row; [classes, f] without support vectors.
        kernel_params: gamma, coef0 and degree.
        kernel_type: ``"LINEAR"``, ``"POLY"``, ``"RBF"`` or ``"SIGMOID"``.
        post_transform: ``"NONE"``, ``"SOFTMAX"``, ``"LOGISTIC"``, ``"SOFTMAX_ZERO"`` or ``"PROBIT"``.
        prob_a: Slope that makes a probability of each pair's score.
        prob_b: Intercept of the same.
        rho: Added to the score of each pair.
        support_vectors: [supports, f] in a row, class by class.
        vectors_per_class: How many of them belong to each class.
        ctx: The step.

    Returns:
        Labels [n], int64 or strings, and float32: probabilities [n, classes] with ``prob_a``, else scores
        [n, pairs] (of two classes both: the negative score and the score) or [n, classes].

    Raises:
        ValueError: The kernel is another.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html
    """
    machine = prepared(ctx, lambda: _machine(ctx, coefficients, support_vectors, rho, prob_a, prob_b))
    x = wide_enough(X)
    classes = max(len(classlabels_ints or classlabels_strings or []), 1)
    votes = None
    if vectors_per_class:
        votes, scores = _duels(x, machine, vectors_per_class, kernel_type, kernel_params)
        if prob_a:
            scores = couple(_pairwise(scores, machine, len(vectors_per_class)))
    else:
        weight = machine.coefficients.reshape(classes, -1).t().to(x.dtype)
        scores = torch.matmul(x, weight) + machine.rho[:1].to(x.dtype)
    place = (scores if votes is None else votes).argmax(1)
    if scores.shape[1] == 1 and classes == 2:
        scores = torch.cat([-scores, scores], 1)
    named = labels(place, classlabels_ints, classlabels_strings, ctx)
    return named, transform(scores, post_transform).to(torch.float32)


def _duels(
    x: Tensor, machine: _Machine, per_class: list[int], kernel_type: str, params: list[float] | None
) -> tuple[Tensor, Tensor]:
    """How many pairs each class wins [n, classes], and the score of each pair [n, pairs]."""
    supports = sum(per_class)
    vectors = machine.support_vectors.reshape(supports, -1).to(x.dtype)
    weight = machine.coefficients.reshape(-1, supports).to(x.dtype)
    similar = torch.split(_similarity(x, vectors, kernel_type, params), per_class, 1)
    weights = torch.split(weight, per_class, 1)
    wins = [x.new_zeros(x.shape[0]) for _ in per_class]
    scores: list[Tensor] = []
    for i in range(len(per_class)):
        for j in range(i + 1, len(per_class)):
            score = torch.matmul(similar[i], weights[i][j - 1]) + torch.matmul(similar[j], weights[j][i])
            score = score + machine.rho[len(scores)].to(x.dtype)
            wins[i] = wins[i] + (score > 0)
            wins[j] = wins[j] + (score <= 0)
            scores.append(score)
    return torch.stack(wins, 1), torch.stack(scores, 1)


def _pairwise(scores: Tensor, machine: _Machine, classes: int) -> Tensor:
    """Probabilities [n, classes, classes] of the first class against the second from the pairs' scores."""
    odds = scores * machine.prob_a.to(scores.dtype) + machine.prob_b.to(scores.dtype)
    first = torch.sigmoid(-odds).clamp(1e-7, 1 - 1e-7)
    table = scores.new_zeros(scores.shape[0], classes, classes)
    above = torch.triu_indices(classes, classes, 1, device=scores.device)
    table = table.index_put((torch.arange(scores.shape[0], device=scores.device).unsqueeze(1), *above), first)
    return table + torch.triu(1 - table, 1).transpose(1, 2)


def _similarity(x: Tensor, vectors: Tensor, kernel_type: str, params: list[float] | None) -> Tensor:
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    if kernel_type == "RBF":
        # Exact differences: the expanded square loses all digits where rows and vectors lie close.
        return torch.exp(-gamma * (x.unsqueeze(1) - vectors).square().sum(-1))
    product = torch.matmul(x, vectors.t())
    if kernel_type == "LINEAR":
        return product
    if kernel_type == "POLY":
        return (product * gamma + coef0) ** degree
    if kernel_type == "SIGMOID":
        return torch.tanh(product * gamma + coef0)
    raise ValueError(f"kernel_type {kernel_type!r} is none of 'LINEAR', 'POLY', 'RBF' and 'SIGMOID'")
