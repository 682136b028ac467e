"""Results without data of the ops of ``csrc/quant/bytes/bytes.cpp``: for torch.compile and torch.export."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def describe(known: Callable[[str], bool]) -> None:
    """Tell torch, once the extension is loaded, of those of its ops that are known there."""
    for shape in (_requantize, _quantized_pair, _by_table):
        name = shape.__name__.lstrip("_")
        if known(name):
            torch.library.register_fake(f"torch_ort_session::{name}", shape)


def _requantize(
    x: Tensor,
    x_zero: Tensor | None,
    factor: Tensor,
    divide: bool,
    zero: Tensor | None,
    dtype: torch.dtype,
    instructions: int = -1,
) -> Tensor:
    return torch.mul(x, factor).to(dtype)


def _quantized_pair(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None,
    product: bool,
    instructions: int = -1,
) -> Tensor:
    return torch.add(a, b)


def _by_table(x: Tensor, table: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=table.dtype)
