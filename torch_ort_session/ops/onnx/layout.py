"""Where elements lie: Transpose, Expand, Tile, DepthToSpace, SpaceToDepth, ReverseSequence, Trilu.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import bits, strings
from torch_ort_session.ops.common.checks import check_range
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("Transpose", since=(1, 13, 21, 23, 24, 25), view_of="data")
def transpose(data: Tensor, *, perm: list[int] | None = None) -> Tensor:
    """``data`` with its dims in the order ``perm``, reversed without one.

    Source: https://onnx.ai/onnx/operators/onnx__Transpose.html
    """
    if not isinstance(data, Tensor):
        return strings.by_position(transpose, data, perm=perm)
    return data.permute(perm if perm is not None else tuple(range(data.dim() - 1, -1, -1)))


@kernel("Expand", since=(8, 13), host=("shape",), view_of="input")
def expand(input: Tensor, shape: list[int]) -> Tensor:
    """``input`` broadcast with ``shape``, both ways: 1 in ``shape`` keeps the dim of the input.

    Source: https://onnx.ai/onnx/operators/onnx__Expand.html
    """
    if not isinstance(input, Tensor):
        return strings.by_position(expand, input, shape)
    # A result of expand() has as many dims as the target: a target of lower rank gets leading ones.
    lead = len(shape) - input.dim()
    if 1 in shape or lead < 0:
        target = [-1] * -lead + [-1 if size == 1 and i >= lead else size for i, size in enumerate(shape)]
        return input.expand(target)
    return input.expand(shape)


@kernel("Tile", since=(6, 13), host=("repeats",))
def tile(input: Tensor, repeats: list[int]) -> Tensor:
    """``input`` repeated along every dim.

    Raises:
        ValueError: There is not one count a dim.

    Source: https://onnx.ai/onnx/operators/onnx__Tile.html
    """
    if not isinstance(input, Tensor):
        return strings.by_position(tile, input, repeats)
    if len(repeats) != input.dim():
        raise ValueError(f"repeats {repeats} needs one count for each of the {input.dim()} dims of the input")
    return input.repeat(repeats)


@kernel("Tile", since=(1,), host=("tiles", "axis"))
def tile_legacy(input: Tensor, tiles: float, axis: float) -> Tensor:
    """``input`` repeated along one axis; both numbers come in the input's own element type.

    Source: https://onnx.ai/onnx/operators/onnx__Tile.html#tile-1
    """
    repeats = [1] * input.dim()
    repeats[int(axis)] = int(tiles)
    return input.repeat(repeats)


@kernel("DepthToSpace", since=(1, 11, 13, 28))
def depth_to_space(input: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """[n, c, h, w] to [n, c / b^2, h b, w b]: blocks of channels become blocks of pixels.

    Args:
        input: The image.
        blocksize: b.
        mode: ``"DCR"`` (the block index varies slowest in the channels) or ``"CRD"`` (fastest).

    Raises:
        ValueError: The channels are not a multiple of b^2, or the mode is another.

    Source: https://onnx.ai/onnx/operators/onnx__DepthToSpace.html
    """
    if not isinstance(input, Tensor):
        return strings.by_position(depth_to_space, input, blocksize=blocksize, mode=mode)
    n, c, h, w = input.shape
    b = blocksize
    if b < 1 or c % (b * b):
        raise ValueError(f"{c} channels are not a multiple of blocksize {b} squared")
    depth = c // (b * b)
    if mode == "DCR":
        blocks = input.reshape(n, b, b, depth, h, w).permute(0, 3, 4, 1, 5, 2)
    elif mode == "CRD":
        blocks = input.reshape(n, depth, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    else:
        raise ValueError(f"mode {mode!r} is neither 'DCR' nor 'CRD'")
    return blocks.reshape(n, depth, h * b, w * b)


@kernel("SpaceToDepth", since=(1, 13, 28))
def space_to_depth(input: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """[n, c, h, w] to [n, c b^2, h / b, w / b]: blocks of pixels become blocks of channels.

    Args:
        input: The image.
        blocksize: b.
        mode: ``"DCR"`` (the block index varies slowest in the channels) or ``"CRD"`` (fastest).

    Raises:
        ValueError: A side is not a multiple of b, or the mode is another.

    Source: https://onnx.ai/onnx/operators/onnx__SpaceToDepth.html
    """
    if not isinstance(input, Tensor):
        return strings.by_position(space_to_depth, input, blocksize=blocksize, mode=mode)
    n, c, h, w = input.shape
    b = blocksize
    if b < 1 or h % b or w % b:
        raise ValueError(f"a {h} by {w} image does not divide into blocks of size {b}")
    blocks = input.reshape(n, c, h // b, b, w // b, b)
    if mode == "DCR":
        blocks = blocks.permute(0, 3, 5, 1, 2, 4)
    elif mode == "CRD":
        blocks = blocks.permute(0, 1, 3, 5, 2, 4)
    else:
        raise ValueError(f"mode {mode!r} is neither 'DCR' nor 'CRD'")
    return blocks.reshape(n, c * b * b, h // b, w // b)


@kernel("ReverseSequence", since=(10, 28), checks=True, native=("check_range",))
def reverse_sequence(
    input: Tensor, sequence_lens: Tensor, *, batch_axis: int = 1, time_axis: int = 0, ctx: KernelContext
) -> Tensor:
    """The first ``sequence_lens[b]`` steps of each batch entry in reverse order, the others in place.

    Args:
        input: Any tensor of rank 2 or more.
        sequence_lens: int64 [batch], each in [0, time].
        batch_axis: Axis of the batch.
        time_axis: Axis of the steps.
        ctx: Where a length that does not fit is reported.

    Source: https://onnx.ai/onnx/operators/onnx__ReverseSequence.html
    """
    if not isinstance(input, Tensor):
        move = strings.by_position
        axes = {"batch_axis": batch_axis, "time_axis": time_axis}
        return move(reverse_sequence, input, sequence_lens, **axes, ctx=ctx)
    batch_axis, time_axis = batch_axis % input.dim(), time_axis % input.dim()
    steps = torch.arange(input.shape[time_axis], device=input.device)
    lengths = check_range(sequence_lens, 0, input.shape[time_axis], Flag.LENGTH, ctx).unsqueeze(1)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    source = source.t() if batch_axis > time_axis else source
    if batch_axis + time_axis == 1:
        # Whole rows are copied, each by its place among all of them, which gather checks.
        count = source.numel()
        places = torch.arange(count, device=input.device).reshape(source.shape)
        return bits.movable(_rows, input, places.gather(time_axis, source).reshape(count))
    dims = [1] * input.dim()
    dims[batch_axis], dims[time_axis] = sequence_lens.shape[0], input.shape[time_axis]
    return bits.movable(torch.gather, input, time_axis, source.reshape(dims).expand(input.shape))


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """Rows of ``x`` [A, B, ...] by their places among the A * B that there are, in its shape."""
    return x.flatten(0, 1).index_select(0, places).reshape(x.shape)


@kernel("Trilu", since=(14,), host=("k",))
def trilu(input: Tensor, k: int | None = None, *, upper: int = 1) -> Tensor:
    """The upper or lower triangle of the last two dims, the rest zero.

    Args:
        input: Any tensor of rank 2 or more.
        k: The diagonal to cut at; 0 is the main one, a positive one lies above it.
        upper: 1 keeps what lies on and above it, 0 what lies on and below.

    Source: https://onnx.ai/onnx/operators/onnx__Trilu.html
    """
    return bits.movable(torch.triu if upper else torch.tril, input, k or 0)
