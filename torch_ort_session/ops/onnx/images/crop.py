"""CenterCropPad, and Col2Im: columns of blocks summed into an image.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops.common import bits
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx.pad import pad


@kernel("CenterCropPad", since=(18,), host=("shape",))
def center_crop_pad(input_data: Tensor, shape: list[int], *, axes: list[int] | None = None) -> Tensor:
    """``input_data`` cut to, or padded with zeros to, ``shape``, its middle kept in the middle.

    Args:
        input_data: Tensor or strings.
        shape: The sizes wanted, one for each axis.
        axes: The axes; all when not given.

    Raises:
        ValueError: There are not as many sizes as axes.

    Source: https://onnx.ai/onnx/operators/onnx__CenterCropPad.html
    """
    axes = list(range(len(input_data.shape))) if axes is None else axes
    if len(axes) != len(shape):
        raise ValueError(f"shape {shape} needs one size for each of the axes {axes}")
    # An odd element goes to the end when it is put there, and stays there when it is cut.
    missing = [size - input_data.shape[axis] for axis, size in zip(axes, shape, strict=True)]
    before = [int(count / 2) for count in missing]
    after = [count - half for count, half in zip(missing, before, strict=True)]
    return pad(input_data, before + after, axes=axes)


@kernel("Col2Im", since=(18,), host=("image_shape", "block_shape"))
def col2im(
    input: Tensor,
    image_shape: list[int],
    block_shape: list[int],
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Columns [n, c x block, places] summed where their blocks lie in an image [n, c, *image_shape].

    Args:
        input: The columns.
        image_shape: Sizes of the image, of any number of spatial dims.
        block_shape: Sizes of a block.
        dilations: Distance of the elements of a block, 1 without it.
        pads: Border around the image that blocks also cover: all begins, then all ends.
        strides: Distance of the blocks, 1 without it.

    Raises:
        ValueError: The number of columns does not fit the image.

    Source: https://onnx.ai/onnx/operators/onnx__Col2Im.html
    """
    rank = len(image_shape)
    dilations = dilations or [1] * rank
    strides = strides or [1] * rank
    pads = pads or [0] * (2 * rank)
    padded = [size + pads[i] + pads[i + rank] for i, size in enumerate(image_shape)]
    reach = [(block - 1) * step + 1 for block, step in zip(block_shape, dilations, strict=True)]
    counts = [(padded[i] - reach[i]) // strides[i] + 1 for i in range(rank)]
    batch, rows, columns = input.shape
    block = math.prod(block_shape)
    if columns != math.prod(counts) or rows % block:
        raise ValueError(
            f"columns of shape {tuple(input.shape)} do not fit blocks of {block_shape} at {counts} places"
        )
    index = torch.zeros([1] * (2 * rank), dtype=torch.int64, device=input.device)
    for i in range(rank):
        inner = torch.arange(block_shape[i], device=input.device) * dilations[i]
        outer = torch.arange(counts[i], device=input.device) * strides[i]
        inner = inner.reshape([-1 if j == i else 1 for j in range(2 * rank)])
        outer = outer.reshape([-1 if j == i + rank else 1 for j in range(2 * rank)])
        index = index * padded[i] + inner + outer
    channels = rows // block
    flat = input.reshape(batch, channels, block * columns)
    empty = torch.zeros(batch, channels, math.prod(padded), dtype=input.dtype, device=input.device)
    image = bits.widened(_sum_at, empty, flat, index.reshape(-1)).reshape(batch, channels, *padded)
    inside = tuple(slice(pads[i], pads[i] + size) for i, size in enumerate(image_shape))
    return image[(slice(None), slice(None), *inside)]


def _sum_at(image: Tensor, values: Tensor, index: Tensor) -> Tensor:
    return image.index_add(2, index, values)
