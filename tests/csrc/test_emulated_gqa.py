"""The CUDA kernels of a step of GroupQueryAttention, emulated, beside float64 and the op of the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from axes import crossed
from gqasteps import ROUNDING, Step, counting, moved, reference, step
from hostcuda import launch, needs_compiler, poisoned
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.runtime.validation import word as layout

pytestmark = needs_compiler


def attend(one: Step, parts: int = 2, word: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The result, the new rows, and where they belong."""
    batch, length, width, dtype = one.query.shape[0], one.length, one.width, one.query.dtype
    shape = (batch, one.groups, length, one.past_key.shape[3])
    fresh = [poisoned(*shape, dtype=one.past_key.dtype) for _ in range(2)]
    y = poisoned(batch, length, one.heads * width, dtype=dtype)
    start = poisoned(*one.places, dtype=torch.int64)
    queries = batch * length * one.heads * parts
    numbers = (
        *(batch, length, one.heads, one.groups, width, one.past_key.shape[2], one.total),
        *((0, 0) if one.cos is None else (one.cos.shape[1], one.cos.shape[0])),
        *(one.window, one.interleaved, one.smooth, one.key is None),
        *(0 if one.bias is None else one.bias.shape[3], parts, 7, one.rolling),
        *({torch.int8: 1, torch.uint8: 2}.get(one.past_key.dtype, 0),),
        *(scale is not None and scale.numel() > 1 for scale in (one.key_scale, one.value_scale)),
    )
    given = (
        one.query,
        one.key,
        one.value,
        one.past_key,
        one.past_value,
        one.last,
        one.counts,
        one.cos,
        one.sin,
    )
    launch(
        "gqa_decode",
        f"gqa_decode_{str(dtype).removeprefix('torch.')}",
        *given,
        *(one.position, one.bias, one.sink, one.query_norm, one.key_norm),
        *(one.key_scale, one.value_scale, torch.tensor(numbers)),
        *(float(one.scale), float(one.softcap), one.query_epsilon, one.key_epsilon),
        *(y, *fresh, start, poisoned(queries), poisoned(queries), poisoned(queries, width), word),
    )
    return y, *fresh, start


def error(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted).abs().max()) / max(1.0, float(wanted.abs().max()))


# Heads, groups, width, capacity: widths beside whole warps, several chunks of queries.
SIZES = ((1, 1, 1, 4), (6, 2, 20, 37), (10, 2, 65, 40), (4, 4, 128, 21), (2, 1, 200, 19))
OPTIONS: tuple[dict[str, Any], ...] = (
    {"padded": True, "length": 3, "rotary": "halves", "bias": True},
    {},
    {"window": 7, "length": 3},
    {"softcap": 2.5, "sink": True},
    {"bias": True, "smooth": True},
    {"packed": True, "rotary": "pairs"},
    {"rotary": "part", "positions": True, "length": 2},
    {"normed": True},
    {"rolling": 3, "window": 4},
    {"stored": 8, "rotary": "halves", "length": 2, "bias": True},
    {"stored": 4, "channels": True, "sink": True},
    {"rolling": 40, "window": 3, "length": 4, "padded": True, "rotary": "halves", "sink": True},
    {"normed": True, "rotary": "halves", "length": 3, "packed": True},
    {"rotary": "halves", "bias": True, "window": 5, "length": 2, "sink": True, "scale": 0.4},
)


@pytest.mark.parametrize(
    ("dtype", "options"),
    crossed(list(ROUNDING), OPTIONS),
    ids=lambda o: ("-".join(o) or "plain") if isinstance(o, dict) else None,
)
def test_it_gives_what_float64_gives(options: dict[str, Any], dtype: torch.dtype) -> None:
    for seed, (heads, groups, width, capacity) in enumerate(SIZES):
        one = step(seed, dtype, heads=heads, groups=groups, width=width, capacity=capacity, **options)
        y, key, value, start = attend(one, parts=1 + seed % 3)
        want = reference(one)
        assert start.tolist() == want.places
        assert error(y, want.y) < ROUNDING[dtype] and error(counting(one, key), want.key) < one.rounding
        assert torch.equal(counting(one, value), want.value)


@pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")
def test_it_gives_what_the_cpu_gives() -> None:
    assert native.load()
    one = step(
        3,
        torch.float32,
        heads=6,
        groups=2,
        width=40,
        capacity=90,
        rotary="halves",
        window=50,
        bias=True,
        normed=True,
    )
    ours, theirs = (
        attend(one, 4),
        torch.ops.torch_ort_session.gqa_decode.default(*one.arguments(), 0, None, **one.options()),
    )
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-6, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(ours[2:], theirs[2:], strict=True))


