"""The signature of a run: what a plan and a capture are valid for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from torch_ort_session.ops.kernel import Value

_Tensor = torch.Tensor
_new = tuple.__new__


class BoundForm(NamedTuple):
    """What must be the same of a bound tensor: a recording holds its address.

    Attributes:
        name: Name of the input or output.
        role: ``"input"``, ``"output"`` or ``"state"``.
        dtype: Its dtype.
        shape: Its dims, capacity included.
        logical: The dims that are valid.
        stride: Its strides, in elements.
        pointer: Address of its first element.
        nbytes: Bytes of its storage.
        device: Where it lives.
    """

    name: str
    role: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    logical: tuple[int, ...]
    stride: tuple[int, ...]
    pointer: int
    nbytes: int
    device: torch.device


class Signature(NamedTuple):
    """What must be the same for a capture to be replayed; hashable.

    Runs in grad mode on feeds that require grad have none: they are always eager.

    Attributes:
        outputs: Requested output names.
        feeds: Name, dtype, dims and device of each feed (the kind of it, when it is no tensor).
        keys: Name and value of each key feed.
        bound: Bound tensors.
        threads: Of torch's CPU kernels: weights are packed for so many, and sums are made in another order.
    """

    outputs: tuple[str, ...]
    feeds: tuple[tuple[Any, ...], ...]
    keys: tuple[tuple[str, int | bool], ...] = ()
    bound: tuple[BoundForm, ...] = ()
    threads: int = 0

    def __str__(self) -> str:
        values = dict(self.keys)
        feeds = (
            f"{name}: {_described(form)}" + (f" = {values[name]}" if name in values else "")
            for name, *form in self.feeds
        )
        bound = f", bound: {', '.join(form.name for form in self.bound)}" if self.bound else ""
        return f"({', '.join(feeds)}) -> ({', '.join(self.outputs)}){bound}"


def signature_of(
    outputs: tuple[str, ...],
    fed: Mapping[str, Value],
    keys: Iterable[str],
    bound: tuple[BoundForm, ...] = (),
) -> Signature:
    """Build a signature; the one place where it is defined.

    Args:
        outputs: Requested output names.
        fed: Feeds as the frame holds them.
        keys: Names of key feeds, whose value is part of the signature when it is a single host number.
        bound: Bound tensors.
    """
    feeds = tuple(
        [
            # A run of small feeds is short: a call a feed would show.
            (name, value.dtype, value.shape, value.device)
            if isinstance(value, _Tensor)
            else (name, *_form(value))
            for name, value in fed.items()
        ]
    )
    if not keys:
        return _new(Signature, (outputs, feeds, (), bound, torch.get_num_threads()))
    numbers = [(name, _number(fed[name])) for name in keys if name in fed]
    told = tuple([(name, number) for name, number in numbers if number is not None])
    return Signature(outputs, feeds, told, bound, torch.get_num_threads())


def _number(value: Value) -> int | bool | None:
    """The number of a key feed; None when the feed is not a single number on the host."""
    if isinstance(value, _Tensor) and value.numel() == 1 and value.device.type == "cpu":
        number: int | bool = value.item()  # type: ignore[assignment]
        return number
    return None


def _form(value: Value) -> tuple[Any, ...]:
    if isinstance(value, _Tensor):
        return value.dtype, value.shape, value.device
    if isinstance(value, tuple):
        return ("sequence", *[_form(item) for item in value])
    if value is None:
        return ("absent",)
    return ("strings", value.shape)


def _described(form: list[Any]) -> str:
    if isinstance(form[0], torch.dtype):
        return f"{str(form[0]).removeprefix('torch.')}{list(form[1])}"
    if form[0] == "sequence":
        return f"sequence of {len(form) - 1}"
    return str(form[0]) if len(form) == 1 else f"{form[0]}{list(form[1])}"
