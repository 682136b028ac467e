"""Generators of com.microsoft's rotary sections, bit masks, routers, cached self attention, packed states."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import microsoft_choices as choices
from cases.microsoft_choices import ms
from opcase import OpCase, const, t

from differential.images_and_arranging import dims, one_of
from differential.single import Generator, Row
from differential.state_rows import RULES


def chance(rng: Generator, share: float = 0.5) -> bool:
    return bool(rng.random() < share)


def m_rotary(rng: Generator) -> OpCase:
    batch, heads, length = (int(n) for n in rng.integers(1, 4, 3))
    first, second, third = (int(n) for n in rng.integers([1, 0, 0], [4, 3, 3]))
    # Angles take turns as far as there are that many.
    turns = int(chance(rng))
    second, third = (min(second, first), min(third, first, second)) if turns else (second, third)
    half = first + second + third
    size = 2 * half + 2 * int(chance(rng, 0.3))
    attrs: dict[str, Any] = {"mrope_section": [first, second, third], "num_heads": heads}
    attrs |= {"mrope_layout": turns, "interleaved": int(chance(rng)), "rotary_embedding_dim": 2 * half}
    x = t(batch, length, heads * size) if chance(rng) else t(batch, heads, length, size)
    return ms(
        "MRotaryEmbedding", [x, t(3, batch, length, low=0, high=9, dtype="int64"), *[t(9, half)] * 2], attrs
    )


def gemma(rng: Generator) -> OpCase:
    batch, heads, length, size = dims(rng, 4, 4)
    one = t(batch, heads, length, size)
    inputs = [t(batch, length, size, dtype="float32"), *[one] * 4]
    return ms("GemmaRotaryEmbedding", inputs, outputs=2, oracle=choices.gemma)


def dropout(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 3, empty=0)
    if chance(rng):
        return ms("BitmaskDropout", [t(*shape)], outputs=2, oracle=choices.bitmask)
    inputs = [t(*shape), t(*one_of(rng, shape, shape[-1:])), *([t(*shape)] if chance(rng) else [])]
    return ms("BitmaskBiasDropout", inputs, outputs=2, oracle=choices.bias_bitmask)


def router(rng: Generator) -> OpCase:
    groups, each = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    opened = int(rng.integers(1, groups + 1))
    attrs = {"n_group": groups, "topk_group": opened, "group_topk": int(rng.integers(1, 4))}
    attrs["top_k"] = int(rng.integers(1, opened * each + 1))
    shape = (*dims(rng, 1, 2, empty=0), groups * each)
    return ms("MoEGroupRouter", [t(*shape, low=-3, high=3), t(groups * each)], attrs)


def projection(rng: Generator) -> OpCase:
    *lead, width = dims(rng, 2, 3, empty=0)
    size, half = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    attrs = {"router_size": size, "limit": one_of(rng, 0.0, 0.5), "activation_alpha": one_of(rng, 1.0, 1.7)}
    inputs = [t(*lead, width), t(width, size + 2 * half)]
    return ms("RouterGateUpProj", inputs, attrs, outputs=2, oracle=choices.projected)


def self_attention(rng: Generator) -> OpCase:
    batch, heads, rows, quarter = (int(n) for n in rng.integers(1, [4, 4, 6, 3]))
    shared, size = chance(rng), 4 * quarter
    length = int(rng.integers(0, rows)) if shared else rows
    mask = const(np.maximum(rng.integers(0, 2, (batch, length + 1)), np.eye(1, length + 1)), "int32")
    inputs: list[Any] = [t(batch, 1, 5), t(5, 3 * heads * size), t(3 * heads * size)]
    inputs += [mask if chance(rng) else None, t(2, batch, heads, rows, size), None, const([length], "int32")]
    attrs = {"num_heads": heads, "past_present_share_buffer": int(shared)}
    return ms("DecoderMaskedSelfAttention", inputs, attrs, outputs=2, oracle=choices.self_attention)


def buffered(rng: Generator) -> OpCase:
    batch, heads, size, rows = (int(n) for n in rng.integers([1, 1, 1, 2], [4, 4, 5, 8]))
    past = int(rng.integers(0, rows))
    length = int(rng.integers(1, rows - past + 1)) if chance(rng) else 1
    width = heads * size
    one, cache = t(batch, length, width), t(batch, heads, rows, size)
    bias = t(1, heads, length, past + length) if chance(rng, 0.4) else None
    inputs: list[Any] = [one, one, one, None, None, bias, cache, cache, const([past], "int32")]
    attrs = {"num_heads": heads, "unidirectional": int(chance(rng))}
    return ms("MultiHeadAttention", inputs, attrs, outputs=3)


def ends(rng: Generator) -> tuple[Any, int, int]:
    counts = rng.integers(1, 5, int(rng.integers(1, 4)))
    return const([0, *counts.cumsum()], "int32"), len(counts), int(counts.sum())


def delta_net(rng: Generator) -> OpCase:
    bounds, batch, total = ends(rng)
    heads, more, size, values = (int(n) for n in rng.integers(1, 4, 4))
    groups, rule = heads * more, one_of(rng, *RULES)
    gated, corrected = RULES[rule]
    inputs: list[Any] = [t(total, heads, size), t(total, heads, size), t(total, groups, values), bounds]
    inputs.append(t(total, groups, *one_of(rng, (), (size,)), low=-1, high=0) if gated else None)
    inputs.append(t(total, groups, low=0) if corrected else None)
    inputs.append(t(batch, groups, values, size) if chance(rng) else None)
    attrs: dict[str, Any] = {"update_rule": rule, "qk_l2_norm": int(corrected or chance(rng))}
    if gated and chance(rng):
        attrs["gate_activation"] = one_of(rng, "softplus", "sigmoid")
        inputs += [t(groups), t(groups)]
    attrs["beta_activation"] = one_of(rng, "none", "sigmoid")
    # Gates through exp and sigmoid, step after step.
    return ms("GatedDeltaNet", inputs, attrs, outputs=2, tol=1e-4)


def varlen_conv(rng: Generator) -> OpCase:
    bounds, batch, total = ends(rng)
    channels, width, dilation, capacity = (int(n) for n in rng.integers([1, 1, 1, 0], [4, 5, 4, 4]))
    inputs: list[Any] = [
        t(total, channels),
        t(channels, 1, width),
        bounds,
        t(channels) if chance(rng) else None,
    ]
    inputs += [t(batch, channels, (width - 1) * dilation)]
    inputs += [const(rng.integers(0, 5, batch), "int32")] if capacity else []
    attrs = {
        "dilation": dilation,
        "activation": one_of(rng, "none", "silu"),
        "state_update_capacity": capacity,
    }
    return ms("VarlenCausalConvWithState", inputs, attrs, outputs=2 + (capacity > 0))


ROWS: dict[str, Row] = {
    "MRotaryEmbedding": Row(m_rotary, ("float32", "float16")),
    "GemmaRotaryEmbedding": Row(gemma, ("float16",)),
    "BitmaskDropout": Row(dropout),
    "MoEGroupRouter": Row(router, trials=20),
    "RouterGateUpProj": Row(projection),
    "DecoderMaskedSelfAttention": Row(self_attention),
    "MultiHeadAttention with buffers": Row(buffered, trials=20),
    "GatedDeltaNet": Row(delta_net, trials=20),
    "VarlenCausalConvWithState": Row(varlen_conv, trials=20),
}
