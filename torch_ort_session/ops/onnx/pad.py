"""Pad: elements put around a tensor, or taken away.

Source: https://onnx.ai/onnx/operators/onnx__Pad.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.onnx.padding import pad_indexed
from torch_ort_session.ops.signature import Scalar


@kernel("Pad", since=(18, 19, 21, 23, 24, 25), host=("pads", "constant_value", "axes"))
def pad(
    data: Tensor,
    pads: list[int],
    constant_value: Scalar | None = None,
    axes: list[int] | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """``data`` with more elements at the borders, or fewer where a pad is negative.

    Args:
        data: Any tensor or strings, of any rank.
        pads: All begins, then all ends, one for each of ``axes``.
        constant_value: What mode ``"constant"`` puts there; 0, False or an empty string without it.
        axes: The axes padded; all when not given.
        mode: ``"constant"``, ``"edge"``, ``"reflect"`` (the border itself is not repeated) or ``"wrap"``.

    Raises:
        ValueError: The number of pads does not fit, or the mode is another.

    Source: https://onnx.ai/onnx/operators/onnx__Pad.html
    """
    rank = len(data.shape)
    if axes is not None:
        if len(pads) != 2 * len(axes):
            raise ValueError(f"pads {pads} needs two numbers for each of the axes {axes}")
        spread = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            spread[axis % rank], spread[axis % rank + rank] = pads[i], pads[i + len(axes)]
        pads = spread
    elif len(pads) != 2 * rank:
        raise ValueError(f"pads {pads} needs two numbers for each of the {rank} dims of the input")
    if not isinstance(data, Tensor):
        fill = "" if constant_value is None else str(constant_value)
        return strings.by_position(_pad, data, pads, -1, mode, fill=fill)
    return _pad(data, pads, 0 if constant_value is None else constant_value, mode)


@kernel("Pad", since=(11, 13), host=("pads", "constant_value"))
def pad_all_axes(
    data: Tensor, pads: list[int], constant_value: Scalar | None = None, *, mode: str = "constant"
) -> Tensor:
    """Pad before it took axes.

    Source: https://onnx.ai/onnx/operators/onnx__Pad.html#pad-13
    """
    return pad(data, pads, constant_value, mode=mode)


@kernel("Pad", since=(2,))
def pad_attribute(data: Tensor, *, pads: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Pad with all as attributes.

    Source: https://onnx.ai/onnx/operators/onnx__Pad.html#pad-2
    """
    return pad(data, pads, value, mode=mode)


@kernel("Pad", since=(1,))
def pad_legacy(data: Tensor, *, paddings: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Pad when its attribute had another name.

    Source: https://onnx.ai/onnx/operators/onnx__Pad.html#pad-1
    """
    return pad(data, paddings, value, mode=mode)


def _pad(data: Tensor, pads: list[int], value: Scalar, mode: str) -> Tensor:
    rank = data.dim()
    left = [size + pads[i] + pads[i + rank] for i, size in enumerate(data.shape)]
    if min(left, default=0) < 0:
        raise ValueError(f"pads {pads} take more than there is of an input of shape {tuple(data.shape)}")
    if mode == "constant":
        if any(min(pads[i], 0) + min(pads[i + rank], 0) < -data.shape[i] for i in range(rank)):
            # More is cut at one end than there is: only what is put at the other end makes up for it.
            grown = _pad(data, [max(count, 0) for count in pads], value, mode)
            ends = [size + min(pads[i + rank], 0) for i, size in enumerate(grown.shape)]
            return grown[tuple(slice(max(-pads[i], 0), max(end, 0)) for i, end in enumerate(ends))]
        # torch counts from the last dim, begin and end side by side.
        return torch.constant_pad_nd(
            data, [pads[place] for axis in range(rank - 1, -1, -1) for place in (axis, axis + rank)], value
        )
    if mode not in ("edge", "reflect", "wrap"):
        raise ValueError(f"mode {mode!r} is none of 'constant', 'edge', 'reflect' and 'wrap'")
    return pad_indexed(data, pads, mode)
