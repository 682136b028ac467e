"""Generators of single nodes of com.microsoft's attention ops, each a seeded choice of everything it has."""

from __future__ import annotations

from typing import Any

import numpy as np
from opcase import OpCase, const, t

from differential.single import Row

FLOATS = ("float32", "float16")


def _chance(rng: np.random.Generator, share: float = 0.5) -> bool:
    return bool(rng.random() < share)


def _int32(data: Any) -> Any:
    return const(np.asarray(data), "int32")


def _node(op: str, inputs: list[Any], attrs: dict[str, Any], outputs: int) -> OpCase:
    return OpCase(op, inputs, attrs, domain="com.microsoft", outputs=outputs, oracle="onnxruntime")


def decoder_masked(rng: np.random.Generator) -> OpCase:
    heads, size = int(rng.integers(1, 5)), 2 * int(rng.integers(1, 9))
    width, samples, by_beam = heads * size, int(rng.integers(1, 4)), _chance(rng)
    beams = int(rng.integers(1, 4)) if by_beam else 1
    batch, capacity = samples * beams, int(rng.integers(1, 9))
    attrs: dict[str, Any] = {"num_heads": heads}
    if _chance(rng):
        attrs["scale"] = float(rng.uniform(0.1, 1.0))
    if _chance(rng, 0.3):
        attrs["mask_filter_value"] = float(rng.choice([-10000.0, -3.0]))
    inputs: list[Any] = [t(batch, 1, width)]
    finished = _chance(rng, 0.25)
    past = int(rng.integers(0, capacity))
    total = capacity if finished else past + 1
    if finished:
        inputs += [t(batch, heads, total, size)] * 2
    else:
        attrs["past_present_share_buffer"] = 1
        inputs += [t(batch, 1, width)] * 2
    inputs.append(_int32(rng.integers(0, 2, (batch, total))) if _chance(rng, 0.4) else None)
    biased = not finished and _chance(rng, 0.4)
    # With beams onnxruntime takes a bias by sample, and a mask by row.
    inputs.append(t(1 if by_beam else int(rng.choice([1, batch])), heads, 1, total) if biased else None)
    if finished:
        inputs += [None] * 5
    else:
        inputs += [t(batch, heads, capacity, size)] * 2 + [_int32([past])]
        indirection = _int32(rng.integers(0, beams, (samples, beams, capacity)))
        inputs += [_int32([beams]), indirection] if by_beam else [None, None]
    inputs.append(t(3 * width) if _chance(rng, 0.4) else None)
    return _node("DecoderMaskedMultiHeadAttention", inputs, attrs, 1 if finished else 3)


ROWS: dict[str, Row] = {"DecoderMaskedMultiHeadAttention": Row(decoder_masked, FLOATS)}
