"""Generators of nodes of com.microsoft's attention ops that onnxruntime's CPU provider does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import microsoft_longformer, microsoft_paged
from opcase import OpCase, const, t

from differential.single import Row


def _chance(rng: np.random.Generator, share: float = 0.5) -> bool:
    return bool(rng.random() < share)


def _node(op: str, inputs: list[Any], attrs: dict[str, Any], outputs: int, oracle: Any) -> OpCase:
    return OpCase(op, inputs, attrs, domain="com.microsoft", outputs=outputs, oracle=oracle)


def longformer(rng: np.random.Generator) -> OpCase:
    heads, size, batch, length = (int(n) for n in rng.integers(1, [4, 5, 3, 12]))
    width = heads * size
    inputs = [t(batch, length, width), t(width, 3 * width), t(3 * width)]
    hidden = rng.integers(0, 2, (batch, length))
    hidden[:, 0] = 0
    inputs += [const(hidden * -10000.0) if _chance(rng) else t(batch, length)]
    inputs += [t(width, 3 * width), t(3 * width), const(rng.integers(0, 2, (batch, length)), "int32")]
    attrs = {"num_heads": heads, "window": int(rng.integers(1, 5))}
    # Of padding that sees no other token nothing is told.
    return _node("LongformerAttention", inputs, attrs, 1, microsoft_longformer.longformer)


def decoder(rng: np.random.Generator) -> OpCase:
    heads, size, batch, length = (int(n) for n in rng.integers(1, [4, 5, 4, 5]))
    width, past, tokens = heads * size, int(rng.integers(1, 6)), int(rng.integers(1, 6))
    encoder, state = _chance(rng), _chance(rng)
    cached, masked = state and _chance(rng), _chance(rng)
    total = past * cached + length if not encoder else past if cached else tokens
    inputs: list[Any] = [
        t(length, batch, width),
        t(tokens, batch, width),
        t(width, width),
        t(width, 2 * width),
    ]
    hidden = rng.integers(0, 2, (batch, total)).astype(bool)
    hidden[:, 0] = False
    inputs += [t(3 * width), const(hidden, "bool") if masked else None]
    inputs += [t(batch, heads, past, size)] * 2 if cached else [None, None]
    inputs += [const([flag], "bool") for flag in (encoder, cached, state, masked)]
    attrs = {"num_heads": heads}
    return _node("DecoderAttention", inputs, attrs, 3 if state else 1, microsoft_longformer.decoder)


def paged(rng: np.random.Generator) -> OpCase:
    groups, half, batch, size = (int(n) for n in rng.integers(1, [3, 5, 4, 5]))
    heads, width = groups * int(rng.integers(1, 4)), 2 * half
    new, past = rng.integers(1, 5, batch), rng.integers(0, 7, batch)
    pages = -(-int((new + past).max()) // size)
    blocks = batch * pages + int(rng.integers(0, 3))
    table = rng.permutation(blocks)[: batch * pages].reshape(batch, pages)
    tokens = int(new.sum())
    inputs: list[Any] = [t(tokens, n * width) for n in (heads, groups, groups)]
    if _chance(rng):
        inputs = [t(tokens, (heads + 2 * groups) * width), None, None]
    inputs += [t(blocks, size, groups, width)] * 2 + [const([0, *np.cumsum(new)], "int32")]
    inputs += [const(past, "int32"), const(table, "int32")]
    attrs: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups, "is_causal": int(_chance(rng, 0.8))}
    rotary = _chance(rng, 0.4)
    if rotary:
        attrs |= {"do_rotary": 1, "rotary_interleaved": int(_chance(rng))}
    inputs += [t(12, half), t(12, half)] if rotary else [None, None]
    inputs += [None, t(heads) if _chance(rng, 0.3) else None]
    if _chance(rng, 0.3):
        attrs["local_window_size"] = int(rng.integers(1, 5))
    if _chance(rng, 0.3):
        attrs["softcap"] = 1.5
    return _node("PagedAttention", inputs, attrs, 3, microsoft_paged.paged)


ROWS: dict[str, Row] = {
    "LongformerAttention": Row(longformer),
    "DecoderAttention": Row(decoder),
    "PagedAttention": Row(paged, ("float32", "float16")),
}
