"""Cases of com.microsoft's fused products with weights of a few bits."""

from typing import Any

import numpy as np
from opcase import OpCase, t


def weight(codes, scales, columns, bits=4):  # type: ignore[no-untyped-def]
    """Float64 [N, K] of packed numbers [N, blocks, bytes] around the middle of their range."""
    mask = (1 << bits) - 1
    parts = np.stack([codes >> shift & mask for shift in range(0, 8, bits)], -1)
    number = parts.reshape(*codes.shape[:2], -1).astype(np.float64) - (1 << bits - 1)
    return (number * scales.reshape(*codes.shape[:2], 1)).reshape(len(codes), -1)[:, :columns]


def normed(a, skip, scale, epsilon):  # type: ignore[no-untyped-def]
    total = a.astype(np.float64) + (0 if skip is None else skip)
    if scale is None:
        return total, total
    return total / np.sqrt(np.square(total).mean(-1, keepdims=True) + epsilon) * scale, total


def product(x, codes, scales, bias, columns, bits=4):  # type: ignore[no-untyped-def]
    y = x @ weight(codes, scales, columns, bits).T
    return y if bias is None else y + bias


def mlp(a, skip, scale, gb, gs, gbias, ub, us, ubias=None, *, K, N, activation, block_size, bits=4):  # type: ignore[no-untyped-def]
    x, total = normed(a, skip, scale, 1e-5)
    gate, up = product(x, gb, gs, gbias, K, bits), product(x, ub, us, ubias, K, bits)
    active = gate / (1 + np.exp(-gate)) if activation == "silu" else np.maximum(gate, 0)
    y = (active * up).astype(a.dtype)
    return y if skip is None else (y, total.astype(a.dtype))


def qkv(a, skip, scale, qb, qs, qbias, kb, ks, kbias, vb, vs, vbias=None, *, K, Nq, Nkv, block_size, bits=4):  # type: ignore[no-untyped-def]
    x, total = normed(a, skip, scale, 1e-6)
    three = [product(x, *part, K, bits) for part in ((qb, qs, qbias), (kb, ks, kbias), (vb, vs, vbias))]
    return tuple(y.astype(a.dtype) for y in (*three, *([] if skip is None else [total])))


def qlora(x, w, scales, a, a_scales, b, b_scales, *, K, N, lora_block_size=32, lora_bits=8, **_):  # type: ignore[no-untyped-def]
    y = x.astype(np.float64) @ weight(w, scales, K).T
    if b.size:
        down = np.zeros((*x.shape[:-1], len(a_scales)))
        if a.size:
            down = x.astype(np.float64) @ weight(a, a_scales, K, lora_bits).T
        y = y + down @ weight(b, b_scales, len(a_scales), lora_bits).T
    return y.astype(x.dtype)


def ms(op: str, inputs: list[Any], attrs: dict[str, Any], **more: Any) -> OpCase:
    return OpCase(op, inputs, attrs, domain="com.microsoft", tol=1e-4, **more)


def codes(rows: int, columns: int, bits: int = 4, block: int = 32) -> list[Any]:
    """Packed weights and their scales."""
    blocks = -(-columns // block)
    numbers = t(rows, blocks, block * bits // 8, low=0, high=256, dtype="uint8")
    return [numbers, t(rows, blocks, low=0.01, high=0.1)]


A, D = t(2, 3, 40), {"K": 40, "block_size": 32}

CASES: tuple[OpCase, ...] = (
    ms(
        "MatMulNBitsMlp",
        [A, A, t(40), *codes(6, 40), t(6), *codes(6, 40), t(6)],
        {**D, "N": 6, "activation": "silu"},
        outputs=2,
        oracle=mlp,
    ),
    ms(
        "MatMulNBitsMlp",
        [A, None, None, *codes(6, 40), None, *codes(6, 40)],
        {**D, "N": 6, "activation": "relu"},
        oracle=mlp,
        id="plain",
    ),
    ms(
        "MatMulNBitsQkv",
        [A, A, t(40), *codes(8, 40), t(8), *codes(4, 40), None, *codes(4, 40), t(4)],
        {**D, "Nq": 8, "Nkv": 4},
        outputs=4,
        oracle=qkv,
    ),
    ms(
        "MatMulNBitsQkv",
        [A, None, t(40), *codes(8, 40, 8), None, *codes(4, 40, 8), None, *codes(4, 40, 8)],
        {**D, "Nq": 8, "Nkv": 4, "bits": 8},
        outputs=3,
        oracle=qkv,
        id="bytes",
    ),
    ms(
        "MatMulNBitsQLoRA",
        [A, *codes(6, 40), *codes(5, 40, 8), *codes(6, 5, 8)],
        {"K": 40, "N": 6},
        oracle=qlora,
    ),
    ms(
        "MatMulNBitsQLoRA",
        [
            A,
            *codes(6, 40),
            t(0, 2, 32, dtype="uint8"),
            t(5, 2, low=0.01),
            t(6, 0, 32, dtype="uint8"),
            t(6, 1, low=0.01),
        ],
        {"K": 40, "N": 6},
        oracle=qlora,
        id="no_adapter",
    ),
)
