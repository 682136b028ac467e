"""The validation word: what a kernel that finds bad data leaves on the device, and what it means.

`csrc/include/tos/word.h` has the same layout for kernels in C++.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from torch_ort_session.ops.common.checks import NOTHING_VALID
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.index import EMPTY_AXIS
from torch_ort_session.runtime.validation.faults import Fault

FLAGS, NODE, VALUE, COUNT, HIGH, DONE, LOW = 0, 1, 2, 4, 5, 7, 8
"""Places of the int32 elements: the flag of the first fault; the number of its node; the first bad value, and
the greatest and the least that would have been valid, each in two halves, the low one first; how many values
were bad; and how many runs under the ticket had written their results before."""
SIZE = 10

Check = Callable[[torch.Tensor, int, int, "torch.Tensor | None"], torch.Tensor]
"""Makes an index safe: the index, the length of its axis, the number of the node, and the word."""


def fault_of(word: Sequence[int], nodes: Sequence[tuple[str, str]]) -> Fault | None:
    """What a word says, None when nothing is wrong.

    Args:
        word: Its elements.
        nodes: Names and operators of the nodes, by number, from 1 on.
    """
    if not word[FLAGS]:
        return None
    node, op = nodes[word[NODE] - 1]
    value, low, high = (_joined(word, place) for place in (VALUE, LOW, HIGH))
    return Fault(word[FLAGS], node, op, value, low, high, word[COUNT], word[DONE])


def reader(word: torch.Tensor) -> Callable[[], list[int]]:
    """What waits for the word's device once, and gives its elements."""
    if word.is_cpu:
        found: Callable[[], list[int]] = word.numpy().tolist
        return found

    def read() -> list[int]:
        if word.is_cuda:
            torch.cuda.synchronize(word.device)
        listed: list[int] = word.tolist()
        return listed

    return read


def check_index(index: torch.Tensor, size: int, number: int, word: torch.Tensor | None) -> torch.Tensor:
    """Make an index safe with plain ops that never wait for the device: see ``check_index`` of `csrc/`.

    Args:
        index: Integer tensor of any shape.
        size: Length of the indexed axis.
        number: Of the node that a fault is noted for.
        word: Where; None where nobody asks.

    Returns:
        int64 of the index's shape: negative indices wrapped, those outside of ``[-size, size)`` clamped.

    Raises:
        IndexError: The axis is empty, and an index is given.
    """
    index = index.to(torch.int64)
    if index.numel() == 0:
        return index
    if size == 0:
        raise IndexError(EMPTY_AXIS)
    place = torch.sub(index, index >> 63, alpha=size)
    safe = place.clamp(0, size - 1)
    if word is not None:
        _note(int(Flag.INDEX), index, safe != place, (-size, size - 1), number, word)
    return safe


def check_range(
    values: torch.Tensor, low: int, high: int, flag: int, number: int, word: torch.Tensor | None
) -> torch.Tensor:
    """Make numbers safe with plain ops that never wait for the device: see ``check_range`` of `csrc/`.

    Args:
        values: Integer tensor of any shape.
        low: The least valid number.
        high: The greatest valid number.
        flag: What a fault is noted as.
        number: Of the node that it is noted for.
        word: Where; None where nobody asks.

    Returns:
        int64 of the same shape, what lies outside clamped.

    Raises:
        IndexError: No number is valid, and one is given.
    """
    values = values.to(torch.int64)
    if values.numel() == 0:
        return values
    if low > high:
        raise IndexError(NOTHING_VALID)
    safe = values.clamp(low, high)
    if word is not None:
        _note(flag, values, safe != values, (low, high), number, word)
    return safe


def write_latched(places: Sequence[torch.Tensor], values: Sequence[torch.Tensor], word: torch.Tensor) -> None:
    """Write values to their places unless the word tells of a fault; count it in the word if it does not.

    Args:
        places: What is written, on the word's device.
        values: What is written there, each of its place's shape and dtype.
        word: The word.
    """
    good = word[FLAGS] == 0
    if places:
        kept = [torch.where(good, value, place) for place, value in zip(places, values, strict=True)]
        torch._foreach_copy_(list(places), kept)
    word[DONE].add_(good)


def _note(
    flag: int,
    values: torch.Tensor,
    bad: torch.Tensor,
    bounds: tuple[int, int],
    number: int,
    word: torch.Tensor,
) -> None:
    bad = bad.reshape(-1)
    first = values.reshape(-1).gather(0, bad.to(torch.uint8).argmax().reshape(1)).view(torch.int32)
    fresh = bad.any() & (word[FLAGS] == 0)
    count = (word[COUNT].to(torch.int64) + bad.sum()).clamp(max=2**31 - 1)
    word[VALUE : VALUE + 2].copy_(torch.where(fresh, first, word[VALUE : VALUE + 2]))
    word[NODE].masked_fill_(fresh, number)
    for place, bound in zip((LOW, HIGH), bounds, strict=True):
        low, high = _halves(bound)
        word[place].masked_fill_(fresh, low)
        word[place + 1].masked_fill_(fresh, high)
    word[COUNT].copy_(count)
    word[FLAGS].masked_fill_(fresh, flag)


def _halves(number: int) -> tuple[int, int]:
    """The low and the high half of an int64, as int32."""
    low, high = number & 0xFFFFFFFF, number >> 32
    return (low - 2**32 if low >= 2**31 else low), high


def _joined(word: Sequence[int], place: int) -> int:
    return (word[place] & 0xFFFFFFFF) | (word[place + 1] << 32)
