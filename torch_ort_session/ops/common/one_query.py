"""Attention of one query over many keys by the op for steps of decoders, ``csrc/attention/gqa_decode/``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ops import native

# Elements of the keys from which on the compiled op was measured to be faster than torch's own.
_WORTH = 1 << 15


def one_query(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor | None:
    """Attention of one query over many keys on the CPU; None where torch's own has to do it.

    It serves float16, which torch's own would widen first, and float32 where several heads share keys.

    Args:
        q: Queries [B, H, 1, D].
        k: Keys [B, G, S, D].
        v: Values [B, G, S, D].
        mask: Bools of what is in sight, or floats added to the scores; broadcastable to [B, H, 1, S].
        scale: Factor of the scores; None is ``1 / sqrt(D)``.
    """
    if q.dtype is not torch.float16 and (q.dtype is not torch.float32 or q.shape[1] == k.shape[1]):
        return None
    if not q.is_cpu or q.shape[2] != 1 or k.shape != v.shape or not q.dtype is k.dtype is v.dtype:
        return None
    batch, groups, count, width = k.shape
    if q.shape[0] != batch or groups * count * width < _WORTH or q.shape[1] % groups:
        return None
    # Keys that do not lie feature by feature would have to be copied first.
    if k.stride(3) != 1 or v.stride(3) != 1:
        return None
    if mask is not None:
        if mask.shape[-1] != count or mask.dim() > 4 or mask.dtype not in (torch.bool, q.dtype):
            return None
        mask = mask[(None,) * (4 - mask.dim())]
    op = native.device_op("gqa_decode", q, k, v, mask)
    if op is None:
        return None
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -math.inf)
    # The last key is the query's own, so that all others are rows of a cache.
    own = (part[:, :, count - 1 :] for part in (k, v))
    y = op(
        *(part.transpose(1, 2).flatten(2).contiguous() for part in (q, *own)),
        *(part[:, :, : count - 1] for part in (k, v)),
        last=torch.full((batch,), count - 1, dtype=torch.int32),
        total=count,
        cos=None,
        sin=None,
        position=None,
        bias=mask if mask is None or mask.stride(3) == 1 else mask.contiguous(),
        sink=None,
        heads=q.shape[1],
        groups=groups,
        scale=1.0 / math.sqrt(width) if scale is None else scale,
        window=-1,
        softcap=0.0,
        interleaved=False,
        smooth=False,
        node=0,
        word=None,
    )[0]
    heads: Tensor = y.reshape(batch, 1, q.shape[1], width).transpose(1, 2)
    return heads
