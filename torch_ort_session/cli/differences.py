"""The distance of one value from another, and where it is greatest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 1e-2, torch.float32: 1e-4, torch.float64: 1e-4}
"""The largest error allowed, as a share of the largest magnitude, by dtype."""
_COARSE = 1e-1
"""The same for floats of a byte or less. Integers and bools must be equal."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The comparison of one value with its twin.

    Attributes:
        error: Largest absolute error where both are finite.
        magnitude: Largest finite magnitude of the expected value.
        where: Index of the largest error, or of the first place where only one is finite.
        nan: Whether our value holds a NaN.
        expected_nan: Whether the expected value holds one.
        reason: Why the values do not agree; empty when they do.
    """

    error: float = 0.0
    magnitude: float = 0.0
    where: tuple[int, ...] = ()
    nan: bool = False
    expected_nan: bool = False
    reason: str = ""

    @property
    def share(self) -> float:
        """The error as a share of the magnitude."""
        return self.error / self.magnitude if self.magnitude else self.error


def difference(got: object, expected: object, tolerance: float | None = None) -> Difference:
    """Compare two values.

    Args:
        got: What this package gave: a tensor, an array of strings, a tuple of values, or None.
        expected: What the other runtime gave: an array, a list of arrays, or None.
        tolerance: Largest error allowed for floats as a share of the largest magnitude; by dtype when None.
    """
    if isinstance(got, tuple):
        return _sequence(got, expected, tolerance)
    if got is None or expected is None:
        return Difference(reason="" if got is expected else f"{_kind(got)} against {_kind(expected)}")
    if isinstance(got, np.ndarray):
        same = got.tolist() == np.asarray(expected).astype(object).tolist()
        return Difference(reason="" if same else "the strings differ")
    assert isinstance(got, torch.Tensor)
    twin = as_tensor(expected)
    if twin is None:
        return Difference(reason=f"{_kind(got)} against {_kind(expected)}")
    if got.shape != twin.shape:
        return Difference(reason=f"shape {list(got.shape)} against {list(twin.shape)}")
    if got.is_floating_point() != twin.is_floating_point() or got.is_complex() != twin.is_complex():
        return Difference(reason=f"{_kind(got)} against {_kind(twin)}")
    return _tensors(got.detach().cpu(), twin, tolerance)


def as_tensor(value: object) -> torch.Tensor | None:
    """An array as a tensor; element types that torch lacks are widened, and what is no array gives None."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (list, tuple)):
        return None
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return None
    if array.dtype.kind == "V" or type(array.dtype).__module__ != "numpy.dtypes":
        name = array.dtype.name
        array = array.astype(
            np.float32 if "float" in name else np.int8 if name.startswith("int") else np.uint8
        )
    return torch.from_numpy(np.array(array, order="C"))


def _sequence(got: tuple[Any, ...], expected: object, tolerance: float | None) -> Difference:
    if not isinstance(expected, (list, tuple)):
        return Difference(reason=f"a sequence against {_kind(expected)}")
    if len(got) != len(expected):
        return Difference(reason=f"a sequence of {len(got)} against one of {len(expected)}")
    items = [difference(a, b, tolerance) for a, b in zip(got, expected, strict=True)]
    return next(
        (item for item in items if item.reason), max(items, key=lambda i: i.share, default=Difference())
    )


def _tensors(got: torch.Tensor, expected: torch.Tensor, tolerance: float | None) -> Difference:
    if not (got.is_floating_point() or got.is_complex()):
        return _integers(got, expected)
    allowed = TOLERANCES.get(got.dtype, _COARSE) if tolerance is None else tolerance
    wide = torch.complex128 if got.is_complex() else torch.float64
    a, b = got.to(wide), expected.to(wide)
    both = a.isfinite() & b.isfinite()
    odd = ~both & ~((a == b) | (a.isnan() & b.isnan()))
    error = torch.where(both, (a - b).abs(), 0.0)
    magnitude = float(torch.where(b.isfinite(), b.abs(), 0.0).amax()) if b.numel() else 0.0
    worst = float(error.amax()) if error.numel() else 0.0
    where = _first(odd) if bool(odd.any()) else _first(error == worst)
    reason = ""
    if bool(odd.any()) or worst > allowed * magnitude:
        reason = f"{_at(a, where)} against {_at(b, where)} at {list(where)}"
    if reason and not bool(odd.any()):
        reason += f": error {worst:.3g} of magnitude {magnitude:.3g}"
    return Difference(worst, magnitude, where, bool(a.isnan().any()), bool(b.isnan().any()), reason)


def _integers(got: torch.Tensor, expected: torch.Tensor) -> Difference:
    # numpy compares every pair of integer types by value; float64 would round the large ones.
    unequal = torch.from_numpy(np.asarray(got.numpy() != expected.numpy()))
    if not bool(unequal.any()):
        return Difference()
    where = _first(unequal)
    pair = f"{got[where].item()} against {expected[where].item()} at {list(where)}"
    differing = int(unequal.sum())
    worst = float((got.double() - expected.double()).abs().amax())
    magnitude = float(expected.double().abs().amax())
    return Difference(worst, magnitude, where, reason=f"{pair}: {differing} of {unequal.numel()} differ")


def _first(mask: torch.Tensor) -> tuple[int, ...]:
    """Index of the first true element; empty for a scalar or where there is none."""
    if not mask.numel():
        return ()
    flat = int(mask.flatten().to(torch.uint8).argmax())
    return tuple(int(i) for i in np.unravel_index(flat, tuple(mask.shape)))


def _at(value: torch.Tensor, where: tuple[int, ...]) -> str:
    return f"{value[where].item():.6g}"


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    if isinstance(value, np.ndarray):
        return str(value.dtype)
    return (
        "nothing"
        if value is None
        else "a sequence"
        if isinstance(value, (list, tuple))
        else type(value).__name__
    )
