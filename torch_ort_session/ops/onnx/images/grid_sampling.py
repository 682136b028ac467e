"""Sampling at free coordinates, in any number of dimensions; what torch's own grid sampling does not cover.

Source: https://onnx.ai/onnx/operators/onnx__GridSample.html
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

_CUBIC_A = -0.75


@dataclass(frozen=True, slots=True)
class GridRule:
    """How a grid is read.

    Attributes:
        mode: ``nearest``, ``linear`` or ``cubic``.
        padding: ``zeros``, ``border`` or ``reflection``.
        align_corners: Whether -1 and 1 are the centres of the outer samples rather than their outer edges.
    """

    mode: str
    padding: str
    align_corners: bool


def sample(x: Tensor, grid: Tensor, rule: GridRule) -> Tensor:
    """Samples of ``x`` at the grid's coordinates.

    Args:
        x: ``[batch, channels, *spatial]``, at least one element, of a dtype to compute in.
        grid: ``[batch, *result, dims]`` normalised coordinates, the last spatial axis first.
        rule: How to read the grid.

    Returns:
        ``[batch, channels, *result]``.
    """
    batch, channels, *spatial = x.shape
    points = grid.reshape(batch, -1, len(spatial))
    axes = [_axis(points[:, :, -1 - d], size, rule) for d, size in enumerate(spatial)]
    flat = x.reshape(batch, channels, -1)
    total: Tensor | None = None
    for corner in itertools.product(*axes):
        index, weight, inside = corner[0]
        for size, (position, factor, within) in zip(spatial[1:], corner[1:], strict=True):
            index = index * size + position
            weight = None if weight is None or factor is None else weight * factor
            inside = within if inside is None else inside if within is None else inside & within
        value = flat.gather(2, index[:, None].expand(-1, channels, -1))
        if inside is not None:
            value = torch.where(inside[:, None], value, value.new_zeros(()))
        if weight is not None:
            value = value * weight[:, None].to(value.dtype)
        total = value if total is None else total + value
    assert total is not None
    return total.reshape(batch, channels, *grid.shape[1:-1])


_Tap = tuple[Tensor, Tensor | None, Tensor | None]
"""Position, weight and whether it lies inside; a missing weight is one, a missing third means yes."""


def _axis(normalised: Tensor, size: int, rule: GridRule) -> list[_Tap]:
    """The samples of one axis that each point needs."""
    if rule.align_corners:
        low, high = 0.0, size - 1.0
        at = (normalised + 1) / 2 * (size - 1)
    else:
        low, high = -0.5, size - 0.5
        at = ((normalised + 1) * size - 1) / 2
    if rule.mode == "nearest":
        at = at.round()
    # At a border cubic samples are clamped one by one instead, as torch and onnxruntime have it.
    if rule.padding == "reflection" or (rule.padding == "border" and rule.mode != "cubic"):
        moved = at.clamp(0, size - 1) if rule.padding == "border" else _reflect(at, low, high)
        at = torch.where((at < low) | (at > high), moved, at)
    if rule.mode == "nearest":
        return [_tap(at, None, size, low, high, rule)]
    floor = at.floor()
    part = at - floor
    weights = [1 - part, part] if rule.mode == "linear" else _cubic(part)
    first = 0 if rule.mode == "linear" else -1
    return [_tap(floor + (first + i), w, size, low, high, rule) for i, w in enumerate(weights)]


def _tap(at: Tensor, weight: Tensor | None, size: int, low: float, high: float, rule: GridRule) -> _Tap:
    inside = None
    if rule.padding == "zeros":
        inside = (at >= 0) & (at < size)
    elif rule.padding == "reflection":
        at = torch.where((at < low) | (at > high), _reflect(at, low, high), at)
    # Clamped as an integer too, so that a NaN never becomes an index.
    return at.to(torch.int64).clamp(0, size - 1), weight, inside


def _reflect(at: Tensor, low: float, high: float) -> Tensor:
    extent = high - low
    if extent == 0:
        return torch.full_like(at, low)
    distance = (at - low).abs()
    turns = (distance / extent).floor()
    rest = distance - turns * extent
    return torch.where(turns % 2 == 0, low + rest, high - rest)


def _cubic(part: Tensor) -> list[Tensor]:
    a = _CUBIC_A

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]
