"""A table of keys and values, with numbers or strings on either side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.common.prepared import prepared
from torch_ort_session.ops.kernel import KernelContext


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Keys in order with their places in the list, those of NaN and infinity, and values, the default last.

    Each is None where strings stand on that side. Integers within a short range have a place each, ``dense``,
    from one below the least key, ``low``, to one above the greatest: the outer two are no keys.
    """

    ordered: Tensor | None
    places: Tensor | None
    specials: tuple[Tensor, Tensor] | None
    values: Tensor | None
    dense: Tensor | None = None
    low: int = 0


_DENSE = 1 << 16
"""Longest range of integer keys that get a place each."""


def look_up(x: Any, keys: Any, values: Any, default: Any, ctx: KernelContext) -> Tensor:
    """The value of each element's key; of equal keys the last one counts.

    Args:
        x: A tensor or strings.
        keys: A list or a tensor of keys, or strings.
        values: A list or a tensor of values, or strings, one for each key.
        default: The value of what is no key; of one element where it is a tensor.
        ctx: The step, for which the table is made once.

    Returns:
        Values in the shape of ``x``.

    Raises:
        ValueError: The keys are not of the kind of ``x``, or are not as many as the values.
    """
    key_texts, value_texts = _texts(keys), _texts(values)
    if (key_texts is None) != isinstance(x, Tensor) or len(keys) != len(values) or not len(keys):
        kind = "numbers" if isinstance(x, Tensor) else "strings"
        raise ValueError(f"{len(keys)} keys and {len(values)} values do not make a table for {kind}")
    table = prepared(ctx, lambda: _table(x, keys, values, default, ctx))
    if table.dense is not None:
        place = table.dense[x.clamp(table.low, table.low + table.dense.shape[0] - 1) - table.low]
    elif table.ordered is None or table.places is None or table.specials is None:
        row = strings.find(key_texts or [], x).to(ctx.device)
        place = torch.where(row < 0, len(keys), row)
    else:
        x = x.contiguous()
        above = torch.searchsorted(table.ordered, x, right=True)
        near = (above - 1).clamp(min=0)
        place = torch.where(table.ordered[near] == x, table.places[near], len(keys))
        if x.is_floating_point():
            place = torch.where(x.isnan(), table.specials[0], place)
            place = torch.where(torch.eq(x, torch.inf), table.specials[1], place)
    if table.values is not None:
        return table.values[place]
    known = [*(value_texts or []), (_texts(default) or [default or "_Unused"])[0]]
    return strings.as_tensor(strings.pick(known, place))


def _texts(values: Any) -> list[str] | None:
    """The strings, where it is strings that are given."""
    if isinstance(values, np.ndarray):
        return strings.flat(values)
    return list(values) if isinstance(values, list) and values and isinstance(values[0], str) else None


def _table(x: Any, keys: Any, values: Any, default: Any, ctx: KernelContext) -> _Table:
    ordered = places = specials = None
    if isinstance(x, Tensor):
        known = torch.as_tensor(keys, device=x.device).reshape(-1).to(x.dtype)
        missing = known.isnan()
        # NaN has no order: it goes to the end as infinity, which is then looked up apart.
        ordered, places = torch.sort(
            torch.where(missing, torch.inf, known) if x.is_floating_point() else known, stable=True
        )
        specials = _last(missing), _last(torch.eq(known, torch.inf))
    tensor = None
    if _texts(values) is None:
        if isinstance(values, Tensor):
            tensor = values.reshape(-1).to(ctx.device)
            fallback = torch.tensor([-0.0 if values.is_floating_point() else -1])
        else:
            whole = isinstance(default, int)
            tensor = torch.tensor(values, dtype=torch.int64 if whole else torch.float32, device=ctx.device)
            fallback = torch.tensor([default])
        last = default.reshape(-1) if isinstance(default, Tensor) else fallback
        tensor = torch.cat([tensor, last.to(ctx.device, tensor.dtype)])
    if isinstance(keys, list) and isinstance(x, Tensor) and x.dtype == torch.int64:
        low, high = min(keys) - 1, max(keys) + 1
        if high - low <= _DENSE and low >= -(1 << 63) and high < 1 << 63:
            places_of = {key: place for place, key in enumerate(keys)}
            dense = [places_of.get(key, len(keys)) for key in range(low, high + 1)]
            return _Table(ordered, places, specials, tensor, torch.tensor(dense, device=x.device), low)
    return _Table(ordered, places, specials, tensor)


def _last(holds: Tensor) -> Tensor:
    """The last place where a bool vector is true; its length where it is nowhere."""
    places = torch.arange(holds.shape[0], device=holds.device)
    last = torch.where(holds, places, -1).amax()
    return torch.where(last < 0, holds.shape[0], last)
