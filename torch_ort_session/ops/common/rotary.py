"""Rotation of pairs of features by angles that depend on the position.

Source: https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.kernel import KernelContext

_DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))


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


def turned(
    x: Tensor,
    tables: tuple[Tensor, Tensor],
    positions: Tensor | None,
    heads: int,
    width: int,
    interleaved: bool,
    ctx: KernelContext,
) -> Tensor | None:
    """Heads rotated by the angles of their token's position, in one pass.

    None where plain ops have to do it: where :func:`.native.device_op` gives none, where bad
    positions are not noted, and for what is not of one float type and of the shapes below.

    Args:
        x: float32, float16 or bfloat16 [B, H, L, D], or [B, L, H * D].
        tables: Cosines and sines [positions, width / 2], or without positions [B, L, width / 2].
        positions: int64 [B, L], or [1], that of the first token of every sample.
        heads: H where ``x`` has three dims.
        width: Number of features to rotate.
        interleaved: Whether a pair is two neighbours rather than one of each half.
        ctx: Context of the running kernel, which must be declared with ``checks=True``.

    Returns:
        Of the shape of ``x``.
    """
    cos, sin = tables
    dtype, flat = x.dtype, x.dim() == 3
    if dtype not in _DTYPES or cos.dtype != dtype or sin.dtype != dtype or x.dim() not in (3, 4):
        return None
    length = x.shape[1] if flat else x.shape[2]
    if flat and (heads <= 0 or x.shape[2] % heads):
        return None
    size = x.shape[2] // heads if flat else x.shape[3]
    if width != 2 * cos.shape[-1] or width > size or sin.shape != cos.shape or x.stride(-1) != 1:
        return None
    number, word = 0, None
    if positions is None:
        if cos.dim() != 3 or cos.shape[:2] != (x.shape[0], length):
            return None
    else:
        validation = ctx.validation
        if validation is None or not validation.on or positions.dtype != torch.int64 or cos.dim() != 2:
            return None
        if positions.shape not in ((x.shape[0], length), (1,)) or cos.shape[0] == 0:
            return None
        number, word = validation.noting(ctx.node)
        positions = positions.contiguous()
    op = native.device_op("rotary", x, cos, sin, positions)
    if op is None:
        return None
    rotated: Tensor = op(x, cos.contiguous(), sin.contiguous(), positions, heads, interleaved, number, word)
    return rotated
