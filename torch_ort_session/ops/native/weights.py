"""Results without data of the products with weights that are read once, and their gradients.

The ops are ``gemv``, ``matmul_nbits`` and ``expert_rows`` of ``csrc/linear``; :mod:`.native` hands them out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def describe(known: Callable[[str], bool]) -> None:
    """Register shapes and gradients, once the extension is loaded.

    Args:
        known: Whether it has an op of a name.
    """
    if known("matmul_nbits"):
        torch.library.register_fake("torch_ort_session::matmul_nbits", _matmul_nbits)
    if known("expert_rows"):
        torch.library.register_fake("torch_ort_session::expert_rows", _expert_rows)
        torch.library.register_fake("torch_ort_session::expert_rows_nbits", _expert_rows_nbits)
    if known("gemv"):
        torch.library.register_fake("torch_ort_session::gemv", _gemv)
        torch.library.register_fake("torch_ort_session::gemv.out", _gemv_out)
        torch.library.register_autograd(
            "torch_ort_session::gemv", _gemv_backward, setup_context=_keep_factors
        )


def _matmul_nbits(
    a: Tensor,
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    bias: Tensor | None,
    rows: int,
    bits: int,
    block_size: int,
    coarse: bool,
    instructions: int = -1,
) -> Tensor:
    return a.new_empty((*a.shape[:-1], rows))


def _expert_rows(
    x: Tensor, experts: Tensor, weight: Tensor, bias: Tensor | None, instructions: int = -1
) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


def _expert_rows_nbits(
    x: Tensor,
    experts: Tensor,
    codes: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    bias: Tensor | None,
    bits: int,
    block_size: int,
    instructions: int = -1,
) -> Tensor:
    return x.new_empty(x.shape[0], codes.shape[1])


def _gemv(x: Tensor, weight: Tensor, bias: Tensor | None = None, instructions: int = -1) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[1]))


def _gemv_out(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, instructions: int = -1, *, out: Tensor
) -> Tensor:
    return out


def _keep_factors(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, _ = inputs
    ctx.save_for_backward(x, weight)
    ctx.bias_shape = None if bias is None else bias.shape


def _gemv_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
    x, weight = ctx.saved_tensors
    row = grad.reshape(1, -1)
    wanted = ctx.needs_input_grad
    of_x = (row @ weight.t()).reshape(x.shape) if wanted[0] else None
    of_weight = x.reshape(-1, 1) @ row if wanted[1] else None
    of_bias = grad.reshape(ctx.bias_shape) if wanted[2] and ctx.bias_shape is not None else None
    return of_x, of_weight, of_bias, None
