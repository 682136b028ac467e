"""Cases of com.microsoft's MatMulNBits, RotaryEmbedding and GroupQueryAttention."""

from typing import Any

import numpy as np
from opcase import OpCase, const, ms, t


def packed(*shape: int) -> Any:
    return t(*shape, low=0, high=256, dtype="uint8")


def bits(count: int, columns: int = 64, block: int = 32, rows: int = 5) -> tuple[Any, Any, dict[str, Any]]:
    blocks = -(-columns // block)
    attrs = {"K": columns, "N": rows, "bits": count, "block_size": block}
    return packed(rows, blocks, block * count // 8), t(rows, blocks, low=0.01, high=0.1), attrs


def nbits(count: int, *rest: Any, id: str, **sizes: int) -> OpCase:
    b, scales, attrs = bits(count, **sizes)
    return ms("MatMulNBits", [t(2, 3, attrs["K"]), b, scales, *rest], attrs, grad=count == 8, id=id)


def two_bits(a, b, scales, _, __, bias, K, N, **___):  # type: ignore[no-untyped-def]
    numbers = np.stack([(b >> shift) & 3 for shift in (0, 2, 4, 6)], -1).reshape(N, K)
    return a @ ((numbers.astype(np.float32) - 2) * scales).T + bias


def ragged(q, k, v, past_k, past_v, lengths, total, num_heads, kv_num_heads):  # type: ignore[no-untyped-def]
    """One step of samples whose caches hold different numbers of keys."""
    rows = []
    for i, count in enumerate(lengths):
        keys = np.concatenate([past_k[i, :, :count], k[i].reshape(kv_num_heads, 1, -1)], 1)
        values = np.concatenate([past_v[i, :, :count], v[i].reshape(kv_num_heads, 1, -1)], 1)
        queries = q[i].reshape(kv_num_heads, num_heads // kv_num_heads, -1)
        weights = np.exp(queries @ keys.swapaxes(1, 2) / np.sqrt(queries.shape[-1], dtype=np.float32))
        rows.append((weights / weights.sum(-1, keepdims=True) @ values).reshape(1, -1))
    return np.stack(rows)


def normed(q, k, v, past_k, past_v, lengths, total, *rest, num_heads, kv_num_heads):  # type: ignore[no-untyped-def]
    """The same with heads divided by the root of their mean square."""
    made = []
    for x, heads, weight in ((q, num_heads, rest[-2]), (k, kv_num_heads, rest[-1])):
        each = x.reshape(*x.shape[:2], heads, -1)
        each = each / np.sqrt((each * each).mean(-1, keepdims=True) + np.float32(1e-6)) * weight
        made.append(each.reshape(x.shape))
    return ragged(*made, v, past_k, past_v, lengths, total, num_heads, kv_num_heads)


H = {"num_heads": 4, "kv_num_heads": 2}
Q, K, V = t(2, 3, 32), t(2, 3, 16), t(2, 3, 16)
ANGLES = [t(12, 4), t(12, 4)]
FIRST = [const([2, 2], "int32"), const(3, "int32")]
PAST = [t(2, 2, 5, 8), t(2, 2, 5, 8)]
ALONE = [t(1, 2, 5, 8), t(1, 2, 5, 8)]
NEXT = [const([7], "int32"), const(8, "int32")]
WIDE = [t(2, 1, 64), t(2, 1, 32), t(2, 1, 32)]
WIDE_PAST = [t(2, 2, 5, 16), t(2, 2, 5, 16)]
WIDE_ANGLES = [t(12, 8), t(12, 8)]
ONE = [t(2, 1, 32), t(2, 1, 16), t(2, 1, 16)]
FULL = [const([4, 4], "int32"), const(5, "int32")]
AFTER = [const([5, 5], "int32"), const(6, "int32")]
STORED = [t(2, 2, 5, 8, low=-100, high=100, dtype="int8")] * 2
SCALES = [const([0.02]), const([0.03])]
BYTES = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
WINDOWED = [*ONE, t(2, 2, 3, 8), t(2, 2, 3, 8), const([7, 7], "int32"), const(8, "int32")]
IDS = const([[0, 2, 1], [4, 3, 3]], "int64")


def gqa(inputs: list[Any], attrs: dict[str, Any] | None = None, outputs: Any = 3, **more: Any) -> OpCase:
    return ms("GroupQueryAttention", inputs, {**H, **(attrs or {})}, outputs=outputs, **more)


CASES: tuple[OpCase, ...] = (
    nbits(4, id="four"),
    nbits(8, id="eight"),
    nbits(4, packed(5, 1), id="packed_zeros"),
    nbits(4, packed(5, 2), columns=96, id="padded_zeros"),
    nbits(4, t(5, 2, low=0, high=15), id="float_zeros"),
    nbits(4, columns=50, id="partial_block"),
    OpCase(
        "MatMulNBits",
        [t(2, 3, 32), packed(5, 1, 8), t(5, 1, low=0.1), None, None, t(5)],
        {"K": 32, "N": 5, "bits": 2, "block_size": 32},
        domain="com.microsoft",
        oracle=two_bits,
        id="two",
    ),
    ms("RotaryEmbedding", [t(2, 3, 32), IDS, *ANGLES], grad=True),
    ms("RotaryEmbedding", [t(2, 4, 3, 8), IDS, *ANGLES], {"interleaved": 1}, id="heads"),
    ms("RotaryEmbedding", [t(2, 3, 32), const([2], "int64"), *ANGLES], id="start"),
    ms("RotaryEmbedding", [t(2, 3, 32), IDS, *ANGLES], {"is_packed_batching": 1}, id="packed"),
    ms(
        "RotaryEmbedding",
        [t(2, 3, 32), IDS, t(12, 2), t(12, 2)],
        {"num_heads": 4, "rotary_embedding_dim": 4},
        id="partial",
    ),
    gqa([Q, K, V, None, None, *FIRST], grad=True),
    gqa([Q, K, V, None, None, *FIRST], {"scale": 0.3, "local_window_size": 2}, id="window"),
    gqa([t(1, 3, 32), t(1, 3, 16), t(1, 3, 16), *ALONE, *NEXT], grad=True, id="past"),
    gqa([*ONE, *PAST, *AFTER], id="decode"),
    gqa([*ONE, *PAST, *AFTER], {"local_window_size": 3}, id="decode_window"),
    gqa([*ONE, *PAST, *FULL], id="buffer"),
    OpCase(
        "GroupQueryAttention",
        [*ONE, *PAST, const([2, 4], "int32"), const(5, "int32")],
        H,
        domain="com.microsoft",
        outputs=1,
        oracle=ragged,
        id="ragged",
    ),
    OpCase(
        "GroupQueryAttention",
        [*ONE, *PAST, const([2, 4], "int32"), const(5, "int32"), *[None] * 7, t(8), t(8)],
        H,
        domain="com.microsoft",
        outputs=1,
        oracle=normed,
        grad=True,
        id="normed",
    ),
    gqa([*ONE, *PAST, *FULL, *[None] * 9, const([1, 1], "int32")], id="counts"),
    gqa([*WIDE, *WIDE_PAST, *AFTER, *WIDE_ANGLES], {"do_rotary": 1}, id="rotary"),
    gqa(
        [*WIDE, None, None, const([0, 0], "int32"), const(1, "int32"), *WIDE_ANGLES],
        {"do_rotary": 1, "rotary_interleaved": 1},
        grad=True,
        id="interleaved",
    ),
    gqa([t(2, 3, 64), None, None, None, None, *FIRST], id="packed"),
    gqa([Q, K, V, None, None, *FIRST], {"softcap": 0.5}, grad=True, id="softcap"),
    gqa([Q, K, V, None, None, *FIRST], {"smooth_softmax": 1}, grad=True, id="smooth"),
    gqa([Q, K, V, None, None, *FIRST, None, None, None, None, t(4)], grad=True, id="sink"),
    gqa([Q, K, V, None, None, *FIRST, None, None, None, t(2, 4, 3, 3)], id="bias"),
    gqa([*ONE, *STORED, *AFTER, *[None] * 5, *SCALES], BYTES, id="bytes"),
    gqa([*WINDOWED, *[None] * 9], {"sliding_window_cache": 1, "local_window_size": 3}, id="window_cache"),
)
