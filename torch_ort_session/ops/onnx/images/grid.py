"""GridSample and AffineGrid.

Source: https://onnx.ai/onnx/operators/onnx__GridSample.html, https://onnx.ai/onnx/operators/onnx__AffineGrid.html
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_ort_session.ops.common.strings import by_position
from torch_ort_session.ops.common.widen import with_bits
from torch_ort_session.ops.kernel import Strings, kernel
from torch_ort_session.ops.onnx.images import grid_sampling
from torch_ort_session.ops.onnx.images.grid_sampling import GridRule

_MODES = {
    "linear": "linear",
    "bilinear": "linear",
    "nearest": "nearest",
    "cubic": "cubic",
    "bicubic": "cubic",
}
_TORCH_MODES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


@kernel("GridSample", since=(20, 22))
def grid_sample(
    x: Tensor | Strings,
    grid: Tensor,
    *,
    mode: str = "linear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Tensor:
    """Samples of ``x`` at the grid's coordinates.

    Source: https://onnx.ai/onnx/operators/onnx__GridSample.html

    Args:
        x: ``[batch, channels, *spatial]``; strings in mode ``nearest`` only, empty outside.
        grid: ``[batch, *result, dims]`` with coordinates in -1 to 1, the last spatial axis first.
        mode: ``linear``, ``nearest`` or ``cubic``.
        padding_mode: ``zeros``, ``border`` or ``reflection``.
        align_corners: Whether -1 and 1 are the centres of the outer samples rather than their outer edges.

    Returns:
        ``[batch, channels, *result]`` in the dtype of ``x``.

    Raises:
        ValueError: A mode is not known or the shapes do not fit together.
    """
    if not isinstance(x, Tensor):
        if mode != "nearest":
            raise ValueError(f"strings cannot be mixed, as mode {mode!r} would.")

        def move(place: Tensor) -> Tensor:
            # Zero is what lies outside, -1 the place of an empty string.
            return (
                grid_sample(
                    place + 1, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners
                )
                - 1
            )

        return by_position(move, x)
    if x.dim() < 3 or grid.dim() != x.dim() or grid.shape[-1] != x.dim() - 2 or grid.shape[0] != x.shape[0]:
        raise ValueError(
            f"X {list(x.shape)} and grid {list(grid.shape)} do not fit: a grid is "
            "[batch, *result, dims of X]."
        )
    if mode not in _MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"mode {mode!r} with padding_mode {padding_mode!r} is not defined by GridSample.")
    rule = GridRule(_MODES[mode], padding_mode, bool(align_corners))
    shape = (*x.shape[:2], *grid.shape[1:-1])
    if 0 in shape or x.numel() == 0:
        return x.new_zeros(shape)
    exact = x.dtype in (torch.float32, torch.float64)
    if exact and x.dtype == grid.dtype and _is_torchs(x.dim(), rule):
        return F.grid_sample(x, grid, _TORCH_MODES[rule.mode], padding_mode, rule.align_corners)
    if grid.dtype not in (torch.float32, torch.float64):
        grid = grid.to(torch.float32)
    if rule.mode == "nearest":
        return with_bits(lambda bits: grid_sampling.sample(bits, grid, rule), x)
    if exact or x.is_complex():
        return grid_sampling.sample(x, grid, rule)
    wide = x.to(torch.float32 if x.is_floating_point() else torch.float64)
    y = grid_sampling.sample(wide, grid, rule)
    return y.to(x.dtype) if x.is_floating_point() else y.round().to(torch.int64).to(x.dtype)


@kernel("GridSample", since=(16,))
def grid_sample_16(
    x: Tensor | Strings,
    grid: Tensor,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: int = 0,
) -> Tensor:
    """The first revision, whose modes are called ``bilinear`` and ``bicubic``; see :func:`grid_sample`."""
    return grid_sample(x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


@kernel("AffineGrid", since=(20,), host=("size",))
def affine_grid(theta: Tensor, size: list[int], *, align_corners: int = 0) -> Tensor:
    """A sampling grid from affine matrices.

    Source: https://onnx.ai/onnx/operators/onnx__AffineGrid.html

    Args:
        theta: ``[batch, 2, 3]`` or ``[batch, 3, 4]``.
        size: Size of the image to be sampled to, ``[batch, channels, *spatial]``.
        align_corners: As in GridSample.

    Returns:
        ``[batch, *spatial, dims]`` in the dtype of ``theta``.

    Raises:
        ValueError: The matrices do not fit the size.
    """
    dims = len(size) - 2
    if tuple(theta.shape[1:]) != (dims, dims + 1) or theta.dim() != 3 or dims not in (2, 3):
        raise ValueError(f"theta {list(theta.shape)} does not fit the size {size}.")
    if theta.dtype in (torch.float32, torch.float64):
        return torch.affine_grid_generator(theta, size, bool(align_corners))
    wide = torch.affine_grid_generator(theta.to(torch.float32), size, bool(align_corners))
    return wide.to(theta.dtype)


def _is_torchs(rank: int, rule: GridRule) -> bool:
    """Whether torch's grid sampling computes the same; it reflects before it rounds to the nearest."""
    if rule.mode == "nearest" and rule.padding == "reflection":
        return False
    return rank == 4 or (rank == 5 and rule.mode != "cubic")
