"""Maps: ZipMap, DictVectorizer, CastMap.

A map is a dict of Python numbers or strings, on the host.

Source: https://onnx.ai/onnx/operators/#ai-onnx-ml
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import KernelContext, TensorSequence, kernel

_HOST = "maps live on the host"


@kernel("ZipMap", domain="ai.onnx.ml", since=(1,), seam=_HOST)
def zip_map(
    X: Tensor, *, classlabels_int64s: list[int] | None = None, classlabels_strings: list[str] | None = None
) -> TensorSequence:
    """Each row of ``X`` as a map from label to number.

    Args:
        X: Float [n, labels], or one row [labels].
        classlabels_int64s: The labels.
        classlabels_strings: The same as strings.

    Raises:
        ValueError: There are not as many labels as columns.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_ZipMap.html
    """
    keys: list[Any] = list(classlabels_int64s or classlabels_strings or [])
    if X.shape[-1] != len(keys):
        raise ValueError(f"{len(keys)} labels do not fit the {X.shape[-1]} columns of the input")
    rows = X.reshape(-1, len(keys)).tolist()
    return tuple(dict(zip(keys, row, strict=True)) for row in rows)


@kernel("DictVectorizer", domain="ai.onnx.ml", since=(1,), seam=_HOST)
def dict_vectorizer(
    X: Any,
    *,
    int64_vocabulary: list[int] | None = None,
    string_vocabulary: list[str] | None = None,
    ctx: KernelContext,
) -> Tensor:
    """The values of a map at the places of their keys in a vocabulary: [1, keys].

    Args:
        X: The map.
        int64_vocabulary: All keys there may be.
        string_vocabulary: The same as strings.
        ctx: Tells the element type and the device.

    Returns:
        int64, float32, float64 or strings; 0 or an empty string for keys that are not in the map.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_DictVectorizer.html
    """
    keys: list[Any] = list(int64_vocabulary or string_vocabulary or [])
    sample = next(iter(X.values()), 0)
    if isinstance(sample, str):
        return strings.as_tensor(strings.array((X.get(key, "") for key in keys), (1, len(keys))))
    element = ctx.output_type(0)
    if element is not None:
        dtype = element.torch_dtype
    else:
        dtype = torch.int64 if isinstance(sample, int) else torch.float32
    return torch.tensor([[X.get(key, 0) for key in keys]], dtype=dtype, device=ctx.device)


@kernel("CastMap", domain="ai.onnx.ml", since=(1,), seam=_HOST)
def cast_map(
    X: Any,
    *,
    cast_to: str = "TO_FLOAT",
    map_form: str = "DENSE",
    max_map: int = 1,
    ctx: KernelContext,
) -> Tensor:
    """The values of a map in the order of their keys: [1, n].

    Args:
        X: The map, from integers.
        cast_to: ``"TO_FLOAT"`` (float32), ``"TO_INT64"`` or ``"TO_STRING"``.
        map_form: ``"DENSE"`` (as many values as there are) or ``"SPARSE"`` (each at the place of its key).
        max_map: Length of the sparse form.
        ctx: Tells the device.

    Raises:
        ValueError: A key lies outside of the sparse form, or an attribute has an unknown value.

    Source: https://onnx.ai/onnx/operators/onnx_aionnxml_CastMap.html
    """
    if cast_to not in ("TO_FLOAT", "TO_INT64", "TO_STRING") or map_form not in ("DENSE", "SPARSE"):
        raise ValueError(f"cast_to {cast_to!r} or map_form {map_form!r} is unknown")
    places = sorted(X)
    length = len(places)
    if map_form == "SPARSE":
        if any(not 0 <= key < max_map for key in places):
            raise ValueError(f"the keys {places[0]} to {places[-1]} do not fit into {max_map} places")
        length = max_map
    blank: float | str = "" if cast_to == "TO_STRING" else 0
    row = [blank] * length
    for i, key in enumerate(places):
        value = X[key]
        row[key if map_form == "SPARSE" else i] = (
            str(value) if cast_to == "TO_STRING" else float(value) if cast_to == "TO_FLOAT" else int(value)
        )
    if cast_to == "TO_STRING":
        return strings.as_tensor(strings.array(row, (1, length)))
    dtype = torch.float32 if cast_to == "TO_FLOAT" else torch.int64
    return torch.tensor([row], dtype=dtype, device=ctx.device)
