"""Arithmetic in float32 whatever the floats come in, but float64, which is left as it is."""

from __future__ import annotations

import torch
from torch import Tensor


def single(x: Tensor) -> Tensor:
    """Floats as float32, or as float64 where they are that; torch.promote_types would be recorded."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)
