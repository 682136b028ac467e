"""Cases of com.microsoft's LongformerAttention and DecoderAttention."""

from typing import Any

import numpy as np
from opcase import OpCase, const, ms, t


def by_head(x, heads):  # type: ignore[no-untyped-def]
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2).astype(np.float64)


def weighted(logits, v):  # type: ignore[no-untyped-def]
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def longformer(x, w, b, mask, global_w, global_b, flags, *, num_heads, window):  # type: ignore[no-untyped-def]
    """Token by token, in float64: each picks its keys."""
    local, everywhere = (
        [by_head(part, num_heads) for part in np.split(x @ ws + bs, 3, -1)]
        for ws, bs in ((w, b), (global_w, global_b))
    )
    batch, length = flags.shape
    y = np.zeros((batch, num_heads, length, x.shape[2] // num_heads))
    for i in range(batch):
        for n in range(length):
            q, k, v = (part[i] for part in (everywhere if flags[i, n] else local))
            seen = [j for j in range(length) if flags[i, n] or flags[i, j] or abs(j - n) <= window]
            logits = np.einsum("hd,hjd->hj", q[:, n], k[:, seen]) / np.sqrt(q.shape[-1]) + mask[i, seen]
            y[i, :, n] = weighted(logits[:, None], v[:, seen])[:, 0]
    return y.swapaxes(1, 2).reshape(x.shape).astype(x.dtype)


def decoder(q, key, q_w, kv_w, b, mask, key_cache, value_cache, encoder, past, state, masked, *, num_heads):  # type: ignore[no-untyped-def]
    width, x = q.shape[2], q.swapaxes(0, 1)
    source = key.swapaxes(0, 1) if encoder else x
    keys, values = (by_head(part, num_heads) for part in np.split(source @ kv_w + b[width:], 2, -1))
    if past and encoder:
        keys, values = key_cache.astype(np.float64), value_cache.astype(np.float64)
    elif past:
        keys, values = np.concatenate([key_cache, keys], 2), np.concatenate([value_cache, values], 2)
    queries = by_head(x @ q_w + b[:width], num_heads)
    logits = queries @ keys.swapaxes(2, 3) / np.sqrt(queries.shape[-1])
    if masked:
        logits = logits + np.where(mask, -10000.0, 0.0)[:, None, None]
    y = weighted(logits, values).swapaxes(1, 2).reshape(x.shape).swapaxes(0, 1)
    results = y.astype(q.dtype), keys.astype(q.dtype), values.astype(q.dtype)
    return results if state else results[:1]


LONG = [t(2, 9, 8), t(8, 24), t(24)]
GLOBAL = [t(8, 24), t(24), const([[1, 0, 0, 0, 0, 0, 1, 0, 0], [0] * 9], "int32")]
PADDED = const([[0.0] * 7 + [-10000.0] * 2, [0.0] * 9])
H = {"num_heads": 2}
TOKENS = [t(3, 2, 8), t(4, 2, 8), t(8, 8), t(8, 16), t(24)]
CACHE = [t(2, 2, 4, 4), t(2, 2, 4, 4)]
MASK = const([[False, True, False, False], [False] * 4], "bool")
LATE = const([[False, True, False, False, False, True, False], [False] * 7], "bool")


def told(*flags: int) -> list[Any]:
    return [const([bool(flag)], "bool") for flag in flags]


CASES: tuple[OpCase, ...] = (
    ms("LongformerAttention", [*LONG, t(2, 9), *GLOBAL], {**H, "window": 2}, longformer, grad=True),
    ms("LongformerAttention", [*LONG, PADDED, *GLOBAL], {**H, "window": 1}, longformer, id="padded"),
    ms("DecoderAttention", [*TOKENS, None, None, None, *told(0, 0, 0, 0)], H, decoder, grad=True),
    ms(
        "DecoderAttention",
        [*TOKENS, MASK, None, None, *told(1, 0, 1, 1)],
        H,
        decoder,
        outputs=3,
        id="encoder",
    ),
    ms(
        "DecoderAttention",
        [*TOKENS, LATE, *CACHE, *told(0, 1, 1, 1)],
        H,
        decoder,
        outputs=3,
        grad=True,
        id="past",
    ),
    ms(
        "DecoderAttention",
        [*TOKENS, MASK, *CACHE, *told(1, 1, 1, 1)],
        H,
        decoder,
        outputs=3,
        id="encoder_past",
    ),
)
