"""The native ops that look at numbers: what makes an index, or any other integer, safe.

The ops are in ``csrc/index/check_index/``; their shapes are in :mod:`.shapes`.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from torch_ort_session.ops import native

RangeCheck = Callable[[Tensor, int, int, int, int, "Tensor | None"], Tensor]
"""Makes numbers safe: integers of any shape, the least and the greatest valid one, the flag and the number of
the node to note in a validation word, and that word (int32) or None. It gives int64
of the same shape: what lies outside is clamped and noted. It raises an IndexError where nothing is valid."""


def index_check(
    device: str = "cpu",
) -> Callable[[Tensor, int, int, Tensor | None], Tensor] | None:
    """The op that makes an index safe, see ``csrc/index/check_index/``; None where there is none.

    Args:
        device: Type of the device that the index is on.

    It takes the index (integers of any shape), the length of the indexed axis, the number of the node to note
    in a validation word, and that word (int32) or None. It gives int64 of the shape
    of the index: negative ones wrapped, those outside of the axis clamped and noted. It raises an IndexError
    for an index into an empty axis.
    """
    return native.op_on("check_index", device)


def range_check(device: str = "cpu") -> RangeCheck | None:
    """The op that makes other numbers safe, see ``csrc/index/check_index/``; None where there is none."""
    return native.op_on("check_range", device)
