"""Guards of feeds: the one place that says what a value must be like to be taken as it is."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.runtime.values.context import FEW, emptied

_Tensor = torch.Tensor
_Array = np.ndarray
_STRIDED = torch.strided
_ARRAYS: Mapping[torch.dtype, np.dtype[Any]] = {
    getattr(torch, name): np.dtype(name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}


class ShapePattern(NamedTuple):
    """Dims that grow together; those of most feeds stay.

    Attributes:
        base: The dims at first.
        slope: What each grows by while a run grows by one.
    """

    base: tuple[int, ...]
    slope: tuple[int, ...] = ()


class FeedRow(NamedTuple):
    """What one feed must be like.

    Attributes:
        name: Of the input.
        dtype: Its dtype.
        device: Where it is.
        shape: The place of its pattern among the guard's.
        number: What it holds, where it is a key feed; else None.
        array: The dtype of numpy arrays over the same elements; None where numpy has none, or off the host.
        conjugates: Whether its elements may be conjugated as they are read.
    """

    name: str
    dtype: torch.dtype
    device: torch.device
    shape: int
    number: int | bool | None
    array: np.dtype[Any] | None
    conjugates: bool


@dataclass(frozen=True, slots=True, eq=False)
class FeedGuard:
    """What the feeds of an entry must be like, compiled when the entry is; it lives as long.

    A feed that fits can be read or copied as it is; one that does not may still be converted. What the modes
    of the caller permit is not a matter of feeds.

    Attributes:
        rows: One a feed, in order; None for one that is not read.
        bases: The different dims of feeds at first; None where dims are not looked at.
        slopes: What each of these grows by while a run grows by one; empty for dims that stay.
        gradients: Whether feeds may require gradients, or come from inference mode.
    """

    rows: tuple[FeedRow | None, ...]
    bases: tuple[tuple[int, ...] | None, ...]
    slopes: tuple[tuple[int, ...], ...]
    gradients: bool = False

    def admit(self, feed: Mapping[str, object]) -> dict[str, Any] | None:
        """The feeds in the order of the rows, as they came; None where one is another, or may be.

        Args:
            feed: What a user feeds, by name: tensors and numpy arrays are looked at.
        """
        rows, bases, gradients = self.rows, self.bases, self.gradients
        if len(feed) != len(rows):
            return None
        admitted: dict[str, Any] = {}
        try:
            for row in rows:
                if row is None:
                    return None
                name, dtype, device, shape, number, array, conjugates = row
                value: Any = feed.get(name)
                # This runs where little of Python is in the processor's caches: a call a feed would show.
                if type(value) is _Tensor:
                    if (
                        value.dtype is not dtype
                        or value.device != device
                        or value.layout is not _STRIDED
                        or value.is_nested
                        or value.is_neg()
                        or (conjugates and value.is_conj())
                        or (value.data_ptr() < FEW and (value._is_zerotensor() or emptied(value)))
                        or not (gradients or not (value.requires_grad or value.is_inference()))
                    ):
                        return None
                elif type(value) is not _Array or array is None or value.dtype != array:
                    return None
                dims = bases[shape]
                if dims is not None and value.shape != dims:
                    return None
                if number is not None and value.item() != number:
                    return None
                admitted[name] = value
        except RuntimeError:
            # A function transform has wrapped a tensor, which has no pointer then.
            return None
        return admitted

    def fits(self, values: Iterable[Value], by: int = 0) -> bool:
        """Whether values of a frame, all of which were converted or computed, are of these forms.

        Args:
            values: In the order of the rows, the last of which may be left out.
            by: How much the run has grown.
        """
        shapes = self.shapes(by) if by else self.bases
        # A recording is short: a call a value would show.
        for row, value in zip(self.rows, values, strict=False):
            if row is None:
                continue
            _, dtype, device, shape, number, _, _ = row
            if (
                not isinstance(value, _Tensor)
                or value.dtype is not dtype
                or value.shape != shapes[shape]
                or value.device != device
                or (number is not None and value.item() != number)
            ):
                return False
        return True

    def shapes(self, by: int) -> list[tuple[int, ...] | None]:
        """The different dims of feeds in a run that has grown."""
        return [
            base and tuple([dim + each * by for dim, each in zip(base, slope, strict=True)])
            if slope
            else base
            for base, slope in zip(self.bases, self.slopes, strict=True)
        ]


def is_plain(value: object, dtype: torch.dtype | None, device: torch.device) -> bool:
    """Whether a value needs no conversion: a dense tensor, no subclass, with its elements in its memory."""
    if type(value) is not _Tensor or dtype is None:
        return False
    return _any_dims(dtype, device).admit({"": value}) is not None


@functools.cache
def _any_dims(dtype: torch.dtype, device: torch.device) -> FeedGuard:
    return feed_guard([feed_row("", dtype, device, 0)], (None,), gradients=True)


def guard_of(
    likes: Iterable[tuple[str, torch.Tensor | None]], numbers: Mapping[str, int | bool] | None = None
) -> FeedGuard:
    """The guard of feeds that are like some tensors, none of which is kept.

    Args:
        likes: Names and tensors; None in the place of one that is not read.
        numbers: What key feeds hold, by name.
    """
    rows: list[FeedRow | None] = []
    patterns: dict[ShapePattern | None, int] = {}
    for name, like in likes:
        if like is None:
            rows.append(None)
            continue
        shape = patterns.setdefault(ShapePattern(tuple(like.shape)), len(patterns))
        rows.append(feed_row(name, like.dtype, like.device, shape, (numbers or {}).get(name)))
    return feed_guard(rows, patterns)


def feed_guard(
    rows: Iterable[FeedRow | None], patterns: Iterable[ShapePattern | None], *, gradients: bool = False
) -> FeedGuard:
    """A guard of some rows.

    Args:
        rows: One a feed.
        patterns: The different dims of feeds; None where dims are not looked at.
        gradients: Whether feeds may require gradients, or come from inference mode.
    """
    patterns = tuple(patterns)
    bases = tuple([None if pattern is None else pattern.base for pattern in patterns])
    slopes = tuple(
        [() if pattern is None or not any(pattern.slope) else pattern.slope for pattern in patterns]
    )
    return FeedGuard(tuple(rows), bases, slopes, gradients)


def feed_row(
    name: str, dtype: torch.dtype, device: torch.device, shape: int, number: int | bool | None = None
) -> FeedRow:
    """The row of a feed; see :class:`FeedRow`."""
    array = _ARRAYS.get(dtype) if device.type == "cpu" else None
    return FeedRow(name, dtype, device, shape, number, array, dtype.is_complex)
