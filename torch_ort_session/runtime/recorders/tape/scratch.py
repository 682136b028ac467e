"""Scratch: bytes that a recorded call allocates for itself and frees before it returns, where known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

_UNFOLDED = "aten::_slow_conv2d_forward"


def scratch_of(name: str, arguments: Sequence[Any]) -> int:
    """How many bytes a call takes for itself.

    Args:
        name: Qualified name of its op.
        arguments: Its arguments.

    Returns:
        The bytes; 0 where nothing is known of the op.
    """
    if name != _UNFOLDED:
        return 0
    x, _, kernel, _, strides, pads, result = arguments
    if not isinstance(x, torch.Tensor) or not isinstance(result, torch.Tensor):
        return 0
    if all(k == 1 for k in kernel) and all(s == 1 for s in strides) and not any(pads):
        return 0
    # The windows side by side, for one matrix product.
    windows = x.shape[0] * x.shape[1] * math.prod(kernel) * math.prod(result.shape[2:])
    return int(windows * x.element_size())
