"""The validation word: what a kernel that finds bad data leaves on the device, and what it means.

`csrc/core/word.h` has the same layout for kernels in C++.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from torch_ort_session.errors import DeviceIndexError, DeviceValidationError
from torch_ort_session.ops.common.checks import NOTHING_VALID
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.common.index import EMPTY_AXIS


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that a word tells of.

    Attributes:
        flag: What was wrong first.
        node: Name of the node that found it.
        op: Its operator.
        value: The first bad value.
        low: The least value that would have been valid.
        high: The greatest one.
        count: How many values were bad.
        done: How many runs under the ticket had written their results before.
    """

    flag: int
    node: str
    op: str
    value: int
    low: int
    high: int
    count: int
    done: int

    def error(self) -> DeviceValidationError:
        """A new exception that tells of it."""
        sentence = SENTENCES[Flag(self.flag)]
        facts = {"value": self.value, "low": self.low, "high": self.high, "end": self.high + 1}
        more = f" ({self.count} {sentence.many})" if self.count > 1 else ""
        return sentence.error(
            f"node {self.node!r} ({self.op}): {sentence.what.format(**facts)}{more}; {sentence.advice}",
            node=self.node,
            kind=sentence.kind,
            value=self.value,
            allowed=(self.low, self.high) if sentence.bounded else None,
            count=self.count,
        )


@dataclass(frozen=True, slots=True)
class Sentence:
    """A kind of fault in words.

    Attributes:
        kind: Its name.
        what: What is wrong and why, of ``value``, ``low``, ``high`` and ``end``, the one after ``high``.
        many: What is said of the others, behind their number.
        advice: What to do.
        error: What is raised.
        bounded: Whether there are bounds to tell.
    """

    kind: str
    what: str
    many: str
    advice: str
    error: type[DeviceValidationError] = DeviceIndexError
    bounded: bool = True


SENTENCES: Mapping[Flag, Sentence] = {
    Flag.INDEX: Sentence(
        "index out of range",
        "index {value} is outside of [{low}, {end}), the valid range of the indexed axis",
        "indices are",
        "check the indices that were fed",
    ),
    Flag.DIVISION: Sentence(
        "division by zero",
        "an integer is divided by {value}, which has no result",
        "divisors are zero",
        "check the divisors that were fed, or replace zeros before they get here",
        DeviceValidationError,
        bounded=False,
    ),
    Flag.LENGTH: Sentence(
        "length out of range",
        "length {value} is outside of [{low}, {high}], the lengths that fit the data",
        "lengths are",
        "check the lengths that were fed",
        DeviceValidationError,
    ),
    Flag.CLASS: Sentence(
        "class out of range",
        "target {value} is outside of [{low}, {end}), the classes that there are scores for",
        "targets are",
        "check the targets that were fed; the attribute ignore_index names one that is left out",
    ),
    Flag.POSITION: Sentence(
        "position out of range",
        "position {value} is outside of [{low}, {end}), the places that the cache has",
        "positions are",
        "check the lengths and positions that were fed, or make the cache longer",
    ),
    Flag.DISTRIBUTION: Sentence(
        "nothing to draw",
        "row {value} of the probabilities leaves nothing to draw: it holds NaN, or no outcome is possible",
        "rows do",
        "check the scores that were fed",
        DeviceValidationError,
        bounded=False,
    ),
    Flag.PROBABILITY: Sentence(
        "no probability",
        "element {value} of the probabilities is outside of [0, 1], or NaN",
        "elements are",
        "check the probabilities that were fed",
        DeviceValidationError,
        bounded=False,
    ),
}
"""The sentence of each flag."""


FLAGS, NODE, VALUE, COUNT, HIGH, DONE, LOW = 0, 1, 2, 4, 5, 7, 8
"""Places of the int32 elements: the flag of the first fault; the number of its node; the first bad value, and
the greatest and the least that would have been valid, each in two halves, the low one first; how many values
were bad; and how many runs under the ticket had written their results before."""
SIZE = 10

Check = Callable[[torch.Tensor, int, int, "torch.Tensor | None"], torch.Tensor]
"""Makes an index safe: the index, the length of its axis, the number of the node, and the word."""


def fault_of(word: Sequence[int], nodes: Sequence[tuple[str, str]]) -> Fault | None:
    """The fault that a word tells of; None when nothing is wrong.

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
    """A function that waits for the word's device once, and gives its elements."""
    if word.is_cpu:
        read_host: Callable[[], list[int]] = word.numpy().tolist
        return read_host

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
