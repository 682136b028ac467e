"""Generators of com.microsoft's ops on weights of few bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from opcase import OpCase, const, t

from differential.single import Generator, Row


def matmul_nbits(rng: Generator) -> OpCase:
    bits = int(rng.choice([2, 4, 4, 8]))
    block = int(rng.choice([16, 32, 64, 128, 256]))
    columns = int(rng.choice([1, 5, 16, 33, 64, 100, 130, 256, 300]))
    rows = int(rng.choice([1, 2, 5, 17]))
    blocks = -(-columns // block)
    lead = [(1,), (3,), (2, 3), (0,), (2, 0)][int(rng.integers(5))]
    zeros = [
        None,
        t(rows * math.ceil(blocks * bits / 8), low=0, high=256, dtype="uint8"),
        t(rows, blocks, low=0, high=1 << bits),
    ][int(rng.integers(3))]
    bias = t(rows) if rng.random() < 0.5 else None
    weight = t(rows, blocks, block * bits // 8, low=0, high=256, dtype="uint8")
    attrs = {"K": columns, "N": rows, "bits": bits, "block_size": block}
    if rng.random() < 0.3:
        attrs["accuracy_level"] = int(rng.choice([0, 1]))
    inputs = [t(*lead, columns), weight, t(rows, blocks, low=0.01), zeros, None, bias]
    # onnxruntime's CPU provider refuses zero points in floats beside 8 bits.
    refused = bits == 8 and zeros is not None and zeros.dtype is None
    return OpCase(
        "MatMulNBits", inputs, attrs, domain="com.microsoft", oracle=product if refused else "onnxruntime"
    )


def product(a, b, scales, zeros=None, order=None, bias=None, *, K, N, bits, block_size, **_):  # type: ignore[no-untyped-def]
    """MatMulNBits in float64."""
    blocks = -(-K // block_size)
    numbers = unpacked(b.reshape(N, -1), bits)[:, :K]
    if zeros is None:
        zeros = np.full((N, blocks), 1 << bits - 1)
    elif zeros.dtype == np.uint8:
        zeros = unpacked(zeros.reshape(N, -1), bits)[:, :blocks]
    order = np.arange(K) // block_size if order is None else order
    weight = (numbers - zeros.astype(np.float64)[:, order]) * scales.astype(np.float64)[:, order]
    y = a.astype(np.float64) @ weight.T
    return (y if bias is None else y + bias).astype(a.dtype)


def unpacked(packed: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """The numbers in bytes, the lowest bits first, along the last axis."""
    parts = [(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


def matmul_nbits_by_index(rng: Generator) -> OpCase:
    """Columns whose blocks do not lie in order."""
    block = int(rng.choice([16, 32]))
    columns = int(rng.choice([32, 64, 96]))
    rows = int(rng.choice([1, 5]))
    blocks = columns // block
    zeros = t(rows * math.ceil(blocks / 2), low=0, high=256, dtype="uint8") if rng.random() < 0.5 else None
    order = const(rng.permutation(np.arange(columns) // block), "int32")
    weight = t(rows, blocks, block // 2, low=0, high=256, dtype="uint8")
    inputs = [t(3, columns), weight, t(rows, blocks, low=0.01), zeros, order]
    attrs = {"K": columns, "N": rows, "bits": 4, "block_size": block}
    # onnxruntime forgets packed zero points beside g_idx; by the formula of the schema they count.
    oracle = "onnxruntime" if zeros is None else product
    return OpCase("MatMulNBits", inputs, attrs, domain="com.microsoft", oracle=oracle)


def gather_block_quantized(rng: Generator) -> OpCase:
    kind = str(rng.choice(["int4", "uint4", "uint8"]))
    bits = 4 if kind != "uint8" else int(rng.choice([2, 4, 8]))
    block = int(rng.choice([16, 32, 64]))
    rank = int(rng.choice([2, 2, 3]))
    columns = int(rng.choice([16, 32, 40, 96]))
    dims = [*(int(rng.choice([1, 3, 5])) for _ in range(rank - 1)), columns]
    gather, quantize = 0, rank - 1
    if kind != "uint8" and rng.random() < 0.4:
        gather, quantize = [int(i) for i in rng.permutation(rank)[:2]]
    grouped = [-(-d // block) if i == quantize else d for i, d in enumerate(dims)]
    packing = 8 // bits if kind == "uint8" else 1
    stored = [*dims[:-1], dims[-1] // packing]
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "uint8": (0, 256)}[kind]
    zeros = None
    if rng.random() < 0.5:
        zeros = t(*grouped[:-1], -(-grouped[-1] // packing), low=low, high=high, dtype=kind)
    shape = [(), (1,), (4,), (2, 3), (0,)][int(rng.integers(5))]
    outside = int(rng.random() < 0.3)
    inputs = [
        t(*stored, low=low, high=high, dtype=kind),
        t(
            *shape,
            low=-dims[gather] - outside,
            high=dims[gather] + outside,
            dtype=str(rng.choice(["int32", "int64"])),
        ),
        t(*grouped, low=0.01),
        zeros,
    ]
    sign = -rank if rng.random() < 0.3 else 0
    attrs = {"block_size": block, "gather_axis": gather + sign, "quantize_axis": quantize + sign}
    if kind == "uint8":
        attrs["bits"] = bits
    return OpCase("GatherBlockQuantized", inputs, attrs, domain="com.microsoft", oracle="onnxruntime")


def matmul_bnb4(rng: Generator) -> OpCase:
    rows, columns = int(rng.choice([1, 3, 8])), int(rng.choice([1, 5, 16, 33, 64]))
    block = int(rng.choice([16, 32, 64, 128]))
    turned = int(rng.random() < 0.7)
    lead = [(1,), (3,), (2, 3), (0,)][int(rng.integers(4))]
    inputs = [
        t(*lead, columns if turned else rows),
        t(-(-rows * columns // 2), low=0, high=256, dtype="uint8"),
        t(-(-rows * columns // block), low=0.01),
    ]
    attrs = {
        "K": columns,
        "N": rows,
        "block_size": block,
        "quant_type": int(rng.integers(2)),
        "transB": turned,
    }
    # onnxruntime's CPU provider computes with numbers that it did not write unless W is transposed.
    oracle = "onnxruntime" if turned else bnb4
    return OpCase("MatMulBnb4", inputs, attrs, domain="com.microsoft", oracle=oracle)


def bnb4(a, b, absmax, *, K, N, block_size, quant_type, transB):  # type: ignore[no-untyped-def]
    """MatMulBnb4 by the published levels, in float64."""
    sixths = np.array([0, 1 / 32, 4, 6, 2, 3, 1, 1.5]) / 6
    levels = np.concatenate([sixths, -sixths]) if quant_type == 0 else np.array(NF4)
    codes = levels[np.stack([b >> 4, b & 15], -1).reshape(-1)[: N * K]]
    weight = (codes * absmax.astype(np.float64)[np.arange(N * K) // block_size]).reshape(N, K)
    return (a.astype(np.float64) @ (weight.T if transB else weight)).astype(a.dtype)


NF4 = [
    -1.0,
    -0.6961928,
    -0.52507305,
    -0.3949175,
    -0.28444138,
    -0.18477343,
    -0.09105004,
    0.0,
    0.0795803,
    0.1609302,
    0.2461123,
    0.33791524,
    0.44070983,
    0.562617,
    0.72295684,
    1.0,
]


ROWS = {
    "MatMulNBits": Row(matmul_nbits, ("float32", "float16"), trials=40),
    "MatMulNBits by index": Row(matmul_nbits_by_index),
    "GatherBlockQuantized": Row(gather_block_quantized, ("float32", "float16"), trials=40),
    "MatMulBnb4": Row(matmul_bnb4, trials=30),
}
