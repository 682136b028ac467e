"""Cases of com.microsoft's SparseAttention."""

from typing import Any

import numpy as np
from opcase import OpCase, const, t

OP = "SparseAttention"
H = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}


def turned(x, place, cos, sin, interleaved):  # type: ignore[no-untyped-def]
    """Heads [N, L, D] rotated by the angles of their places [L]."""
    c, s = cos[place], sin[place]
    pick = (
        (slice(0, None, 2), slice(1, None, 2))
        if interleaved
        else (slice(0, len(c[0])), slice(len(c[0]), None))
    )
    y = np.empty_like(x)
    y[..., pick[0]] = x[..., pick[0]] * c - x[..., pick[1]] * s
    y[..., pick[1]] = x[..., pick[0]] * s + x[..., pick[1]] * c
    return y


def sparse(
    q,
    k,
    v,
    past_k,
    past_v,
    starts,
    columns,
    total,
    lengths,
    cos=None,
    sin=None,
    *,
    num_heads,  # type: ignore[no-untyped-def]
    kv_num_heads,
    sparse_block_size,
    do_rotary=0,
    rotary_interleaved=0,
    scale=0.0,
):
    """Query by query, in float64."""
    size = past_k.shape[3]
    if k is None:
        q, k, v = np.split(q, [num_heads * size, (num_heads + kv_num_heads) * size], 2)
    (batch, length), layouts = q.shape[:2], len(starts)
    keys, values, out = past_k.copy(), past_v.copy(), np.zeros(q.shape)
    for b in range(batch):
        before = 0 if int(np.ravel(total)[0]) == length else int(lengths[b]) - length
        place = np.arange(before, before + length)
        queries, new, fresh = (x[b].reshape(length, -1, size).swapaxes(0, 1) for x in (q, k, v))
        if do_rotary:
            queries, new = (turned(x, place, cos, sin, rotary_interleaved) for x in (queries, new))
        keys[b][:, place], values[b][:, place] = new, fresh
        for h in range(num_heads):
            group, layout = h * kv_num_heads // num_heads, h % layouts
            for i, p in enumerate(place):
                row = p // sparse_block_size
                blocks = columns[layout, starts[layout, row] : starts[layout, row + 1]]
                seen = [j for j in range(p + 1) if j // sparse_block_size in blocks]
                if not seen:
                    continue
                logits = keys[b, group, seen].astype(np.float64) @ queries[h, i] * (scale or size**-0.5)
                weights = np.exp(logits)
                y = weights / weights.sum() @ values[b, group, seen]
                out[b, i, h * size : (h + 1) * size] = y
    return out.astype(q.dtype), keys, values


def case(inputs: list[Any], attrs: dict[str, Any] | None = None, **more: Any) -> OpCase:
    return OpCase(
        OP, inputs, {**H, **(attrs or {})}, domain="com.microsoft", outputs=3, oracle=sparse, **more
    )


def lengths(total: int, *each: int) -> list[Any]:
    return [const([total], "int32"), const(each, "int32")]


THREE = [t(2, 20, 64), t(2, 20, 32), t(2, 20, 32)]
CACHE = [t(2, 2, 48, 16), t(2, 2, 48, 16)]
ONE = [const([[0, 1, 3, 5]], "int32"), const([[0, 0, 1, 1, 2]], "int32")]
TWO = [
    const([[0, 1, 3, 5], [0, 1, 2, 4]], "int32"),
    const([[0, 0, 1, 1, 2], [0, 1, 0, 2, -1]], "int32"),
]
ANGLES = [t(48, 8), t(48, 8)]
STEP = [t(2, 1, 64), t(2, 1, 32), t(2, 1, 32)]

CASES: tuple[OpCase, ...] = (
    case([*THREE, *CACHE, *ONE, *lengths(20, 20, 20)], grad=True),
    case([*THREE, *CACHE, *TWO, *lengths(20, 20, 9), *ANGLES], {"do_rotary": 1}, id="rotary"),
    case([*STEP, *CACHE, *TWO, *lengths(40, 40, 17), *ANGLES], {"do_rotary": 1, "scale": 0.3}, id="ragged"),
    case([*STEP, *CACHE, *TWO, *lengths(34, 34, 34)], dtypes=("float32", "float16"), id="decode"),
    case([t(2, 1, 128), None, None, *CACHE, *TWO, *lengths(34, 34, 1)], id="packed"),
    case(
        [*STEP, *CACHE, *ONE, *lengths(48, 48, 2), *ANGLES],
        {"do_rotary": 1, "rotary_interleaved": 1},
        id="pairs",
    ),
)
