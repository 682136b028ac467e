"""Why something is not captured: rows that people read as a table and programs as records."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import asdict, dataclass


class Reason(enum.Enum):
    """What kept a node, or a whole run, from being captured."""

    CONTROL_FLOW = "host control flow or sequence"
    OUTPUT_SHAPE = "unresolved output shape"
    INPUT_SHAPE = "unresolved input shape"
    NOT_WARMED = "kernel not warmed"
    SEAM = "kernel declares a seam"
    GROWTH = "disqualified by growth"
    RECORDING = "recording failed"
    MEMORY = "out of memory"
    UNBOUND = "outputs not bound"
    SEQUENCE = "sequence output"
    NOTHING = "nothing capturable"
    DIVERGED = "diverged"
    PROBE = "probe mismatch"
    SHORT = "below minimum length"
    LATCHED = "latched"
    OFF = "capture off"
    NO_CAPTURE = "replay without capture"
    UNLISTED = "not on the whitelist"
    BUCKET = "padding changes results"


@dataclass(frozen=True, slots=True)
class Decline:
    """One row of a report.

    Attributes:
        node: Name of the node; empty for the whole run.
        op: Its operator; empty for the whole run.
        domain: Its operator's domain.
        reason: The kind of reason.
        message: What exactly.
    """

    node: str
    op: str
    domain: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class DeclineReport:
    """Why a capture was declined: a value, not an exception.

    Attributes:
        rows: One a cause.
    """

    rows: tuple[Decline, ...]

    @classmethod
    def of(cls, reason: Reason, message: str) -> DeclineReport:
        """A report on the whole run."""
        return cls((Decline("", "", "", reason, message),))

    def to_dict(self) -> list[dict[str, str]]:
        """The rows as plain records."""
        return [{**asdict(row), "reason": row.reason.value} for row in self.rows]

    def __str__(self) -> str:
        head = ("node", "op", "reason", "message")
        body = [
            (row.node or "(run)", f"{row.domain or 'ai.onnx'}::{row.op}" if row.op else "", *_why(row))
            for row in self.rows
        ]
        return table([head, *body])


def _why(row: Decline) -> tuple[str, str]:
    return row.reason.value, row.message


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns as wide as their texts, the first row underlined."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
