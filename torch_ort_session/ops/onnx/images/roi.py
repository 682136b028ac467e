"""RoiAlign and MaxRoiPool: features of boxes.

Source: https://onnx.ai/onnx/operators/onnx__RoiAlign.html, https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common.checks import check_places, looks_at_floats
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel

# Elements that a step may hold at once: bounds memory, for the number of boxes is up to the model.
_CHUNK = 1 << 24


def _adaptive(node: Node) -> str | None:
    ratio = node.attributes.get("sampling_ratio", 0)
    if isinstance(ratio, int) and ratio > 0:
        return None
    return "the number of samples depends on the size of the boxes"


@kernel("RoiAlign", since=(16, 22), seam=_adaptive, checks=True, native=("check_range",))
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    ctx: KernelContext,
) -> Tensor:
    """Pool boxes to one size from bilinear samples.

    Source: https://onnx.ai/onnx/operators/onnx__RoiAlign.html

    Args:
        x: ``[batch, channels, height, width]``.
        rois: ``[boxes, 4]``: x1, y1, x2, y2.
        batch_indices: int64 ``[boxes]``.
        coordinate_transformation_mode: ``half_pixel`` or ``output_half_pixel``.
        mode: ``avg``, or ``max`` of the weighted corners of all samples.
        output_height: Height of the result.
        output_width: Width of the result.
        sampling_ratio: Samples along each side of a cell; 0 takes as many as the cell is long.
        spatial_scale: From box coordinates to those of ``x``.
        ctx: Checks the batch indices.

    Returns:
        ``[boxes, channels, output_height, output_width]`` in the dtype of ``x``.

    Raises:
        ValueError: An attribute is not known.
    """
    if mode not in ("avg", "max") or coordinate_transformation_mode not in (
        "half_pixel",
        "output_half_pixel",
    ):
        raise ValueError(
            f"mode {mode!r} with coordinate_transformation_mode {coordinate_transformation_mode!r} is not "
            "defined by RoiAlign."
        )
    batch, channels, height, width = x.shape
    boxes, dtype = rois.shape[0], x.dtype
    if boxes == 0 or x.numel() == 0:
        return x.new_zeros(boxes, channels, output_height, output_width)
    if dtype in (torch.float16, torch.bfloat16):
        x, rois = x.to(torch.float32), rois.to(torch.float32)
    aligned = coordinate_transformation_mode == "half_pixel"
    scaled = rois * spatial_scale - (0.5 if aligned else 0.0)
    columns = _samples(scaled[:, 0], scaled[:, 2], width, output_width, sampling_ratio, aligned)
    rows = _samples(scaled[:, 1], scaled[:, 3], height, output_height, sampling_ratio, aligned)
    index = check_places(batch_indices, batch, Flag.INDEX, ctx)
    # Sampled positions of a cell: row samples by column samples by the two neighbours of each.
    place = (index[:, None, None, None, None] * height + rows[0][:, :, None, :, None]) * width
    place = place + columns[0][:, None, :, None, :]
    weight = rows[1][:, :, None, :, None] * columns[1][:, None, :, None, :]
    cells = boxes * output_height * output_width
    place, weight = place.reshape(cells, -1), weight.reshape(cells, -1)
    features = x.permute(0, 2, 3, 1).reshape(-1, channels)
    if mode == "avg":
        pooled = F.embedding_bag(place, features, mode="sum", per_sample_weights=weight)
        counts = (rows[2] * columns[2]).clamp(min=1).to(pooled.dtype)
        pooled = pooled.reshape(boxes, -1, channels) / counts[:, None, None]
    else:
        valid = rows[3][:, :, None, :, None] & columns[3][:, None, :, None, :]
        pooled = _greatest(features, place, weight, valid.expand(rows[3].shape[:2] + valid.shape[2:]))
    pooled = pooled.reshape(boxes, output_height, output_width, channels)
    return pooled.permute(0, 3, 1, 2).to(dtype)


@kernel("RoiAlign", since=(10,), seam=_adaptive, checks=True, native=("check_range",))
def roi_align_10(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    ctx: KernelContext,
) -> Tensor:
    """The first revision, without the half-pixel shift; see :func:`roi_align`."""
    return roi_align(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
        ctx=ctx,
    )


@kernel("MaxRoiPool", since=(1, 22), checks=looks_at_floats, native=("check_range",))
def max_roi_pool(
    x: Tensor, rois: Tensor, *, pooled_shape: list[int], spatial_scale: float = 1.0, ctx: KernelContext
) -> Tensor:
    """Greatest values in the cells of boxes on whole samples.

    Source: https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html

    Args:
        x: ``[batch, channels, height, width]``.
        rois: ``[boxes, 5]``: batch index, x1, y1, x2, y2, both corners inside.
        pooled_shape: Height and width of the result.
        spatial_scale: From box coordinates to those of ``x``.
        ctx: Checks the batch indices.

    Returns:
        ``[boxes, channels, *pooled_shape]``; a cell without samples is 0.
    """
    batch, channels, height, width = x.shape
    boxes = rois.shape[0]
    if boxes == 0 or x.numel() == 0:
        return x.new_zeros(boxes, channels, *pooled_shape)
    index = check_places(rois[:, 0].to(torch.int64), batch, Flag.INDEX, ctx)
    corners = rois[:, 1:].to(torch.float32) * spatial_scale
    corners = torch.where(corners < 0, (corners - 0.5).ceil(), (corners + 0.5).floor())
    columns = _covered(corners[:, 0], corners[:, 2], width, pooled_shape[1])
    rows = _covered(corners[:, 1], corners[:, 3], height, pooled_shape[0])
    step = max(1, _CHUNK // (channels * height * width))
    parts = []
    for start in range(0, boxes, step):
        chosen = slice(start, start + step)
        pooled = _pool_last(x.index_select(0, index[chosen]), columns[chosen])
        parts.append(_pool_last(pooled.mT, rows[chosen]).mT)
    result = torch.cat(parts)
    return result.masked_fill(result == -torch.inf, 0.0)


def _covered(first: Tensor, last: Tensor, size: int, cells: int) -> Tensor:
    """Which samples of an axis each cell of each box covers; bool ``[boxes, cells, size]``."""
    extent = (last - first + 1).clamp(min=1) / cells
    cell = torch.arange(cells, device=first.device)
    begin = (cell * extent[:, None]).floor() + first[:, None]
    end = ((cell + 1) * extent[:, None]).ceil() + first[:, None]
    at = torch.arange(size, device=first.device)
    return (at >= begin[:, :, None]) & (at < end[:, :, None])


def _pool_last(x: Tensor, covered: Tensor) -> Tensor:
    """Maximum over the covered samples of the last axis: ``[boxes, channels, rows, cells]``."""
    cells = [
        x.masked_fill(~covered[:, None, None, cell], -torch.inf).amax(-1) for cell in range(covered.shape[1])
    ]
    return torch.stack(cells, -1)


def _samples(
    start: Tensor, end: Tensor, size: int, cells: int, ratio: int, aligned: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples of one axis: the two neighbours of each, ``[boxes, cells, 2 * samples]``, with their weights.

    Returns:
        Positions, weights (zero for samples outside), the number of samples of a cell of each box, and which
        samples belong to their cell.
    """
    extent = end - start if aligned else (end - start).clamp(min=1)
    cell = extent / cells
    count = torch.full_like(extent, ratio) if ratio > 0 else cell.ceil().clamp(min=0)
    most = ratio if ratio > 0 else int(count.max())
    step = torch.arange(most, device=start.device, dtype=start.dtype)
    offset = (step + 0.5) * (cell / count.clamp(min=1))[:, None]
    places = torch.arange(cells, device=start.device, dtype=start.dtype)
    at = start[:, None, None] + (places * cell[:, None])[:, :, None] + offset[:, None]
    belongs = (step < count[:, None])[:, None].expand_as(at)
    inside = belongs & (at >= -1) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor()
    part = at - low
    positions = torch.stack((low, (low + 1).clamp(max=size - 1)), -1).to(torch.int64)
    weights = torch.stack((1 - part, part), -1).masked_fill(~inside[..., None], 0.0)
    return positions.flatten(2), weights.flatten(2), count, belongs.repeat_interleave(2, 2)


def _greatest(features: Tensor, place: Tensor, weight: Tensor, valid: Tensor) -> Tensor:
    """Greatest weighted feature of each cell, 0 for a cell without samples: ``[cells, channels]``."""
    cells, taps = place.shape
    if taps == 0:
        return features.new_zeros(cells, features.shape[1])
    valid = valid.reshape(cells, taps)
    parts = []
    step = max(1, _CHUNK // (taps * features.shape[1]))
    for start in range(0, cells, step):
        chosen = slice(start, start + step)
        values = features[place[chosen]] * weight[chosen, :, None]
        parts.append(values.masked_fill(~valid[chosen, :, None], -torch.inf).amax(1))
    return torch.cat(parts) * valid.any(1, keepdim=True)
