"""Generators of the projections, activations, norms and attentions of com.microsoft for transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import microsoft_dense, microsoft_norm
from opcase import OpCase, const, t

from differential.images_and_arranging import dims, ms, numbers, one_of
from differential.single import Generator, Row

FLOATS = ("float32", "float16")


def chance(rng: Generator, share: float = 0.5) -> bool:
    return bool(rng.random() < share)


def scaled(rng: Generator, attrs: dict[str, Any]) -> dict[str, Any]:
    return attrs | ({"scale": float(rng.uniform(0.1, 1.0))} if chance(rng) else {})


def gelu(rng: Generator) -> OpCase:
    shape, op = dims(rng, 1, 4), one_of(rng, "Gelu", "FastGelu", "QuickGelu", "BiasGelu")
    inputs = [t(*shape, low=-6, high=6)]
    if op == "BiasGelu" or (op == "FastGelu" and chance(rng)):
        inputs.append(t(shape[-1]))
    # onnxruntime's erf and tanh are off by some 1e-7, which few small results show.
    tol = 1e-3 if np.prod(shape) < 12 else None
    return ms(op, inputs, {"alpha": one_of(rng, 1.0, 1.702)} if op == "QuickGelu" else {}, tol=tol)


def rotary(rng: Generator) -> OpCase:
    batch, heads, length, half = (int(n) for n in rng.integers(1, [4, 4, 6, 5]))
    part = chance(rng, 0.3)
    size, flat = 2 * half + 2 * part, chance(rng)
    attrs: dict[str, Any] = {"interleaved": int(rng.integers(2)), "is_packed_batching": int(rng.integers(2))}
    if part:
        attrs |= {"rotary_embedding_dim": 2 * half, "num_heads": heads}
    x = t(batch, length, heads * size) if flat else t(batch, heads, length, size)
    first = const([int(rng.integers(0, 4))], "int64")
    places = first if chance(rng) else t(batch, length, low=0, high=9, dtype="int64")
    return ms("RotaryEmbedding", [x, places, t(9, half), t(9, half)], attrs)


def skip_norm(rng: Generator) -> OpCase:
    shape, simple = dims(rng, 3, 3, empty=0), chance(rng)
    width = shape[-1]
    skip = t(*one_of(rng, shape, shape[1:], [1, *shape[1:]]))
    bias = [t(width)] if chance(rng) else []
    attrs = {"epsilon": one_of(rng, 1e-5, 1e-12, 0.1)}
    op, middle = "SkipSimplifiedLayerNormalization", []
    if not simple:
        op, middle = "SkipLayerNormalization", [t(width) if chance(rng) else None]
    outputs = one_of(rng, 1, (True, False, False, True))
    # Of one element the deviation is nothing but its rounding.
    tol = 2e-2 if width == 1 else None
    return ms(op, [t(*shape), skip, t(width), *middle, *bias], attrs, outputs=outputs, tol=tol)


def embed_norm(rng: Generator) -> OpCase:
    batch, length, width = int(rng.integers(1, 4)), int(rng.integers(1, 7)), int(rng.integers(2, 9))
    ids = t(batch, length, low=0, high=6, dtype="int32")
    kinds = chance(rng)
    inputs: list[Any] = [ids, t(batch, length, low=0, high=2, dtype="int32") if kinds else None]
    inputs += [t(6, width), t(7, width), t(2, width) if kinds else None, t(width), t(width)]
    if chance(rng):
        inputs.append(const(rng.integers(0, 2, (batch, length)), "int32"))
    return microsoft_norm.embed(inputs, outputs=2)


def fused_matmul(rng: Generator) -> OpCase:
    (m, k, n), op = numbers(rng, 1, 6, 3), one_of(rng, "FusedMatMul", "FusedMatMul", "TransposeMatMul")
    left, right = int(rng.integers(2)), int(rng.integers(2))
    attrs: dict[str, Any] = {"transA": left, "transB": right, "alpha": one_of(rng, 1.0, 0.5, -2.0)}
    a, b = [k, m] if left else [m, k], [n, k] if right else [k, n]
    batch = dims(rng, 0, 2, empty=0)
    if op == "FusedMatMul" and batch and chance(rng, 0.4):
        count = batch[-1]
        attrs |= {"transBatchA": 1, "transBatchB": 1}
        return ms(op, [t(a[0], count, a[1]), t(b[0], count, b[1])], attrs)
    return ms(op, [t(*batch, *a), t(*(batch if chance(rng) else []), *b)], attrs)


def fused_gemm(rng: Generator) -> OpCase:
    m, k, n = numbers(rng, 1, 6, 3)
    left, right = int(rng.integers(2)), int(rng.integers(2))
    name, values = one_of(
        rng, ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.3, 0.4])
    )
    attrs = {"transA": left, "transB": right, "alpha": 0.5, "beta": 2.0, "activation": name}
    attrs |= dict(zip(("activation_alpha", "activation_beta"), values, strict=False))
    inputs = [t(*([k, m] if left else [m, k])), t(*([n, k] if right else [k, n]))]
    return ms("FusedGemm", [*inputs, *([t(*one_of(rng, [n], [m, n], [m, 1]))] if chance(rng) else [])], attrs)


def gemm_fast_gelu(rng: Generator) -> OpCase:
    *lead, k = dims(rng, 2, 3)
    n = int(rng.integers(1, 6))
    inputs = [t(*lead, k), t(k, n), *([t(n)] if chance(rng) else [])]

    def oracle(x: Any, w: Any, b: Any = 0.0) -> Any:
        return microsoft_dense.tanh_gelu(x @ w + np.float32(b))

    return ms("GemmFastGelu", inputs, oracle=oracle)


def fused_conv(rng: Generator) -> OpCase:
    rank, group = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    channels, more = group * int(rng.integers(1, 3)), group * int(rng.integers(1, 3))
    kernel = numbers(rng, 1, 3, rank)
    sizes = [int(rng.integers(4, 8)) for _ in range(rank)]
    name, values = one_of(
        rng,
        ("Relu", None),
        ("Tanh", None),
        ("Sigmoid", None),
        ("LeakyRelu", [0.2]),
        ("Clip", [-0.5, 0.5]),
        ("HardSigmoid", [0.3, 0.4]),
    )
    attrs: dict[str, Any] = {"activation": name, "group": group, "pads": numbers(rng, 0, 1, 2 * rank)}
    attrs |= {"activation_params": values} if values else {}
    attrs |= {"strides": numbers(rng, 1, 2, rank)} if chance(rng) else {}
    inputs = [t(int(rng.integers(1, 3)), channels, *sizes), t(more, channels // group, *kernel)]
    return ms("FusedConv", [*inputs, *([t(more)] if chance(rng) else [])], attrs)


def padding(rng: Generator, batch: int, length: int, total: int) -> Any:
    """An integer mask of one of its forms, which leaves each query at least one key."""
    form = int(rng.integers(3))
    if form == 0:
        return const(rng.integers(1, total + 1, batch), "int32")
    shape = (batch, total) if form == 1 else (batch, length, total)
    raw = rng.integers(0, 2, shape)
    raw[..., 0] = 1
    return const(raw, "int32")


def attention(rng: Generator) -> OpCase:
    heads, size, batch, length = (int(n) for n in rng.integers(1, [4, 5, 4, 6]))
    width, values = heads * size, heads * int(rng.integers(1, 5))
    past = int(rng.integers(1, 5)) if chance(rng, 0.4) else 0
    attrs = scaled(rng, {"num_heads": heads, "unidirectional": int(chance(rng, 0.3))})
    if past or chance(rng):
        values = width
    else:
        attrs["qkv_hidden_sizes"] = [width, width, values]
    inputs = [t(batch, length, 6), t(6, 2 * width + values), t(2 * width + values)]
    total = past + length
    inputs += [padding(rng, batch, length, total) if chance(rng) and not past else None]
    inputs += [t(2, batch, heads, past, size) if past else None]
    inputs += [t(batch, heads, length, total)] if chance(rng, 0.3) and not past else []
    return ms("Attention", inputs, attrs, outputs=2 if past else 1)


def multi_head(rng: Generator) -> OpCase:
    heads, size, batch, length = (int(n) for n in rng.integers(1, [4, 5, 4, 6]))
    width, keys = heads * size, int(rng.integers(1, 7))
    attrs = scaled(rng, {"num_heads": heads})
    form = one_of(rng, "apart", "finished", "past")
    if form == "past":
        keys = length
        attrs["unidirectional"] = int(chance(rng))
    past = int(rng.integers(1, 5)) if form == "past" else 0
    one = t(batch, heads, keys, size) if form == "finished" else t(batch, keys, width)
    inputs: list[Any] = [t(batch, length, width), one, one]
    inputs.append(t(3 * width) if form == "apart" and chance(rng) else None)
    total = past + keys
    inputs.append(padding(rng, batch, length, total) if chance(rng) and form == "apart" else None)
    inputs.append(t(one_of(rng, 1, batch), heads, length, total) if chance(rng, 0.3) else None)
    inputs += [t(batch, heads, past, size)] * 2 if past else []
    return ms("MultiHeadAttention", inputs, attrs, outputs=3 if past else 1)


ROWS: dict[str, Row] = {
    "Gelu and its like": Row(gelu, trials=24),
    "RotaryEmbedding": Row(rotary, FLOATS),
    "SkipLayerNormalization": Row(skip_norm, trials=20),
    "EmbedLayerNormalization": Row(embed_norm),
    "FusedMatMul": Row(fused_matmul, trials=20),
    "FusedGemm": Row(fused_gemm),
    "GemmFastGelu": Row(gemm_fast_gelu),
    "FusedConv": Row(fused_conv),
    "Attention": Row(attention, trials=20),
    "MultiHeadAttention": Row(multi_head, trials=20),
}
