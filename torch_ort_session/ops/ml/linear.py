"""Linear models: LinearClassifier, LinearRegressor.

Source: https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.ml.scores import labels, text_labels, wide_enough
from torch_ort_session.ops.ml.scores import post_transform as transform


@kernel("LinearRegressor", domain="ai.onnx.ml", since=(1,))
def linear_regressor(
    X: Tensor,
    *,
    coefficients: list[float] | None = None,
    intercepts: list[float] | None = None,
    post_transform: str = "NONE",
    targets: int = 1,
    ctx: KernelContext,
) -> Tensor:
    """``X`` times the coefficients, plus the intercepts: float32 [n, targets].

    Args:
        X: Features [n, f].
        coefficients: [targets, f] in a row.
        intercepts: [targets], 0 without it.
        post_transform: ``"NONE"``, ``"SOFTMAX"``, ``"LOGISTIC"``, ``"SOFTMAX_ZERO"`` or ``"PROBIT"``.
        targets: Number of targets.
        ctx: The step.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_LinearRegressor.html
    """
    weight, bias = prepared(ctx, lambda: _model(coefficients or [], intercepts or [], targets, ctx))
    return transform(_scores(X, weight, bias), post_transform).to(torch.float32)


@kernel("LinearClassifier", domain="ai.onnx.ml", since=(1,), seam=text_labels)
def linear_classifier(
    X: Tensor,
    *,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    multi_class: int = 0,
    post_transform: str = "NONE",
    ctx: KernelContext,
) -> tuple[Tensor, Tensor]:
    """The class of the greatest score of each row, and the scores.

    One score with two labels is that of the second class; the first one gets its negative.

    Args:
        X: Features [n, f] or [f].
        classlabels_ints: Labels.
        classlabels_strings: The same as strings.
        coefficients: [classes, f] in a row.
        intercepts: [classes], 0 without it.
        multi_class: Of no account: the transform says what the scores become.
        post_transform: ``"NONE"``, ``"SOFTMAX"``, ``"LOGISTIC"``, ``"SOFTMAX_ZERO"`` or ``"PROBIT"``.
        ctx: The step.

    Returns:
        Labels [n], int64 or strings, and scores float32 [n, classes].

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html
    """
    x = X if X.dim() == 2 else X.unsqueeze(0)
    classes = len(coefficients) // max(x.shape[1], 1)
    weight, bias = prepared(ctx, lambda: _model(coefficients, intercepts or [], classes, ctx))
    scores = _scores(x, weight, bias)
    known = len(classlabels_ints or classlabels_strings or [])
    if classes == 1 and known == 2:
        scores = torch.cat([-scores, scores], 1)
    negative: int | str | None = None
    if classes == 1 and known != 2:
        # A single class is told from none; its label may stand alone, or be 1.
        place = (scores[:, 0] <= 0).to(torch.int64)
        negative = "" if classlabels_strings else 0
        classlabels_ints = classlabels_ints or [1]
    else:
        place = scores.argmax(1)
    named = labels(place, classlabels_ints, classlabels_strings, ctx, otherwise=negative)
    return named, transform(scores, post_transform).to(torch.float32)


def _model(
    coefficients: list[float], intercepts: list[float], rows: int, ctx: KernelContext
) -> tuple[Tensor, Tensor]:
    weight = torch.tensor(coefficients, dtype=torch.float32, device=ctx.device)
    bias = torch.tensor(intercepts or [0.0], dtype=torch.float32, device=ctx.device)
    return weight.reshape(rows, -1).t(), bias


def _scores(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    x = wide_enough(x)
    return torch.matmul(x, weight.to(x.dtype)) + bias.to(x.dtype)
