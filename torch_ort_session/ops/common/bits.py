"""Element types that torch cannot move with every function, moved as integers of the same width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# torch's gather, scatter, triu and their like lack these, though moving needs nothing but their bits.
_MOVED_AS: dict[torch.dtype, torch.dtype] = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e4m3fnuz: torch.uint8,
    torch.float8_e5m2: torch.uint8,
    torch.float8_e5m2fnuz: torch.uint8,
    torch.float8_e8m0fnu: torch.uint8,
}


_WIDE = frozenset({torch.uint16, torch.uint32, torch.uint64})


def movable(move: Callable[..., Tensor], data: Tensor, *rest: Any) -> Tensor:
    """``move(data, *rest)`` for any dtype, where ``move`` only moves elements or puts zero bits.

    Args:
        move: A torch function.
        data: Its first argument; other tensors of the same dtype among ``rest`` are seen alike.
        *rest: Its further arguments.

    Returns:
        Its result, in the dtype of ``data``.
    """
    carrier = _MOVED_AS.get(data.dtype)
    if carrier is None:
        return move(data, *rest)
    moved = [
        item.view(carrier) if isinstance(item, Tensor) and item.dtype == data.dtype else item for item in rest
    ]
    return move(data.view(carrier), *moved).view(data.dtype)


def widened(compute: Callable[..., Tensor], data: Tensor, updates: Tensor, *rest: Any) -> Tensor:
    """``compute(data, updates, *rest)`` for integers that torch cannot compute with, in int64.

    Sums and products of uint64 are exact there, as they wrap alike; an order is not, so its sign bit is
    turned round before and after.

    Args:
        compute: A function of two tensors of one dtype.
        data: The first.
        updates: The second.
        *rest: Further arguments; the last one may be ``"max"`` or ``"min"``.
    """
    if data.dtype not in _WIDE:
        return compute(data, updates, *rest)
    if data.dtype != torch.uint64:
        return compute(data.to(torch.int64), updates.to(torch.int64), *rest).to(data.dtype)
    turn = -(1 << 63) if rest and rest[-1] in ("max", "min") else 0
    wide = compute(data.view(torch.int64) ^ turn, updates.view(torch.int64) ^ turn, *rest)
    return (wide ^ turn).view(torch.uint64)
