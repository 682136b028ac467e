"""Granularity of scales, ranges of the integer types, and rounding into them.

Source: https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.casting import convert

RANGES: dict[int, tuple[int, int]] = {
    int(ElementType.UINT8): (0, 255),
    int(ElementType.INT8): (-128, 127),
    int(ElementType.UINT16): (0, 65535),
    int(ElementType.INT16): (-32768, 32767),
    int(ElementType.UINT4): (0, 15),
    int(ElementType.INT4): (-8, 7),
    int(ElementType.UINT2): (0, 3),
    int(ElementType.INT2): (-2, 1),
}
"""Least and greatest number of each integer type that is quantized to, by its code."""

# Types that torch's arithmetic does not mix with floats.
_STORED = frozenset(
    {
        torch.uint16,
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
        torch.float8_e8m0fnu,
    }
)


def spread(value: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale or zero point in a shape that broadcasts against ``x``, in a dtype that computes with floats.

    Args:
        value: One number; one by index of ``axis``; or the shape of ``x`` with ``axis`` in blocks.
        x: What it is meant for.
        axis: Quantization axis.
        block_size: Length of a block, 0 for none.

    Raises:
        ValueError: The shape fits no granularity.
    """
    if value.dtype in _STORED:
        value = value.to(torch.float32)
    if value.dim() == 0:
        return value
    if not block_size:
        if value.numel() == 1:
            return value.reshape(())
        if value.dim() != 1 or not -x.dim() <= axis < x.dim() or value.shape[0] != x.shape[axis]:
            raise ValueError(
                f"a scale or zero point of shape {list(value.shape)} does not fit axis {axis} of an input of "
                f"shape {list(x.shape)}."
            )
        shape = [1] * x.dim()
        shape[axis] = -1
        return value.reshape(shape)
    blocked = value.dim() == x.dim() and value.shape[axis] * block_size >= x.shape[axis]
    if not blocked:
        raise ValueError(
            f"a scale or zero point of shape {list(value.shape)} does not fit blocks of {block_size} on axis "
            f"{axis} of an input of shape {list(x.shape)}."
        )
    return value.repeat_interleave(block_size, axis).narrow(axis, 0, x.shape[axis])


def round_into(q: Tensor, zero: Tensor | None, element: ElementType, saturate: bool = True) -> Tensor:
    """A scaled tensor rounded to even, shifted by the zero point and held in the range of a type.

    Args:
        q: Floats; a fresh tensor, which may be overwritten.
        zero: Broadcastable zero point.
        element: A quantized type.
        saturate: Whether 8-bit floats saturate.

    Returns:
        A tensor of the carrier of ``element``.

    Raises:
        ValueError: ``element`` is not a type to quantize to.
    """
    bounds = RANGES.get(element)
    if bounds is None:
        if not element.label.startswith("float") or element.torch_dtype is None or element.is_float:
            raise ValueError(f"{element.label} is not a type to quantize to.")
        return convert(q if zero is None else q + zero, element, saturate)
    q = q.round_()
    if q.dtype is not torch.float32:
        # The integers of two bytes are not all half precision numbers.
        q = q.to(torch.float32)
    if zero is not None:
        q = q.add_(zero)
    carrier = element.torch_dtype
    assert carrier is not None
    return q.clamp_(bounds[0], bounds[1]).to(carrier)
