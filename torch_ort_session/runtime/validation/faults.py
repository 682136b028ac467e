"""What a validation word says, in words: a sentence for each kind of fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch_ort_session.errors import DeviceIndexError, DeviceValidationError
from torch_ort_session.ops.common.faults import Flag


@dataclass(frozen=True, slots=True)
class Fault:
    """What a word says.

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
        told = TOLD[Flag(self.flag)]
        facts = {"value": self.value, "low": self.low, "high": self.high, "end": self.high + 1}
        more = f" ({self.count} {told.many})" if self.count > 1 else ""
        return told.error(
            f"node {self.node!r} ({self.op}): {told.what.format(**facts)}{more}; {told.advice}",
            node=self.node,
            kind=told.kind,
            value=self.value,
            allowed=(self.low, self.high) if told.bounded else None,
            count=self.count,
        )


@dataclass(frozen=True, slots=True)
class Sentence:
    """How a kind of fault is told.

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


TOLD: Mapping[Flag, Sentence] = {
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
"""By flag."""
