"""Einsum and Det.

Sources: https://onnx.ai/onnx/operators/onnx__Einsum.html, https://onnx.ai/onnx/operators/onnx__Det.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import HALF, UNSIGNED, with_bits
from torch_ort_session.ops.kernel import kernel


@kernel("Einsum", since=(12, 28), view_of="xs")
def einsum(*xs: Tensor, equation: str) -> Tensor:
    """Sum of products over named dims; integers wrap.

    Args:
        *xs: Numbers of one dtype.
        equation: Terms such as ``"bij,bjk->bik"``; ``...`` stands for any dims in front.

    Returns:
        A tensor of that dtype; one that only reorders or picks the diagonal is a view.

    Raises:
        RuntimeError: The equation is malformed or does not fit the shapes.
    """
    if xs[0].dtype in UNSIGNED:
        return with_bits(lambda *bits: torch.einsum(equation, *bits), *xs)
    return torch.einsum(equation, *xs)


@kernel("Det", since=(11, 22))
def det(x: Tensor) -> Tensor:
    """Determinants of the square matrices in the last two dims; the result has the dims before them."""
    wide = x.to(torch.float32) if x.dtype in HALF else x
    result: Tensor = torch.linalg.det(wide)
    return result.to(x.dtype)
