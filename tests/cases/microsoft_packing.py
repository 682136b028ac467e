"""Cases of com.microsoft's ops on batches without padding, of position biases and of barred n-grams."""

import itertools
import math

import numpy as np
from opcase import OpCase, const, ms, t


def remove(x, counts):  # type: ignore[no-untyped-def]
    length = x.shape[1]
    kept = [b * length + i for b, n in enumerate(counts) for i in range(n)]
    padding = [i for i in range(x.shape[0] * length) if i not in kept]
    offset = np.array(kept + padding, np.int32).reshape(x.shape[:2])
    sums = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return x.reshape(-1, x.shape[2])[kept], offset, sums, np.array([max(counts)], np.int32)


def restore(x, offset):  # type: ignore[no-untyped-def]
    padded = np.zeros((offset.size, x.shape[1]), x.dtype)
    for row, place in zip(x, offset.reshape(-1), strict=False):
        padded[place] = row
    return padded.reshape(*offset.shape, -1)


def attend(q, k, v, offset, sums, bias, heads, scale):  # type: ignore[no-untyped-def]
    """Each sequence by itself, in float64."""
    out = []
    for b, (start, end) in enumerate(itertools.pairwise(sums)):
        n = end - start
        one, two, three = (
            x[start:end].reshape(n, heads, x.shape[1] // heads).swapaxes(0, 1).astype(np.float64)
            for x in (q, k, v)
        )
        logits = one @ two.swapaxes(1, 2) * (scale or 1 / math.sqrt(one.shape[2]))
        if bias is not None:
            logits += np.broadcast_to(bias, (len(sums) - 1, heads, *bias.shape[2:]))[b, :, :n, :n]
        weights = np.exp(logits)
        y = weights / weights.sum(-1, keepdims=True) @ three
        out.append(y.swapaxes(0, 1).reshape(n, v.shape[1]))
    return np.concatenate(out).astype(q.dtype)


def packed_attention(x, w, b, offset, sums, bias=None, *, num_heads, qkv_hidden_sizes=None, scale=0.0):  # type: ignore[no-untyped-def]
    sizes = qkv_hidden_sizes or [w.shape[1] // 3] * 3
    q, k, v = np.split(x @ w + b, np.cumsum(sizes)[:-1], 1)
    return attend(q, k, v, offset, sums, bias, num_heads, scale)


def packed_heads(q, k, v, b, offset, sums, bias=None, *, num_heads, scale=0.0, **_):  # type: ignore[no-untyped-def]
    if k is None:
        q, k, v = (q[:, :, i].reshape(len(q), -1) for i in range(3))
    if b is not None:
        q, k, v = q + b[: q.shape[1]], k + b[q.shape[1] : 2 * q.shape[1]], v + b[2 * q.shape[1] :]
    return attend(q, k, v, offset, sums, bias, num_heads, scale)


def position_bias(table, rows, columns, *, max_distance, is_bidirectional=0):  # type: ignore[no-untyped-def]
    n, heads = table.shape
    by_head = table.reshape(heads, n)
    y = np.zeros((1, heads, int(rows), int(columns)), table.dtype)
    for i in range(int(rows)):
        for j in range(int(columns)):
            half = n // 2 if is_bidirectional else n
            first = half if is_bidirectional and j > i else 0
            distance = abs(j - i) if is_bidirectional else max(i - j, 0)
            exact, bucket = half // 2, distance
            if distance >= exact:
                share = math.log(distance / exact) / math.log(max_distance / exact)
                bucket = min(half - 1, exact + int(share * (half - exact)))
            y[0, :, i, j] = by_head[:, first + bucket]
    return y


def gated(q, query_bias, rel_pos, w, b, eco_a, offset=None, *, num_heads):  # type: ignore[no-untyped-def]
    if offset is not None:
        q = restore(q, offset)
    q = (q + query_bias).reshape(*q.shape[:2], num_heads, -1).swapaxes(1, 2)
    halves = (q @ w + b).reshape(*q.shape[:3], 2, -1).sum(-1)
    u, r = np.split(1 / (1 + np.exp(-halves)), 2, -1)
    return (u * (r * eco_a - 1) + 2) * rel_pos


OFFSET = const([[0, 3, 4], [5, 1, 2]], "int32")
SUMS = const([0, 1, 4], "int32")
H = {"num_heads": 2}
PROJECTED = [t(4, 12), t(12, 24), t(24), OFFSET, SUMS]
THREE = [t(4, 8), t(4, 8), t(4, 8)]
GATE = [t(8), t(1, 2, 3, 3), t(4, 6), t(6), t(1, 2, 1, 1)]
TEN, SIX = const(10, "int64"), const(6, "int64")
TEXT = t(3, 12, low=0, high=3, dtype="int64")

CASES: tuple[OpCase, ...] = (
    ms(
        "RemovePadding",
        [t(2, 3, 4), const([1, 3], "int32")],
        {},
        remove,
        outputs=4,
        dtypes=("float32", "float16"),
    ),
    ms(
        "RemovePadding",
        [t(3, 2, 4), const([0, 2, 1], "int32")],
        {},
        remove,
        outputs=4,
        grad=True,
        id="empty_row",
    ),
    ms("RestorePadding", [t(4, 5), OFFSET], {}, restore, grad=True, dtypes=("float32", "float16")),
    ms("RestorePadding", [t(0, 5), OFFSET], {}, restore, id="nothing"),
    ms("PackedAttention", PROJECTED, H, packed_attention, grad=True),
    ms(
        "PackedAttention",
        [*PROJECTED, t(2, 2, 3, 3)],
        {**H, "scale": 0.3},
        packed_attention,
        grad=True,
        id="bias",
    ),
    ms("PackedAttention", [*PROJECTED, t(1, 1, 3, 3)], H, packed_attention, id="one_bias"),
    ms(
        "PackedAttention",
        [t(4, 12), t(12, 20), t(20), OFFSET, SUMS],
        {**H, "qkv_hidden_sizes": [8, 8, 4]},
        packed_attention,
        id="sizes",
    ),
    ms("PackedMultiHeadAttention", [*THREE, None, OFFSET, SUMS], H, packed_heads, grad=True),
    ms("PackedMultiHeadAttention", [*THREE, t(24), OFFSET, SUMS, t(2, 1, 3, 3)], H, packed_heads, id="bias"),
    ms(
        "PackedMultiHeadAttention",
        [t(4, 2, 3, 4), None, None, t(24), OFFSET, SUMS],
        {**H, "scale": 0.7},
        packed_heads,
        id="packed",
    ),
    ms("RelativePositionBias", [t(8, 3), TEN, TEN], {"max_distance": 9}, position_bias, grad=True),
    ms(
        "RelativePositionBias",
        [t(8, 3), TEN, TEN],
        {"max_distance": 9, "is_bidirectional": 1},
        position_bias,
        dtypes=("float32", "float16"),
        id="both_ways",
    ),
    ms("RelativePositionBias", [t(32, 2), SIX, TEN], {"max_distance": 128}, position_bias, id="lengths"),
    ms("GatedRelativePositionBias", [t(2, 3, 8), *GATE], H, gated, grad=True),
    ms("GatedRelativePositionBias", [t(4, 8), *GATE, OFFSET], H, gated, id="packed"),
    ms("NGramRepeatBlock", [TEXT, t(3, 5)], {"ngram_size": 3}, "onnxruntime"),
    ms("NGramRepeatBlock", [TEXT, t(3, 5)], {"ngram_size": 1}, "onnxruntime", id="tokens"),
    ms("NGramRepeatBlock", [TEXT, t(3, 5)], {"ngram_size": 13}, "onnxruntime", id="too_short"),
)
