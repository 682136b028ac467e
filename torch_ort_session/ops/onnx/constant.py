"""Tensors from attributes and sizes: Constant, ConstantOfShape, EyeLike, Range, OneHot.

Source: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common import strings
from torch_ort_session.ops.common.widen import pick
from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.signature import Scalar


@kernel("Constant", since=(12, 13, 19, 21, 23, 24, 25))
def constant(
    *,
    value: Tensor | None = None,
    sparse_value: Tensor | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Tensor:
    """The one attribute that is given, as a tensor on the CPU: 0-d for a single value, 1-D for a list.

    Loading turns the node into an initializer, which the session places.

    Raises:
        ValueError: No attribute is given.

    Source: https://onnx.ai/onnx/operators/onnx__Constant.html
    """
    tensor = value if value is not None else sparse_value
    if tensor is not None:
        return tensor
    integers = value_int if value_int is not None else value_ints
    if integers is not None:
        return torch.tensor(integers, dtype=torch.int64)
    floats = value_float if value_float is not None else value_floats
    if floats is not None:
        return torch.tensor(floats, dtype=torch.float32)
    if value_string is not None:
        return strings.as_tensor(strings.array([value_string], ()))
    if value_strings is not None:
        return strings.as_tensor(strings.array(value_strings))
    raise ValueError("a Constant needs one of its value attributes")


@kernel("Constant", since=(11,))
def constant_or_sparse(*, value: Tensor | None = None, sparse_value: Tensor | None = None) -> Tensor:
    """Constant before it took plain numbers and strings.

    Source: https://onnx.ai/onnx/operators/onnx__Constant.html#constant-11
    """
    return constant(value=value, sparse_value=sparse_value)


@kernel("Constant", since=(1, 9))
def constant_tensor(*, value: Tensor) -> Tensor:
    """Constant when it took a tensor only.

    Source: https://onnx.ai/onnx/operators/onnx__Constant.html#constant-9
    """
    return constant(value=value)


@kernel("ConstantOfShape", since=(9, 20, 21, 23, 24, 25), host=("input",))
def constant_of_shape(input: list[int], *, value: Tensor | None = None, ctx: KernelContext) -> Tensor:
    """A tensor of shape ``input`` filled with the one element of ``value``; float32 zeros without it.

    Source: https://onnx.ai/onnx/operators/onnx__ConstantOfShape.html
    """
    if value is None:
        return torch.zeros(input, dtype=torch.float32, device=ctx.device)
    filled = torch.empty(input, dtype=value.dtype, device=ctx.device)
    return filled.copy_(value if input else value.reshape(()))


@kernel("EyeLike", since=(9, 22))
def eye_like(input: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """A matrix of the shape of ``input`` with ones on diagonal ``k`` and zeros elsewhere.

    Args:
        input: The matrix whose shape counts.
        dtype: ONNX code of the element type; that of ``input`` without it.
        k: The diagonal; a positive one lies above the main one.

    Raises:
        ValueError: ``input`` is no matrix.

    Source: https://onnx.ai/onnx/operators/onnx__EyeLike.html
    """
    if input.dim() != 2:
        raise ValueError(f"EyeLike needs a matrix, not an input of shape {tuple(input.shape)}")
    target = input.dtype if dtype is None else ElementType(dtype).torch_dtype
    y = torch.zeros(input.shape, dtype=target, device=input.device)
    if -input.shape[0] < k < input.shape[1]:
        y.diagonal(k).fill_(1)
    return y


@kernel("Range", since=(27,), host=("start", "limit", "delta"))
def range_stashed(
    start: Scalar, limit: Scalar, delta: Scalar, *, stash_type: int = 1, ctx: KernelContext
) -> Tensor:
    """Range with a stash type, which this one exceeds: every element is rounded once, from float64.

    Source: https://onnx.ai/onnx/operators/onnx__Range.html
    """
    return range_(start, limit, delta, ctx=ctx)


@kernel("Range", since=(11,), host=("start", "limit", "delta"))
def range_(start: Scalar, limit: Scalar, delta: Scalar, *, ctx: KernelContext) -> Tensor:
    """The numbers from ``start`` up to ``limit``, the latter excluded, in steps of ``delta``.

    Args:
        start: First number.
        limit: Where to stop; nothing when it lies on the other side.
        delta: The step, not 0.
        ctx: Tells the element type, and the device.

    Raises:
        ValueError: The step is 0.

    Source: https://onnx.ai/onnx/operators/onnx__Range.html#range-11
    """
    if delta == 0:
        raise ValueError("the step of a Range must not be 0")
    element = ctx.input_type(0) or ctx.output_type(0)
    if isinstance(start, int):
        count = max(-((start - limit) // delta), 0)
        steps = torch.arange(int(count), device=ctx.device)
        whole = torch.int64 if element is None else element.torch_dtype
        return steps.mul_(delta).add_(start).to(whole)
    steps = torch.arange(max(math.ceil((limit - start) / delta), 0), dtype=torch.float64, device=ctx.device)
    real = torch.float32 if element is None else element.torch_dtype
    return steps.mul_(delta).add_(start).to(real)


@kernel("OneHot", since=(9, 11, 28), host=("depth",))
def one_hot(indices: Tensor, depth: int, values: Tensor, *, axis: int = -1) -> Tensor:
    """``values[1]`` where a new axis's place equals the index, ``values[0]`` elsewhere.

    Args:
        indices: Numbers of any shape; outside of [-depth, depth) all of the axis is ``values[0]``.
        depth: Length of the new axis.
        values: [2], of any element type: off and on.
        axis: Place of the new axis in the result.

    Source: https://onnx.ai/onnx/operators/onnx__OneHot.html
    """
    if not isinstance(values, Tensor):
        return strings.by_position(one_hot, indices, depth, values, axis=axis)
    index = indices.to(torch.int64).unsqueeze(axis)
    view = [1] * index.dim()
    view[axis] = depth
    places = torch.arange(depth, device=index.device).reshape(view)
    # A negative index counts from the end, so it also matches the place that lies one depth before it.
    return pick((index == places) | (index + depth == places) & (index < 0), values[1], values[0])
