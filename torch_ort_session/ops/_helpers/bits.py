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
