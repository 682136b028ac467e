"""Families of shapes: how runs are told to be the same but for dims that grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from torch_ort_session.ops.kernel import Value
from torch_ort_session.plan.analysis import FARTHEST
from torch_ort_session.runtime.captures import Keys
from torch_ort_session.runtime.values import FeedGuard, FeedRow, ShapePattern, Signature, feed_guard, feed_row

_Tensor = torch.Tensor

_GROWN = -1
"""In place of a dim that grew."""

ShapeFamily = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...], Keys]
"""A signature without the dims that grew: requested outputs, name, dtype, dims and device of feeds, and the
key feeds that stayed as they were."""


class Growth(NamedTuple):
    """A run whose feeds grew since the run before.

    Attributes:
        form: What did not grow.
        dims: What did: the dims of the feeds, in order.
        by: How much the first of them grew since the first run that is kept; None where that is not known.
    """

    form: ShapeFamily
    dims: tuple[int, ...]
    by: int | None = None


class GrowthPattern(NamedTuple):
    """How the dims of the feeds of a form grow together.

    Attributes:
        form: The form.
        base: What the dims that grow were in the first run.
        slopes: What each grows by while the first grows by one.
        guard: What feeds must be like, by how much the first dim has grown.
        names: The feeds, in the order of its rows.
        lead: The feed whose dim is the first that grows, and the place of that dim.
    """

    form: ShapeFamily
    base: tuple[int, ...]
    slopes: tuple[int, ...]
    guard: FeedGuard
    names: tuple[str, ...]
    lead: tuple[str, int]

    def grown(self, outputs: tuple[str, ...], fed: Mapping[str, Value]) -> Growth | None:
        """What grew in a run of this form; None for any other run.

        Args:
            outputs: Requested output names.
            fed: Feeds.
        """
        if outputs != self.form[0] or len(fed) != len(self.guard.rows):
            return None
        name, axis = self.lead
        leader = fed.get(name)
        if not isinstance(leader, _Tensor) or leader.dim() <= axis:
            return None
        by = leader.shape[axis] - self.base[0]
        if not 0 <= by <= FARTHEST:
            return None
        if not self.guard.fits([fed.get(name) for name in self.names], by):
            return None
        return Growth(self.form, tuple([a + b * by for a, b in zip(self.base, self.slopes, strict=True)]), by)


def growth_pattern(form: ShapeFamily, base: tuple[int, ...], slopes: tuple[int, ...]) -> GrowthPattern | None:
    """The pattern of a form; None where a feed is no tensor.

    Args:
        form: The form.
        base: The dims that grow, in the first run.
        slopes: What each grows by while the first grows by one.
    """
    patterns: dict[ShapePattern, int] = {}
    rows: list[FeedRow] = []
    numbers = dict(form[2])
    lead: tuple[str, int] | None = None
    place = 0
    for feed in form[1]:
        if len(feed) != 4 or not isinstance(feed[1], torch.dtype):
            return None
        name, dtype, dims, device = feed
        first, slope = list(dims), [0] * len(dims)
        for axis, dim in enumerate(dims):
            if dim == _GROWN:
                lead = lead or (name, axis)
                first[axis], slope[axis] = base[place], slopes[place]
                place += 1
        shape = patterns.setdefault(ShapePattern(tuple(first), tuple(slope)), len(patterns))
        rows.append(feed_row(name, dtype, device, shape, numbers.get(name)))
    if lead is None:
        return None
    names = tuple([row.name for row in rows])
    return GrowthPattern(form, base, slopes, feed_guard(rows, patterns), names, lead)


def grown_since(before: Signature, after: Signature) -> Growth | None:
    """What grew from one run to another; None when nothing did, a dim shrank, or anything else differs.

    Bound tensors count as the feeds that they are; where they lie does not.
    """
    if before.outputs != after.outputs or len(before.feeds) != len(after.feeds):
        return None
    dims: list[int] = []
    forms: list[tuple[Any, ...]] = []
    small: Any = None
    large: Any = None
    shape: tuple[int, ...] = ()
    grown: list[int] = []
    for old, new in zip(before.feeds, after.feeds, strict=True):
        if old == new:
            forms.append(new)
            continue
        if len(old) != 4 or len(new) != 4 or old[:2] != new[:2] or old[3] != new[3]:
            return None
        # The caches of all layers have the same dims: those of the feed before are not gone through again.
        if old[2] != small or new[2] != large:
            small, large = old[2], new[2]
            if len(small) != len(large) or any(a > b for a, b in zip(small, large, strict=True)):
                return None
            pairs = list(zip(small, large, strict=True))
            shape = tuple([_GROWN if a < b else b for a, b in pairs])
            grown = [b for a, b in pairs if a < b]
        dims += grown
        forms.append((new[0], new[1], shape, new[3]))
    if not dims:
        return None
    # A number that changes from run to run is data like any other.
    keys = after.keys if after.keys == before.keys else tuple([k for k in after.keys if k in before.keys])
    return Growth((after.outputs, tuple(forms), keys), tuple(dims))


def family_text(form: ShapeFamily) -> str:
    """A form in words."""
    outputs, feeds, keys = form
    values = dict(keys)
    listed = ", ".join(
        f"{name}: {_dims(rest)}" + (f" = {values[name]}" if name in values else "") for name, *rest in feeds
    )
    return f"({listed}) -> ({', '.join(outputs)})"


def _dims(form: Sequence[Any]) -> str:
    if len(form) != 3 or not isinstance(form[0], torch.dtype):
        return str(form[0])
    dims = ", ".join("grows" if dim == _GROWN else str(dim) for dim in form[1])
    return f"{str(form[0]).removeprefix('torch.')}[{dims}]"
