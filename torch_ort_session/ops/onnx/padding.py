"""Padding that repeats elements of the tensor itself."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from torch_ort_session.ops.common import bits

_TORCH_MODE = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}


def pad_indexed(data: Tensor, pads: list[int], mode: str) -> Tensor:
    """Pad by elements of ``data``, for any rank and dtype; negative pads cut first.

    Args:
        data: The tensor.
        pads: All begins, then all ends, one for each dim.
        mode: ``"edge"``, ``"reflect"`` or ``"wrap"``.

    Raises:
        ValueError: A dim without elements cannot be padded.
    """
    rank = data.dim()
    if _pads_images(data, pads, mode):
        return functional.pad(data, [pads[3], pads[7], pads[2], pads[6]], _TORCH_MODE[mode])
    for axis in range(rank):
        before, after = pads[axis], pads[axis + rank]
        if before < 0 or after < 0:
            data = data[(slice(None),) * axis + (slice(max(-before, 0), data.shape[axis] + min(after, 0)),)]
            before, after = max(before, 0), max(after, 0)
        size = data.shape[axis]
        if not before and not after:
            continue
        if size == 0:
            raise ValueError(f"mode {mode!r} cannot pad axis {axis}: it has no elements")
        reach = size if mode == "wrap" else size - 1
        last = axis == rank - 1 and rank in (2, 3) and data.is_floating_point() and data.itemsize > 1
        if last and data.numel() and (mode == "edge" or max(before, after) <= reach):
            data = functional.pad(data, [before, after], _TORCH_MODE[mode])
        else:
            places = _places(size, before, after, mode, data.device)
            data = bits.movable(torch.index_select, data, axis, places)
    return data


def _pads_images(data: Tensor, pads: list[int], mode: str) -> bool:
    """Whether torch pads height and width of images [N, C, H, W] at once."""
    if data.dim() != 4 or mode == "wrap" or data.dtype not in (torch.float32, torch.float64):
        return False
    if min(pads) < 0 or any(pads[axis] or pads[axis + 4] for axis in (0, 1)) or not data.numel():
        return False
    return mode == "edge" or all(max(pads[axis], pads[axis + 4]) < data.shape[axis] for axis in (2, 3))


def _places(size: int, before: int, after: int, mode: str, device: torch.device) -> Tensor:
    places = torch.arange(-before, size + after, device=device)
    if mode == "edge":
        return places.clamp(0, size - 1)
    if mode == "wrap":
        return places.remainder(size)
    if size == 1:
        return torch.zeros_like(places)
    # A reflection repeats after it has gone to the end and back, the two ends counted once.
    period = 2 * (size - 1)
    there = places.remainder(period)
    return torch.minimum(there, period - there)
