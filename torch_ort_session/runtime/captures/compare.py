"""The probe: a replay's results against those of an eager run on the same feeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def difference(
    outputs: Sequence[str],
    replayed: Sequence[Any],
    eager: Sequence[Any],
    *,
    rounding: float = 1e-6,
    what: str = "replay",
) -> str:
    """What differs between two runs on the same feeds; empty when they agree.

    Integers, bools, strings and shapes must be equal; floats may differ by ``rounding`` of the largest
    magnitude in float32 and float64, and by 16 units of their precision in shorter types, since a recorded
    call may pick another way to the same sum.

    Args:
        outputs: Names of the results.
        replayed: Results of a replay.
        eager: Results of an eager run.
        rounding: What is taken for rounding, as a share of the largest magnitude.
        what: What the replay is called.
    """
    for name, one, other in zip(outputs, replayed, eager, strict=True):
        found = _difference(one, other, rounding, what)
        if found:
            return f"{name!r}: {found}"
    return ""


def _difference(replayed: Any, eager: Any, rounding: float, what: str) -> str:
    if type(replayed) is not type(eager):
        return f"the {what} gave {type(replayed).__name__}, the eager run {type(eager).__name__}"
    if isinstance(eager, tuple):
        if len(replayed) != len(eager):
            return f"the {what} gave {len(replayed)} items, the eager run {len(eager)}"
        pairs = zip(replayed, eager, strict=True)
        return next(filter(None, (_difference(*pair, rounding, what) for pair in pairs)), "")
    if isinstance(eager, torch.Tensor):
        return _tensors(replayed, eager, rounding, what)
    if eager is None:
        return ""
    same = replayed.shape == eager.shape and bool((replayed == eager).all())
    return "" if same else "the strings differ"


def _tensors(replayed: torch.Tensor, eager: torch.Tensor, rounding: float, what: str) -> str:
    if replayed.shape != eager.shape or replayed.dtype != eager.dtype:
        ours, theirs = (f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (replayed, eager))
        return f"the {what} gave {ours}, the eager run {theirs}"
    if not (eager.is_floating_point() or eager.is_complex()):
        return "" if torch.equal(replayed, eager) else "the numbers differ"
    wide = torch.complex128 if eager.is_complex() else torch.float64
    one, other = replayed.to(wide), eager.to(wide)
    same = (one == other) | (one.isnan() & other.isnan())
    if bool(same.all()):
        return ""
    finite = other.abs()
    largest = float(finite.where(finite.isfinite(), 0).max())
    most = float((one - other).abs().where(~same, 0).max())
    short = torch.finfo(eager.dtype).eps if eager.dtype.itemsize < 4 else 0.0
    allowed = max(rounding, 16 * short) * largest
    if most <= allowed:
        return ""
    return f"the numbers differ by up to {most:.3g}, where {allowed:.3g} is rounding"
