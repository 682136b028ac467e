"""Shared parts of attention operators: heads, visibility masks, the fused form and the spelled-out one.

Tensors are q [B, H, L, D], k [B, G, S, D] and v [B, G, S, E], where H is a multiple of G and each key head
serves H / G neighbouring query heads.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ops.common.one_query import one_query


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, L, heads * D] as [B, heads, L, D], a view.

    Raises:
        ValueError: The last axis does not divide into so many heads.
    """
    if heads <= 0 or x.shape[2] % heads:
        raise ValueError(f"A hidden size of {x.shape[2]} does not divide into {heads} heads.")
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, L, D] as [B, L, H * D]."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def group_heads(x: Tensor, groups: int) -> Tensor:
    """[B, H, ...] as [B, groups, H / groups, ...]."""
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])


def visible(
    queries: int,
    keys: int,
    device: torch.device,
    *,
    causal: bool,
    offset: int | Tensor = 0,
    window: tuple[int, int] = (-1, -1),
    valid: Tensor | None = None,
) -> Tensor | None:
    """Which keys each query may attend, as bools broadcastable to [B, 1, L, S]; None when it is all.

    Args:
        queries: L.
        keys: S.
        device: Where to make the mask.
        causal: Whether query ``i`` sees no key after ``i + offset``.
        offset: Position of the first query among the keys, or one position a sample [B].
        window: Numbers of earlier and of later keys in sight, -1 for no bound.
        valid: Number of keys that count, by sample [B].
    """
    left, right = window
    if isinstance(offset, int) and offset >= keys - 1:
        causal = False
    bounded = causal or left >= 0 or right >= 0
    if not bounded and valid is None:
        return None
    key = torch.arange(keys, device=device)
    mask: Tensor | None = None
    if valid is not None:
        mask = key < valid.reshape(-1, 1, 1, 1)
    if not bounded:
        return mask
    start = offset if isinstance(offset, int) else offset.reshape(-1, 1, 1, 1)
    ahead = key - (torch.arange(queries, device=device).unsqueeze(1) + start)
    limits = [0] if causal else []
    if right >= 0:
        limits.append(right)
    if limits:
        seen = ahead <= min(limits)
        mask = seen if mask is None else mask & seen
    if left >= 0:
        seen = ahead >= -left
        mask = seen if mask is None else mask & seen
    return mask


def fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Attention in one call of torch; a query without any key in sight gives zeros.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        mask: Bools of what is in sight, or floats added to the scores; broadcastable to [B, H, L, S].
        causal: Whether query ``i`` sees no key after ``i``; excludes a mask.
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
    """
    alone = None if causal else one_query(q, k, v, mask, scale)
    if alone is not None:
        return alone
    if q.dtype is torch.float16 and q.device.type == "cpu":
        # As fast there in float32, and rounded once.
        if mask is not None and mask.dtype is torch.float16:
            mask = mask.to(torch.float32)
        q, k, v = q.to(torch.float32), k.to(torch.float32), v.to(torch.float32)
        return fused(q, k, v, mask, causal=causal, scale=scale).to(torch.float16)
    y = F.scaled_dot_product_attention(
        q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    if mask is None:
        return y
    # Backends differ in what they make of such a row, above all when its scores are not finite.
    return y.masked_fill(blind(mask), 0.0)


def blind(mask: Tensor) -> Tensor:
    """Whether a query has no key in sight: bools [..., L, 1]."""
    seen = mask if mask.dtype is torch.bool else mask != -math.inf
    return ~seen.any(-1, keepdim=True)


def scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scaled products of queries and keys [B, H, L, S]; the scale is split between both against overflow."""
    part = math.sqrt(abs(scale))
    q, k = q * math.copysign(part, scale), k * part
    repeats = q.shape[1] // k.shape[1]
    if repeats == 1:
        return torch.matmul(q, k.transpose(-2, -1))
    grouped = group_heads(q, k.shape[1])
    return torch.matmul(grouped, k.unsqueeze(2).transpose(-2, -1)).flatten(1, 2)


def weighted(probabilities: Tensor, v: Tensor) -> Tensor:
    """Sums of values [B, H, L, E] weighted by probabilities [B, H, L, S]."""
    repeats = probabilities.shape[1] // v.shape[1]
    if repeats == 1:
        return torch.matmul(probabilities, v)
    grouped = group_heads(probabilities, v.shape[1])
    return torch.matmul(grouped, v.unsqueeze(2)).flatten(1, 2)


def masked_scores(products: Tensor, mask: Tensor | None) -> Tensor:
    """Scores with a mask applied: what is out of sight becomes minus infinity, floats are added."""
    if mask is None:
        return products
    if mask.dtype is torch.bool:
        return products.masked_fill(~mask, -math.inf)
    return products + mask


def softmax(values: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the keys; a query without any key in sight gives zeros, and zero gradients."""
    if mask is None:
        return torch.softmax(values, -1)
    none = blind(mask)
    return torch.softmax(values.masked_fill(none, 0.0), -1).masked_fill(none, 0.0)


def combine(mask: Tensor | None, allowed: Tensor | None) -> Tensor | None:
    """A user's mask (bools or floats) narrowed by bools of what is in sight."""
    if mask is None or allowed is None:
        return allowed if mask is None else mask
    if mask.dtype is torch.bool:
        return mask & allowed
    return torch.where(allowed, mask, -math.inf)
