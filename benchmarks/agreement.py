"""How far results are from expected ones: relative to the largest magnitude, or as differing elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCES = {"float32": 1e-4, "half": 1e-2, "int8": 2e-2}


@dataclass(frozen=True)
class Agreement:
    """The worst output of one run: its error, and why it is no match where it is none."""

    error: float
    differing: int
    reason: str

    @property
    def holds(self) -> bool:
        return not self.reason


def compare(
    names: Sequence[str], got: Sequence[object], expected: Sequence[object], tolerance: float
) -> Agreement:
    """Compares outputs in order.

    Floating point outputs may differ by `tolerance` times the largest finite magnitude of the expected
    output; NaN and infinities must stand in the same places. Everything else must be equal.
    """
    worst, differing, reasons = 0.0, 0, []
    if len(got) != len(expected):
        return Agreement(float("inf"), 0, f"{len(got)} outputs instead of {len(expected)}")
    for name, left, right in zip(names, got, expected, strict=True):
        a, b = np.asarray(left), np.asarray(right)
        if a.shape != b.shape or a.dtype != b.dtype:
            reasons.append(f"{name}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}")
            worst = float("inf")
        elif not np.issubdtype(b.dtype, np.floating):
            count = int(np.count_nonzero(a != b))
            differing += count
            if count:
                reasons.append(f"{name}: {count} of {b.size} elements differ")
        else:
            error = relative_error(a, b)
            worst = max(worst, error)
            if not error <= tolerance:
                reasons.append(f"{name}: error {error:.2g} is above {tolerance:g}")
    return Agreement(worst, differing, "; ".join(reasons))


def worse(first: Agreement, second: Agreement) -> Agreement:
    """The one that does not hold, or has the larger error."""
    return max(first, second, key=lambda found: (not found.holds, found.error))


def relative_error(got: Array, expected: Array) -> float:
    """The largest difference over the largest finite magnitude of `expected`.

    It is infinite where a NaN or an infinity stands in one of the two only.
    """
    a, b = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    same = np.array_equal(np.isfinite(a), finite) and np.array_equal(a[~finite], b[~finite], equal_nan=True)
    if not same:
        return float("inf")
    if not finite.any():
        return 0.0
    largest = float(np.abs(b[finite]).max())
    difference = float(np.abs(a[finite] - b[finite]).max())
    return difference / largest if largest > 0.0 else difference
