"""One row times a large weight: at the pace at which memory gives the weight."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops import native

# Where the compiled op was measured to be faster: torch reads float32 as fast as memory gives it.
_DTYPES = frozenset((torch.bfloat16, torch.float16))

# The fewest bytes of a weight that the compiled op is asked to read, by device; where a device is missing,
# torch's own product has to do. On the CPU smaller weights lie in a cache, and torch is as fast. On CUDA it
# has not been measured against cuBLAS. Both read the weight once at best, so that is what it is judged by: a
# small one costs its launches alone, which are two here, and of a large one reading is all that counts.
_LEAST_BYTES = {"cpu": 1 << 17, "cuda": 1 << 22}

# Bytes that the CUDA kernels take at once; a weight that they would take float by float is left to torch.
_PIECE = 16


def row_product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """``a @ b + bias`` by the compiled op, None where torch's own product has to do it.

    It serves one row and a weight of many bytes, where no gradients are wanted.

    Args:
        a: bfloat16 or float16 [..., K].
        b: [K, N].
        bias: [N].
    """
    dtype = a.dtype
    # First what turns most products away: every MatMul of an eager run asks.
    if dtype not in _DTYPES or b.dtype != dtype:
        return None
    if b.dim() != 2 or a.dim() == 0 or a.numel() != a.shape[-1] or a.shape[-1] != b.shape[0]:
        return None
    least = _LEAST_BYTES.get(b.device.type)
    if least is None or b.numel() * b.itemsize < least or not (b.is_cpu or _in_pieces(b)):
        return None
    if bias is not None and (bias.dtype != dtype or bias.numel() != b.shape[1]):
        return None
    op = native.device_op("gemv", a, b, bias)
    return None if op is None else op(a, b, bias)


def _in_pieces(weight: Tensor) -> bool:
    """Whether the rows or the columns of a weight lie in pieces that a device takes at once."""
    each = _PIECE // weight.itemsize
    beside, apart = (0, 1) if weight.stride(0) == 1 else (1, 0)
    length, step = weight.shape[beside], weight.stride(apart)
    in_order = weight.stride(beside) == 1 and step >= length
    return in_order and step % each == length % each == weight.storage_offset() % each == 0


def differentiated(*tensors: Tensor) -> bool:
    """Whether gradients by one of these may be wanted."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
