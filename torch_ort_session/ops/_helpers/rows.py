"""One row times a large weight: at the pace at which memory gives the weight."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops import native

# Where the compiled op was measured to be faster: torch reads float32 as fast as memory gives it.
_DTYPES = frozenset((torch.bfloat16, torch.float16))

# Weights of fewer elements lie in a cache, and torch's own product is as fast.
_LEAST = 1 << 16


def row_product(a: Tensor, b: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor | None:
    """``a @ b + bias`` by the compiled op, None where torch's own product has to do it.

    It serves one row on the CPU and a weight of many elements, where nobody asks for gradients.

    Args:
        a: bfloat16 or float16 [..., K].
        b: [K, N].
        bias: [N].
        out: Where to write the result.
    """
    dtype = a.dtype
    # First what turns most products away: every MatMul of an eager run asks.
    if dtype not in _DTYPES or b.dtype != dtype:
        return None
    if b.dim() != 2 or a.dim() == 0 or a.numel() != a.shape[-1] or b.numel() < _LEAST:
        return None
    if a.shape[-1] != b.shape[0]:
        return None
    if bias is not None and (bias.dtype != dtype or bias.numel() != b.shape[1]):
        return None
    tensors = (a, b) if bias is None else (a, b, bias)
    if differentiated(*tensors):
        return None
    op = native.cpu_op("gemv", *tensors, overload="default" if out is None else "out")
    if op is None:
        return None
    product: Tensor = op(a, b, bias) if out is None else op(a, b, bias, out=out)
    return product


def differentiated(*tensors: Tensor) -> bool:
    """Whether somebody may ask for gradients by one of these."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
