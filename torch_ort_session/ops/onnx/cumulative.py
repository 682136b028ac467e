"""CumSum and CumProd.

Sources: https://onnx.ai/onnx/operators/onnx__CumSum.html, https://onnx.ai/onnx/operators/onnx__CumProd.html
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import UNSIGNED, with_bits
from torch_ort_session.ops.kernel import kernel


@kernel("CumSum", since=(11, 14), host=("axis",))
def cumsum(x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running sum along a dim; integers wrap.

    Args:
        x: Numbers.
        axis: The dim.
        exclusive: Whether an element counts only from the next position on (the first result is 0).
        reverse: Whether to run from the end.
    """
    if x.dtype in UNSIGNED:
        return with_bits(lambda b: _cumulate(torch.cumsum, b, axis, exclusive, reverse, 0), x)
    if exclusive or reverse:
        return _cumulate(torch.cumsum, x, axis, exclusive, reverse, 0)
    return torch.cumsum(x, axis, dtype=x.dtype)


@kernel("CumProd", since=(26,), host=("axis",))
def cumprod(x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Running product along a dim; integers wrap. Arguments as in :func:`cumsum` (the first result is 1)."""
    if x.dtype in UNSIGNED:
        return with_bits(lambda b: _cumulate(torch.cumprod, b, axis, exclusive, reverse, 1), x)
    if exclusive or reverse:
        return _cumulate(torch.cumprod, x, axis, exclusive, reverse, 1)
    return torch.cumprod(x, axis, dtype=x.dtype)


def _cumulate(
    fn: Callable[..., Tensor], x: Tensor, axis: int, exclusive: int, reverse: int, start: int
) -> Tensor:
    """``fn`` along ``axis`` with the turns that the attributes ask for; ``start`` fills the first place."""
    if reverse:
        x = x.flip(axis)
    if exclusive and x.ndim and x.shape[axis]:
        # Subtracting the element afterwards would lose infinities and low bits: shift instead.
        first = torch.full_like(x.narrow(axis, 0, 1), start)
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    result = fn(x, axis, dtype=x.dtype)
    return result.flip(axis) if reverse else result
