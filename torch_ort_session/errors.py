"""Every error this package raises on purpose: what happened, why, and what to do about it.

Each class keeps the facts of its message as fields, so that a program can act on them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def meant(name: str, known: Iterable[str]) -> str:
    """What ends a message about a name that is not known: a question for the closest one, if one is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class SessionError(Exception):
    """Base of every error of this package."""


class ModelError(SessionError, ValueError):
    """The model file or proto is malformed, or breaks a loading limit.

    Attributes:
        place: Where in the model the fault lies, for example ``graph 'main' / node 'conv1'``.
    """

    def __init__(self, message: str, *, place: str = "model") -> None:
        super().__init__(f"{place}: {message}")
        self.place = place

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


@dataclass(frozen=True, slots=True)
class UnsupportedOp:
    """One op of a model that has no kernel.

    Attributes:
        op: Operator name.
        domain: Operator domain, ``"ai.onnx"`` for the default one.
        since: Schema revision that the model asks for; 0 when it is unknown.
        nodes: Names of the nodes that use it.
        reason: Why it cannot run.
    """

    op: str
    domain: str
    since: int
    nodes: tuple[str, ...]
    reason: str = "no kernel"


class UnsupportedOpError(SessionError, NotImplementedError):
    """The model uses operators that this package does not implement, or not so; all of them are listed.

    Attributes:
        ops: The missing operators.
    """

    def __init__(self, ops: Iterable[UnsupportedOp], *, heading: str = "", advice: str | None = None) -> None:
        self.ops = tuple(ops)
        lines = [heading or f"the model uses {len(self.ops)} unsupported operator(s):"]
        for op in self.ops:
            shown = ", ".join(repr(name) for name in op.nodes[:3])
            more = f" and {len(op.nodes) - 3} more" if len(op.nodes) > 3 else ""
            reason = f" ({op.reason})" if op.reason else ""
            lines.append(f"  {op.domain}::{op.op} revision {op.since}{reason}: nodes {shown}{more}")
        lines.append("`torch-ort-session ops` lists what is supported." if advice is None else advice)
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class InputError(SessionError, ValueError):
    """A feed does not fit the model's input.

    Attributes:
        name: The input concerned.
        got: What came.
        expected: What the model asks for.
    """

    def __init__(self, message: str, *, name: str = "", got: str = "", expected: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.got = got
        self.expected = expected

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class KernelError(SessionError, RuntimeError):
    """A kernel failed during a run; the cause is chained.

    Attributes:
        node: Name of the node.
        op: Operator, with its domain.
        inputs: One description per input, such as ``A: float32[2, 3] cpu``.
    """

    def __init__(self, message: str, *, node: str, op: str, inputs: Sequence[str] = ()) -> None:
        self.node = node
        self.op = op
        self.inputs = tuple(inputs)
        text = f"node {node!r} ({op}) failed: {message}"
        if self.inputs:
            text += "\n  inputs: " + "; ".join(self.inputs)
        super().__init__(text)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class PlanError(SessionError, RuntimeError):
    """A plan broke one of its own invariants; this is a fault of the package."""


class CaptureError(SessionError, RuntimeError):
    """A capture was required, or a replay was asked for, and could not be had.

    Attributes:
        report: A ``plan.report.DeclineReport``: a row for each reason; None when there is none.
    """

    def __init__(self, message: str, *, report: object = None) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class DeviceValidationError(SessionError, RuntimeError):
    """A kernel found bad data while running; reported after the synchronisation.

    Attributes:
        node: Name of the node.
        kind: What was wrong with the data.
        value: The first bad value.
        allowed: The least and the greatest value that would have been valid; None where there are no bounds.
        count: How many values were bad.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str = "",
        kind: str = "",
        value: int = 0,
        allowed: tuple[int, int] | None = None,
        count: int = 0,
    ) -> None:
        super().__init__(message)
        self.node = node
        self.kind = kind
        self.value = value
        self.allowed = allowed
        self.count = count

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class DeviceIndexError(DeviceValidationError, IndexError):
    """An index, a position or a class is outside of what there is."""


def _rebuild(kind: type[SessionError], args: tuple[object, ...], state: dict[str, object]) -> SessionError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
