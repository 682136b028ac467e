"""Numbers that a seed decides for good.

Source: https://numpy.org/doc/stable/reference/random/legacy.html
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def seeded_uniform(shape: Sequence[int], seed: int, device: torch.device) -> Tensor:
    """Numbers in [0, 1), the same for the same seed.

    On the CPU they are those of ``numpy.random.RandomState(seed)``, which ONNX's reference draws with:
    torch's generator there is the same Mersenne Twister, started from the seed's low 32 bits in the same way.

    Args:
        shape: Dims of the result.
        seed: The seed.
        device: Where they are drawn; other devices than the CPU draw others.

    Returns:
        float64 of ``shape``, multiples of 2**-53.
    """
    generator = torch.Generator(device)
    generator.manual_seed(seed)
    bits = torch.empty(tuple(shape), dtype=torch.int64, device=device)
    bits.random_(-(2**63), None, generator=generator)
    # The upper 27 bits of one draw of the generator are followed by the upper 26 of the next.
    upper, lower = bits >> 37 & (1 << 27) - 1, bits >> 6 & (1 << 26) - 1
    return (upper << 26 | lower).to(torch.float64).mul_(2.0**-53)
