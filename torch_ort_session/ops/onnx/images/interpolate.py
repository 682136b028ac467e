"""Resampling of one axis: source coordinates, sampling positions with weights, and their application.

Coordinates are computed in float64 on the tensor's own device from host scalars, so that nothing is copied
to the device and a recording holds only ordinary torch calls.

Source: https://onnx.ai/onnx/operators/onnx__Resize.html
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """What happens to one axis.

    Attributes:
        axis: The axis, not negative.
        size_in: Its length before.
        size_out: Its length after.
        scale: Output length by input length; ``scale * size_in`` may be fractional.
        start: Start of the region of interest, normalised.
        end: End of the region of interest, normalised.
    """

    axis: int
    size_in: int
    size_out: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Filter:
    """How values between the samples are found.

    Attributes:
        cubic: Cubic rather than linear.
        coeff_a: The cubic coefficient.
        antialias: Whether the filter is stretched when the axis shrinks.
        exclude_outside: Whether positions outside of the axis get no weight.
    """

    cubic: bool
    coeff_a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False


def source_coordinates(plan: AxisPlan, mode: str, device: torch.device) -> Tensor:
    """Where each output index lies in the input axis.

    Args:
        plan: The axis.
        mode: A ``coordinate_transformation_mode`` of Resize.
        device: Where to compute.

    Returns:
        float64 ``[size_out]``.

    Raises:
        ValueError: The mode is not known.
    """
    x = torch.arange(plan.size_out, dtype=torch.float64, device=device)
    scale, last = plan.scale, plan.size_in - 1
    width = scale * plan.size_in
    if mode == "asymmetric":
        return x / scale
    if mode == "align_corners":
        return torch.zeros_like(x) if plan.size_out == 1 or width == 1 else x * last / (width - 1)
    if mode == "tf_crop_and_resize":
        if plan.size_out == 1 or width == 1:
            return x * 0 + (plan.start + plan.end) * last / 2
        return x * (plan.end - plan.start) * last / (width - 1) + plan.start * last
    if mode == "pytorch_half_pixel" and plan.size_out == 1:
        return torch.zeros_like(x)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        offset = plan.size_in / 2 * (1 - plan.size_out / width)
        return offset + (x + 0.5) / scale - 0.5
    raise ValueError(f"coordinate_transformation_mode {mode!r} is not one of those that Resize defines.")


def outside(coordinates: Tensor, size: int) -> Tensor:
    """Which coordinates lie outside of an axis of this length; bool, same shape."""
    return (coordinates < 0) | (coordinates > size - 1)


def nearest_index(coordinates: Tensor, size: int, rounding: str) -> Tensor:
    """The nearest sample of each coordinate.

    Args:
        coordinates: float64, any shape.
        size: Length of the axis; indices are kept inside of it.
        rounding: A ``nearest_mode`` of Resize.

    Returns:
        int64, same shape.

    Raises:
        ValueError: The rounding is not known.
    """
    floor = coordinates.floor()
    if rounding == "floor":
        index = floor
    elif rounding == "ceil":
        index = coordinates.ceil()
    elif rounding == "round_prefer_floor":
        # The fraction is exact where adding a half to the coordinate could round across a tie.
        index = floor + (coordinates - floor > 0.5)
    elif rounding == "round_prefer_ceil":
        index = floor + (coordinates - floor >= 0.5)
    else:
        raise ValueError(f"nearest_mode {rounding!r} is not one of those that Resize defines.")
    return index.clamp(0, size - 1).to(torch.int64)


def taps(coordinates: Tensor, plan: AxisPlan, kind: Filter) -> tuple[Tensor, Tensor]:
    """Sampling positions and weights of each output index.

    Args:
        coordinates: float64 ``[size_out]``.
        plan: The axis.
        kind: The filter.

    Returns:
        int64 positions and float64 weights, both ``[size_out, taps]``; positions lie inside of the axis.
    """
    squeeze = min(plan.scale, 1.0) if kind.antialias else 1.0
    first = math.floor(-(2 if kind.cubic else 1) / squeeze) + 1
    offsets = torch.arange(first, 2 - first, dtype=torch.float64, device=coordinates.device)
    # A coordinate on a sample takes the sample as the upper of the two in the middle.
    base = coordinates.ceil() - 1
    distance = (offsets - (coordinates - base)[:, None]).abs() * squeeze
    weights = _cubic(distance, kind.coeff_a) if kind.cubic else (1 - distance).clamp(min=0)
    positions = base[:, None] + offsets
    if kind.exclude_outside:
        weights = weights.masked_fill(outside(positions, plan.size_in), 0.0)
    if kind.exclude_outside or squeeze < 1:
        total = weights.sum(1, keepdim=True)
        weights = weights / total.masked_fill(total == 0, 1.0)
    return positions.clamp(0, plan.size_in - 1).to(torch.int64), weights


def _cubic(distance: Tensor, a: float) -> Tensor:
    d, square = distance, distance * distance
    near = ((a + 2) * d - (a + 3)) * square + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, 0.0))


def apply_taps(x: Tensor, axis: int, positions: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of samples along one axis.

    Args:
        x: Floating-point or complex.
        axis: The axis, not negative.
        positions: int64 ``[size_out, taps]``.
        weights: ``[size_out, taps]``.

    Returns:
        ``x`` with the axis of length ``size_out``, in its dtype.
    """
    size_out, count = positions.shape
    tail = (1,) * (x.dim() - axis - 1)
    weights = weights.to(x.dtype)
    if count > 4:
        samples = x.index_select(axis, positions.reshape(-1))
        samples = samples.reshape(*x.shape[:axis], size_out, count, *x.shape[axis + 1 :])
        return (samples * weights.reshape(size_out, count, *tail)).sum(axis + 1)
    y = x.index_select(axis, positions[:, 0]) * weights[:, 0].reshape(size_out, *tail)
    for tap in range(1, count):
        samples = x.index_select(axis, positions[:, tap])
        y = torch.addcmul(y, samples, weights[:, tap].reshape(size_out, *tail))
    return y
