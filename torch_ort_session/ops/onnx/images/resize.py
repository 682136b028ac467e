"""Resize and its forerunner Upsample.

Source: https://onnx.ai/onnx/operators/onnx__Resize.html, https://onnx.ai/onnx/operators/onnx__Upsample.html
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_ort_session.ops.common.strings import by_position
from torch_ort_session.ops.common.widen import pick
from torch_ort_session.ops.kernel import Strings, kernel
from torch_ort_session.ops.onnx.images import interpolate
from torch_ort_session.ops.onnx.images.interpolate import AxisPlan, Filter
from torch_ort_session.ops.onnx.images.layout import is_channels_last, turned, turned_back

_ROUNDS_TO_BLOCK = {
    "half_pixel": ("round_prefer_floor", "round_prefer_ceil"),
    "pytorch_half_pixel": ("round_prefer_floor", "round_prefer_ceil"),
    "half_pixel_symmetric": ("round_prefer_floor", "round_prefer_ceil"),
    "asymmetric": ("floor",),
}
# Up to this length torch's float32 coordinates are as good as exact ones.
_FUSED_LIMIT = 1024


@kernel("Resize", since=(11, 13, 18, 19), host=("roi", "scales", "sizes"), view_of="x")
def resize(
    x: Tensor | Strings,
    roi: list[float] | None = None,
    scales: list[float] | None = None,
    sizes: list[int] | None = None,
    *,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    axes: list[int] | None = None,
    keep_aspect_ratio_policy: str = "stretch",
) -> Tensor:
    """Resample any axes of a tensor.

    Source: https://onnx.ai/onnx/operators/onnx__Resize.html

    Args:
        x: Any rank and dtype; strings in mode ``nearest`` only, empty outside of the input.
        roi: Starts then ends of the resized axes, normalised; read by ``tf_crop_and_resize`` only.
        scales: A factor for each axis of ``axes``; None or empty when ``sizes`` is given.
        sizes: A length for each axis of ``axes``.
        mode: ``nearest``, ``linear`` or ``cubic``.
        coordinate_transformation_mode: How output coordinates map to input ones.
        nearest_mode: Rounding of ``nearest``.
        cubic_coeff_a: Coefficient of ``cubic``.
        exclude_outside: Whether positions outside get no weight.
        extrapolation_value: Result outside of the input under ``tf_crop_and_resize``.
        antialias: Whether the filter is stretched when an axis shrinks.
        axes: Axes that the inputs speak of; None means all.
        keep_aspect_ratio_policy: How ``sizes`` bind.

    Returns:
        The resampled tensor, dtype of ``x``; integers are rounded to even and saturate.

    Raises:
        ValueError: The inputs or attributes contradict each other.
    """
    if not isinstance(x, Tensor):
        if mode != "nearest":
            raise ValueError(f"strings cannot be mixed, as mode {mode!r} would.")
        return by_position(
            resize,
            x,
            roi,
            scales,
            sizes,
            coordinate_transformation_mode=coordinate_transformation_mode,
            nearest_mode=nearest_mode,
            extrapolation_value=-1.0,
            axes=axes,
            keep_aspect_ratio_policy=keep_aspect_ratio_policy,
        )
    cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    plans = _plans(x, roi if cropped else None, scales, sizes, axes, keep_aspect_ratio_policy, cropped)
    if not plans:
        return x
    fill = extrapolation_value if cropped else None
    if mode == "nearest":
        if antialias:
            raise ValueError("antialias is defined for the modes linear and cubic, not for nearest.")
        return _nearest(x, plans, coordinate_transformation_mode, nearest_mode, fill)
    if mode not in ("linear", "cubic"):
        raise ValueError(f"mode {mode!r} is not one of nearest, linear and cubic.")
    kind = Filter(mode == "cubic", cubic_coeff_a, bool(antialias), bool(exclude_outside))
    return _weighted(x, plans, coordinate_transformation_mode, kind, fill)


@kernel("Resize", since=(10,), host=("scales",), view_of="x")
@kernel("Upsample", since=(9, 10), host=("scales",), view_of="x")
def resize_by_scales(x: Tensor | Strings, scales: list[float], *, mode: str = "nearest") -> Tensor:
    """Resample by factors: output index divided by the factor, rounded down when ``nearest``.

    Source: https://onnx.ai/onnx/operators/onnx__Upsample.html

    Args:
        x: Any rank and dtype.
        scales: A factor for each axis.
        mode: ``nearest`` or ``linear``.

    Returns:
        The resampled tensor, dtype of ``x``.

    Raises:
        ValueError: The mode is not known or the number of factors is not the rank.
    """
    return resize(
        x,
        None,
        scales,
        None,
        mode="linear" if mode == "bilinear" else mode,
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@kernel("Upsample", since=(7,), view_of="x")
def upsample_7(x: Tensor | Strings, *, scales: list[float], mode: str = "nearest") -> Tensor:
    """Upsample with the factors as an attribute; see :func:`resize_by_scales`."""
    return resize_by_scales(x, scales, mode=mode)


@kernel("Upsample", since=(1,), view_of="x")
def upsample_1(x: Tensor, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Tensor:
    """Upsample the last two axes of an image batch; see :func:`resize_by_scales`."""
    return resize_by_scales(x, [1.0] * (x.dim() - 2) + [height_scale, width_scale], mode=mode)


def _plans(
    x: Tensor,
    roi: Sequence[float] | None,
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
    axes: Sequence[int] | None,
    policy: str,
    cropped: bool,
) -> list[AxisPlan]:
    """One plan for each axis that changes, the one that shrinks most first."""
    rank = x.dim()
    chosen = range(rank) if axes is None else [axis % rank for axis in axes]
    lengths = [x.shape[axis] for axis in chosen]
    if not scales and sizes is None:
        raise ValueError("Resize needs scales or sizes; this node gives neither.")
    for name, values, expected in (("scales", scales, 1), ("sizes", sizes, 1), ("roi", roi, 2)):
        if values and len(values) != expected * len(chosen):
            raise ValueError(
                f"{name} has {len(values)} values where {len(chosen)} resized axes need "
                f"{expected * len(chosen)}."
            )
    if scales:
        factors = [float(scale) for scale in scales]
        targets = [_float32(scale * length) for scale, length in zip(factors, lengths, strict=True)]
    else:
        factors, targets = _from_sizes(sizes or (), lengths, policy)
    plans = []
    for i, (axis, length, factor, target) in enumerate(zip(chosen, lengths, factors, targets, strict=True)):
        start, end = (roi[i], roi[len(chosen) + i]) if roi else (0.0, 1.0)
        if factor < 0 or (length == 0 and target > 0):
            raise ValueError(f"axis {axis} of length {length} cannot be resized to length {int(target)}.")
        if int(target) != length or factor * length != length or (cropped and (start, end) != (0.0, 1.0)):
            plans.append(AxisPlan(axis, length, int(target), factor, start, end))
    return sorted(plans, key=lambda plan: plan.size_out / max(plan.size_in, 1))


def _float32(value: float) -> float:
    # Lengths follow the float32 product, as shape inference has them: 0.7 times 10 is 7.
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _from_sizes(sizes: Sequence[int], lengths: Sequence[int], policy: str) -> tuple[list[float], list[float]]:
    factors = [size / length if length else 1.0 for size, length in zip(sizes, lengths, strict=True)]
    if policy == "stretch" or not factors:
        return factors, [float(size) for size in sizes]
    if policy not in ("not_larger", "not_smaller"):
        raise ValueError(f"keep_aspect_ratio_policy {policy!r} is not stretch, not_larger or not_smaller.")
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [factor] * len(factors), [float(int(factor * length + 0.5)) for length in lengths]


def _nearest(x: Tensor, plans: list[AxisPlan], transform: str, rounding: str, fill: float | None) -> Tensor:
    if rounding in _ROUNDS_TO_BLOCK.get(transform, ()) and all(map(_is_whole, plans)):
        return _repeat(x, plans)
    if is_channels_last(x) and _spatial(plans):
        return turned_back(_nearest(turned(x), _turned(plans), transform, rounding, fill))
    for plan in plans:
        coordinates = interpolate.source_coordinates(plan, transform, x.device)
        index = interpolate.nearest_index(coordinates, plan.size_in, rounding)
        x = _filled(x.index_select(plan.axis, index), plan, coordinates, fill)
    return x


def _spatial(plans: list[AxisPlan]) -> bool:
    return min(plan.axis for plan in plans) >= 2


def _turned(plans: list[AxisPlan]) -> list[AxisPlan]:
    """The plans of spatial axes where the channels come last."""
    return [replace(plan, axis=plan.axis - 1) for plan in plans]


def _is_whole(plan: AxisPlan) -> bool:
    return plan.scale % 1 == 0 and plan.size_out == plan.scale * plan.size_in


def _repeat(x: Tensor, plans: list[AxisPlan]) -> Tensor:
    """Every sample of the planned axes repeated a whole number of times, in one copy."""
    if is_channels_last(x) and _spatial(plans):
        return turned_back(_repeat(turned(x), _turned(plans)))
    times = {plan.axis: int(plan.scale) for plan in plans}
    spread = x
    sizes: list[int] = []
    lengths: list[int] = []
    for axis in reversed(range(x.dim())):
        length, count = x.shape[axis], times.get(axis, 1)
        lengths.insert(0, length * count)
        if count != 1:
            spread = spread.unsqueeze(axis + 1)
            sizes[:0] = (length, count)
        else:
            sizes.insert(0, length)
    return spread.expand(sizes).reshape(lengths)


def _weighted(x: Tensor, plans: list[AxisPlan], transform: str, kind: Filter, fill: float | None) -> Tensor:
    fused = _fused(x, plans, transform, kind)
    if fused is not None:
        return fused
    if is_channels_last(x) and _spatial(plans):
        return turned_back(_weighted(turned(x), _turned(plans), transform, kind, fill))
    if x.dim() == 4 and {plan.axis for plan in plans} <= {1, 2}:
        # Images whose channels come last in the model are what torch calls channels last.
        images = [replace(plan, axis=plan.axis + 1) for plan in plans]
        fused = _fused(turned_back(x), images, transform, kind)
        if fused is not None:
            return turned(fused)
    exact = x.dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
    y = x if exact else x.to(torch.float32 if x.is_floating_point() else torch.float64)
    for plan in plans:
        coordinates = interpolate.source_coordinates(plan, transform, x.device)
        positions, weights = interpolate.taps(coordinates, plan, kind)
        y = _filled(interpolate.apply_taps(y, plan.axis, positions, weights), plan, coordinates, fill)
    return y if exact else _narrow(y, x.dtype)


def _fused(x: Tensor, plans: list[AxisPlan], transform: str, kind: Filter) -> Tensor | None:
    """torch's own interpolation where it computes the same; None elsewhere."""
    if x.dtype not in (torch.float32, torch.float64) or kind.antialias or kind.exclude_outside:
        return None
    rank = x.dim()
    if not 3 <= rank <= 5 or min(plan.axis for plan in plans) < 2 or x.numel() == 0:
        return None
    if transform not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        return None
    if kind.cubic and (rank != 4 or kind.coeff_a != -0.75):
        return None
    size = list(x.shape[2:])
    for plan in plans:
        if plan.scale * plan.size_in != plan.size_out or max(plan.size_in, plan.size_out) > _FUSED_LIMIT:
            return None
        if plan.size_out <= 1:
            return None
        size[plan.axis - 2] = plan.size_out
    mode = "bicubic" if kind.cubic else ("linear", "bilinear", "trilinear")[rank - 3]
    return F.interpolate(x, size, mode=mode, align_corners=transform == "align_corners")


def _filled(y: Tensor, plan: AxisPlan, coordinates: Tensor, fill: float | None) -> Tensor:
    if fill is None:
        return y
    mask = interpolate.outside(coordinates, plan.size_in)
    return pick(mask.reshape(-1, *(1,) * (y.dim() - plan.axis - 1)), y.new_full((), fill), y)


def _narrow(y: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return y.round() != 0
    if dtype.is_floating_point:
        return y.to(dtype)
    info = torch.iinfo(dtype)
    # The greatest 64-bit integers are no float64 values: clamp to the greatest that is below.
    top = min(float(info.max), float(2**63 - 1024))
    return y.round().clamp(float(info.min), top).to(torch.int64).to(dtype)
