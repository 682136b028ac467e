"""Joining and parting tensors along an axis: Concat, Split.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.images.layout import is_channels_last_1d


@kernel("Concat", since=(4, 11, 13))
def concat(*inputs: Tensor, axis: int) -> Tensor:
    """The inputs one after the other along ``axis``.

    Source: https://onnx.ai/onnx/operators/onnx__Concat.html
    """
    if not isinstance(inputs[0], Tensor):
        return strings.by_position(concat, *inputs, axis=axis)
    if all(map(is_channels_last_1d, inputs)):
        # torch knows the order of images only.
        images = [x.unsqueeze(2) for x in inputs]
        return torch.cat(images, 3 if axis in (2, -1) else axis % 3).squeeze(2)
    return torch.cat(inputs, axis)


@kernel("Concat", since=(1,))
def concat_legacy(*inputs: Tensor, axis: int = 1) -> Tensor:
    """Concat when the axis had a default.

    Source: https://onnx.ai/onnx/operators/onnx__Concat.html#concat-1
    """
    return torch.cat(inputs, axis)


@kernel("Split", since=(18,), host=("split",), view_of="input")
def split(
    input: Tensor,
    split: list[int] | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, ...]:
    """Parts of ``input`` along ``axis``.

    Args:
        input: Any tensor or strings.
        split: Size of each part; without it the parts are equal, but for a shorter last one.
        axis: The axis.
        num_outputs: How many equal parts; the number of the node's outputs when it is not given.
        ctx: Tells the number of outputs.

    Raises:
        ValueError: The sizes do not sum to the axis.

    Source: https://onnx.ai/onnx/operators/onnx__Split.html
    """
    if split is None:
        length = input.shape[axis]
        count = num_outputs or len(ctx.node.outputs)
        chunk = -(-length // count)
        split = [min(chunk, max(0, length - chunk * i)) for i in range(count)]
    return parts(input, split, axis)


@kernel("Split", since=(13,), host=("split",), view_of="input")
def split_even(
    input: Tensor, split: list[int] | None = None, *, axis: int = 0, ctx: KernelContext
) -> tuple[Tensor, ...]:
    """Split before ``num_outputs``: parts without sizes must be equal.

    Source: https://onnx.ai/onnx/operators/onnx__Split.html#split-13
    """
    return parts(input, _even(input, axis, ctx) if split is None else split, axis)


@kernel("Split", since=(2, 11), view_of="input")
def split_attribute(
    input: Tensor, *, axis: int = 0, split: list[int] | None = None, ctx: KernelContext
) -> tuple[Tensor, ...]:
    """Split with the sizes as an attribute.

    Source: https://onnx.ai/onnx/operators/onnx__Split.html#split-11
    """
    return parts(input, _even(input, axis, ctx) if split is None else split, axis)


@kernel("Split", since=(1,), host=("sizes",), view_of="input")
def split_legacy(
    input: Tensor,
    sizes: list[float] | None = None,
    *,
    axis: int = 0,
    split: list[int] | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, ...]:
    """Split with the sizes as an attribute or as an input of the input's own element type.

    Source: https://onnx.ai/onnx/operators/onnx__Split.html#split-1
    """
    if sizes is not None:
        split = [int(size) for size in sizes]
    return parts(input, _even(input, axis, ctx) if split is None else split, axis)


def _even(input: Tensor, axis: int, ctx: KernelContext) -> list[int]:
    count = len(ctx.node.outputs)
    length = input.shape[axis]
    if length % count:
        raise ValueError(f"axis {axis} of size {length} does not split into {count} equal parts")
    return [length // count] * count


def parts(input: Tensor, sizes: list[int], axis: int) -> tuple[Tensor, ...]:
    """Parts of a tensor or of strings along an axis, of the given sizes, which sum to its length."""
    if not isinstance(input, Tensor):
        return strings.by_position(parts, input, sizes, axis)
    return torch.split(input, sizes, axis)
