"""GroupNorm and SkipGroupNorm of com.microsoft, channels last by default.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel


@kernel("GroupNorm", domain="com.microsoft", since=(1,))
def group_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 9.999999747378752e-06,
    groups: int,
) -> Tensor:
    """Mean 0 and variance 1 over groups of channels, scaled and shifted by channel, then an activation.

    Args:
        x: Floats [N, H, W, C], or [N, C, H, W] without ``channels_last``.
        gamma: [C], of the same or another float type.
        beta: [C].
        activation: 0 for none, 1 for SiLU.
        channels_last: Where the channels are.
        epsilon: Added to the variance.
        groups: Number of groups, a divisor of C.

    Raises:
        ValueError: ``groups`` does not divide C, or an unknown activation.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.GroupNorm
    """
    return _normalized(x, gamma, beta, activation, channels_last, epsilon, groups)


@kernel("SkipGroupNorm", domain="com.microsoft", since=(1,))
def skip_group_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    skip: Tensor,
    bias: Tensor | None = None,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 9.999999747378752e-06,
    groups: int,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor | None]:
    """GroupNorm of ``x + skip + bias``.

    Args:
        x: Floats [N, H, W, C], or [N, C, H, W] without ``channels_last``.
        gamma: [C].
        beta: [C].
        skip: Of the shape of ``x``, or of one number a channel: [N, 1, 1, C] ([N, C, 1, 1]) or [N, C].
        bias: [C].
        activation: 0 for none, 1 for SiLU.
        channels_last: Where the channels are.
        epsilon: Added to the variance.
        groups: Number of groups, a divisor of C.
        ctx: Tells whether the sum is wanted.

    Returns:
        The result, and the sum.

    Raises:
        ValueError: ``groups`` does not divide C, or an unknown activation.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.SkipGroupNorm
    """
    spatial = [1] * (x.dim() - 2)
    if skip.dim() == 2:
        rows, channels = skip.shape
        skip = (
            skip.reshape(rows, *spatial, channels)
            if channels_last
            else skip.reshape(rows, channels, *spatial)
        )
    total = x + skip
    if bias is not None:
        total = total + (bias if channels_last else bias.reshape(-1, *spatial))
    y = _normalized(total, gamma, beta, activation, channels_last, epsilon, groups)
    return y, total if ctx.wants(1) else None


def _normalized(
    x: Tensor, gamma: Tensor, beta: Tensor, activation: int, channels_last: int, epsilon: float, groups: int
) -> Tensor:
    channels = x.shape[-1 if channels_last else 1]
    if groups < 1 or channels % groups:
        raise ValueError(f"{channels} channels do not fall into {groups} groups of one size.")
    if activation not in (0, 1):
        raise ValueError(f"activation is 0 for none or 1 for SiLU, not {activation}.")
    dtype = x.dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    planes = x.movedim(-1, 1) if channels_last else x
    y = torch.group_norm(planes.to(wide), groups, gamma.to(wide), beta.to(wide), epsilon)
    y = (F.silu(y) if activation else y).to(dtype)
    return y.movedim(1, -1) if channels_last else y
