"""The probe: a replay's results against those of an eager run on the same feeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def difference(names: Sequence[str], replayed: Sequence[Any], eager: Sequence[Any]) -> str:
    """What differs between two runs on the same feeds; empty when they agree.

    Integers, bools, strings and shapes must be equal; floats may differ by 1e-6 of the largest magnitude in
    float32 and float64, and by 16 units of their precision in shorter types, since a recorded call may pick
    another way to the same sum.

    Args:
        names: Names of the results.
        replayed: Results of a replay.
        eager: Results of an eager run.
    """
    for name, one, other in zip(names, replayed, eager, strict=True):
        found = _difference(one, other)
        if found:
            return f"{name!r}: {found}"
    return ""


def _difference(replayed: Any, eager: Any) -> str:
    if type(replayed) is not type(eager):
        return f"the replay gave {type(replayed).__name__}, the eager run {type(eager).__name__}"
    if isinstance(eager, tuple):
        if len(replayed) != len(eager):
            return f"the replay gave {len(replayed)} items, the eager run {len(eager)}"
        return next(filter(None, map(_difference, replayed, eager)), "")
    if isinstance(eager, torch.Tensor):
        return _tensors(replayed, eager)
    if eager is None:
        return ""
    same = replayed.shape == eager.shape and bool((replayed == eager).all())
    return "" if same else "the strings differ"


def _tensors(replayed: torch.Tensor, eager: torch.Tensor) -> str:
    if replayed.shape != eager.shape or replayed.dtype != eager.dtype:
        forms = (f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in (replayed, eager))
        return "the replay gave {}, the eager run {}".format(*forms)
    if not (eager.is_floating_point() or eager.is_complex()):
        return "" if torch.equal(replayed, eager) else "the numbers differ"
    wide = torch.complex128 if eager.is_complex() else torch.float64
    ours, theirs = replayed.to(wide), eager.to(wide)
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    if bool(same.all()):
        return ""
    finite = theirs.abs()
    largest = float(finite.where(finite.isfinite(), 0).max())
    most = float((ours - theirs).abs().where(~same, 0).max())
    short = torch.finfo(eager.dtype).eps if eager.dtype.itemsize < 4 else 0.0
    allowed = max(1e-6, 16 * short) * largest
    if most <= allowed:
        return ""
    return f"the numbers differ by up to {most:.3g}, where {allowed:.3g} is rounding"
