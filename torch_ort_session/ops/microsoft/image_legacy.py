"""Ops on images that ONNX once tried out and onnxruntime still knows: Crop and ImageScaler of ai.onnx.

Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md (experimental)
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel


@kernel("Crop", since=(0,), view_of="x")
def crop(x: Tensor, *, border: list[int], scale: list[int] | None = None) -> Tensor:
    """A part of each image.

    Args:
        x: Floats [N, C, H, W].
        border: How much is left out at the left, the top, the right and the bottom.
        scale: Height and width of the result; the right and the bottom border do not count beside it.

    Raises:
        ValueError: An attribute has another number of values, or the image is smaller.

    Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md#Crop
    """
    if len(border) != 4 or (scale is not None and len(scale) != 2):
        raise ValueError(f"border takes four values and scale two, not {border} and {scale}.")
    left, top, right, bottom = border
    height, width = x.shape[2:]
    rows, columns = scale if scale is not None else (height - top - bottom, width - left - right)
    if min(left, top, rows, columns) < 0 or top + rows > height or left + columns > width:
        raise ValueError(f"border {border} and scale {scale} do not fit an image of {height} x {width}.")
    return x[:, :, top : top + rows, left : left + columns]


@kernel("ImageScaler", since=(0,))
def image_scaler(x: Tensor, *, bias: list[float], scale: float = 1.0) -> Tensor:
    """``x * scale + bias`` with a bias for each channel.

    Args:
        x: Floats [N, C, H, W].
        bias: C numbers.
        scale: Factor.

    Raises:
        ValueError: ``bias`` has another number of values.

    Source: https://github.com/onnx/onnx/blob/rel-1.3.0/docs/Operators.md#ImageScaler
    """
    if len(bias) != x.shape[1]:
        raise ValueError(f"bias needs a value for each of {x.shape[1]} channels, not {len(bias)}.")
    return x * scale + torch.tensor(bias, dtype=x.dtype, device=x.device).reshape(-1, 1, 1)