@pytest.mark.parametrize("rest", [math.nan, math.inf])
def test_rows_that_do_not_count_are_never_read(rest: float) -> None:
    clean = step(5, torch.float32, heads=4, groups=2, width=24, capacity=40, window=9)
    one = clean._replace(past_key=clean.past_key.clone(), past_value=clean.past_value.clone())
    for cache in (one.past_key, one.past_value):
        for b, before in enumerate(one.before):
            cache[b, :, before:] = rest
            cache[b, :, : max(before - 8, 0)] = rest
    assert all(torch.equal(a, b) for a, b in zip(attend(one), attend(clean), strict=True))


def test_what_is_not_finite_stays_so() -> None:
    one = step(5, torch.float32, heads=4, groups=2, width=24, capacity=40)
    one.last.fill_(35)
    one.past_key[1, 1, 17, 3] = math.nan
    y = attend(one)[0].reshape(2, 1, 4, 24)
    assert y[1, 0, 2:].isnan().all() and y[0].isfinite().all() and y[1, 0, :2].isfinite().all()


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    one = step(5, torch.float32, heads=4, groups=2, width=24, capacity=30, bias=True)
    assert one.bias is not None
    one.bias[0, 1] = -math.inf
    y = attend(one)[0].reshape(2, 1, 4, 24)
    assert not y[:, :, 1].any() and y[:, :, (0, 2, 3)].abs().amin(-1).gt(0).all()


@pytest.mark.parametrize("last", [-1, 40, 2**31 - 1, -(2**31)])
def test_m11_a_length_that_cannot_be_is_noted(last: int) -> None:
    one = step(2, torch.float32, heads=4, groups=2, width=8, capacity=40, rotary="halves")
    one.last[1] = last
    word = torch.zeros(layout.SIZE, dtype=torch.int32)
    y, _, _, start = attend(one, 2, word)
    assert start.tolist() == [one.before[0], -1] and y.isfinite().all()
    told = layout.fault_of(word.tolist(), [("", "")] * 7)
    assert told is not None
    assert (told.flag, told.value, told.low, told.high, told.count) == (Flag.POSITION, last, 0, 39, 1)


def test_m11_an_angle_that_is_not_there_is_noted_once() -> None:
    one = step(2, torch.float32, heads=4, groups=2, width=8, capacity=40, rotary="halves", positions=True)
    assert one.position is not None and one.cos is not None
    one.position[1, 0] = 1000
    word = torch.zeros(layout.SIZE, dtype=torch.int32)
    attend(one, 2, word)
    told = layout.fault_of(word.tolist(), [("", "")] * 7)
    assert told is not None
    assert (told.flag, told.value, told.high, told.count) == (Flag.INDEX, 1000, one.cos.shape[0] - 1, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize("width", [1, 5, 64, 130])
def test_rows_are_put_where_they_belong(dtype: torch.dtype, width: int) -> None:
    random = torch.Generator().manual_seed(width)

    def made(*shape: int) -> Tensor:
        return torch.randint(-99, 99, shape, generator=random).to(dtype)

    caches, fresh = [made(3, 2, 9, width) for _ in range(2)], [made(3, 2, 2, width) for _ in range(2)]
    start = torch.tensor([8, -1, 3])
    numbers = torch.tensor([3, 2, 9, 2, width * dtype.itemsize, 1])
    want = [cache.clone() for cache in caches]
    word = torch.zeros(layout.SIZE, dtype=torch.int32)
    word[layout.FLAGS] = 1
    given = (caches[0], fresh[0], caches[1], fresh[1], start, numbers)
    launch("cache_appended", "cache_append", *given, word)
    assert all(torch.equal(a, b) for a, b in zip(caches, want, strict=True))
    for cache, rows in zip(want, fresh, strict=True):
        cache[0, :, 8], cache[2, :, 3:5] = rows[0, :, 0], rows[2]
    word[layout.FLAGS] = 0
    launch("cache_appended", "cache_append", *given, word)
    assert all(torch.equal(a, b) for a, b in zip(caches, want, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize("width", [1, 5, 32, 300])
def test_rows_make_way_for_others(dtype: torch.dtype, width: int) -> None:
    random = torch.Generator().manual_seed(width)
    caches = [torch.randint(-99, 99, (4, 2, 21, width), generator=random).to(dtype) for _ in range(2)]
    fresh = [torch.randint(-99, 99, (4, 2, 3, width), generator=random).to(dtype) for _ in range(2)]
    places = torch.tensor([[19, 1, 2], [5, 16, 1], [-1, 0, 3], [7, 0, 0]])
    want = [moved(cache, rows, places) for cache, rows in zip(caches, fresh, strict=True)]
    numbers = torch.tensor([4, 2, 21, 3, width * dtype.itemsize, 3])
    launch("cache_appended", "cache_append", caches[0], fresh[0], caches[1], fresh[1], places, numbers, None)
    assert all(torch.equal(a, b) for a, b in zip(caches, want, strict=True))
