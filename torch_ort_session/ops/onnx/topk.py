"""TopK: the largest or smallest entries along an axis.

Source: https://onnx.ai/onnx/operators/onnx__TopK.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.kernel import kernel

# From here on, and where few entries are wanted, a selection beats a full sort (measured on a CPU).
_LONG_AXIS = 1024


@kernel("TopK", since=(11, 24), host=("K",), native=("top_k",))
def top_k(
    X: Tensor,
    K: int,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> tuple[Tensor, Tensor]:
    """The ``K`` largest (or smallest) entries along ``axis`` and where they lie, in order.

    Of equal entries the one of the lowest index comes first; NaN counts as larger than all.

    Args:
        X: Any real tensor.
        K: How many, at most the size of the axis.
        axis: The axis.
        largest: 1 for the largest, 0 for the smallest.
        sorted: Whether the order matters; the result is in order either way.

    Returns:
        Values in the dtype of ``X``, and int64 indices.

    Raises:
        ValueError: The axis has fewer entries.

    Source: https://onnx.ai/onnx/operators/onnx__TopK.html
    """
    size = X.shape[axis]
    if not 0 <= K <= size:
        raise ValueError(f"K {K} is not within axis {axis}, which has {size} entries")
    select = native.cpu_op("top_k", X) if size > 1 and X.dtype not in _UNKNOWN else None
    if select is not None:
        chosen = select(X.detach(), K, axis % X.dim(), bool(largest))
        return torch.gather(X, axis, chosen), chosen
    if size >= _LONG_AXIS and size >= K * 8 and X.dtype in _RANKED:
        ranks = _unique_ranks(X, axis, bool(largest))
        index = torch.topk(ranks, K, axis, largest=bool(largest)).indices
        return torch.gather(X, axis, index), index
    values, index = torch.sort(X, dim=axis, stable=True, descending=bool(largest))
    return values.narrow(axis, 0, K), index.narrow(axis, 0, K)


@kernel("TopK", since=(10,), host=("K",), native=("top_k",))
def top_k_largest(X: Tensor, K: int, *, axis: int = -1) -> tuple[Tensor, Tensor]:
    """TopK when it only found the largest.

    Source: https://onnx.ai/onnx/operators/onnx__TopK.html#topk-10
    """
    return top_k(X, K, axis=axis)


@kernel("TopK", since=(1,), native=("top_k",))
def top_k_attribute(X: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    """TopK with the count as an attribute.

    Source: https://onnx.ai/onnx/operators/onnx__TopK.html#topk-1
    """
    return top_k(X, k, axis=axis)


_UNKNOWN = frozenset({torch.bool, torch.uint16, torch.uint32, torch.uint64})
"""Dtypes that the compiled selection does not serve."""

_RANKED = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.uint8,
        torch.int16,
        torch.int32,
    }
)


def _unique_ranks(x: Tensor, axis: int, largest: bool) -> Tensor:
    """int64 numbers in the order of ``x``, no two equal along the axis: value above, position below.

    All in place on fresh memory: on a long axis the memory costs more than the arithmetic.
    """
    if x.is_floating_point():
        # The bits of a float, read as an integer, are in order once those of negatives are turned round.
        # Adding 0 makes one zero of two; one NaN stands for all.
        real = x.detach().to(torch.float32) + 0.0
        bits = real.masked_fill_(real.isnan(), torch.nan).view(torch.int32)
        x = (bits >> 31).bitwise_and_(0x7FFFFFFF).bitwise_xor_(bits)
    size = x.shape[axis]
    view = [1] * x.dim()
    view[axis] = size
    # The lower place shall win: among the largest it gets the larger number.
    ends = (size - 1, -1, -1) if largest else (0, size, 1)
    place = torch.arange(*ends, device=x.device).reshape(view)
    return x.to(torch.int64, copy=True).bitwise_left_shift_(32).add_(place)
