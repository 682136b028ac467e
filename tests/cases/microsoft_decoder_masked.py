"""Cases of com.microsoft's DecoderMaskedMultiHeadAttention."""

from typing import Any

import numpy as np
from opcase import OpCase, const, t

OP = "DecoderMaskedMultiHeadAttention"
H = {"num_heads": 4}
SHARED = {**H, "past_present_share_buffer": 1}
NEW = [t(2, 1, 32)] * 3
PAST = [t(2, 4, 8, 8), t(2, 4, 8, 8), const([5], "int32")]
FINISHED = [t(2, 1, 32), t(2, 4, 5, 8), t(2, 4, 5, 8)]
MASK = const([[0, 1, 1, 0, 1, 1], [1] * 6], "int32")
BEAMS = [const([2], "int32"), t(2, 2, 8, low=0, high=2, dtype="int32")]


def ms(inputs: list[Any], attrs: dict[str, Any], outputs: int = 3, **more: Any) -> OpCase:
    return OpCase(
        OP, inputs, attrs, domain="com.microsoft", outputs=outputs, **{"oracle": "onnxruntime", **more}
    )


def told(q, k, v, mask, bias, past_k, past_v, count, *rest, num_heads, scale=0.0, **_):  # type: ignore[no-untyped-def]
    """All four outputs, a packed query included, spelled out for caches without beams."""
    added = rest[2] if len(rest) > 2 else None
    rows = np.concatenate([q, k, v], -1) if k is not None else q
    rows = rows if added is None else rows + added
    heads = rows.reshape(rows.shape[0], 3, num_heads, 1, -1)
    q, k, v = heads[:, 0], heads[:, 1], heads[:, 2]
    n = past_k.shape[2] if count is None else int(count[0])
    keys, values = (np.concatenate([past[:, :, :n], new], 2) for past, new in ((past_k, k), (past_v, v)))
    logits = q @ keys.swapaxes(2, 3) * np.float32(scale or q.shape[-1] ** -0.5)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y = (weights @ values).swapaxes(1, 2).reshape(q.shape[0], 1, -1)
    if count is not None:
        keys, values = (
            np.concatenate([x, past[:, :, n + 1 :]], 2) for x, past in ((keys, past_k), (values, past_v))
        )
    return y, keys, values, weights


CASES: tuple[OpCase, ...] = (
    ms([*NEW, None, None, *PAST], SHARED, grad=True, dtypes=("float32", "float16")),
    ms([*NEW, MASK, None, *PAST], SHARED, id="mask"),
    ms([*NEW, MASK, t(2, 4, 1, 6), *PAST], {**SHARED, "mask_filter_value": -2.0}, id="filter"),
    ms([*NEW, None, t(1, 4, 1, 6), *PAST], {**SHARED, "scale": 0.3}, grad=True, id="attention_bias"),
    ms([*NEW, None, None, *PAST, None, None, t(96)], SHARED, id="bias"),
    ms([t(4, 1, 32)] * 3 + [None, None, t(4, 4, 8, 8), t(4, 4, 8, 8), PAST[2], *BEAMS], SHARED, id="beams"),
    ms(FINISHED, H, 1, grad=True, id="finished"),
    ms([*FINISHED, const([[1, 1, 0, 1, 1]] * 2, "int32")], H, 1, id="finished_mask"),
    ms([*FINISHED, *[None] * 7, t(96)], H, 1, id="finished_bias"),
    ms(NEW, H, 1, id="alone"),
    ms([t(2, 1, 96), *[None] * 4, *PAST, None, None, t(96)], SHARED, 4, oracle=told, id="packed"),
    ms([*NEW, None, None, *PAST[:2], None], H, 4, grad=True, oracle=told, id="concatenated"),
    ms([*NEW, None, None, *PAST], {**SHARED, "output_qk": 1}, 4, oracle=told, id="products"),
)
