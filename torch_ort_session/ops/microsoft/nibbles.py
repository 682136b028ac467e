"""Numbers of a few bits that lie packed in bytes."""

from __future__ import annotations

import torch
from torch import Tensor


def unpacked(packed: Tensor, bits: int) -> Tensor:
    """The numbers in bytes, along the last axis, the lowest bits of each byte first.

    Args:
        packed: uint8 [..., n].
        bits: 1, 2, 3, 4 or 8; 3 run over the borders of bytes.

    Returns:
        uint8 [..., n * 8 / bits], less what is left of the last number.
    """
    if bits == 8:
        return packed
    if 8 % bits:
        single = unpacked(packed, 1)
        count = single.shape[-1] // bits
        whole = single[..., : count * bits].reshape(*single.shape[:-1], count, bits)
        number = whole[..., 0]
        for place in range(1, bits):
            number = number | whole[..., place] << place
        return number
    mask = (1 << bits) - 1
    parts = [packed.bitwise_right_shift(shift) & mask for shift in range(0, 8, bits)]
    return torch.stack(parts, -1).flatten(-2)
