"""Generators of com.microsoft's residual streams: norms by branch, mixes and gates."""

from __future__ import annotations

from typing import Any

from cases import microsoft_streams
from cases.microsoft_streams import ms
from opcase import OpCase, t

from differential.images_and_arranging import dims, one_of
from differential.single import Generator, Row

FLOATS = ("float32", "float16")


def gated_norm(rng: Generator) -> OpCase:
    *lead, groups, width = dims(rng, 2, 4, empty=0)
    shape = (*lead, groups * width)
    attrs = {"activation": one_of(rng, "silu", "swish", "sigmoid"), "epsilon": one_of(rng, 1e-5, 0.1)}
    return ms("GatedRMSNorm", [t(*shape), t(width), t(*shape, low=-4, high=4)], attrs)


def streams(rng: Generator) -> tuple[list[int], int, int, dict[str, Any], Any]:
    """Leading dims, branches, width, the attribute that tells branches, and the streams."""
    *lead, count, width = dims(rng, 3, 4, empty=0)
    if rng.random() < 0.5:
        return lead, count, width, {"num_branches": count}, t(*lead, count * width)
    return lead, count, width, {}, t(*lead, count, width)


def branchwise(rng: Generator) -> OpCase:
    _, count, width, attrs, x = streams(rng)
    scale = one_of(rng, None, (count * width,), (count, width), (width,))
    return ms("BranchwiseRMSNorm", [x, *([] if scale is None else [t(*scale)])], attrs)


def pre_mix(rng: Generator) -> OpCase:
    lead, count, width, attrs, x = streams(rng)
    forms = [(count,), (count, 1), (count, width)] + ([(count * width,)] if attrs else [])
    attrs["reduction_scale"] = one_of(rng, 1.0, 0.5)
    return ms("HyperConnectionPreMix", [x, t(*lead, *one_of(rng, *forms))], attrs)


def post_mix(rng: Generator) -> OpCase:
    lead, count, width, attrs, x = streams(rng)
    inputs = [x, t(*lead, width), t(*lead, *one_of(rng, (count,), (count, 1), (count, width)))]
    inputs += [t(*lead, count, count)] if rng.random() < 0.5 else []
    return ms("HyperConnectionPostMix", inputs, attrs)


def low_rank(rng: Generator) -> OpCase:
    *lead, count, width = dims(rng, 3, 4, empty=0)
    rank, wide = int(rng.integers(1, 4)), count * width
    inputs = [t(*lead, wide), t(wide), t(wide, rank), t(rank, wide), t(wide, count)]
    inputs += [t(*lead, width), t(*lead, count)] if rng.random() < 0.6 else []
    attrs = {"num_branches": count, "gate_div": 2.0, "gate_mul": 1.5, "silu_alpha": one_of(rng, 1.0, 1.7)}
    oracle = microsoft_streams.low_rank_mix
    return ms("HyperConnectionLowRankMix", inputs, attrs, outputs=3, oracle=oracle)


def engram(rng: Generator) -> OpCase:
    batch, length, count, width = (int(n) for n in rng.integers(1, 5, 4))
    shape, scale = (batch, length, count, width), t(count, width)
    inputs = [t(*shape), t(*shape), t(batch, length, width), scale, scale]
    both = rng.random() < 0.5
    return ms("EngramGate", [*inputs, *([scale] if both else [])], outputs=1 + both)


ROWS: dict[str, Row] = {
    "GatedRMSNorm": Row(gated_norm, FLOATS),
    "BranchwiseRMSNorm": Row(branchwise, FLOATS),
    "HyperConnectionPreMix": Row(pre_mix, FLOATS),
    "HyperConnectionPostMix": Row(post_mix, FLOATS),
    "HyperConnectionLowRankMix": Row(low_rank),
    "EngramGate": Row(engram, FLOATS),
}
