"""Generators of com.microsoft's sequence ops with a state of fixed size."""

from __future__ import annotations

from typing import Any

from cases import microsoft_state
from cases.microsoft_state import ms
from opcase import OpCase, t

from differential.images_and_arranging import one_of
from differential.single import Generator, Row

RULES = {"linear": (0, 0), "gated": (1, 0), "delta": (0, 1), "gated_delta": (1, 1)}


def linear_attention(rng: Generator) -> OpCase:
    batch, steps, groups, size, values = (int(n) for n in rng.integers(1, [4, 6, 4, 5, 5]))
    more, fewer = int(rng.integers(1, 4)), 1
    if rng.random() < 0.3:
        fewer, groups, more = groups, groups * 2, 1
    heads, keys = (groups // 2, groups) if fewer > 1 else (groups * more, groups)
    rule = one_of(rng, *RULES)
    gated, corrected = RULES[rule]
    inputs: list[Any] = [t(batch, steps, heads * size), t(batch, steps, keys * size)]
    inputs += [t(batch, steps, groups * values)]
    inputs.append(t(batch, groups, size, values) if rng.random() < 0.5 else None)
    width = groups * one_of(rng, 1, size)
    inputs.append(t(batch, steps, width, low=-1, high=0) if gated else None)
    inputs += [t(batch, steps, one_of(rng, 1, groups), low=0)] if corrected else []
    attrs = {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule}
    attrs |= {"scale": float(rng.uniform(0.1, 1.0))} if rng.random() < 0.5 else {}
    return ms("LinearAttention", inputs, attrs, outputs=2)


def causal_conv(rng: Generator) -> OpCase:
    batch, channels, steps, width, dilation = (int(n) for n in rng.integers(1, [4, 5, 7, 5, 4]))
    last, before = int(rng.integers(2)), (width - 1) * dilation
    bias = t(channels) if rng.random() < 0.5 else None
    past = t(*((batch, before, channels) if last else (batch, channels, before)))
    inputs = [
        t(*((batch, steps, channels) if last else (batch, channels, steps))),
        t(channels, 1, width),
        bias,
    ]
    attrs = {"activation": one_of(rng, "none", "silu", "swish"), "channels_last": last, "dilation": dilation}
    return ms("CausalConvWithState", [*inputs, *([past] if rng.random() < 0.6 else [])], attrs, outputs=2)


def conv_window(rng: Generator) -> OpCase:
    batch, channels, steps, width, slots = (int(n) for n in rng.integers(1, [3, 4, 6, 4, 5]))
    inputs = [t(batch, channels, steps), t(channels, 1, width), t(channels)]
    inputs += [t(slots, batch, channels, width - 1)] if rng.random() < 0.5 else []
    attrs = {"state_window": slots}
    return ms("CausalConvWithState", inputs, attrs, outputs=2, oracle=microsoft_state.conv)


def gate(rng: Generator) -> OpCase:
    batch, steps, heads = (int(n) for n in rng.integers([0, 1, 1], [4, 6, 5]))
    shape = (batch, steps, heads)
    inputs = [t(*shape, low=-4, high=4), t(heads, dtype="float32"), t(heads, dtype="float32"), t(*shape)]
    return ms("LinearAttentionGate", inputs, outputs=2)


ROWS: dict[str, Row] = {
    "LinearAttention": Row(linear_attention, trials=30),
    "CausalConvWithState": Row(causal_conv, trials=20),
    "CausalConvWithState of a window": Row(conv_window),
    "LinearAttentionGate": Row(gate, ("float32", "float16")),
}
