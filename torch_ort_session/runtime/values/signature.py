"""The signature of a run: what a plan and a capture are valid for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from torch_ort_session.errors import CaptureError
from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.partition import DeclineReport, Reason

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
    held = tuple([(name, number) for name, number in numbers if number is not None])
    return Signature(outputs, feeds, held, bound, torch.get_num_threads())


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


_WORDS = ("name", "role", "dtype", "shape", "valid part", "stride", "address", "size", "device")


def changes(old: Signature, new: Signature) -> list[str]:
    """One text a difference; empty when the two are equal."""
    texts: list[str] = []
    if old.outputs != new.outputs:
        texts.append(f"the outputs were {', '.join(old.outputs)} and are {', '.join(new.outputs)}")
    texts += _bound(old, new)
    texts += _feeds(old, new, {form.name for form in (*old.bound, *new.bound)})
    keys = dict(new.keys)
    texts += [
        f"key feed {name!r} was {value} and is {keys.get(name, 'none')}"
        for name, value in old.keys
        if keys.get(name) != value
    ]
    return texts


def _bound(old: Signature, new: Signature) -> list[str]:
    texts: list[str] = []
    was = {(form.role, form.name): form for form in old.bound}
    now = {(form.role, form.name): form for form in new.bound}
    for (role, name), before in was.items():
        after = now.get((role, name))
        if after is None:
            texts.append(f"{role} {name!r} is no longer bound")
            continue
        texts += [
            f"{word} of {role} {name!r} was {_said(a)} and is {_said(b)}"
            for word, a, b in zip(_WORDS, before, after, strict=True)
            if a != b
        ]
    return texts + [f"{role} {name!r} is bound" for role, name in now if (role, name) not in was]


def _feeds(old: Signature, new: Signature, bound: Collection[str]) -> list[str]:
    was = {name: form for name, *form in old.feeds if name not in bound}
    now = {name: form for name, *form in new.feeds if name not in bound}
    texts = [
        f"feed {name!r} was {_form_text(form)} and is {_form_text(now[name]) if name in now else 'left out'}"
        for name, form in was.items()
        if now.get(name) != form
    ]
    return texts + [f"feed {name!r} is new" for name in now if name not in was]


def _form_text(form: list[Any]) -> str:
    return " ".join(map(_said, form))


def _said(part: Any) -> str:
    return str(list(part)) if isinstance(part, tuple) else str(part).removeprefix("torch.")


def not_replayed(signatures: tuple[Signature, Signature] | None, gone: str) -> CaptureError:
    """The error of a replay that was not made.

    Args:
        signatures: The captured signature and the one asked for; None where nothing was captured.
        gone: What became of the last capture.
    """
    if signatures is None:
        why = f"there is nothing to replay: {gone}; capture() makes one"
    else:
        differences = "; ".join(changes(*signatures)) or "the order of the feeds changed"
        why = f"the capture is no longer valid and was retired: {differences}; capture() makes another"
    return CaptureError(why, report=DeclineReport.of(Reason.NO_CAPTURE, why))
