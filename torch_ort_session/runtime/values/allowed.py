"""The whitelist: which signatures may be captured, as the user named them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch_ort_session.errors import InputError, meant
from torch_ort_session.ir.ports import Port
from torch_ort_session.ir.types import describe
from torch_ort_session.ops.kernel import Value

Place: TypeAlias = tuple[str, int]
"""A dim: the name of an input or output, and which of its dims."""

_SHOWN = 4
"""Entries that a message shows."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be captured.

    Attributes:
        entries: Of each the sizes of symbolic dims and the dims of inputs that it names.
        symbols: Where the symbolic dims stand that are named.
    """

    entries: tuple[Mapping[str, int | tuple[int, ...]], ...]
    symbols: Mapping[str, tuple[Place, ...]]

    def refusal(self, fed: Mapping[str, Value]) -> str:
        """Why a run on these feeds is not captured; empty when it may be."""
        found = {
            name: size_of(fed, self.symbols[name]) if isinstance(wanted, int) else _dims(fed.get(name))
            for entry in self.entries
            for name, wanted in entry.items()
        }
        if any(all(found[name] == wanted for name, wanted in entry.items()) for entry in self.entries):
            return ""
        listed = "; ".join(_told(entry) for entry in self.entries[:_SHOWN])
        more = f" and {len(self.entries) - _SHOWN} more" if len(self.entries) > _SHOWN else ""
        return f"{_told(found)} is none of those in capture_only: {listed}{more}"


def allowed(
    entries: Sequence[Mapping[str, int | tuple[int, ...]]] | None, inputs: Sequence[Port]
) -> Allowed | None:
    """The whitelist of a model.

    Args:
        entries: As the options have them; None allows everything.
        inputs: The model's inputs.

    Raises:
        InputError: A name is no symbolic dim or no input, or dims do not fit the input.
    """
    if entries is None:
        return None
    known, ports = symbols_of(inputs), {port.name: port for port in inputs}
    used: dict[str, tuple[Place, ...]] = {}
    for entry in entries:
        for name, wanted in entry.items():
            if isinstance(wanted, int) and name in ports and name not in known:
                raise _mixed_up(
                    name,
                    f"is an input, {describe(ports[name].type)}: it is given all of its dims, as a tuple",
                )
            if not isinstance(wanted, int) and name in known and name not in ports:
                advice = "is given one size, as an int; for several sizes write several entries"
                raise _mixed_up(name, f"is a symbolic dim and {advice}")
            if isinstance(wanted, int):
                used[name] = places(name, known, "capture_only")
            elif name not in ports:
                raise unknown("capture_only", "input", name, ports)
            else:
                _check_dims(ports[name], wanted)
    return Allowed(tuple(entries), used)


def symbols_of(ports: Iterable[Port]) -> dict[str, tuple[Place, ...]]:
    """Where each symbolic dim of some inputs or outputs stands, in order."""
    found: dict[str, tuple[Place, ...]] = {}
    for port in ports:
        for axis, dim in enumerate(port.shape or ()):
            if isinstance(dim, str):
                found[dim] = (*found.get(dim, ()), (port.name, axis))
    return found


def places(symbol: str, known: Mapping[str, tuple[Place, ...]], option: str) -> tuple[Place, ...]:
    """Where a symbolic dim stands.

    Raises:
        InputError: No input has it.
    """
    if symbol not in known:
        raise unknown(option, "symbolic dim", symbol, known)
    return known[symbol]


def size_of(fed: Mapping[str, Value], where: Iterable[Place]) -> int | None:
    """The size of a symbolic dim; None where no feed of this run has it."""
    for name, axis in where:
        dims = _dims(fed.get(name))
        if dims is not None:
            return dims[axis]
    return None


def unknown(option: str, what: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name in the options that the model does not have."""
    listed = sorted(known)
    hint = meant(name, listed)
    shown = ", ".join(map(repr, listed)) or "none"
    return InputError(
        f"{option}: no input has the {what} {name!r}{hint} (there are: {shown})"
        if what == "symbolic dim"
        else f"{option}: the model has no {what} {name!r}{hint} (there are: {shown})",
        name=name,
        got=name,
        expected=shown,
    )


def _mixed_up(name: str, what: str) -> InputError:
    return InputError(f"capture_only: {name!r} {what}", name=name)


def _check_dims(port: Port, wanted: tuple[int, ...]) -> None:
    fits = port.shape is None or (
        len(port.shape) == len(wanted)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(port.shape, wanted, strict=True))
    )
    if not fits:
        raise InputError(
            f"capture_only: input {port.name!r} never has the dims {list(wanted)}; the model says {port}",
            name=port.name,
            got=str(list(wanted)),
            expected=str(port),
        )


def _dims(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if hasattr(value, "shape") else None


def _told(entry: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={list(value) if isinstance(value, tuple) else 'absent' if value is None else value}"
        for name, value in entry.items()
    )
