"""Generators of single nodes of com.microsoft's attention ops, each a seeded choice of everything it has."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import microsoft_packing as packing
from opcase import OpCase, const, t

from differential.single import Row

FLOATS = ("float32", "float16")


def _chance(rng: np.random.Generator, share: float = 0.5) -> bool:
    return bool(rng.random() < share)


def _int32(data: Any) -> Any:
    return const(np.asarray(data), "int32")


def _node(
    op: str, inputs: list[Any], attrs: dict[str, Any], outputs: int = 1, oracle: Any = "onnxruntime"
) -> OpCase:
    return OpCase(op, inputs, attrs, domain="com.microsoft", outputs=outputs, oracle=oracle)


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


def ngram(rng: np.random.Generator) -> OpCase:
    batch, length, words = (int(n) for n in rng.integers([1, 0, 1], [4, 20, 6]))
    text = t(batch, length, low=0, high=words, dtype="int64")
    return _node("NGramRepeatBlock", [text, t(batch, words)], {"ngram_size": int(rng.integers(1, 5))}, 1)


def _layout(rng: np.random.Generator) -> tuple[int, int, Any, Any, Any]:
    """Sequences without padding: batch, length, counts, offset and sums."""
    batch, length = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    counts = rng.integers(0, length + 1, batch)
    counts[0] = max(counts[0], 1)
    _, offset, sums, _ = packing.remove(np.zeros((batch, length, 1)), counts)
    return batch, length, counts, _int32(offset), _int32(sums)


def _biases(rng: np.random.Generator, batch: int, heads: int, length: int) -> list[Any]:
    if _chance(rng):
        return []
    return [t(int(rng.choice([1, batch])), int(rng.choice([1, heads])), length, length)]


def remove_padding(rng: np.random.Generator) -> OpCase:
    batch, length, counts, _, _ = _layout(rng)
    return _node("RemovePadding", [t(batch, length, 4), _int32(counts)], {}, 4, packing.remove)


def restore_padding(rng: np.random.Generator) -> OpCase:
    _, _, counts, offset, _ = _layout(rng)
    return _node("RestorePadding", [t(int(counts.sum()), 4), offset], {}, 1, packing.restore)


def packed_attention(rng: np.random.Generator) -> OpCase:
    batch, length, counts, offset, sums = _layout(rng)
    heads, size, values = (int(n) for n in rng.integers(1, 5, 3))
    sizes = [heads * size, heads * size, heads * values]
    attrs: dict[str, Any] = {"num_heads": heads, "qkv_hidden_sizes": sizes}
    if _chance(rng):
        attrs["scale"] = float(rng.uniform(0.1, 1.0))
    inputs = [t(int(counts.sum()), 6), t(6, sum(sizes)), t(sum(sizes)), offset, sums]
    inputs += _biases(rng, batch, heads, length)
    return _node("PackedAttention", inputs, attrs, 1, packing.packed_attention)


def packed_heads(rng: np.random.Generator) -> OpCase:
    batch, length, counts, offset, sums = _layout(rng)
    heads, size, tokens = int(rng.integers(1, 5)), int(rng.integers(1, 5)), int(counts.sum())
    inputs: list[Any] = [t(tokens, heads * size)] * 3
    if _chance(rng, 0.3):
        inputs = [t(tokens, heads, 3, size), None, None]
    inputs += [t(3 * heads * size) if _chance(rng) else None, offset, sums]
    inputs += _biases(rng, batch, heads, length)
    return _node("PackedMultiHeadAttention", inputs, {"num_heads": heads}, 1, packing.packed_heads)


def position_bias(rng: np.random.Generator) -> OpCase:
    buckets, heads = 4 * int(rng.integers(1, 9)), int(rng.integers(1, 4))
    lengths = [const(int(rng.integers(0, 12)), "int64"), const(int(rng.integers(1, 12)), "int64")]
    attrs = {"max_distance": buckets + int(rng.integers(0, 20)), "is_bidirectional": int(_chance(rng))}
    return _node("RelativePositionBias", [t(buckets, heads), *lengths], attrs, 1, packing.position_bias)


def gated(rng: np.random.Generator) -> OpCase:
    batch, length, counts, offset, _ = _layout(rng)
    heads, size, half = (int(n) for n in rng.integers(1, 5, 3))
    packed = _chance(rng)
    tokens = t(int(counts.sum()), heads * size) if packed else t(batch, length, heads * size)
    inputs = [tokens, t(heads * size), t(1, heads, length, length), t(size, 2 * half), t(2 * half)]
    inputs += [t(1, heads, 1, 1), *([offset] if packed else [])]
    return _node("GatedRelativePositionBias", inputs, {"num_heads": heads}, 1, packing.gated)


ROWS: dict[str, Row] = {
    "DecoderMaskedMultiHeadAttention": Row(decoder_masked, FLOATS),
    "NGramRepeatBlock": Row(ngram, trials=30),
    "RemovePadding": Row(remove_padding, FLOATS, seam=True),
    "RestorePadding": Row(restore_padding, FLOATS),
    "PackedAttention": Row(packed_attention),
    "PackedMultiHeadAttention": Row(packed_heads),
    "RelativePositionBias": Row(position_bias, FLOATS),
    "GatedRelativePositionBias": Row(gated),
}
