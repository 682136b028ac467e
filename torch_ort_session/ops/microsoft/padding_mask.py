"""The forms in which com.microsoft's attentions tell what is in sight, as one mask.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Attention
"""

from __future__ import annotations

import torch
from torch import Tensor

# What onnxruntime adds to a score that the mask takes out of sight.
_FILTER = -10000.0


def combined(
    mask: Tensor | None,
    bias: Tensor | None,
    q: Tensor,
    keys: int,
    before: int,
    causal: bool,
    filter_value: float | None,
) -> Tensor | None:
    """One float mask out of a padding mask, a bias and the causal bound; None where nothing is masked."""
    total = bias
    if mask is not None:
        seen = _seen(mask, q.shape[0], q.shape[2], keys, before)
        hidden = torch.where(seen, 0.0, _FILTER if filter_value is None else filter_value).to(q.dtype)
        total = hidden if total is None else total + hidden
    if causal and q.shape[2] > 1:
        ahead = torch.arange(keys, device=q.device) - torch.arange(q.shape[2], device=q.device).unsqueeze(1)
        later = ahead > before
        total = q.new_zeros(later.shape) if total is None else total
        total = total.masked_fill(later, torch.finfo(q.dtype).min)
    return total


def _seen(mask: Tensor, batch: int, queries: int, keys: int, before: int) -> Tensor:
    """Bools broadcastable to [B, H, L, T] out of the forms an integer mask comes in."""
    if mask.dim() == 1:
        key = torch.arange(keys, device=mask.device)
        if mask.shape[0] == batch:
            return key < mask.reshape(-1, 1, 1, 1)
        if mask.shape[0] == 2 * batch:
            ends, starts = mask.reshape(2, batch, 1, 1, 1).unbind()
            return (key < ends) & (key >= starts)
    elif mask.dim() == 2:
        return mask[:, None, None, :] != 0
    elif mask.dim() == 3:
        return mask[:, None] != 0
    elif mask.dim() == 4:
        return mask[:, :, before : before + queries, :keys] != 0
    raise ValueError(f"a mask of shape {list(mask.shape)} is not supported for a batch of {batch}.")
