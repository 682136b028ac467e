"""Generators of single nodes of com.microsoft's attention ops, each a seeded choice of everything it has."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from cases import microsoft_packing as packing
from opcase import OpCase, const, t
from ortsession import ort_session

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


def sharing(*values: Any, **attrs: Any) -> tuple[Any, ...]:
    """What onnxruntime makes of a node whose caches are input and output at once."""
    inputs = [None if x is None else const(x, str(x.dtype)) for x in values]
    model = OpCase("SparseAttention", inputs, attrs, domain="com.microsoft", outputs=3).model("float32", 1)
    for output in model.graph.output:
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    session = ort_session(model.SerializeToString())
    binding = session.io_binding()
    # A value refers to the array that it is made of.
    arrays = {f"x{i}": x.copy() for i, x in enumerate(values) if x is not None}
    held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in arrays.items()}
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0")
    binding.bind_ortvalue_output("y1", held["x3"])
    binding.bind_ortvalue_output("y2", held["x4"])
    session.run_with_iobinding(binding)
    return tuple(value.numpy().copy() for value in binding.get_outputs())


def sparse(rng: np.random.Generator) -> OpCase:
    groups, size, rows = int(rng.integers(1, 3)), 16 * int(rng.integers(1, 3)), int(rng.integers(1, 4))
    heads, capacity, prompt = groups * int(rng.integers(1, 3)), 16 * rows, _chance(rng)
    layouts = int(rng.choice([n for n in (1, 2) if heads % n == 0]))
    batch, length = int(rng.integers(1, 3)), int(rng.integers(2, capacity + 1)) if prompt else 1
    # Where samples differ in length, onnxruntime sees other keys than there are; cases have those.
    total = length if prompt else int(rng.integers(2, capacity + 1))
    blocks = np.tril(rng.integers(0, 2, (layouts, rows, rows))) | np.eye(rows, dtype=np.int64)
    starts = np.concatenate([np.zeros((layouts, 1), np.int64), blocks.sum(2).cumsum(1)], 1)
    columns = np.full((layouts, int(starts[:, -1].max())), -1)
    for layout, found in enumerate(blocks):
        columns[layout, : starts[layout, -1]] = np.argwhere(found)[:, 1]
    three = [t(batch, length, n * size) for n in (heads, groups, groups)]
    inputs: list[Any] = three if _chance(rng) else [t(batch, length, (heads + 2 * groups) * size), None, None]
    inputs = inputs + [t(batch, groups, capacity, size)] * 2 + [_int32(starts), _int32(columns)]
    inputs += [_int32([total]), _int32([total] * batch)]
    attrs: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups, "sparse_block_size": 16}
    if _chance(rng):
        attrs |= {"do_rotary": 1, "rotary_interleaved": int(rng.integers(0, 2))}
        inputs += [t(capacity, size // 2)] * 2
    if _chance(rng):
        attrs["scale"] = float(rng.uniform(0.1, 1.0))
    return _node("SparseAttention", inputs, attrs, 3, sharing)


ROWS: dict[str, Row] = {
    "DecoderMaskedMultiHeadAttention": Row(decoder_masked, FLOATS),
    "NGramRepeatBlock": Row(ngram, trials=30),
    "RemovePadding": Row(remove_padding, FLOATS, seam=True),
    "RestorePadding": Row(restore_padding, FLOATS),
    "PackedAttention": Row(packed_attention),
    "PackedMultiHeadAttention": Row(packed_heads),
    "RelativePositionBias": Row(position_bias, FLOATS),
    "GatedRelativePositionBias": Row(gated),
    "SparseAttention": Row(sparse),
}
