"""Root mean square normalization of rows by the compiled op."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops import native

_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


def row_norm(
    x: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
    gamma: Tensor,
    epsilon: float,
    *,
    wants_total: bool = False,
    wants_inverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Rows of ``x + skip + bias``, divided by the root of their mean square and scaled.

    None where plain ops have to do it: where :func:`.native.device_op` gives none, and for what is not
    contiguous, of one float type and of the shapes below.

    Args:
        x: float32, float16 or bfloat16 [..., D].
        skip: Like ``x``.
        bias: [D].
        gamma: [D].
        epsilon: Added to the mean square.
        wants_total: Whether the sum is wanted; not of ``x`` alone.
        wants_inverse: Whether the inverse root of each row is wanted.

    Returns:
        The result [..., D], the sum [..., D], and the inverse root [..., 1] in float32; the last two have
        other shapes unless they are wanted.
    """
    dtype = x.dtype
    if dtype not in _DTYPES or x.dim() == 0 or not x.is_contiguous():
        return None
    width = x.shape[-1:]
    parts = (gamma,) if bias is None else (gamma, bias)
    if any(t.dtype != dtype or t.shape != width or not t.is_contiguous() for t in parts):
        return None
    if skip is not None and (skip.dtype != dtype or skip.shape != x.shape or not skip.is_contiguous()):
        return None
    op = native.device_op("skip_rms_norm", x, skip, *parts)
    if op is None:
        return None
    results: tuple[Tensor, Tensor, Tensor] = op(x, skip, bias, gamma, epsilon, wants_total, wants_inverse)
    return results
