"""Scaled dot product attention: Attention.

Source: https://onnx.ai/onnx/operators/onnx__Attention.html
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ort_session.ir.types import ElementType, element_type_of
from torch_ort_session.ops.common.attention import (
    combine,
    fused,
    masked_scores,
    merge_heads,
    scores,
    softmax,
    split_heads,
    visible,
    weighted,
)
from torch_ort_session.ops.common.checks import check_lengths, has_input
from torch_ort_session.ops.common.kv_cache import clean
from torch_ort_session.ops.kernel import KernelContext, kernel

_Results = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]
_HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class _Choices:
    """The attributes, and which outputs are wanted."""

    scale: float | None
    causal: bool
    heads: tuple[int | None, int | None]
    softcap: float
    precision: int | None
    mode: int
    window: tuple[int, int]
    present: bool
    products: bool


@kernel("Attention", since=(23,), checks=has_input(6), native=("check_range", "gqa_decode"))
def attention_23(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    ctx: KernelContext,
) -> _Results:
    """The revision without the lengths of an outside cache.

    Source: https://onnx.ai/onnx/operators/onnx__Attention.html
    """
    return attention(
        q,
        k,
        v,
        attn_mask,
        past_key,
        past_value,
        None,
        is_causal=is_causal,
        kv_num_heads=kv_num_heads,
        q_num_heads=q_num_heads,
        qk_matmul_output_mode=qk_matmul_output_mode,
        scale=scale,
        softcap=softcap,
        softmax_precision=softmax_precision,
        ctx=ctx,
    )


@kernel("Attention", since=(24, 25), checks=has_input(6), native=("check_range", "gqa_decode"))
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    ctx: KernelContext,
) -> _Results:
    """Softmax of scaled products of queries and keys, times the values.

    Args:
        q: [B, H, L, D], or [B, L, H * D].
        k: [B, G, S, D], or [B, S, G * D].
        v: [B, G, S, E], or [B, S, G * E].
        attn_mask: Bools of what is in sight, or numbers added to the scores; broadcastable to
            [B, H, L, past + S]. A shorter last axis is filled up with what is out of sight.
        past_key: [B, G, past, D], put before the keys.
        past_value: [B, G, past, E], put before the values.
        nonpad_kv_seqlen: int64 [B], the number of keys that count in each sample.
        is_causal: Whether query ``i`` sees no key after ``i`` plus what precedes the first query.
        kv_num_heads: G, for inputs of rank 3.
        left_window_size: Number of earlier keys in sight, -1 for no bound.
        q_num_heads: H, for inputs of rank 3.
        qk_matmul_output_mode: What the fourth output holds: 0 the products, 1 after the soft cap, 2 with the
            mask, 3 the probabilities.
        right_window_size: Number of later keys in sight, -1 for no bound.
        scale: Factor of the products; None is ``1 / sqrt(D)``.
        softcap: Bound of the products by ``tanh``, 0 for none.
        softmax_precision: Element type of the softmax.

    Returns:
        The result in the form of ``q``, the keys and values with what was put before them, and the products.
        A query with no key in sight gives zeros.

    Raises:
        ValueError: Inputs or attributes do not fit each other.

    Source: https://onnx.ai/onnx/operators/onnx__Attention.html
    """
    plain = attn_mask is None and past_key is None and nonpad_kv_seqlen is None and q.dim() == 4
    plain = plain and softcap == 0.0 and softmax_precision is None and v.dtype is q.dtype
    if plain and left_window_size < 0 and right_window_size < 0 and not any(ctx.wanted[1:]):
        return fused(q, k, v, None, causal=is_causal != 0, scale=scale), None, None, None
    choices = _Choices(
        scale,
        bool(is_causal),
        (q_num_heads, kv_num_heads),
        softcap,
        softmax_precision,
        qk_matmul_output_mode,
        (left_window_size, right_window_size),
        ctx.wants(1) or ctx.wants(2),
        ctx.wants(3),
    )
    keys = k.shape[-2] + (0 if past_key is None else past_key.shape[2])
    lengths = check_lengths(nonpad_kv_seqlen, keys, ctx)
    return _attention(q, k, v, attn_mask, (past_key, past_value), lengths, choices)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    past: tuple[Tensor | None, Tensor | None],
    lengths: Tensor | None,
    choices: _Choices,
) -> _Results:
    past_key, past_value = past
    flat = q.dim() == 3
    if flat:
        q_heads, kv_heads = choices.heads
        if q_heads is None or kv_heads is None:
            raise ValueError("Inputs of rank 3 need q_num_heads and kv_num_heads.")
        q, k, v = split_heads(q, q_heads), split_heads(k, kv_heads), split_heads(v, kv_heads)
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} query heads are not a multiple of {k.shape[1]} key heads.")
    if (past_key is None) is not (past_value is None):
        raise ValueError("past_key and past_value go together, but only one of them is given.")
    present_key = present_value = None
    if past_key is not None and past_value is not None:
        k, v = torch.cat((past_key, k), 2), torch.cat((past_value, v), 2)
        present_key, present_value = k, v
    elif choices.present:
        present_key = k.clone(memory_format=torch.contiguous_format)
        present_value = v.clone(memory_format=torch.contiguous_format)

    queries, keys = q.shape[2], k.shape[2]
    offset: int | Tensor = 0 if past_key is None else past_key.shape[2]
    if lengths is not None and past_key is None:
        offset = lengths - queries
    fast = (
        not choices.products
        and choices.softcap == 0.0
        and v.dtype is q.dtype
        and _is_native(choices.precision, q.dtype)
    )
    bare = mask is None and lengths is None and choices.window == (-1, -1)
    if fast and bare and (not choices.causal or past_key is None):
        y = fused(q, k, v, None, causal=choices.causal, scale=choices.scale)
        return _finish(y, flat), present_key, present_value, None
    allowed = visible(
        queries,
        keys,
        q.device,
        causal=choices.causal,
        offset=offset,
        window=choices.window,
        valid=lengths,
    )
    if mask is not None:
        mask = _fitted(mask, keys, q.dtype)
    mask = combine(mask, allowed)
    counts = None
    if lengths is not None:
        # What lies behind may be anything, which no weight makes nothing of.
        counts = torch.arange(keys, device=q.device) < lengths.reshape(-1, 1)
        v = clean(v, counts)
        k = clean(k, counts) if fast or choices.mode > 1 else k
    if fast:
        if mask is not None and mask.dim() == 1:
            mask = mask.unsqueeze(0)
        return _finish(fused(q, k, v, mask, scale=choices.scale), flat), present_key, present_value, None
    y, products = _spelled_out(q, k, v, mask, counts, choices)
    return _finish(y, flat), present_key, present_value, products


def _finish(y: Tensor, flat: bool) -> Tensor:
    return merge_heads(y) if flat else y


def _spelled_out(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, counts: Tensor | None, choices: _Choices
) -> tuple[Tensor, Tensor | None]:
    """The steps one by one, for what the fused form cannot give; ``counts`` [B, S] tells which keys count."""
    scale = 1.0 / math.sqrt(q.shape[3]) if choices.scale is None else choices.scale
    raw = scores(q, k, scale)
    capped = torch.tanh(raw / choices.softcap) * choices.softcap if choices.softcap else raw
    biased = masked_scores(capped, mask)
    if counts is not None:
        biased = biased.masked_fill(~counts[:, None, None, :], -math.inf)
    values = biased
    if choices.precision is not None:
        values = values.to(ElementType(choices.precision).torch_dtype)
    probabilities = softmax(values, mask).to(q.dtype)
    products = None
    if choices.products:
        products = (raw, capped, biased, probabilities)[choices.mode]
        # The products of mode 2 and 3 do not depend on the mask's shape.
        products = products.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    return weighted(probabilities.to(v.dtype), v), products


def _fitted(mask: Tensor, keys: int, dtype: torch.dtype) -> Tensor:
    """A user's mask as bools or in the scores' dtype, its last axis filled up."""
    if mask.dtype is not torch.bool and mask.dtype is not dtype:
        mask = mask.to(dtype)
    missing = keys - mask.shape[-1]
    if missing > 0:
        mask = F.pad(mask, (0, missing), value=False if mask.dtype is torch.bool else -math.inf)
    return mask


def _is_native(precision: int | None, dtype: torch.dtype) -> bool:
    """Whether the fused form computes the softmax as precisely as asked for, and no less coarsely."""
    if precision is None or precision == element_type_of(dtype):
        return True
    return precision == ElementType.FLOAT and dtype in _HALVES
