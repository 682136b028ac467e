"""Delivery: how the results of a run reach tensors that are bound to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from torch_ort_session.runtime.validation.word import write_latched

Owned: TypeAlias = Callable[[Sequence[Any]], list[Any]]
"""Gives results memory of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """What a binding adds to a run.

    Attributes:
        form: Its part of the signature.
        in_place: Inputs that recordings read where they are.
        deliver: Takes the results of a run, and what gives memory to those that are not bound. Until then no
            bound tensor was written, so that a run can be given up, or made again, at any time.
    """

    form: tuple[Any, ...]
    in_place: frozenset[str]
    deliver: Callable[[Sequence[Any], Owned], list[Any]]


def write(
    moves: Sequence[tuple[torch.Tensor, torch.Tensor]],
    written: Collection[int],
    word: torch.Tensor | None = None,
) -> int:
    """Copy every result to its place, as if all were copied at once.

    Args:
        moves: Pairs of a place and what goes there, of one shape and dtype.
        written: Identities of the storages of all places.
        word: A validation word that nobody has read: what it tells of bad data keeps places as they are.

    Returns:
        Bytes that were copied, if any were.
    """
    places: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    nbytes = 0
    for place, value in moves:
        if value.untyped_storage()._cdata in written:
            if _same(place, value):
                continue
            # Another copy may come first and overwrite it: an output may be a state's old value.
            value = value.clone()
        places.append(place)
        values.append(value)
        nbytes += value.nbytes
    if word is not None:
        write_latched(places, values, word)
    elif places:
        torch._foreach_copy_(places, values)
    return nbytes


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride()
