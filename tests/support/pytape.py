"""A tape in Python, as an oracle for the native one: the same calls, made with torch's own Python operators.

It stands in for the compiled extension behind the same recorder. It has no slots: `plan` only checks what it
is given, so results can be compared with those of a native tape that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class PyTape:
    """Calls on fixed tensors; results of functional calls are copied into the recorded ones."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[Any], list[torch.Tensor | None]]] = []
        self.made: dict[int, tuple[torch.Tensor, int]] = {}
        self.position = 0

    def own(self, made: Sequence[torch.Tensor]) -> None:
        for tensor in made:
            self.made.setdefault(key(tensor), (tensor, tensor.untyped_storage().nbytes()))

    def add(self, name: str, overload: str, args: list[Any], results: Sequence[torch.Tensor | None]) -> None:
        space, _, base = name.partition("::")
        op = getattr(getattr(getattr(torch.ops, space), base), overload or "default")
        self.calls.append((op, list(args), list(results)))

    def settled(self) -> bool:
        return all(tensor.untyped_storage().nbytes() == nbytes for tensor, nbytes in self.made.values())

    def intervals(self) -> list[tuple[int, int, int, bool, int]]:
        found: dict[int, list[Any]] = {}
        for place, (_, args, results) in enumerate(self.calls):
            touched = [(t, False) for t in opened(args)] + [(t, True) for t in results if t is not None]
            for tensor, functional in touched:
                storage = key(tensor)
                if storage in self.made and tensor.untyped_storage().nbytes():
                    nbytes = tensor.untyped_storage().nbytes()
                    found.setdefault(storage, [place, place, nbytes, functional, storage])[1] = place
        return [(a, b, c, d, e) for a, b, c, d, e in found.values()]

    def plan(
        self,
        block: torch.Tensor,
        slots: list[tuple[int, int]],
        supplied: list[int],
        released: list[int],
        poisoned: list[int],
    ) -> None:
        intervals, placed = self.intervals(), [place for place, _ in slots]
        for place, offset in slots:
            assert not intervals[place][3]
            assert offset + intervals[place][2] <= block.numel()
        assert not any(intervals[place][3] for place in supplied)
        assert not {*released, *supplied} & {*placed}
        assert {*poisoned} <= {*range(len(intervals))} - {*released}

    def replay(self, word: torch.Tensor | None = None) -> tuple[int, str, str] | bool | None:
        if word is not None:
            word.zero_()
        for position, (op, args, results) in enumerate(self.calls):
            self.position = position
            given = op(*positional(op, args), **keywords(op, args))
            parts = given if isinstance(given, (list, tuple)) else [given]
            if not results:
                continue
            for want, got in zip(results, opened(parts, undefined=True), strict=True):
                if (want is None) != (got is None):
                    return self.position, str(op), "whether there is a result"
                if want is None or got is None:
                    continue
                if want.shape != got.shape:
                    return self.position, str(op), "the shape"
                want.copy_(got)
        return True if word is not None and word[0] else None

    def close(self) -> None:
        self.calls.clear()
        self.made.clear()

    def name(self, call: int) -> str:
        return str(self.calls[call][0])

    def __len__(self) -> int:
        return len(self.calls)


class PyTapes:
    """What the compiled extension gives to the recorder, in Python."""

    Tape = PyTape

    def storage_keys(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        return [key(tensor) for tensor in tensors]

    def place(self, tensor: torch.Tensor, block: torch.Tensor, offset: int) -> None:
        assert offset + tensor.untyped_storage().nbytes() <= block.numel()

    def give(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [result.clone() for result in results]

    def holders(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        keys = self.storage_keys(tensors)
        return [keys.count(k) for k in keys]


def key(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        try:
            return tensor.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):
            return 0


def opened(values: Sequence[Any], *, undefined: bool = False) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor) or (undefined and value is None):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += opened(value, undefined=undefined)
    return found


def positional(op: Any, args: list[Any]) -> list[Any]:
    return [v for a, v in zip(op._schema.arguments, args, strict=True) if not a.kwarg_only]


def keywords(op: Any, args: list[Any]) -> dict[str, Any]:
    return {a.name: v for a, v in zip(op._schema.arguments, args, strict=True) if a.kwarg_only}
