"""Features made ready: Scaler, Normalizer, Binarizer, Imputer, FeatureVectorizer, ArrayFeatureExtractor.

Source: https://onnx.ai/onnx/operators/#ai-onnx-ml
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.common.checks import check_places
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.ml.scores import wide_enough


@kernel("Scaler", domain="ai.onnx.ml", since=(1,))
def scaler(
    X: Tensor,
    *,
    offset: list[float] | None = None,
    scale: list[float] | None = None,
    ctx: KernelContext,
) -> Tensor:
    """``(X - offset) * scale`` as float32; each list has one number, or one for each feature.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_Scaler.html
    """
    x = wide_enough(X)
    first, second = prepared(ctx, lambda: (_numbers(offset or [0.0], x), _numbers(scale or [1.0], x)))
    return ((x - first) * second).to(torch.float32)


@kernel("Normalizer", domain="ai.onnx.ml", since=(1,))
def normalizer(X: Tensor, *, norm: str = "MAX") -> Tensor:
    """Each row divided by its norm, as float32; a row of norm 0 stays as it is.

    Args:
        X: [n, c] or [c].
        norm: ``"MAX"`` (greatest magnitude), ``"L1"`` or ``"L2"``.

    Raises:
        ValueError: The norm is another.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_Normalizer.html
    """
    orders = {"MAX": float("inf"), "L1": 1.0, "L2": 2.0}
    if norm not in orders:
        raise ValueError(f"norm {norm!r} is none of 'MAX', 'L1' and 'L2'")
    x = wide_enough(X)
    length = torch.linalg.vector_norm(x, orders[norm], -1, keepdim=True)
    return (x / torch.where(length == 0, 1, length)).to(torch.float32)


@kernel("Binarizer", domain="ai.onnx.ml", since=(1,))
def binarizer(X: Tensor, *, threshold: float = 0.0) -> Tensor:
    """1 where ``X`` exceeds the threshold, 0 elsewhere, in the dtype of ``X``.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_Binarizer.html
    """
    return torch.gt(X, threshold).to(X.dtype)


@kernel("Imputer", domain="ai.onnx.ml", since=(1,))
def imputer(
    X: Tensor,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
    ctx: KernelContext,
) -> Tensor:
    """``X`` with one value replaced wherever it appears.

    Args:
        X: [..., f].
        imputed_value_floats: What is put there, one number or one for each feature, for floats.
        imputed_value_int64s: The same for integers.
        replaced_value_float: What is replaced; NaN stands for every NaN.
        replaced_value_int64: The same for integers.
        ctx: The step.

    Raises:
        ValueError: There is no value to put.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_Imputer.html
    """
    floating = X.is_floating_point()
    imputed: list[float] | list[int] | None = imputed_value_floats if floating else imputed_value_int64s
    if not imputed:
        raise ValueError(f"Imputer needs imputed_value_{'floats' if floating else 'int64s'} for {X.dtype}")
    replaced = replaced_value_float if floating else replaced_value_int64
    missing = X.isnan() if math.isnan(replaced) else torch.eq(X, replaced)
    return torch.where(missing, prepared(ctx, lambda: _numbers(imputed, X)), X)


def _numbers(values: list[float] | list[int], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)


@kernel("FeatureVectorizer", domain="ai.onnx.ml", since=(1,))
def feature_vectorizer(*X: Tensor, inputdimensions: list[int] | None = None) -> Tensor:
    """The inputs side by side, as float32 [n, sum of the dimensions].

    Args:
        *X: [n, c] or [c] (one row) each.
        inputdimensions: Columns taken of each; it is cut, or filled up with zeros.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_FeatureVectorizer.html
    """
    parts = []
    for i, x in enumerate(X):
        part = x.reshape(1, -1) if x.dim() < 2 else x.reshape(x.shape[0], -1)
        wanted = inputdimensions[i] if inputdimensions else part.shape[1]
        parts.append(torch.nn.functional.pad(part, (0, wanted - part.shape[1])).to(torch.float32))
    return torch.cat(parts, 1)


@kernel("ArrayFeatureExtractor", domain="ai.onnx.ml", since=(1,), checks=True, native=("check_range",))
def array_feature_extractor(X: Tensor, Y: Tensor, *, ctx: KernelContext) -> Tensor:
    """The columns of ``X`` that ``Y`` names.

    Args:
        X: [..., c], numbers or strings; a vector is taken for one row.
        Y: int64, all its elements are columns.
        ctx: Where a bad column is reported.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_ArrayFeatureExtractor.html
    """
    if not isinstance(X, Tensor):
        return strings.by_position(array_feature_extractor, X, Y, ctx=ctx)
    x = X if X.dim() > 1 else X.reshape(1, -1)
    return torch.index_select(x, -1, check_places(Y.reshape(-1), x.shape[-1], Flag.INDEX, ctx))
