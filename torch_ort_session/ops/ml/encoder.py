"""Categories to numbers and back: LabelEncoder, CategoryMapper, OneHotEncoder.

Source: https://onnx.ai/onnx/operators/#ai-onnx-ml
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common import strings
from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.ml.lookup import look_up

_TEXTS = (
    "keys_strings",
    "values_strings",
    "classes_strings",
    "cats_strings",
)


def _has_texts(node: Node) -> str | None:
    if any(node.attributes.get(name) for name in _TEXTS):
        return "strings live on the host"
    for name in ("keys_tensor", "values_tensor"):
        if not isinstance(getattr(node.attributes.get(name), "data", None), Tensor | None):
            return "strings live on the host"
    return None


@kernel("LabelEncoder", domain="ai.onnx.ml", since=(4,), seam=_has_texts)
def label_encoder(
    X: Tensor,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Tensor | None = None,
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    keys_tensor: Tensor | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    values_tensor: Tensor | None = None,
    ctx: KernelContext,
) -> Tensor:
    """The value of each element's key.

    Args:
        X: Numbers or strings.
        default_float: What an element that is no key becomes, where values are floats.
        default_int64: The same for integers.
        default_string: The same for strings.
        default_tensor: The same for a tensor of values.
        keys_floats: The keys; NaN stands for every NaN, and of equal keys the last one counts.
        keys_int64s: The same as integers.
        keys_strings: The same as strings.
        keys_tensor: The same as a tensor.
        values_floats: The value of each key.
        values_int64s: The same as integers.
        values_strings: The same as strings.
        values_tensor: The same as a tensor.
        ctx: The step.

    Raises:
        ValueError: Keys or values are missing, or do not fit each other or the input.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_LabelEncoder.html
    """
    keys = _first(keys_strings, keys_int64s, keys_floats, keys_tensor)
    if values_tensor is not None:
        return look_up(X, keys, values_tensor, default_tensor, ctx)
    if values_strings is not None:
        return look_up(X, keys, values_strings, default_string, ctx)
    if values_int64s is not None:
        return look_up(X, keys, values_int64s, default_int64, ctx)
    return look_up(X, keys, _first(values_floats), default_float, ctx)


@kernel("LabelEncoder", domain="ai.onnx.ml", since=(2,), seam=_has_texts)
def label_encoder_lists(
    X: Tensor,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    keys_floats: list[float] | None = None,
    keys_int64s: list[int] | None = None,
    keys_strings: list[str] | None = None,
    values_floats: list[float] | None = None,
    values_int64s: list[int] | None = None,
    values_strings: list[str] | None = None,
    ctx: KernelContext,
) -> Tensor:
    """LabelEncoder before it took tensors.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_LabelEncoder.html
    """
    return label_encoder(
        X,
        default_float=default_float,
        default_int64=default_int64,
        default_string=default_string,
        keys_floats=keys_floats,
        keys_int64s=keys_int64s,
        keys_strings=keys_strings,
        values_floats=values_floats,
        values_int64s=values_int64s,
        values_strings=values_strings,
        ctx=ctx,
    )


@kernel("LabelEncoder", domain="ai.onnx.ml", since=(1,), seam=_has_texts)
def label_encoder_places(
    X: Tensor,
    *,
    classes_strings: list[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
    ctx: KernelContext,
) -> Tensor:
    """LabelEncoder when it turned a string into its place in a list, and a place into its string.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_LabelEncoder.html
    """
    names = _first(classes_strings)
    places = list(range(len(names)))
    return category_mapper(
        X,
        cats_int64s=places,
        cats_strings=names,
        default_int64=default_int64,
        default_string=default_string,
        ctx=ctx,
    )


@kernel("CategoryMapper", domain="ai.onnx.ml", since=(1,), seam=_has_texts)
def category_mapper(
    X: Tensor,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
    ctx: KernelContext,
) -> Tensor:
    """Strings to the integers beside them in a list, or integers to the strings.

    Args:
        X: int64 or strings.
        cats_int64s: The integers.
        cats_strings: The strings.
        default_int64: What a string becomes that is not listed.
        default_string: What an integer becomes that is not listed.
        ctx: The step.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_CategoryMapper.html
    """
    if isinstance(X, Tensor):
        return look_up(X, _first(cats_int64s), _first(cats_strings), default_string, ctx)
    return look_up(X, _first(cats_strings), _first(cats_int64s), default_int64, ctx)


def _strict(node: Node) -> str | None:
    if node.attributes.get("zeros", 1) == 0:
        return "an unknown category is an error"
    return _has_texts(node)


@kernel("OneHotEncoder", domain="ai.onnx.ml", since=(1,), seam=_strict)
def one_hot_encoder(
    X: Tensor,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
    ctx: KernelContext,
) -> Tensor:
    """For each element a row of zeros with a 1 at its category: float32 [*shape, categories].

    Args:
        X: Numbers (cast to integers) or strings.
        cats_int64s: The categories.
        cats_strings: The same as strings.
        zeros: Whether an unknown category gives zeros rather than an error.
        ctx: The step.

    Raises:
        ValueError: A category is unknown and ``zeros`` is 0.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_OneHotEncoder.html
    """
    if isinstance(X, Tensor):
        listed = _first(cats_int64s)
        known = prepared(ctx, lambda: torch.tensor(listed, dtype=torch.int64, device=X.device))
        hot = X.to(torch.int64).unsqueeze(-1) == known
    else:
        names = _first(cats_strings)
        place = strings.find(names, X).to(ctx.device)
        hot = place.unsqueeze(-1) == torch.arange(len(names), device=ctx.device)
    if not zeros and not hot.any(-1).all().item():
        raise ValueError("the input holds a category that is not listed")
    return hot.to(torch.float32)


def _first(*values: Any) -> Any:
    for item in values:
        if item is not None:
            return item
    raise ValueError("a list of keys, values or categories is missing for this input")
