"""Cases of com.microsoft's PagedAttention."""

from typing import Any

import numpy as np
from opcase import OpCase, const, t

from cases.microsoft_sparse import turned

H = {"num_heads": 4, "kv_num_heads": 2}


def paged(
    q,
    k,
    v,
    key_cache,
    value_cache,
    sums,
    past,
    table,
    cos=None,
    sin=None,
    slots=None,
    sink=None,  # type: ignore[no-untyped-def]
    q_norm=None,
    k_norm=None,
    *,
    num_heads,
    kv_num_heads,
    do_rotary=0,
    rotary_interleaved=0,
    scale=0.0,
    softcap=0.0,
    is_causal=1,
    local_window_size=-1,
):
    """Token by token, in float64."""
    size, width = key_cache.shape[1], key_cache.shape[3]
    if k is None:
        q, k, v = np.split(q, [num_heads * width, (num_heads + kv_num_heads) * width], 1)
    q, k, v = (x.reshape(len(x), -1, width).astype(np.float64) for x in (q, k, v))
    if q_norm is not None:
        q, k = (
            x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w for x, w in ((q, q_norm), (k, k_norm))
        )
    keys, values, out = key_cache.copy(), value_cache.copy(), np.zeros(q.shape)
    sequences = [range(sums[b], sums[b + 1]) for b in range(len(past))]
    for b, tokens in enumerate(sequences):
        place = past[b] + np.arange(len(tokens))
        if do_rotary:
            for x in (q, k):
                x[list(tokens)] = turned(
                    x[list(tokens)].swapaxes(0, 1), place, cos, sin, rotary_interleaved
                ).swapaxes(0, 1)
        for n, p in zip(tokens, place, strict=True):
            slot = table[b, p // size] * size + p % size if slots is None else slots[n]
            if slot >= 0 and (slots is not None or table[b, p // size] >= 0):
                keys.reshape(-1, kv_num_heads, width)[slot] = k[n]
                values.reshape(-1, kv_num_heads, width)[slot] = v[n]
    for b, tokens in enumerate(sequences):
        end = past[b] + len(tokens)
        for n, p in zip(tokens, range(past[b], end), strict=True):
            seen = [j for j in range(p + 1 if is_causal else end) if table[b, j // size] >= 0]
            seen = [j for j in seen if local_window_size < 0 or j > p - local_window_size]
            rows = [table[b, j // size] * size + j % size for j in seen]
            for h in range(num_heads):
                g = h * kv_num_heads // num_heads
                logits = keys.reshape(-1, kv_num_heads, width)[rows, g].astype(np.float64) @ q[n, h]
                logits = logits * (scale or width**-0.5)
                logits = np.tanh(logits / softcap) * softcap if softcap else logits
                weights = np.exp(logits)
                total = weights.sum() + (0 if sink is None else np.exp(sink[h]))
                out[n, h] = weights / total @ values.reshape(-1, kv_num_heads, width)[rows, g]
    return out.reshape(len(q), -1).astype(key_cache.dtype), keys, values


def case(inputs: list[Any], attrs: dict[str, Any] | None = None, **more: Any) -> OpCase:
    return OpCase(
        "PagedAttention",
        inputs,
        {**H, **(attrs or {})},
        domain="com.microsoft",
        outputs=3,
        oracle=paged,
        **more,
    )


def lengths(new: list[int], past: list[int], table: list[list[int]]) -> list[Any]:
    return [const([0, *np.cumsum(new)], "int32"), const(past, "int32"), const(table, "int32")]


CACHE = [t(6, 4, 2, 8), t(6, 4, 2, 8)]
FIRST = lengths([1, 4, 2], [0, 0, 0], [[5, -1], [0, 2], [3, -1]])
LATER = lengths([1, 3, 2], [6, 2, 3], [[5, 1], [0, 2], [3, 4]])
STEP = lengths([1, 1, 1], [6, 4, 1], [[5, 1], [0, 2], [3, -1]])


def three(tokens: int) -> list[Any]:
    return [t(tokens, 32), t(tokens, 16), t(tokens, 16)]


ANGLES = [t(12, 4), t(12, 4)]

CASES: tuple[OpCase, ...] = (
    case([*three(7), *CACHE, *FIRST], grad=True, dtypes=("float16",)),
    case([*three(6), *CACHE, *LATER], dtypes=("float16", "float32"), id="later"),
    case([*three(3), *CACHE, *STEP, *ANGLES], {"do_rotary": 1, "scale": 0.3}, id="rotary"),
    case([*three(6), *CACHE, *LATER, *ANGLES], {"do_rotary": 1, "rotary_interleaved": 1}, id="pairs"),
    case([t(6, 64), None, None, *CACHE, *LATER], {"local_window_size": 3}, id="packed_window"),
    case([*three(6), *CACHE, *LATER], {"is_causal": 0, "softcap": 0.7}, id="both_ways"),
    case([*three(3), *CACHE, *STEP, None, None, const([6, -1, 13], "int32")], id="slots"),
    case([*three(6), *CACHE, *LATER, None, None, None, t(4), t(8), t(8)], id="sink_and_norms"),
    case([*three(3), *CACHE, *lengths([1, 1, 1], [6, 4, 1], [[-1, 1], [0, 2], [3, -1]])], id="unmapped"),
)
