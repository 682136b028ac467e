"""Rotation of pairs of features by angles that depend on the position.

Source: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor, width: int, interleaved: bool) -> Tensor:
    """The first ``width`` features rotated in pairs, the others as they are.

    Args:
        x: [..., D].
        cos: Cosines, broadcastable to [..., width / 2].
        sin: Sines, like ``cos``.
        width: Number of features to rotate, even.
        interleaved: Whether a pair is two neighbours rather than one of each half.

    Raises:
        ValueError: The angles do not fit ``width``.
    """
    half = width // 2
    if cos.shape[-1] != half or sin.shape[-1] != half:
        raise ValueError(
            f"{width} rotated features need {half} angles a position, but there are {cos.shape[-1]} cosines "
            f"and {sin.shape[-1]} sines."
        )
    turned = x if width == x.shape[-1] else x[..., :width]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., :half], turned[..., half:]
    real = first * cos - second * sin
    imaginary = first * sin + second * cos
    if interleaved:
        turned = torch.stack((real, imaginary), -1).flatten(-2)
        return turned if turned.shape[-1] == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)
    return torch.cat((real, imaginary, x[..., width:]), -1)
