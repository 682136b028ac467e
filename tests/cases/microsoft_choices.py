"""Cases of com.microsoft's rotary sections, bit masks, routers and cached self attention."""

from typing import Any

import numpy as np
from opcase import OpCase, const, t


def ms(op: str, inputs: list[Any], attrs: dict[str, Any] | None = None, **more: Any) -> OpCase:
    return OpCase(op, inputs, attrs or {}, domain="com.microsoft", **{"oracle": "onnxruntime", **more})


def gemma(emb, q, q_rot, k, k_rot):  # type: ignore[no-untyped-def]
    cos, sin = np.cos(emb)[:, None].astype(q.dtype), np.sin(emb)[:, None].astype(q.dtype)
    return q * cos + q_rot * sin, k * cos + k_rot * sin


def all_kept(data):  # type: ignore[no-untyped-def]
    """The mask of a dropout that drops nothing: the bits beyond the last element are 0."""
    bits = np.zeros(-(-data.size // 32) * 32, np.uint64)
    bits[: data.size] = 1
    return (bits.reshape(-1, 32) << np.arange(32, dtype=np.uint64)).sum(1).astype(np.uint32)


def bitmask(data, *_, **__):  # type: ignore[no-untyped-def]
    return data, all_kept(data)


def bias_bitmask(data, bias, residual=None):  # type: ignore[no-untyped-def]
    y = data + bias
    return y if residual is None else y + residual, all_kept(data)


def projected(x, w, *, router_size, limit=0.0, activation_alpha=1.0, activation_beta=0.0):  # type: ignore[no-untyped-def]
    product = x.astype(np.float64) @ w
    router, gate, up = np.split(product, [router_size, (product.shape[-1] + router_size) // 2], -1)
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    active = gate / (1 + np.exp(-activation_alpha * gate)) * (up + activation_beta)
    return router.astype(x.dtype), active.astype(x.dtype)


def scored(logits, bias, weight=None, **_):  # type: ignore[no-untyped-def]
    rows = logits.reshape(-1, logits.shape[-1])
    rows = rows if weight is None else rows @ weight.T
    score = 1 / (1 + np.exp(-rows.astype(np.float64)))
    return (score + bias).astype(np.float32), score.astype(np.float32)


def turned(keys, count):  # type: ignore[no-untyped-def]
    """[B, H, M, D] as [B, H, D / n, M, n], or the other way about, in the shape of the first."""
    b, h, m, d = keys.shape
    return keys.reshape(b, h, m, d // count, count).swapaxes(2, 3).reshape(keys.shape)


def self_attention(  # type: ignore[no-untyped-def]
    x, weights, bias, mask, past, _=None, length=None, *, num_heads, past_present_share_buffer=0
):
    """In float64, one query a sample."""
    q, k, v = np.split((x.astype(np.float64) @ weights + bias), 3, -1)
    q, k, v = (part.reshape(len(x), num_heads, 1, -1) for part in (q, k, v))
    keys, values = past.astype(np.float64)
    if past_present_share_buffer:
        size, rows = keys.shape[3], keys.shape[2]
        keys = keys.reshape(*keys.shape[:2], size // 4, rows, 4).swapaxes(2, 3).reshape(keys.shape)
        keys[:, :, length[0]], values[:, :, length[0]] = k[:, :, 0], v[:, :, 0]
        seen_k, seen_v = keys[:, :, : length[0] + 1], values[:, :, : length[0] + 1]
        present = np.stack((turned(keys, 4), values))
    else:
        seen_k, seen_v = np.concatenate((keys, k), 2), np.concatenate((values, v), 2)
        present = np.stack((seen_k, seen_v))
    scores = q @ seen_k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    if mask is not None:
        scores = scores + np.where(mask[:, None, None] != 0, 0, -10000.0)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    y = (p / p.sum(-1, keepdims=True) @ seen_v).swapaxes(1, 2).reshape(x.shape[0], 1, -1)
    return y.astype(x.dtype), present.astype(x.dtype)


PLACES = t(3, 2, 3, low=0, high=9, dtype="int64")
CACHES = [t(9, 4), t(9, 4)]
ROUTED = {"top_k": 2, "n_group": 4, "topk_group": 2}
PAST = t(2, 2, 2, 5, 8)
SELF = [t(2, 1, 6), t(6, 48), t(48)]


CASES: tuple[OpCase, ...] = (
    ms(
        "MRotaryEmbedding",
        [t(2, 3, 16), PLACES, *CACHES],
        {"mrope_section": [2, 1, 1], "num_heads": 2},
        dtypes=("float32", "float16"),
    ),
    ms(
        "MRotaryEmbedding",
        [t(2, 2, 3, 10), PLACES, *CACHES],
        {
            "mrope_section": [2, 1, 1],
            "mrope_layout": 1,
            "rotary_embedding_dim": 8,
            "num_heads": 2,
            "interleaved": 1,
        },
        id="turns",
    ),
    ms(
        "GemmaRotaryEmbedding",
        [t(2, 3, 4, dtype="float32"), *[t(2, 2, 3, 4)] * 4],
        dtypes=("float16",),
        outputs=2,
        oracle=gemma,
    ),
    ms("BitmaskDropout", [t(3, 13)], outputs=2, oracle=bitmask),
    ms("BitmaskDropout", [t(4, 8), const(0.3)], outputs=2, oracle=bitmask, id="ratio"),
    ms("BitmaskBiasDropout", [t(3, 13), t(13), t(3, 13)], outputs=2, oracle=bias_bitmask),
    ms("BitmaskBiasDropout", [t(2, 3), t(2, 3)], outputs=2, oracle=bias_bitmask, id="no_residual"),
    ms("MoEGroupRouter", [t(5, 8), t(8)], ROUTED),
    ms(
        "MoEGroupRouter",
        [t(2, 3, 8), t(8)],
        {"top_k": 3},
        outputs=(False, True, True),
        oracle=scored,
        id="scores",
    ),
    ms(
        "MoEGroupRouter",
        [t(3, 256), t(8), t(8, 256, low=-0.1, high=0.1)],
        {"top_k": 3},
        outputs=(False, True, True),
        oracle=scored,
        id="projected",
    ),
    ms("RouterGateUpProj", [t(2, 3, 5), t(5, 12)], {"router_size": 4}, outputs=2, oracle=projected),
    ms(
        "RouterGateUpProj",
        [t(3, 5), t(5, 12)],
        {"router_size": 2, "limit": 0.5, "activation_beta": 1.0},
        outputs=2,
        oracle=projected,
        id="limit",
    ),
    ms(
        "DecoderMaskedSelfAttention",
        [*SELF, None, PAST, None, const([5], "int32")],
        {"num_heads": 2},
        outputs=2,
        oracle=self_attention,
    ),
    ms(
        "DecoderMaskedSelfAttention",
        [*SELF, const([[1, 0, 1, 1], [1, 1, 1, 1]], "int32"), PAST, None, const([3], "int32")],
        {"num_heads": 2, "past_present_share_buffer": 1},
        outputs=2,
        oracle=self_attention,
        id="buffer",
    ),
    ms(
        "MultiHeadAttention",
        [*[t(2, 1, 8)] * 3, None, None, None, *[t(2, 2, 6, 4)] * 2, const([3], "int32")],
        {"num_heads": 2},
        outputs=3,
        id="buffer",
    ),
    ms(
        "MultiHeadAttention",
        [*[t(2, 3, 8)] * 3, t(24), None, t(1, 2, 3, 5), *[t(2, 2, 6, 4)] * 2, const([2], "int32")],
        {"num_heads": 2, "unidirectional": 1},
        outputs=3,
        id="buffer_prompt",
    ),
    ms(
        "MultiHeadAttention",
        [
            *[t(4, 1, 8)] * 3,
            None,
            None,
            None,
            *[t(4, 2, 6, 4)] * 2,
            const([3], "int32"),
            const(
                [[[0, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]], [[1, 0, 0, 1, 1, 1], [0, 0, 1, 0, 1, 1]]], "int32"
            ),
        ],
        {"num_heads": 2},
        outputs=3,
        id="buffer_of_beams",
    ),
)
