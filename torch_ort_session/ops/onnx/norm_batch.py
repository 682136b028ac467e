"""Batch normalization: BatchNormalization.

Source: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.onnx.images.layout import is_channels_last_1d

_Five = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


@kernel("BatchNormalization", since=(14, 15))
def batch_normalization(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 9.999999747378752e-06,
    momentum: float = 0.8999999761581421,
    training_mode: int = 0,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Each channel shifted and scaled by given statistics, or by its own when training.

    Args:
        x: [N, C, D1..Dn].
        scale: [C].
        b: [C].
        mean: [C], the estimated mean, or the running one when training.
        var: [C], the estimated variance, or the running one when training.
        epsilon: Added to the variance.
        momentum: Weight of the running statistics against the batch's.
        training_mode: Whether to use and return the batch's statistics.

    Returns:
        The result, the running mean and the running variance; the last two are None unless training.

    Source: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html
    """
    if not training_mode:
        return _fixed(x, scale, b, mean, var, epsilon), None, None
    y, batch_mean, batch_var = _batch(x, scale, b, epsilon)
    return y, _running(mean, batch_mean, momentum), _running(var, batch_var, momentum)


@kernel("BatchNormalization", since=(9,))
def batch_normalization_9(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 9.999999747378752e-06,
    momentum: float = 0.8999999761581421,
    ctx: KernelContext,
) -> _Five:
    """The revision that trains when it has more outputs than one.

    Source: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html
    """
    return _five(x, (scale, b), (mean, var), epsilon, momentum, any(ctx.node.outputs[1:]))


@kernel("BatchNormalization", since=(7,))
def batch_normalization_7(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 9.999999747378752e-06,
    momentum: float = 0.8999999761581421,
    spatial: int = 1,
    ctx: KernelContext,
) -> _Five:
    """The revision with statistics by activation: with ``spatial=0`` they are [C, D1..Dn].

    Source: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html
    """
    training = any(ctx.node.outputs[1:])
    return _maybe_spatial(x, (scale, b), (mean, var), epsilon, momentum, training, spatial)


@kernel("BatchNormalization", since=(6,))
def batch_normalization_6(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 9.999999747378752e-06,
    is_test: int = 0,
    momentum: float = 0.8999999761581421,
    spatial: int = 1,
) -> _Five:
    """The revision that trains unless ``is_test`` says otherwise.

    Source: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html
    """
    return _maybe_spatial(x, (scale, b), (mean, var), epsilon, momentum, not is_test, spatial)


@kernel("BatchNormalization", since=(1,))
def batch_normalization_1(
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    consumed_inputs: list[int],
    epsilon: float = 9.999999747378752e-06,
    is_test: int = 0,
    momentum: float = 0.8999999761581421,
    spatial: int = 1,
) -> _Five:
    """The first revision; ``consumed_inputs`` was a hint on memory and means nothing here.

    Source: https://onnx.ai/onnx/operators/onnx__BatchNormalization.html
    """
    return _maybe_spatial(x, (scale, b), (mean, var), epsilon, momentum, not is_test, spatial)


def _maybe_spatial(
    x: Tensor,
    affine: tuple[Tensor, Tensor],
    running: tuple[Tensor, Tensor],
    epsilon: float,
    momentum: float,
    training: bool,
    spatial: int,
) -> _Five:
    if spatial:
        return _five(x, affine, running, epsilon, momentum, training)
    scale, b, mean, var = (item.reshape(-1) for item in (*affine, *running))
    y, *statistics = _five(x.flatten(1), (scale, b), (mean, var), epsilon, momentum, training)
    shape = running[0].shape
    first, second, third, fourth = [None if s is None else s.reshape(shape) for s in statistics]
    return y.reshape(x.shape), first, second, third, fourth


def _five(
    x: Tensor,
    affine: tuple[Tensor, Tensor],
    running: tuple[Tensor, Tensor],
    epsilon: float,
    momentum: float,
    training: bool,
) -> _Five:
    (scale, b), (mean, var) = affine, running
    if not training:
        return _fixed(x, scale, b, mean, var, epsilon), None, None, None, None
    y, batch_mean, batch_var = _batch(x, scale, b, epsilon)
    running_mean = _running(mean, batch_mean, momentum)
    running_var = _running(var, batch_var, momentum)
    return y, running_mean, running_var, batch_mean.to(mean.dtype), batch_var.to(var.dtype)


def _fixed(x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, epsilon: float) -> Tensor:
    if (mean.requires_grad or var.requires_grad) and torch.is_grad_enabled():
        # torch's fused form takes the statistics for constants.
        shape = (-1, *[1] * (x.dim() - 2))
        factor = (scale * torch.rsqrt(var + epsilon)).reshape(shape)
        return ((x - mean.reshape(shape)) * factor + b.reshape(shape)).to(x.dtype)
    if is_channels_last_1d(x):
        # torch knows the order of images only.
        return _fixed(x.unsqueeze(2), scale, b, mean, var, epsilon).squeeze(2)
    if x.dtype is scale.dtype is mean.dtype:
        return torch.batch_norm(x, scale, b, mean, var, False, 0.0, epsilon, True)
    wide = _common(x.dtype, scale.dtype, mean.dtype)
    scale, b, mean, var = scale.to(wide), b.to(wide), mean.to(wide), var.to(wide)
    return torch.batch_norm(x.to(wide), scale, b, mean, var, False, 0.0, epsilon, True).to(x.dtype)


def _batch(x: Tensor, scale: Tensor, b: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalized by the batch's own statistics, and those: at least in float32."""
    wide = _common(x.dtype, scale.dtype, torch.float32)
    wider = x.to(wide)
    dims = [0, *range(2, x.dim())]
    var, mean = torch.var_mean(wider, dims, correction=0)
    shape = (-1, *[1] * (x.dim() - 2))
    factor = (scale.to(wide) * torch.rsqrt(var + epsilon)).reshape(shape)
    y = (wider - mean.reshape(shape)) * factor + b.to(wide).reshape(shape)
    return y.to(x.dtype), mean, var


def _common(*dtypes: torch.dtype) -> torch.dtype:
    """The float dtype that holds all of these; torch.promote_types is a call that no recording can hold."""
    if len(set(dtypes)) == 1:
        return dtypes[0]
    return torch.float64 if torch.float64 in dtypes else torch.float32


def _running(old: Tensor, batch: Tensor, momentum: float) -> Tensor:
    return (old.to(batch.dtype) * momentum + batch * (1 - momentum)).to(old.dtype)
