"""Clip, with its bounds as attributes (before opset 11) or as inputs.

Source: https://onnx.ai/onnx/operators/onnx__Clip.html
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops._helpers.widen import UNSIGNED, deliver, ordered, unordered
from torch_ort_session.ops.kernel import Scalar, kernel

_FLOAT32_MAX = 3.4028234663852886e38


@kernel("Clip", since=(11, 12, 13), host=("low", "high"))
def clip(
    x: Tensor, low: Scalar | None = None, high: Scalar | None = None, *, out: Tensor | None = None
) -> Tensor:
    """``min(max(x, low), high)``; a bound that is left out does not bind, NaN in any of them is NaN.

    The bounds are host values: they are constants in nearly every model, and torch clamps by numbers about
    ten times as fast as by tensors.

    Args:
        x: Numbers of any type.
        low: Lower bound.
        high: Upper bound; it wins where it is below ``low``.
        out: Where to write.
    """
    if low is None and high is None:
        return deliver(x.clone(), out)
    if x.dtype in UNSIGNED:
        # In the order-preserving signed form every value is lower by half the range.
        half = 1 << (x.dtype.itemsize * 8 - 1)
        bounds = [None if bound is None else int(bound) - half for bound in (low, high)]
        return deliver(unordered(torch.clamp(ordered(x), *bounds), x.dtype), out)
    return torch.clamp(x, low, high, out=out)


@kernel("Clip", since=(1,))
def clip_v1(
    x: Tensor,
    *,
    min: float | None = None,
    max: float | None = None,
    consumed_inputs: list[int] | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``x`` held between the attributes; ``consumed_inputs`` has no effect."""
    return clip(x, min, max, out=out)


@kernel("Clip", since=(6,))
def clip_v6(
    x: Tensor, *, min: float = -_FLOAT32_MAX, max: float = _FLOAT32_MAX, out: Tensor | None = None
) -> Tensor:
    """``x`` held between the attributes, whose defaults are the finite ends of float32."""
    largest = torch.finfo(x.dtype).max
    low = None if min < -largest else min
    high = None if max > largest else max
    return clip(x, low, high, out=out)
