"""The native op that looks at numbers other than indices: how it is called, and what it gives without data.

The op is in ``csrc/cpu/check_index.cpp`` and ``csrc/cuda/check_index.cuh``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

RangeCheck = Callable[[Tensor, int, int, int, int, "Tensor | None"], Tensor]
"""Makes numbers safe: integers of any shape, the least and the greatest valid one, the flag and the number of
the node to note in a validation word, and that word (int32, see ``runtime/word.py``) or None. It gives int64
of the same shape: what lies outside is clamped and noted. It raises an IndexError where nothing is valid."""


def describe(known: Callable[[str], bool]) -> None:
    """Register the op's shape, once the extension is loaded.

    Args:
        known: Whether it has an op of a name.
    """
    if known("check_range"):
        torch.library.register_fake("torch_ort_session::check_range", _check_range)


def _check_range(values: Tensor, low: int, high: int, flag: int, node: int, word: Tensor | None) -> Tensor:
    return torch.empty(values.shape, dtype=torch.int64, device=values.device)
