"""Generators of com.microsoft's ops on images, and of those that arrange, select and hash elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import microsoft_arrange, microsoft_bias, microsoft_spatial
from opcase import OpCase, const, ms, t

from differential.single import Generator, Row


def one_of(rng: Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def dims(rng: Generator, low: int, high: int, *, empty: float = 0.1) -> list[int]:
    """A shape of one of some ranks, in which at times an axis is empty."""
    shape = [int(rng.integers(1, 6)) for _ in range(int(rng.integers(low, high + 1)))]
    if shape and rng.random() < empty:
        shape[int(rng.integers(len(shape)))] = 0
    return shape


def numbers(rng: Generator, low: int, high: int, count: int) -> list[int]:
    return [int(n) for n in rng.integers(low, high + 1, count)]


def bias_add(rng: Generator) -> OpCase:
    shape = dims(rng, 3, 3)
    return ms("BiasAdd", [t(*shape), t(shape[-1]), t(*shape)], oracle=lambda x, b, s: x + b + s)


def bias_split_gelu(rng: Generator) -> OpCase:
    *lead, half = dims(rng, 3, 3)
    return ms(
        "BiasSplitGelu",
        [t(*lead, 2 * half, low=-4, high=4), t(2 * half)],
        oracle=microsoft_bias.bias_split_gelu,
        tol=5e-5,
    )


def bias_dropout(rng: Generator) -> OpCase:
    shape = dims(rng, 2, 3)
    bias = t(shape[-1]) if rng.random() < 0.5 else t(*shape)
    residual = t(*shape) if rng.random() < 0.5 else None
    return ms("BiasDropout", [t(*shape), bias, residual], outputs=2, oracle=microsoft_bias.bias_dropout)


def matmul_activation(rng: Generator) -> OpCase:
    name = one_of(rng, *microsoft_bias.ACTIVATIONS)
    left, right = int(rng.integers(2)), int(rng.integers(2))
    batch, (m, k, n) = dims(rng, 0, 2, empty=0), numbers(rng, 1, 6, 3)
    attrs = {"activation": name, "transA": left, "transB": right, **microsoft_bias.ACTIVATIONS[name][1]}
    return ms(
        "FusedMatMulActivation",
        [t(*batch, k, m) if left else t(*batch, m, k), t(*batch, n, k) if right else t(*batch, k, n)],
        attrs,
        oracle=microsoft_bias.activated(name, left, right),
    )


def group_norm(rng: Generator) -> OpCase:
    groups = one_of(rng, 1, 2, 3)
    channels, last = groups * int(rng.integers(1, 4)), int(rng.integers(2))
    n, h, w = numbers(rng, 1, 5, 3)
    attrs = {"groups": groups, "activation": int(rng.integers(2)), "epsilon": one_of(rng, 1e-5, 1e-2)}
    if not last:
        attrs["channels_last"] = 0
    shape = (n, h, w, channels) if last else (n, channels, h, w)
    # One element a group is all mean, so that only the last bits of the sum are left.
    inputs: list[Any] = [t(*shape, low=-2, high=3), t(channels, low=0.5, high=2), t(channels)]
    if rng.random() < 0.5:
        return ms("GroupNorm", inputs, attrs, microsoft_spatial.group_norm, tol=1e-3)
    flat = (n, 1, 1, channels) if last else (n, channels, 1, 1)
    inputs.append(t(*one_of(rng, shape, flat, (n, channels))))
    if rng.random() < 0.5:
        inputs.append(t(channels))
    return ms("SkipGroupNorm", inputs, attrs, microsoft_spatial.group_norm, outputs=2, tol=1e-3)


def nhwc_conv(rng: Generator) -> OpCase:
    group, (each, more) = one_of(rng, 1, 2), numbers(rng, 1, 3, 2)
    kernel = numbers(rng, 1, 3, 2)
    size = [int(rng.integers(width, 7)) for width in kernel]
    attrs = {"group": group, "pads": numbers(rng, 0, 2, 4), "strides": numbers(rng, 1, 2, 2)}
    bias = t(group * more) if rng.random() < 0.5 else None
    inputs = [t(int(rng.integers(3)), *size, group * each), t(group * more, *kernel, each), bias]
    return ms("NhwcConv", inputs, attrs, microsoft_spatial.nhwc_conv)


def nhwc_max_pool(rng: Generator) -> OpCase:
    rank = int(rng.integers(1, 4))
    kernel = numbers(rng, 1, 3, rank)
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": numbers(rng, 1, 2, rank)}
    padding = int(rng.integers(3))
    if padding == 1:
        attrs["pads"] = [
            min(pad, width - 1) for pad, width in zip(numbers(rng, 0, 2, 2 * rank), kernel * 2, strict=True)
        ]
    elif padding == 2:
        attrs["auto_pad"] = one_of(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    if padding != 2 and rng.random() < 0.3:
        attrs["dilations"] = numbers(rng, 1, 2, rank)
    if padding != 2 and rng.random() < 0.3:
        attrs["ceil_mode"] = 1
    size = [int(rng.integers(2 * width, 8)) for width in kernel]
    return ms(
        "NhwcMaxPool", [t(int(rng.integers(3)), *size, int(rng.integers(1, 5)), low=-128, high=256)], attrs
    )


def inverse(rng: Generator) -> OpCase:
    size = int(rng.integers(1, 6))
    shape = (*dims(rng, 0, 2), size, size)
    # Near the unit matrix, where a matrix has an inverse of few digits lost.
    data = np.eye(size) * 3 + rng.uniform(-0.5, 0.5, shape)
    return ms("Inverse", [const(data)])


def rfft(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 3, empty=0)
    shape[-1] *= 2
    count = int(rng.integers(1, len(shape) + 1))
    return ms("Rfft", [t(*shape)], {"signal_ndim": count}, microsoft_arrange.rfft)


def irfft(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 3, empty=0)
    shape[-1] += 1
    count = int(rng.integers(1, len(shape) + 1))
    return ms("Irfft", [t(*shape, 2)], {"signal_ndim": count}, microsoft_arrange.irfft)


def trilu(rng: Generator) -> OpCase:
    inputs: list[Any] = [t(*dims(rng, 2, 4))]
    if rng.random() < 0.6:
        inputs.append(const(int(rng.integers(-4, 5)), "int64"))
    return ms("Trilu", inputs, {"upper": int(rng.integers(2))})


def unique(rng: Generator) -> OpCase:
    return ms("Unique", [const(rng.integers(-3, 4, one_of(rng, 0, 1, 7, 40)))], outputs=3)


def expand_dims(rng: Generator) -> OpCase:
    shape = dims(rng, 0, 4)
    axis = int(rng.integers(-len(shape) - 1, len(shape) + 1))
    return ms("ExpandDims", [t(*shape), const(one_of(rng, axis, [axis]), "int32")])


def cdist(rng: Generator) -> OpCase:
    m, k, n = (int(n) for n in rng.integers(1, 9, 3))
    return ms("CDist", [t(m, n), t(k, n)], {"metric": one_of(rng, "sqeuclidean", "euclidean")}, tol=1e-4)


def crop_and_resize(rng: Generator) -> OpCase:
    n, c, h, w = numbers(rng, 1, 7, 4)
    boxes = int(rng.integers(0, 5))
    # Quarters and eighths of a size lie where both computations are exact, so that they agree on the border.
    corners = rng.uniform(-0.3, 1.3, (boxes, 4)) if rng.random() < 0.7 else rng.integers(0, 2, (boxes, 4))
    attrs = {"mode": one_of(rng, "bilinear", "nearest"), "extrapolation_value": one_of(rng, 0.0, -2.0)}
    size = const(numbers(rng, 1, 5, 2), "int32")
    return ms(
        "CropAndResize",
        [t(n, c, h, w), const(corners), const(rng.integers(0, n, boxes), "int32"), size],
        attrs,
    )


def grid_sample(rng: Generator) -> OpCase:
    n, c, h, w, rows, columns = numbers(rng, 1, 6, 6)
    attrs = {
        "mode": one_of(rng, "bilinear", "nearest", "bicubic"),
        "padding_mode": one_of(rng, "zeros", "border", "reflection"),
        "align_corners": int(rng.integers(2)),
    }
    return ms("GridSample", [t(n, c, h, w), t(n, rows, columns, 2, low=-1.4, high=1.4)], attrs, tol=1e-4)


def conv_transpose(rng: Generator) -> OpCase:
    rank, group = int(rng.integers(1, 3)), one_of(rng, 1, 2)
    each, more = numbers(rng, 1, 3, 2)
    kernel = numbers(rng, 2, 3, rank)
    attrs: dict[str, Any] = {"group": group, "strides": numbers(rng, 1, 2, rank)}
    if rng.random() < 0.3:
        attrs["dilations"] = numbers(rng, 1, 2, rank)
    if rng.random() < 0.3:
        attrs["output_padding"] = [stride - 1 for stride in attrs["strides"]]
    inputs: list[Any] = [
        t(int(rng.integers(1, 3)), group * each, *numbers(rng, 2, 4, rank)),
        t(group * each, more, *kernel),
        const(numbers(rng, 0, 1, 2 * rank), "int64"),
    ]
    if rng.random() < 0.5:
        inputs.append(t(group * more))
    return ms("ConvTransposeWithDynamicPads", inputs, attrs)


def masked_pool(rng: Generator) -> OpCase:
    rank = int(rng.integers(1, 4))
    kernel = numbers(rng, 1, 3, rank)
    size = [int(rng.integers(width, 7)) for width in kernel]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": numbers(rng, 1, 2, rank)}
    if rng.random() < 0.5:
        attrs["pads"] = [
            min(pad, width - 1) for pad, width in zip(numbers(rng, 0, 2, 2 * rank), kernel * 2, strict=True)
        ]
    # Of a mask with a plane for each channel onnxruntime reads other elements than those of the channel.
    mask = const(rng.random((1, 1, *size)) > 0.3, "int32")
    return ms("MaxpoolWithMask", [t(*numbers(rng, 1, 3, 2), *size), mask], attrs)


def bifurcation(rng: Generator) -> OpCase:
    count = int(rng.integers(0, 12))
    source = rng.integers(0, 3, count)
    start = int(rng.integers(0, count + 1))
    inputs: list[Any] = [
        const(source, "int64"),
        const(rng.integers(0, 3, int(rng.integers(0, 6))), "int64"),
        const([start], "int64"),
    ]
    if rng.random() < 0.6:
        guess = np.append(source[start:], 1)
        wrong = rng.random(guess.size) < 0.15
        inputs.append(const(np.where(wrong, guess + 1, guess), "int64"))
    attrs = {"min_ngram_size": int(rng.integers(1, 3)), "max_ngram_size": int(rng.integers(2, 6))}
    return ms("BifurcationDetector", inputs, attrs, outputs=2)


def sample_op(rng: Generator) -> OpCase:
    return ms("SampleOp", [t(*dims(rng, 0, 4))])


def all_finite(rng: Generator) -> OpCase:
    parts = [rng.uniform(-1, 1, dims(rng, 0, 3)) for _ in range(int(rng.integers(1, 4)))]
    for part in parts:
        if part.size and rng.random() < 0.3:
            part.flat[0] = one_of(rng, np.inf, -np.inf, np.nan)
    attrs = one_of(rng, {}, {"isinf_only": 1}, {"isnan_only": 1})
    return ms("IsAllFinite", [const(part) for part in parts], attrs, microsoft_arrange.all_finite)


def murmur(rng: Generator) -> OpCase:
    attrs = {"positive": int(rng.integers(2)), "seed": int(rng.integers(1 << 31))}
    return ms("MurmurHash3", [t(*dims(rng, 0, 3), low=-(1 << 20), high=1 << 20)], attrs)


def murmur_of_texts(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 2, empty=0)
    letters = np.array(list("abcXYZ 019äß漢😀"))
    texts = ["".join(rng.choice(letters, int(rng.integers(0, 14)))) for _ in range(int(np.prod(shape)))]
    attrs = {"positive": int(rng.integers(2)), "seed": int(rng.integers(1 << 31))}
    return ms("MurmurHash3", [const(np.array(texts, object).reshape(shape), "string")], attrs)


def pad(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 3, empty=0)
    mode = one_of(rng, "constant", "reflect", "edge")
    low, high = (-1, 2) if mode == "constant" and min(shape) > 2 else (0, 2 if min(shape) > 2 else 0)
    pads = numbers(rng, low, high, 2 * len(shape))
    inputs: list[Any] = [t(*shape), const(one_of(rng, pads, [pads]), "int64")]
    if mode == "constant" and rng.random() < 0.5:
        inputs.append(const(one_of(rng, 1.5, [1.5])))
    return ms("Pad", inputs, {"mode": mode})


def range_(rng: Generator) -> OpCase:
    start, limit = numbers(rng, -6, 9, 2)
    step = one_of(rng, None, 1, 2, 3, -1, -2)
    wrap = one_of(rng, int, lambda n: [n])
    return ms("Range", [const(wrap(start)), const(wrap(limit)), None if step is None else const(wrap(step))])


def gather_nd(rng: Generator) -> OpCase:
    shape = dims(rng, 1, 4, empty=0)
    depth = int(rng.integers(1, len(shape) + 1))
    # A single index is a key feed, which leaves nothing to record.
    lead = one_of(rng, (2,), (3, 2), (0,), (2, 1), (1, 4))
    rows = [rng.integers(-d, d, lead) for d in shape[:depth]]
    return ms("GatherND", [t(*shape), const(np.stack(rows, -1), one_of(rng, "int32", "int64"))])


def crop(rng: Generator) -> OpCase:
    borders = numbers(rng, 0, 2, 4)
    attrs: dict[str, Any] = {"border": borders}
    if rng.random() < 0.5:
        attrs["scale"] = numbers(rng, 1, 3, 2)
    shape = (*numbers(rng, 1, 3, 2), *numbers(rng, 5, 7, 2))
    return OpCase("Crop", [t(*shape)], attrs, opset=9, oracle="onnxruntime")


def image_scaler(rng: Generator) -> OpCase:
    shape = numbers(rng, 1, 4, 4)
    attrs = {
        "bias": [float(n) for n in rng.uniform(-1, 1, shape[1])],
        "scale": one_of(rng, 1.0, 0.5, 1 / 255),
    }
    return OpCase("ImageScaler", [t(*shape)], attrs, opset=9, oracle="onnxruntime")


ROWS = {
    "BiasAdd": Row(bias_add),
    "BiasSplitGelu": Row(bias_split_gelu),
    "BiasDropout": Row(bias_dropout),
    "FusedMatMulActivation": Row(matmul_activation, trials=30),
    "GroupNorm": Row(group_norm, trials=30),
    "NhwcConv": Row(nhwc_conv),
    "NhwcMaxPool": Row(nhwc_max_pool, ("int8", "uint8"), trials=20),
    "Inverse": Row(inverse, ("float32", "float64")),
    "Rfft": Row(rfft),
    "Irfft": Row(irfft),
    "Trilu": Row(trilu, ("float32", "float64", "int64")),
    "Unique": Row(unique, seam=True),
    "ExpandDims": Row(expand_dims, ("float32", "int8", "bool", "float16"), trials=8, seam=True),
    "CDist": Row(cdist, ("float32", "float64")),
    "CropAndResize": Row(crop_and_resize, trials=30, seam=True),
    "GridSample": Row(grid_sample, trials=30),
    "ConvTransposeWithDynamicPads": Row(conv_transpose, trials=20, seam=True),
    "MaxpoolWithMask": Row(masked_pool, trials=20),
    "BifurcationDetector": Row(bifurcation, trials=40, seam=True),
    "SampleOp": Row(sample_op, trials=6, seam=True),
    "IsAllFinite": Row(all_finite, ("float32", "float64", "float16"), trials=10),
    "MurmurHash3": Row(murmur, ("int32", "uint32", "int64", "uint64", "float32", "float64"), trials=6),
    "MurmurHash3 of texts": Row(murmur_of_texts, ("string",), seam=True),
    "Pad": Row(pad, trials=24, seam=True),
    "Range": Row(range_, ("float32", "float64", "int16", "int32", "int64"), trials=8, seam=True),
    "Crop": Row(crop, seam=True),
    "ImageScaler": Row(image_scaler),
    "GatherND": Row(gather_nd, ("float32", "int64", "bool"), trials=10),
}
