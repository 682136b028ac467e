"""Self attention of one new token with its projection: DecoderMaskedSelfAttention of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import KernelContext, kernel
from torch_ort_session.ops.microsoft.decoder_masked import Buffers, Hiding, attend_one


@kernel(
    "DecoderMaskedSelfAttention", domain="com.microsoft", since=(1,), checks=True, native=("check_range",)
)
def decoder_masked_self_attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    mask_index: Tensor | None,
    past: Tensor,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float | None = None,
    num_heads: int,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
    ctx: KernelContext,
) -> tuple[Tensor, Tensor]:
    """Attention of one token a sample to a cache that grows by its key.

    Args:
        x: [B, 1, C].
        weights: [C, 3 * H * D], the three projections side by side.
        bias: [3 * H * D].
        mask_index: int32 [B, T], 1 for what is in sight.
        past: [2, B, H, P, D], or a buffer [2, B, H, M, D] with ``past_present_share_buffer``, whose keys lie
            as [B, H, D / n, M, n] with n elements in 16 bytes.
        attention_bias: Added to the scores, broadcastable to [B, H, 1, T].
        past_sequence_length: int32, one element: how many rows of a buffer count.
        beam_width: Told by the shape of ``cache_indirection``.
        cache_indirection: int32 [B / W, W, M]: from which of W beams each cached key comes.
        do_rotary: Not supported.
        mask_filter_value: What is added to a score out of sight; None is -10000.
        num_heads: H.
        past_present_share_buffer: Whether the cache is a buffer, of which a part counts.
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
        ctx: Where a beam that does not exist, or a full buffer, is reported.

    Returns:
        The result [B, 1, H * D], and the cache with the new row.

    Raises:
        ValueError: An option that is not supported, or inputs that do not fit each other.

    Source:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.DecoderMaskedSelfAttention
    """
    if do_rotary:
        raise ValueError("do_rotary is not supported.")
    keys, values = past.unbind(0)
    batch, heads, rows, size = keys.shape
    run = 16 // keys.element_size()
    if past_present_share_buffer:
        if size % run:
            raise ValueError(f"heads of {size} elements are no multiple of {run}.")
        keys = keys.reshape(batch, heads, size // run, rows, run).transpose(2, 3).reshape(keys.shape)
    y, keys_now, values_now, _ = attend_one(
        (torch.matmul(x, weights) + bias, None, None, None),
        (keys, values),
        Hiding(mask_index, attention_bias, -10000.0 if mask_filter_value is None else mask_filter_value),
        Buffers(past_present_share_buffer != 0, past_sequence_length, cache_indirection, None),
        heads=num_heads,
        scale=scale,
        ctx=replace(ctx, wanted=(True, True, True)),
    )
    assert keys_now is not None and values_now is not None
    if past_present_share_buffer:
        keys_now = keys_now.reshape(batch, heads, rows, size // run, run).transpose(2, 3).reshape(keys.shape)
    return y, torch.stack((keys_now, values_now))
