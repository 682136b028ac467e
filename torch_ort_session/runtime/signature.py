"""The signature of a run: what a plan and a capture are valid for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torch_ort_session.ops.kernel import Value


@dataclass(frozen=True, slots=True)
class Signature:
    """What must be the same for a capture to be replayed; hashable.

    Attributes:
        outputs: Requested output names.
        feeds: Name, dtype, dims and device of each feed (the kind of it, when it is no tensor).
        keys: Name and value of each key feed.
    """

    outputs: tuple[str, ...]
    feeds: tuple[tuple[Any, ...], ...]
    keys: tuple[tuple[str, int | bool], ...] = ()


def signature_of(outputs: tuple[str, ...], fed: Mapping[str, Value], keys: Collection[str]) -> Signature:
    """Build a signature; the one place where it is defined.

    Args:
        outputs: Requested output names.
        fed: Feeds as the frame holds them.
        keys: Names of key feeds, whose value is part of the signature when it is a single host number.
    """
    feeds = tuple([(name, *_form(value)) for name, value in fed.items()])
    if not keys:
        return Signature(outputs, feeds)
    return Signature(
        outputs, feeds, tuple((name, key_value(fed[name])) for name in keys if is_key(fed[name]))
    )


def is_key(value: Value) -> bool:
    """Whether a feed is a single number on the host."""
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.numel() == 1


def key_value(value: Value) -> int | bool:
    """The number of a key feed."""
    assert isinstance(value, torch.Tensor)
    number: int | bool = value.item()  # type: ignore[assignment]
    return number


def _form(value: Value) -> tuple[Any, ...]:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.device
    if isinstance(value, tuple):
        return ("sequence", *[_form(item) for item in value])
    return (type(value).__name__, getattr(value, "shape", None))
