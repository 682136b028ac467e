"""Generators of com.microsoft's ops on quantized activations, and of what aligns sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from opcase import OpCase, const, ms, t

from differential.single import Generator, Row

BYTES = ("uint8", "int8")


def data(kind: str, *shape: int) -> Any:
    # Larger ones overflow in the pairs of products that onnxruntime adds in 16 bits on a CPU without VNNI.
    low, high = (0, 256) if kind == "uint8" else (-64, 64)
    return t(*shape, low=low, high=high, dtype=kind)


def scale(rng: Generator, *shape: int) -> Any:
    return const(rng.uniform(0.01, 0.1, shape), "float32")


def zero(rng: Generator, kind: str, *shape: int) -> Any:
    return const(rng.integers(90, 140, shape) - (0 if kind == "uint8" else 110), kind)


def qlinear_conv(rng: Generator) -> OpCase:
    kind, wkind = str(rng.choice(BYTES)), str(rng.choice(BYTES))
    if kind == "int8":
        wkind = "int8"
    rank = int(rng.choice([1, 2, 2, 3]))
    group = int(rng.choice([1, 1, 2]))
    channels, out = group * int(rng.choice([1, 2, 3])), group * int(rng.choice([1, 2]))
    kernel = [int(rng.integers(1, 4)) for _ in range(rank)]
    sizes = [int(rng.integers(5, 9)) for _ in range(rank)]
    last = int(rng.random() < 0.6)
    batch = int(rng.choice([1, 2]))
    shape = (batch, *sizes, channels) if last else (batch, channels, *sizes)
    by_channel = (out,) if rng.random() < 0.5 else ()
    attrs: dict[str, Any] = {"channels_last": last, "group": group}
    if rng.random() < 0.5:
        attrs["pads"] = [int(rng.integers(0, 2)) for _ in range(2 * rank)]
    elif rng.random() < 0.5:
        attrs["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    if rng.random() < 0.5:
        attrs["strides"] = [int(rng.integers(1, 3)) for _ in range(rank)]
    elif "auto_pad" not in attrs and rng.random() < 0.5:
        attrs["dilations"] = [int(rng.integers(1, 3)) for _ in range(rank)]
    if rng.random() < 0.3:
        attrs["kernel_shape"] = kernel
    wzero = const(np.zeros(by_channel), wkind) if wkind == "int8" else zero(rng, wkind, *by_channel)
    if wkind == "uint8" and by_channel:
        # One zero point for all channels is all that onnxruntime takes.
        wzero = const(np.full(by_channel, 120), wkind)
    inputs = [
        data(kind, *shape),
        scale(rng),
        zero(rng, kind),
        data(wkind, out, channels // group, *kernel),
        scale(rng, *by_channel),
        wzero,
        const(rng.uniform(3, 6), "float32"),
        zero(rng, kind),
        t(out, low=-900, high=900, dtype="int32") if rng.random() < 0.5 else None,
    ]
    return ms("QLinearConv", inputs, attrs)


def qembed_layer_normalization(rng: Generator) -> OpCase:
    kind = str(rng.choice(BYTES))
    batch, length, width = int(rng.choice([1, 2])), int(rng.choice([1, 4])), int(rng.choice([8, 33]))
    segments, mask = rng.random() < 0.6, rng.random() < 0.6
    names = ("word", "position", "segment", "gamma", "beta")
    kept = [segments or name != "segment" for name in names]
    inputs = [
        t(batch, length, low=0, high=9, dtype="int32"),
        t(batch, length, low=0, high=2, dtype="int32") if segments else None,
        data(kind, 9, width),
        data(kind, 7, width),
        data(kind, 2, width) if segments else None,
        data(kind, width),
        data(kind, width),
        t(batch, length, low=0, high=2, dtype="int32") if mask else None,
        *(scale(rng) if keep else None for keep in kept),
        *(zero(rng, kind) if keep else None for keep in kept),
    ]
    return ms("QEmbedLayerNormalization", inputs, {"epsilon": float(rng.choice([1e-12, 1e-5]))}, outputs=2)


def matmul_integer_to_float(rng: Generator) -> OpCase:
    kind, other = [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")][int(rng.integers(3))]
    lead = [(), (), (2,), (0,)][int(rng.integers(4))]
    m, k, n = int(rng.choice([1, 3])), int(rng.choice([1, 7, 40])), int(rng.choice([1, 5]))
    batched = bool(lead) and rng.random() < 0.5
    shape: tuple[int, ...] = [(), (1,), (n,)][int(rng.integers(3))] if not batched else ()
    inputs = [
        data(kind, *lead, m, k),
        data(other, *(lead if batched else ()), k, n),
        scale(rng, *[(), (1,)][int(rng.integers(2))]),
        scale(rng, *shape),
        zero(rng, kind) if rng.random() < 0.6 else None,
        zero(rng, other, *shape) if rng.random() < 0.6 else None,
        t(n) if rng.random() < 0.5 else None,
    ]
    return ms("MatMulIntegerToFloat", inputs)


def dynamic_quantize_matmul(rng: Generator) -> OpCase:
    kind = str(rng.choice(BYTES))
    lead = [(), (), (2,), (0,)][int(rng.integers(4))]
    m, k, n = int(rng.choice([1, 3])), int(rng.choice([1, 7, 40])), int(rng.choice([1, 5]))
    shape: tuple[int, ...] = [(), (1,), (n,)][int(rng.integers(3))]
    low = float(rng.choice([-1.0, 0.5, -2.0]))
    inputs = [
        t(*lead, m, k, low=low, high=low + 1.5),
        data(kind, k, n),
        scale(rng, *shape),
        zero(rng, kind, *shape) if rng.random() < 0.6 else None,
        t(n) if rng.random() < 0.5 else None,
    ]
    return ms("DynamicQuantizeMatMul", inputs)


def qlinear_where(rng: Generator) -> OpCase:
    kind = str(rng.choice(BYTES))
    shapes = [(3, 4), (4,), (3, 1), (1,), (2, 3, 4), (0, 4)]
    condition, x, y = (shapes[int(rng.integers(6))] for _ in range(3))
    if (2, 3, 4) in (condition, x, y) or (3, 1) in (condition, x, y) or (3, 4) in (condition, x, y):
        condition, x, y = ((4,) if s == (0, 4) else s for s in (condition, x, y))
    inputs = [t(*condition, dtype="bool")]
    for shape in (x, y):
        inputs += [data(kind, *shape), scale(rng), zero(rng, kind)]
    return ms("QLinearWhere", [*inputs, scale(rng), zero(rng, kind)])


def qlinear_reduce_mean(rng: Generator) -> OpCase:
    kind = str(rng.choice(BYTES))
    rank = int(rng.integers(1, 4))
    axes = [
        int(a) - int(rng.choice([0, rank])) for a in rng.permutation(rank)[: int(rng.integers(1, rank + 1))]
    ]
    inputs = [
        data(kind, *(int(d) for d in rng.integers(1, 5, rank))),
        scale(rng),
        zero(rng, kind) if rng.random() < 0.7 else None,
        scale(rng),
        zero(rng, kind) if rng.random() < 0.7 else None,
    ]
    # onnxruntime has no kernel of it.
    return ms("QLinearReduceMean", inputs, {"axes": axes, "keepdims": int(rng.integers(2))}, oracle=mean)


def mean(x, scale, zero, y_scale, y_zero=None, *, axes, keepdims):  # type: ignore[no-untyped-def]
    """By the documented formula, in float64 up to where it rounds."""
    real = (x.astype(np.float64) - (0 if zero is None else int(zero))) * scale
    y = np.rint((real.mean(tuple(axes), keepdims=bool(keepdims)) / y_scale).astype(np.float32))
    bounds = np.iinfo(x.dtype)
    return np.clip(y + (0 if y_zero is None else int(y_zero)), bounds.min, bounds.max).astype(x.dtype)


def dynamic_time_warping(rng: Generator) -> OpCase:
    rows, columns = int(rng.choice([1, 2, 5, 9])), int(rng.choice([1, 2, 6, 12]))
    lead = (1,) if rng.random() < 0.3 else ()
    if rng.random() < 0.5:
        # Many paths are cheapest.
        return ms("DynamicTimeWarping", [const(rng.integers(0, 3, (*lead, rows, columns)), "float32")])
    return ms("DynamicTimeWarping", [t(*lead, rows, columns, low=float(rng.choice([-1.0, 0.0])))])


def unfold_tensor(rng: Generator) -> OpCase:
    dims = [int(rng.choice([0, 1, 2, 5, 7])) for _ in range(int(rng.integers(1, 4)))]
    axis = int(rng.integers(len(dims)))
    dims[axis] = max(dims[axis], 1)
    attrs = {
        "dim": axis - int(rng.choice([0, len(dims)])),
        "size": int(rng.integers(1, dims[axis] + 1)),
        "step": int(rng.integers(1, 4)),
    }
    kind = str(rng.choice(["float32", "float16", "int64", "uint8", "float64"]))
    # onnxruntime has kernels of the elements of four and eight bytes.
    oracle = "onnxruntime" if np.dtype(kind).itemsize >= 4 else unfolded
    return ms("UnfoldTensor", [t(*dims, dtype=kind)], attrs, oracle=oracle)


def unfolded(x, *, dim=-1, size, step=1):  # type: ignore[no-untyped-def]
    every = np.lib.stride_tricks.sliding_window_view(x, size, dim)
    return every.swapaxes(0, dim % x.ndim)[::step].swapaxes(0, dim % x.ndim)


ROWS = {
    "QLinearConv": Row(qlinear_conv, trials=40),
    "QEmbedLayerNormalization": Row(qembed_layer_normalization, trials=20),
    "MatMulIntegerToFloat": Row(matmul_integer_to_float, trials=30),
    "DynamicQuantizeMatMul": Row(dynamic_quantize_matmul, trials=30),
    "QLinearWhere": Row(qlinear_where, trials=30),
    "QLinearReduceMean": Row(qlinear_reduce_mean, trials=20),
    "DynamicTimeWarping": Row(dynamic_time_warping, trials=30, seam=True),
    "UnfoldTensor": Row(unfold_tensor, trials=30),
}
