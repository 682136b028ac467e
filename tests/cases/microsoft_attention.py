"""Cases of com.microsoft's Attention and MultiHeadAttention."""

import numpy as np
from opcase import OpCase, const, ms, t


def by_head(x):  # type: ignore[no-untyped-def]
    return x.reshape(*x.shape[:2], 2, -1).swapaxes(1, 2)


def products(q, k, v, _, __, bias, num_heads):  # type: ignore[no-untyped-def]
    """The fourth output is the masked scores, as onnxruntime gives them where it is told their type."""
    masked = by_head(q) @ by_head(k).swapaxes(-1, -2) / np.float32(2) + bias
    weights = np.exp(masked)
    y = (weights / weights.sum(-1, keepdims=True)) @ by_head(v)
    return y.swapaxes(1, 2).reshape(*q.shape[:2], -1), masked


SELF = [t(2, 3, 12), t(12, 24), t(24)]
H = {"num_heads": 2}
Q, K, V = t(2, 3, 8), t(2, 5, 8), t(2, 5, 8)
LENGTHS = const([2, 3], "int32")
RAW = const([[1, 1, 0], [1, 1, 1]], "int32")
RAW5 = const([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], "int32")

QUANTIZED = [
    t(2, 3, 12, low=0, high=256, dtype="uint8"),
    # Larger ones overflow in the pairs of products that onnxruntime adds in 16 bits on a CPU without VNNI.
    t(12, 24, low=-64, high=64, dtype="int8"),
    t(24),
    const(0.002),
    const(0.01),
]

CASES: tuple[OpCase, ...] = (
    ms("Attention", SELF, H, grad=True),
    ms("Attention", SELF, {**H, "unidirectional": 1, "scale": 0.3}, id="causal"),
    ms("Attention", [*SELF, LENGTHS], H, id="lengths"),
    ms("Attention", [*SELF, const([2, 3, 0, 1], "int32")], H, id="ranges"),
    ms("Attention", [*SELF, RAW], H, grad=True, id="raw"),
    ms("Attention", [*SELF, t(2, 3, 3, low=0, high=2, dtype="int32")], H, id="raw_3d"),
    ms("Attention", [*SELF, RAW, None, t(2, 2, 3, 3)], H, id="bias"),
    ms("Attention", [*SELF, None, t(2, 2, 2, 4, 4)], {**H, "unidirectional": 1}, outputs=2, id="past"),
    ms("Attention", [t(2, 3, 12), t(12, 20), t(20)], {**H, "qkv_hidden_sizes": [8, 8, 4]}, id="sizes"),
    ms("MultiHeadAttention", [Q, K, V], H, grad=True),
    ms("MultiHeadAttention", [Q, K, V, t(24)], {**H, "scale": 0.3}, grad=True, id="bias"),
    ms("MultiHeadAttention", [Q, K, V, None, const([2, 5], "int32")], H, id="lengths"),
    ms("MultiHeadAttention", [Q, K, V, None, RAW5], H, id="raw"),
    ms("MultiHeadAttention", [Q, K, V, None, None, t(1, 2, 3, 5)], H, id="attention_bias"),
    ms("MultiHeadAttention", [Q, Q, Q], {**H, "unidirectional": 1}, outputs=3, id="causal"),
    ms(
        "MultiHeadAttention",
        [Q, Q, Q, None, None, None, t(2, 2, 4, 4), t(2, 2, 4, 4)],
        H,
        outputs=3,
        id="past",
    ),
    ms("MultiHeadAttention", [Q, t(2, 2, 5, 4), t(2, 2, 5, 4)], H, id="finished"),
    ms("MultiHeadAttention", [Q, K, t(2, 5, 12)], H, id="other_values"),
    OpCase(
        "MultiHeadAttention",
        [Q, K, V, None, None, t(1, 2, 3, 5)],
        H,
        domain="com.microsoft",
        outputs=(True, False, False, True),
        oracle=products,
        id="products",
    ),
    ms("QAttention", QUANTIZED, H),
    ms("QAttention", [*QUANTIZED, LENGTHS, const(120, "uint8"), const(3, "int8")], H, id="zeros"),
    ms(
        "QAttention",
        [*QUANTIZED, None, const(120, "uint8"), const(3, "int8"), t(2, 2, 2, 4, 4)],
        {**H, "unidirectional": 1},
        outputs=2,
        id="past",
    ),
)
