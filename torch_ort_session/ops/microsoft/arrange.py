"""Ops of com.microsoft that arrange, select and make elements, most of them forerunners of ONNX's own.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torch_ort_session.ops.common import bits
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.constant import range_ as onnx_range
from torch_ort_session.ops.onnx.gather import gather_nd as onnx_gather_nd
from torch_ort_session.ops.onnx.pad import pad as onnx_pad
from torch_ort_session.ops.onnx.select import unique as onnx_unique
from torch_ort_session.ops.signature import Scalar


@kernel("Trilu", domain="com.microsoft", since=(1,), host=("k",))
def trilu(x: Tensor, k: int | None = None, *, upper: int = 1) -> Tensor:
    """The upper or lower triangle of the last two dims, the rest zero.

    Args:
        x: Any tensor of rank 2 or more.
        k: The diagonal to cut at; 0 is the main one, a positive one lies above it.
        upper: 1 keeps what lies on and above it, 0 what lies on and below.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Trilu
    """
    return bits.movable(torch.triu if upper else torch.tril, x, k or 0)


@kernel("Unique", domain="com.microsoft", since=(1,), seam="the size of the output depends on the data")
def unique(x: Tensor, *, ctx: KernelContext) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The different elements of a vector in the order in which they appear first.

    Args:
        x: Tensor or strings of rank 1; all NaN count as one.
        ctx: Tells which outputs are wanted.

    Returns:
        The elements, and int64: which one each of ``x`` is, and how often each appears.

    Raises:
        ValueError: ``x`` is no vector.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Unique
    """
    if len(x.shape) != 1:
        raise ValueError(f"Unique takes a vector, not a tensor of shape {tuple(x.shape)}.")
    values, _, group, count = onnx_unique(x, sorted=0, ctx=ctx)
    return values, group, count


@kernel("ExpandDims", domain="com.microsoft", since=(1,), host=("axis",), view_of="x")
def expand_dims(x: Tensor, axis: int) -> Tensor:
    """``x`` with one more dim of size 1.

    Args:
        x: Any tensor or strings.
        axis: Where the new dim is in the result, in [-rank - 1, rank].

    Raises:
        ValueError: ``axis`` lies outside.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.ExpandDims
    """
    rank = len(x.shape)
    if not -rank - 1 <= axis <= rank:
        raise ValueError(f"axis {axis} lies outside of [{-rank - 1}, {rank}].")
    place = axis % (rank + 1)
    return x.reshape((*x.shape[:place], 1, *x.shape[place:]))


@kernel("GatherND", domain="com.microsoft", since=(1,), checks=True, native=("check_index",))
def gather_nd(data: Tensor, indices: Tensor, *, ctx: KernelContext) -> Tensor:
    """The slices of ``data`` that the rows of ``indices`` name.

    Args:
        data: Tensor or strings of rank r.
        indices: int32 or int64 [..., k], k at most r; each in [-size, size) of its dim.
        ctx: Where a bad index is reported.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GatherND
    """
    return onnx_gather_nd(data, indices.to(torch.int64), ctx=ctx)


@kernel("Pad", domain="com.microsoft", since=(1,), host=("pads", "value"))
def pad(data: Tensor, pads: list[int], value: Scalar | None = None, *, mode: str = "constant") -> Tensor:
    """``data`` with more elements at the borders, or fewer where a pad is negative.

    Args:
        data: Floats of any rank.
        pads: [2 * rank] or [1, 2 * rank]: all begins, then all ends.
        value: What mode ``"constant"`` puts there; 0 without it.
        mode: ``"constant"``, ``"edge"`` or ``"reflect"``.

    Raises:
        ValueError: The number of pads does not fit, or the mode is another.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Pad
    """
    rows: list[Any] = pads
    flat = rows[0] if len(rows) == 1 and isinstance(rows[0], list) else pads
    return onnx_pad(data, flat, value, mode=mode)


@kernel("Range", domain="com.microsoft", since=(1,), host=("start", "limit", "delta"))
def range_(start: Scalar, limit: Scalar, delta: Scalar | None = None, *, ctx: KernelContext) -> Tensor:
    """The numbers from ``start`` up to ``limit``, the latter excluded, in steps of ``delta``.

    Args:
        start: First number, a scalar or of shape [1].
        limit: Where to stop; nothing when it lies on the other side.
        delta: The step, not 0; 1 when absent.
        ctx: Tells the element type, and the device.

    Raises:
        ValueError: The step is 0.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Range
    """
    return onnx_range(start, limit, 1 if delta is None else delta, ctx=ctx)


@kernel("SampleOp", domain="com.microsoft", since=(1,), view_of="x")
def sample_op(x: Tensor) -> Tensor:
    """``x`` itself.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.SampleOp
    """
    return x


@kernel("IsAllFinite", domain="com.microsoft", since=(1,))
def is_all_finite(*inputs: Tensor, isinf_only: int = 0, isnan_only: int = 0) -> Tensor:
    """Whether no element of any input is infinite or NaN.

    Args:
        inputs: Floats.
        isinf_only: Look for infinities alone.
        isnan_only: Look for NaN alone.

    Returns:
        A bool scalar.

    Raises:
        ValueError: Both are set.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.IsAllFinite
    """
    if isinf_only and isnan_only:
        raise ValueError("isinf_only and isnan_only exclude each other.")
    bad = torch.isinf if isinf_only else torch.isnan
    if isinf_only or isnan_only:
        finite = [~bad(x).any() for x in inputs]
    else:
        finite = [torch.isfinite(x).all() for x in inputs]
    return torch.stack(finite).all()
