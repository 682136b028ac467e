"""Normalizations by the sample: Layer-, RMS-, Group- and InstanceNormalization.

Sources: https://onnx.ai/onnx/operators/onnx__LayerNormalization.html and the pages of the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.common.norms import row_norm
from torch_ort_session.ops.kernel import KernelContext, kernel

_FLOAT = int(ElementType.FLOAT)


@kernel("LayerNormalization", since=(17,))
def layer_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 9.999999747378752e-06,
    stash_type: int = 1,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Mean 0 and variance 1 over the axes from ``axis`` on, then scaled and shifted.

    Args:
        x: [D1..Dn].
        scale: Broadcastable to [Daxis..Dn].
        b: Broadcastable to [Daxis..Dn].
        axis: First axis to normalize over.
        epsilon: Added to the variance.
        stash_type: Element type of the statistics: float32 or bfloat16.

    Returns:
        The result, and where asked for the mean and the inverse deviation [D1..Daxis-1, 1..1].

    Source: https://onnx.ai/onnx/operators/onnx__LayerNormalization.html
    """
    shape = x.shape[axis:]
    if stash_type == _FLOAT and not ctx.wants(1) and not ctx.wants(2):
        if scale.shape == shape and scale.dtype is x.dtype and (b is None or b.shape == shape):
            return torch.layer_norm(x, shape, scale, b, epsilon), None, None
        y = torch.layer_norm(x, shape, None, None, epsilon)
        return _affine(y, scale, b), None, None
    stash = _stash_dtype(stash_type)
    wide = stash if x.dtype is not torch.float64 else x.dtype
    y, mean, inverse = torch.native_layer_norm(x.to(wide), shape, None, None, epsilon)
    return _affine(y.to(x.dtype), scale, b), mean.to(stash), inverse.to(stash)


@kernel("RMSNormalization", since=(23,), native=("skip_rms_norm",))
def rms_normalization(
    x: Tensor,
    scale: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 9.999999747378752e-06,
    stash_type: int = 1,
) -> Tensor:
    """Divided by the root of the mean square over the axes from ``axis`` on, then scaled.

    Args:
        x: [D1..Dn].
        scale: Broadcastable to [Daxis..Dn]; its dtype is the result's.
        axis: First axis to normalize over.
        epsilon: Added to the mean square.
        stash_type: Element type of the mean square: float32 or bfloat16.

    Source: https://onnx.ai/onnx/operators/onnx__RMSNormalization.html
    """
    shape = x.shape[axis:]
    if stash_type == _FLOAT and scale.dtype is x.dtype and scale.shape == shape:
        results = row_norm(x, None, None, scale, epsilon)
        return torch.rms_norm(x, shape, scale, epsilon) if results is None else results[0]
    stash = _stash_dtype(stash_type)
    wide = stash if x.dtype is not torch.float64 else x.dtype
    y = torch.rms_norm(x.to(wide), shape, None, epsilon).to(x.dtype)
    return (y * scale).to(scale.dtype)


@kernel("GroupNormalization", since=(21,))
def group_normalization(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 9.999999747378752e-06,
    num_groups: int,
    stash_type: int = 1,
) -> Tensor:
    """Mean 0 and variance 1 over groups of channels, then scaled and shifted by channel.

    Args:
        x: [N, C, D1..Dn].
        scale: [C].
        bias: [C].
        epsilon: Added to the variance.
        num_groups: Number of groups, a divisor of C.
        stash_type: Element type of the statistics: float32 or bfloat16.

    Source: https://onnx.ai/onnx/operators/onnx__GroupNormalization.html
    """
    if stash_type == _FLOAT and scale.dtype is x.dtype:
        return torch.group_norm(x, num_groups, scale, bias, epsilon)
    wide = _stash_dtype(stash_type) if x.dtype is not torch.float64 else x.dtype
    shape = (-1, *[1] * (x.dim() - 2))
    y = torch.group_norm(x.to(wide), num_groups, None, None, epsilon).to(x.dtype)
    return y * scale.reshape(shape) + bias.reshape(shape)


@kernel("GroupNormalization", since=(18,))
def group_normalization_18(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 9.999999747378752e-06,
    num_groups: int,
) -> Tensor:
    """The revision whose ``scale`` and ``bias`` [num_groups] are by group.

    Source: https://onnx.ai/onnx/operators/onnx__GroupNormalization.html
    """
    width = x.shape[1] // num_groups
    scale = scale.reshape(-1, 1).expand(-1, width).reshape(-1)
    bias = bias.reshape(-1, 1).expand(-1, width).reshape(-1)
    return torch.group_norm(x, num_groups, scale, bias, epsilon)


@kernel("InstanceNormalization", since=(6, 22))
def instance_normalization(
    x: Tensor, scale: Tensor, b: Tensor, *, epsilon: float = 9.999999747378752e-06
) -> Tensor:
    """Mean 0 and variance 1 over the spatial axes of each channel, then scaled and shifted by channel.

    Args:
        x: [N, C, D1..Dn].
        scale: [C].
        b: [C].
        epsilon: Added to the variance.

    Source: https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html
    """
    # Groups of one channel; measured four to seven times faster on the CPU than torch.instance_norm.
    return torch.group_norm(x, x.shape[1], scale, b, epsilon)


@kernel("InstanceNormalization", since=(1,))
def instance_normalization_1(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    *,
    consumed_inputs: list[int] | None = None,
    epsilon: float = 9.999999747378752e-06,
) -> Tensor:
    """The first revision; ``consumed_inputs`` was a hint on memory and means nothing here.

    Source: https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html
    """
    return torch.group_norm(x, x.shape[1], scale, b, epsilon)


def _affine(y: Tensor, scale: Tensor, b: Tensor | None) -> Tensor:
    y = y * scale
    return y if b is None else y + b


def _stash_dtype(code: int) -> torch.dtype:
    if code not in (_FLOAT, int(ElementType.BFLOAT16)):
        raise ValueError(f"stash_type must be 1 (float32) or 16 (bfloat16), not {code}.")
    return torch.float32 if code == _FLOAT else torch.bfloat16
