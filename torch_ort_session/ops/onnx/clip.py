"""Clip, with its bounds as attributes (before opset 11) or as inputs.

Source: https://onnx.ai/onnx/operators/onnx__Clip.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.common.widen import UNSIGNED, ordered, unordered
from torch_ort_session.ops.kernel import kernel
from torch_ort_session.ops.signature import Scalar

_FLOAT32_MAX = 3.4028234663852886e38


@kernel("Clip", since=(11, 12, 13), host=("low", "high"))
def clip(
    x: Tensor,
    low: Scalar | Tensor | None = None,
    high: Scalar | Tensor | None = None,
) -> Tensor:
    """``min(max(x, low), high)``; a bound that is left out does not bind, NaN in any of them is NaN.

    The bounds are numbers where the model holds constants, as nearly every model does: torch clamps by
    numbers about ten times as fast as by tensors.

    Args:
        x: Numbers of any type.
        low: Lower bound.
        high: Upper bound; it wins where it is below ``low``.
    """
    if low is None and high is None:
        return x.clone()
    if x.dtype in UNSIGNED:
        # In the order-preserving signed form every value is lower by half the range.
        half = 1 << (x.dtype.itemsize * 8 - 1)
        bounds = [
            ordered(bound) if isinstance(bound, Tensor) else None if bound is None else int(bound) - half
            for bound in (low, high)
        ]
        return unordered(_clamped(ordered(x), *bounds), x.dtype)
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return _clamped(x, low, high)
    return torch.clamp(x, low, high)


def _clamped(x: Tensor, low: Scalar | Tensor | None, high: Scalar | Tensor | None) -> Tensor:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return torch.clamp(x, _limit(low, x), _limit(high, x))
    return torch.clamp(x, low, high)


def _limit(bound: Scalar | Tensor | None, x: Tensor) -> Tensor | None:
    """A bound as a tensor of no dims, which gets its gradient too."""
    if bound is None:
        return None
    return bound.reshape(()) if isinstance(bound, Tensor) else x.new_tensor(bound)


@kernel("Clip", since=(1,))
def clip_v1(
    x: Tensor,
    *,
    min: float | None = None,
    max: float | None = None,
    consumed_inputs: list[int] | None = None,
) -> Tensor:
    """``x`` held between the attributes; ``consumed_inputs`` has no effect."""
    return clip(x, min, max)


@kernel("Clip", since=(6,))
def clip_v6(x: Tensor, *, min: float = -_FLOAT32_MAX, max: float = _FLOAT32_MAX) -> Tensor:
    """``x`` held between the attributes, whose defaults are the finite ends of float32."""
    largest = torch.finfo(x.dtype).max
    low = None if min < -largest else min
    high = None if max > largest else max
    return clip(x, low, high)
