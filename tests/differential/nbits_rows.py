"""Generators of com.microsoft's fused products with weights of a few bits."""

from __future__ import annotations

from typing import Any

from cases import microsoft_nbits_fused as fused
from cases.microsoft_nbits_fused import codes, ms
from opcase import OpCase, t

from differential.images_and_arranging import dims, one_of
from differential.single import Generator, Row


def chance(rng: Generator) -> bool:
    return bool(rng.random() < 0.5)


def shapes(rng: Generator) -> tuple[list[int], int, int, dict[str, Any]]:
    """Leading dims, columns, bits, and what all the nodes tell."""
    columns, block, bits = int(rng.integers(1, 70)), one_of(rng, 16, 32), one_of(rng, 4, 8)
    return dims(rng, 1, 2, empty=0), columns, bits, {"K": columns, "block_size": block, "bits": bits}


def mlp(rng: Generator) -> OpCase:
    lead, k, bits, attrs = shapes(rng)
    n, block = int(rng.integers(1, 8)), attrs["block_size"]
    scaled = chance(rng)
    skip = t(*lead, k) if scaled and chance(rng) else None
    inputs: list[Any] = [t(*lead, k), skip, t(k) if scaled else None]
    inputs += [*codes(n, k, bits, block), t(n) if chance(rng) else None, *codes(n, k, bits, block)]
    attrs |= {"N": n, "activation": one_of(rng, "silu", "relu")}
    return ms("MatMulNBitsMlp", inputs, attrs, outputs=1 if skip is None else 2, oracle=fused.mlp)


def qkv(rng: Generator) -> OpCase:
    lead, k, bits, attrs = shapes(rng)
    n, m, block = int(rng.integers(1, 8)), int(rng.integers(1, 5)), attrs["block_size"]
    skip = t(*lead, k) if chance(rng) else None
    inputs: list[Any] = [t(*lead, k), skip, t(k), *codes(n, k, bits, block), t(n) if chance(rng) else None]
    inputs += [*codes(m, k, bits, block), None, *codes(m, k, bits, block)]
    attrs |= {"Nq": n, "Nkv": m}
    return ms("MatMulNBitsQkv", inputs, attrs, outputs=3 if skip is None else 4, oracle=fused.qkv)


def qlora(rng: Generator) -> OpCase:
    lead, k, n = dims(rng, 1, 2, empty=0), int(rng.integers(1, 70)), int(rng.integers(1, 8))
    rank = int(rng.integers(1, 40))
    inputs = [t(*lead, k), *codes(n, k), *codes(rank, k, 8), *codes(n, rank, 8)]
    return ms("MatMulNBitsQLoRA", inputs, {"K": k, "N": n}, oracle=fused.qlora)


ROWS: dict[str, Row] = {
    "MatMulNBitsMlp": Row(mlp),
    "MatMulNBitsQkv": Row(qkv),
    "MatMulNBitsQLoRA": Row(qlora),
}
