"""Scores and labels of the classifiers and regressors of ai.onnx.ml.

Source: https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common import strings
from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext


def post_transform(scores: Tensor, name: str) -> Tensor:
    """Scores [n, c] put through a transform of ai.onnx.ml.

    Args:
        scores: Raw scores.
        name: ``"NONE"``, ``"SOFTMAX"``, ``"LOGISTIC"``, ``"SOFTMAX_ZERO"`` (scores of 0 stay near 0) or
            ``"PROBIT"``.

    Raises:
        ValueError: The name is another.
    """
    if name == "NONE":
        return scores
    if name == "SOFTMAX":
        return torch.softmax(scores, -1)
    if name == "LOGISTIC":
        return torch.sigmoid(scores)
    if name == "PROBIT":
        quantile: Tensor = torch.special.ndtri(scores)
        return quantile
    if name == "SOFTMAX_ZERO":
        top = scores.amax(-1, keepdim=True)
        parts = torch.where(scores.abs() > 1e-7, torch.exp(scores - top), scores * torch.exp(-top))
        total = parts.sum(-1, keepdim=True)
        return torch.where(total == 0, 0.5, parts / total)
    raise ValueError(
        f"post_transform {name!r} is none of 'NONE', 'SOFTMAX', 'LOGISTIC', 'SOFTMAX_ZERO' and 'PROBIT'"
    )


def text_labels(node: Node) -> str | None:
    """Why a classifier is a seam: where its labels are strings."""
    return "string labels live on the host" if node.attributes.get("classlabels_strings") else None


def labels(
    index: Tensor,
    integers: list[int] | None,
    texts: list[str] | None,
    ctx: KernelContext,
    *,
    otherwise: int | str | None = None,
) -> Tensor:
    """Labels by number: int64, or strings.

    Args:
        index: int64, numbers of labels; the number of labels stands for ``otherwise``.
        integers: Integer labels.
        texts: String labels.
        ctx: The step, for which the labels are made a tensor once.
        otherwise: A label beyond the list.
    """
    if texts:
        known = texts if otherwise is None else [*texts, str(otherwise)]
        return strings.as_tensor(strings.pick(known, index))
    if not integers:
        return index
    known_ints = integers if otherwise is None else [*integers, int(otherwise)]
    table = prepared(ctx, lambda: torch.tensor(known_ints, dtype=torch.int64, device=ctx.device), "labels")
    return table[index]


def wide_enough(x: Tensor) -> Tensor:
    """Features as floats: float64 stays, everything else is computed with in float32."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)
