"""Numbers of a few bits that lie packed in bytes."""

from __future__ import annotations

import torch
from torch import Tensor


def unpacked(packed: Tensor, bits: int) -> Tensor:
    """The numbers in bytes, along the last axis, the lowest bits of each byte first.

    Args:
        packed: uint8 [..., n].
        bits: 1, 2, 4 or 8.

    Returns:
        uint8 [..., n * 8 / bits].
    """
    if bits == 8:
        return packed
    mask = (1 << bits) - 1
    parts = [packed.bitwise_right_shift(shift) & mask for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten(-2)
