"""Generators of com.microsoft's mixtures of experts, and what they mean in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from opcase import OpCase, t

from differential.single import Generator, Row

Array = np.ndarray[Any, Any]


def mixture(x, scores, first, second, third=None, shares=None, **attrs):  # type: ignore[no-untyped-def]
    """The mixture token by token; ``first``, ``second`` and ``third`` are weights and biases."""
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64)
    y = np.zeros_like(rows)
    scores = scores.astype(np.float64)
    for row, score, out, place in zip(rows, scores, y, range(len(rows)), strict=True):
        for expert, share in routed(score, None if shares is None else shares[place], **attrs):
            inner = linear(first, expert, row)
            values = None if third is None else linear(third, expert, row)
            out += share * linear(second, expert, activated(inner, values, **attrs))
    return y.reshape(x.shape).astype(x.dtype)


def linear(projection: tuple[Array, Array | None], expert: int, row: Array) -> Array:
    weight, bias = projection
    y = weight[expert].astype(np.float64) @ row
    return y if bias is None else y + bias[expert]


def softmax(scores: Array) -> Array:
    e = np.exp(scores - scores.max())
    return e / e.sum()


def routed(scores, shares, k=1, normalize_routing_weights=0, use_sparse_mixer=0, **_):  # type: ignore[no-untyped-def]
    if use_sparse_mixer:
        return sparse(scores)
    best = np.argsort(-scores, kind="stable")[:k]
    chosen = (softmax(scores) if shares is None else shares.astype(np.float64))[best]
    return zip(best, chosen / chosen.sum() if normalize_routing_weights else chosen, strict=True)


def sparse(scores: Array) -> list[tuple[int, float]]:
    """Each of two experts beside those within two hundredths of its score, as Phi publishes it."""
    found = []
    left = scores.copy()
    for _ in range(2):
        top = int(left.argmax())
        near = (left[top] - scores) / np.maximum(np.abs(scores), left[top]) <= 0.02
        found.append((top, float(softmax(np.where(near, left, -np.inf))[top])))
        left[top] = -np.inf
    return found


def activated(  # type: ignore[no-untyped-def]
    x,
    values,
    activation_type="relu",
    swiglu_fusion=0,
    activation_alpha=1.0,
    activation_beta=0.0,
    swiglu_limit=np.inf,
    swiglu_limit_after_activation=0,
    **_,
):
    if activation_type in ("swiglu", "geglu") and swiglu_fusion:
        x, values = (x[::2], x[1::2]) if swiglu_fusion == 1 else np.split(x, 2)
    if activation_type == "swiglu":
        gate = x if swiglu_limit_after_activation else np.minimum(x, swiglu_limit)
        opened = np.minimum(gate / (1 + np.exp(-activation_alpha * gate)), swiglu_limit)
        opened = opened if swiglu_limit_after_activation else gate / (1 + np.exp(-activation_alpha * gate))
        return opened * (np.clip(values, -swiglu_limit, swiglu_limit) + activation_beta)
    gelu = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    y = {
        "relu": np.maximum(x, 0),
        "relu2": np.maximum(x, 0) ** 2,
        "gelu": gelu,
        "geglu": gelu,
        "silu": x / (1 + np.exp(-x)),
        "identity": x,
    }[activation_type]
    return y if values is None else y * values


def plain(x, p, w1, b1, w2, b2=None, w3=None, b3=None, **attrs):  # type: ignore[no-untyped-def]
    return mixture(x, p, (w1, b1), (w2, b2), None if w3 is None else (w3, b3), **attrs)


def unpacked(packed: Array, bits: int) -> Array:
    """Numbers of any width that follow one another in bytes, the lowest bits first."""
    single = np.unpackbits(packed, axis=-1, bitorder="little")
    count = single.shape[-1] // bits
    whole = single[..., : count * bits].reshape(*single.shape[:-1], count, bits)
    return whole @ (1 << np.arange(bits)).astype(np.float64)


def quantized(  # type: ignore[no-untyped-def]
    x,
    p,
    w1,
    s1,
    b1,
    w2,
    s2,
    b2=None,
    w3=None,
    s3=None,
    b3=None,
    z1=None,
    z2=None,
    z3=None,
    shares=None,
    **attrs,
):
    bits = attrs.get("expert_weight_bits", 4)
    wide = [attrs.get(f"fc{i}_expert_weight_bits", bits) for i in (1, 2, 3)]

    def weights(w: Array, s: Array, z: Array | None, bits: int) -> Array:
        number = unpacked(w, bits)
        zero = np.full(s.shape, 1 << bits - 1) if z is None else unpacked(z, bits)[..., : s.shape[-1]]
        if s.ndim == 2:
            return (number - zero[..., None]) * s.astype(np.float64)[..., None]
        length = number.shape[-1] // s.shape[-1]
        return (number - zero.repeat(length, -1)) * s.astype(np.float64).repeat(length, -1)

    third = None if w3 is None else (weights(w3, s3, z3, wide[2]), b3)
    first, second = (weights(w1, s1, z1, wide[0]), b1), (weights(w2, s2, z2, wide[1]), b2)
    return mixture(x, p, first, second, third, shares, **attrs)


def chosen(rng: Generator) -> tuple[dict[str, Any], int]:
    kind = str(rng.choice(["relu", "gelu", "silu", "identity", "swiglu", "swiglu"]))
    attrs: dict[str, Any] = {"activation_type": kind, "k": int(rng.choice([1, 2, 4]))}
    if kind == "swiglu":
        attrs |= {"swiglu_fusion": 1}
        if rng.random() < 0.7:
            attrs |= {
                "activation_alpha": 1.702,
                "activation_beta": 1.0,
                "swiglu_limit": float(rng.choice([0.3, 7.0])),
            }
    return attrs, 2 if kind == "swiglu" else 1


LEADS = [(1,), (5,), (2, 3), (1, 1), (0,)]


def moe(rng: Generator) -> OpCase:
    attrs, fused = chosen(rng)
    attrs["normalize_routing_weights"] = int(rng.integers(2))
    lead = LEADS[int(rng.integers(5))]
    count, hidden, inner = int(rng.choice([4, 9])), int(rng.choice([1, 8, 17])), int(rng.choice([1, 16]))
    inputs = [
        t(*lead, hidden),
        t(math.prod(lead), count, low=-3, high=3),
        t(count, fused * inner, hidden),
        t(count, fused * inner) if rng.random() < 0.5 else None,
        t(count, hidden, inner),
        t(count, hidden) if rng.random() < 0.5 else None,
    ]
    return OpCase("MoE", inputs, attrs, domain="com.microsoft", oracle="onnxruntime")


def qmoe(rng: Generator) -> OpCase:
    attrs, fused = chosen(rng)
    bits = int(rng.choice([2, 4, 8]))
    lead = LEADS[int(rng.integers(5))]
    count, hidden, inner = int(rng.choice([4, 9])), int(rng.choice([32, 64])), 32
    block = int(rng.choice([0, 0, 16, 32]))
    shares = rng.random() < 0.3
    # See known.py.
    attrs |= {"expert_weight_bits": bits, "normalize_routing_weights": int(rng.integers(2)) if shares else 1}
    if block:
        attrs["block_size"] = block
    zeros = rng.random() < 0.5

    def weights(rows: int, columns: int) -> tuple[Any, Any, Any]:
        scaled = (rows, columns // block) if block else (rows,)
        packed = (*scaled[:-1], -(-scaled[-1] * bits // 8))
        return (
            t(count, rows, columns * bits // 8, low=0, high=256, dtype="uint8"),
            t(count, *scaled, low=0.001, high=0.02),
            t(count, *packed, low=0, high=256, dtype="uint8") if zeros else None,
        )

    first, second = weights(fused * inner, hidden), weights(hidden, inner)
    inputs = [
        t(*lead, hidden),
        t(math.prod(lead), count, low=-3, high=3),
        *first[:2],
        t(count, fused * inner) if rng.random() < 0.5 else None,
        *second[:2],
        t(count, hidden) if rng.random() < 0.5 else None,
        *(None, None, None),
        first[2],
        second[2],
        None,
        t(math.prod(lead), count, low=0.1) if shares else None,
    ]
    return OpCase("QMoE", inputs, attrs, domain="com.microsoft", oracle="onnxruntime", tol=TOLERANCE[bits])


# Of 2 bits in blocks and of 8 onnxruntime rounds activations to 8 bits in places.
TOLERANCE = {2: 2e-2, 4: None, 8: 2e-2}

ROWS = {
    "MoE": Row(moe, trials=40),
    "QMoE": Row(qmoe, trials=40),
}
