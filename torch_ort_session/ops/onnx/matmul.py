"""Matrix products: MatMul, Gemm.

Sources: https://onnx.ai/onnx/operators/onnx__MatMul.html, https://onnx.ai/onnx/operators/onnx__Gemm.html
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.rows import row_product
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx.intmm import wrapping_matmul


@kernel("MatMul", since=(1, 9, 13), native=("gemv",))
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Matrix product with numpy's rules for ranks and batches.

    Args:
        a: [..., M, K] or [K]; floats or 32/64-bit integers.
        b: [..., K, N] or [K].

    Source: https://onnx.ai/onnx/operators/onnx__MatMul.html
    """
    if a.is_floating_point():
        product = row_product(a, b)
        return torch.matmul(a, b) if product is None else product
    return wrapping_matmul(a, b)


@kernel("Gemm", since=(7, 9, 11, 13), native=("gemv",))
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """``alpha * A' @ B' + beta * C`` with C broadcast to [M, N].

    Args:
        a: [M, K], or [K, M] when ``transA``.
        b: [K, N], or [N, K] when ``transB``.
        c: Broadcastable to [M, N].
        alpha: Factor of the product.
        beta: Factor of C.
        transA: Whether A comes transposed.
        transB: Whether B comes transposed.

    Source: https://onnx.ai/onnx/operators/onnx__Gemm.html
    """
    if alpha == beta == 1.0 and a.dim() == b.dim() == 2 and (c is None or c.numel() == c.shape[-1:].numel()):
        product = row_product(a.t() if transA else a, b.t() if transB else b, c)
        if product is not None:
            return product
    linear = transB and not transA and alpha == beta == 1.0 and c is not None and c.dim() == 1
    if linear and a.is_floating_point():
        return F.linear(a, b, c)
    if transA:
        a = a.t()
    if transB:
        b = b.t()
    if not a.is_floating_point():
        return _integer_gemm(a, b, c, alpha, beta)
    if c is not None:
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)
    if alpha == 1.0:
        return torch.mm(a, b)
    return torch.mul(torch.mm(a, b), alpha)


@kernel("Gemm", since=(1, 6), native=("gemv",))
def gemm_legacy(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """Gemm where C is broadcast only if ``broadcast`` says so.

    Raises:
        ValueError: C needs broadcasting and ``broadcast`` is 0.

    Source: https://onnx.ai/onnx/operators/onnx__Gemm.html
    """
    rows, columns = a.shape[1 if transA else 0], b.shape[0 if transB else 1]
    if not broadcast and tuple(c.shape) != (rows, columns):
        raise ValueError(
            f"Gemm without broadcast needs C of shape {[rows, columns]}, but it is {list(c.shape)}."
        )
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


def _integer_gemm(a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float) -> Tensor:
    product = wrapping_matmul(a, b)
    if alpha == 1.0 and (c is None or beta == 1.0):
        return product if c is None else _integer_add(product, c)
    total = product.to(torch.float64) * alpha
    if c is not None:
        total = total + c.to(torch.float64) * beta
    return total.to(torch.int64).to(a.dtype)


def _integer_add(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is torch.uint64:
        return (a.view(torch.int64) + b.view(torch.int64)).view(torch.uint64)
    if a.dtype is torch.uint32:
        return (a.to(torch.int64) + b.to(torch.int64)).to(torch.uint32)
    return a + b
