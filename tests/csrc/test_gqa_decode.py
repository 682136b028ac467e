"""The native step of GroupQueryAttention: every set of instructions beside float64."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import pytest
import torch
from axes import crossed
from gqasteps import ROUNDING, Step, counting, moved, reference, step
from textmodel import message
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.runtime.validation import word as layout

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)


def attend(one: Step, word: Tensor | None = None, instructions: int = -1) -> tuple[Tensor, ...]:
    return OPS.gqa_decode.default(*one.arguments(), 7, word, instructions, **one.options())


def error(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted).abs().max()) / max(1.0, float(wanted.abs().max()))


OPTIONS: tuple[dict[str, Any], ...] = (
    {"padded": True, "length": 3, "rotary": "halves", "bias": True},
    {},
    {"window": 3},
    {"window": 70},
    {"softcap": 2.5},
    {"smooth": True},
    {"sink": True},
    {"bias": True},
    {"bias": True, "window": 5, "softcap": 1.5, "sink": True},
    {"packed": True},
    {"rotary": "halves"},
    {"rotary": "pairs", "packed": True},
    {"rotary": "part", "positions": True},
    {"scale": 0.3, "length": 3},
    {"length": 4, "window": 3, "bias": True, "rotary": "halves"},
    {"normed": True},
    {"rolling": 3, "window": 4},
    {"stored": 8},
    {"stored": 8, "channels": True, "rotary": "halves", "length": 3, "packed": True},
    {"stored": 4, "rolling": 20, "window": 5},
    {"stored": 4, "channels": True, "bias": True, "softcap": 3.0, "length": 2, "padded": True},
    {"rolling": 0, "window": 6, "bias": True},
    {"rolling": 40, "window": 3, "length": 4, "padded": True, "rotary": "halves", "sink": True},
    {"rolling": 300, "window": 6, "length": 8, "positions": True},
    {"normed": True, "rotary": "pairs", "length": 2, "packed": True},
)


@pytest.mark.parametrize(
    ("dtype", "instructions", "options"),
    crossed(list(itertools.product(ROUNDING, reversed(SETS))), OPTIONS),
    ids=lambda o: ("-".join(o) or "plain") if isinstance(o, dict) else None,
)
def test_every_set_of_instructions_gives_what_float64_gives(
    options: dict[str, Any], dtype: torch.dtype, instructions: int
) -> None:
    sizes = ((1, 1, 1), (6, 2, 8), (4, 4, 24), (5, 1, 65), (8, 2, 64), (16, 2, 128))
    for seed, ((heads, groups, width), capacity) in enumerate(itertools.product(sizes, (6, 63, 200))):
        one = step(seed, dtype, heads=heads, groups=groups, width=width, capacity=capacity, **options)
        y, key, value, start = attend(one, instructions=instructions)
        want = reference(one)
        assert start.tolist() == want.places
        assert error(y, want.y) < ROUNDING[dtype]
        assert error(counting(one, key), want.key) < one.rounding
        assert torch.equal(counting(one, value), want.value)


@pytest.mark.parametrize("instructions", SETS)
def test_long_caches_are_attended_in_parts(instructions: int) -> None:
    for dtype, options in itertools.product(ROUNDING, ({}, {"window": 900}, {"sink": True, "length": 2})):
        one = step(1, dtype, heads=4, groups=1, width=16, capacity=3000, **options)
        y, *_ = attend(one, instructions=instructions)
        assert error(y, reference(one).y) < ROUNDING[dtype]


def test_the_number_of_threads_changes_nothing() -> None:
    one, threads = step(3, torch.float32, heads=4, groups=2, width=32, capacity=3000), torch.get_num_threads()
    first = attend(one)
    try:
        torch.set_num_threads(2)
        assert all(torch.equal(a, b) for a, b in zip(first, attend(one), strict=True))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", list(ROUNDING))
@pytest.mark.parametrize("rest", [math.nan, math.inf])
def test_rows_that_do_not_count_are_never_read(dtype: torch.dtype, rest: float) -> None:
    clean = step(5, dtype, heads=4, groups=2, width=24, capacity=40, window=9)
    one = clean._replace(past_key=clean.past_key.clone(), past_value=clean.past_value.clone())
    for cache, (b, before) in itertools.product((one.past_key, one.past_value), enumerate(one.before)):
        cache[b, :, before:] = rest
        cache[b, :, : max(before - 8, 0)] = rest
    assert all(torch.equal(a, b) for a, b in zip(attend(one), attend(clean), strict=True))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stays_so(value: float) -> None:
    for instructions, place in itertools.product(SETS, (0, 17, 39)):
        one = step(5, torch.float32, heads=4, groups=2, width=24, capacity=70)
        one.last.fill_(50)
        one.past_value[0, 0, place, 3] = value
        one.past_key[1, 1, place, 3] = math.nan
        y = attend(one, instructions=instructions)[0].reshape(2, 1, 4, 24)
        torch.testing.assert_close(y[0, 0, :2, 3], torch.full((2,), value), equal_nan=True)
        assert y[1, 0, 2:].isnan().all()
        assert y[0, 0, :, 4:].isfinite().all() and y[1, 0, :2].isfinite().all()


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    one = step(5, torch.float32, heads=4, groups=2, width=24, capacity=70, bias=True)
    assert one.bias is not None
    one.bias[0, 1] = -math.inf
    y = attend(one)[0].reshape(2, 1, 4, 24)
    assert not y[:, :, 1].any() and y[:, :, (0, 2, 3)].abs().amin(-1).gt(0).all()


@pytest.mark.parametrize(
    ("last", "value"), [(-1, -1), (40, 40), (2**31 - 1, 2**31 - 1), (-(2**31), -(2**31))]
)
def test_a_length_that_cannot_be_is_noted_and_touches_no_row(last: int, value: int) -> None:
    one = step(2, torch.float32, heads=4, groups=2, width=8, capacity=40, total=40)
    before = one.last.clone()
    one.last[1] = last
    word = torch.zeros(layout.SIZE, dtype=torch.int32)
    y, _, _, start = attend(one, word)
    assert start.tolist() == [one.before[0], -1] and y.isfinite().all()
    assert word[layout.FLAGS] == int(layout.Flag.POSITION) and word[layout.NODE] == 7
    assert word[layout.VALUE : layout.VALUE + 2].view(torch.int64) == value and word[layout.COUNT] == 1
    one.last.copy_(before)
    clean = attend(one)[0]
    assert torch.equal(y[0], clean[0])


@pytest.mark.parametrize(
    ("count", "last", "flag", "low", "high"),
    [
        (3, 30, "LENGTH", 0, 2),
        (-1, 30, "LENGTH", 0, 2),
        (2, 0, "POSITION", 1, 41),
        (1, 41, "POSITION", 0, 40),
    ],
)
def test_a_count_that_cannot_be_is_noted(count: int, last: int, flag: str, low: int, high: int) -> None:
    one = step(2, torch.float32, heads=4, groups=2, width=8, capacity=40, total=99, length=2, padded=True)
    assert one.counts is not None
    one.counts[1], one.last[1] = count, last
    word = torch.zeros(layout.SIZE, dtype=torch.int32)
    y, _, _, place = attend(one, word)
    assert place[1].tolist() == [-1, 0, 0] and y.isfinite().all()
    told = layout.fault_of(word.tolist(), [("", "")] * 7)
    assert told is not None
    value = count if flag == "LENGTH" else last
    assert (Flag(told.flag).name, told.value, told.low, told.high) == (flag, value, low, high)


def test_an_angle_that_is_not_there_is_noted() -> None:
    one = step(2, torch.float32, heads=4, groups=2, width=8, capacity=40, rotary="halves", positions=True)
    assert one.position is not None
    one.position[1, 0] = 1000
    word = torch.zeros(layout.SIZE, dtype=torch.int32)
    attend(one, word)
    assert word[layout.FLAGS] == int(layout.Flag.INDEX) and word[layout.VALUE] == 1000


def test_caches_may_lie_in_larger_ones() -> None:
    one = step(4, torch.float32, heads=4, groups=2, width=24, capacity=40)
    wide = torch.full((2, 3, 55, 30), math.nan)
    wide[:, 1:, 10:50, :24] = one.past_key
    turned = one.past_value.transpose(1, 2).contiguous().transpose(1, 2)
    moved = one._replace(past_key=wide[:, 1:, 10:50, :24], past_value=turned)
    assert all(torch.equal(a, b) for a, b in zip(attend(one), attend(moved), strict=True))


class Put(NamedTuple):
    cache: Tensor
    fresh: Tensor
    start: Tensor


def put(dtype: torch.dtype, seed: int = 0) -> Put:
    random = torch.Generator().manual_seed(seed)
    cache = torch.randint(-99, 99, (3, 2, 9, 5), generator=random).to(dtype)
    fresh = torch.randint(-99, 99, (3, 2, 2, 5), generator=random).to(dtype)
    return Put(cache, fresh, torch.tensor([0, 7, 3]))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int8, torch.uint8, torch.float8_e4m3fn]
)
def test_rows_are_put_where_they_belong(dtype: torch.dtype) -> None:
    one = put(dtype)
    want = one.cache.clone()
    for b, at in enumerate(one.start.tolist()):
        want[b, :, at : at + 2] = one.fresh[b]
    for cache in (one.cache, one.cache.transpose(1, 2).contiguous().transpose(1, 2)):
        made = OPS.cache_appended.default(cache, one.fresh, one.start, 4)
        assert torch.equal(made.view(torch.uint8), want.view(torch.uint8)) and made.is_contiguous()
        longer = OPS.cache_appended.default(cache, one.fresh, one.start, 12)
        assert torch.equal(longer[:, :, :9].view(torch.uint8), want.view(torch.uint8))
        assert not longer[:, :, 9:].view(torch.uint8).any()
        held = cache.clone(memory_format=torch.preserve_format)
        OPS.cache_append_.default([held], [one.fresh], [one.start], None)
        assert torch.equal(held.contiguous().view(torch.uint8), want.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_rows_make_way_for_others(dtype: torch.dtype) -> None:
    one = put(dtype)
    for places in (
        [[7, 2, 2], [8, 1, 1], [0, 9, 2]],
        [[-1, 0, 2], [3, 6, 2], [3, 6, 0]],
        [[-9, 0, 2], [8, 0, 2], [2, 3, 7]],
        [[1 << 62, 1, 1], [5, 1 << 62, 1], [-(1 << 63), -(1 << 63), -(1 << 63)]],
    ):
        place = torch.tensor(places)
        want = moved(one.cache, one.fresh, place)
        for cache in (one.cache, one.cache.transpose(1, 2).contiguous().transpose(1, 2)):
            held = cache.clone(memory_format=torch.preserve_format)
            OPS.cache_append_.default([held], [one.fresh], [place], None)
            made = OPS.cache_appended.default(cache, one.fresh, place, 4)
            assert torch.equal(held, want) and torch.equal(made, want) and made.is_contiguous()


def test_nothing_is_put_after_bad_data_nor_where_there_is_no_place() -> None:
    one, word = put(torch.float32), torch.zeros(layout.SIZE, dtype=torch.int32)
    held = one.cache.clone()
    word[layout.FLAGS] = 1
    OPS.cache_append_.default([held], [one.fresh], [one.start], word)
    assert torch.equal(held, one.cache)
    OPS.cache_append_.default([held], [one.fresh], [torch.tensor([-1, -1, -1])], None)
    assert torch.equal(held, one.cache)
    OPS.cache_append_.default([held], [one.fresh], [torch.tensor([8, 9, 1 << 40])], None)
    assert torch.equal(held[0, :, 8], one.fresh[0, :, 0])
    held[0, :, 8] = one.cache[0, :, 8]
    assert torch.equal(held, one.cache)


def test_the_ops_say_what_they_give_and_write() -> None:
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    for dtype, stored in itertools.product(ROUNDING, (0, 4)):
        more: dict[str, Any] = {"normed": True, "padded": True, "stored": stored}
        one = step(0, dtype, heads=4, groups=2, width=8, capacity=9, rotary="halves", **more)
        word = torch.zeros(layout.SIZE, dtype=torch.int32)
        taken = (*one.arguments(), 7, word)
        torch.library.opcheck(OPS.gqa_decode.default, taken, one.options(), test_utils=tests)
    given = put(torch.float32)
    torch.library.opcheck(OPS.cache_appended.default, (*given, 12), test_utils=tests)
    torch.library.opcheck(
        OPS.cache_append_.default, ([given.cache], [given.fresh], [given.start], None), test_utils=tests[:2]
    )


def test_torch_compile_goes_through() -> None:
    one = step(0, torch.float32, heads=4, groups=2, width=8, capacity=9)

    def run(query: Tensor, last: Tensor) -> Tensor:
        given = one._replace(query=query, last=last)
        y, key, _, start = OPS.gqa_decode.default(*given.arguments(), 0, None)
        return OPS.cache_appended.default(one.past_key, key, start, 9).sum() + y

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(one.query, one.last), run(one.query, one.last))


def test_torch_export_goes_through() -> None:
    one = step(0, torch.float32, heads=4, groups=2, width=8, capacity=9)

    class Attends(torch.nn.Module):
        def forward(self, query: Tensor, past: Tensor) -> Tensor:
            given = one._replace(query=query, past_key=past, past_value=past, total=past.shape[2])
            y, key, _, start = OPS.gqa_decode.default(*given.arguments(), 0, None)
            return y.sum() + OPS.cache_appended.default(past, key, start, past.shape[2])

    room = torch.export.Dim("room", min=9, max=64)
    program = torch.export.export(
        Attends(), (one.query, one.past_key), dynamic_shapes={"query": None, "past": {2: room}}
    )
    longer = torch.cat((one.past_key, one.past_key), 2)
    want = Attends()(one.query, longer)
    torch.testing.assert_close(program.module()(one.query, longer), want)


def test_what_does_not_fit_is_refused() -> None:
    one = step(0, torch.float32, heads=4, groups=2, width=8, capacity=9)
    assert message(ValueError, lambda: attend(one._replace(heads=3))) == (
        "gqa_decode: 3 heads do not share 2 heads of keys"
    )
    for wrong in (
        one._replace(query=one.query.double()),
        one._replace(query=one.query[:, :, :-1].contiguous()),
        one._replace(key=None),
        one._replace(past_value=one.past_value[:, :, 1:]),
        one._replace(last=one.last.long()),
        one._replace(sink=torch.zeros(3)),
        one._replace(query_norm=torch.zeros(7)),
        one._replace(key_scale=torch.ones(1)),
        one._replace(key_scale=torch.ones(1), value_scale=torch.ones(1)),
        one._replace(counts=torch.zeros(3, dtype=torch.int32)),
        one._replace(rolling=True),
        one._replace(rolling=True, window=10),
        one._replace(bias=torch.zeros(1, 3, 1, one.total)),
    ):
        with pytest.raises(ValueError, match="gqa_decode: "):
            attend(wrong)


def test_no_sample_gives_nothing() -> None:
    one = step(0, torch.float32, heads=4, groups=2, width=8, capacity=9, batch=1)
    names = ("query", "key", "value", "past_key", "past_value", "last")
    none = one._replace(**{name: getattr(one, name)[:0] for name in names})
    assert [list(part.shape) for part in attend(none)] == [[0, 1, 32], [0, 2, 1, 8], [0, 2, 1, 8], [0]]


def test_a_bias_reaches_as_far_as_the_new_rows() -> None:
    one = step(0, torch.float32, heads=4, groups=2, width=8, capacity=9, length=3, bias=True)
    assert one.bias is not None
    one.last.fill_(-1)
    with pytest.raises(ValueError, match="gqa_decode: the bias does not fit"):
        attend(one._replace(total=0, bias=one.bias[..., :2]))
    assert attend(one._replace(total=0, bias=one.bias[..., :3]))[3].tolist() == [-1, -1]


def test_heads_of_one_feature_have_no_step_to_a_next() -> None:
    one = step(4, torch.float32, heads=1, groups=1, width=1, capacity=40)
    names = ("query", "key", "value", "past_key", "past_value")
    far = {name: torch.stack([getattr(one, name)] * 3, -1)[..., 0] for name in names}
    assert all(part.stride(-1) == 3 for part in far.values())
    assert all(torch.equal(a, b) for a, b in zip(attend(one), attend(one._replace(**far)), strict=True))


def test_a_cache_may_lie_in_any_order() -> None:
    one = put(torch.float32)
    want = OPS.cache_appended.default(one.cache, one.fresh, one.start, 12)
    turned = one.cache.transpose(2, 3).contiguous().transpose(2, 3)
    assert torch.equal(OPS.cache_appended.default(turned, one.fresh, one.start, 12), want)
    same = one.cache[..., :1].expand(-1, -1, -1, 5)
    whole = same.contiguous()
    made = OPS.cache_appended.default(same, one.fresh, one.start, 12)
    assert torch.equal(made, OPS.cache_appended.default(whole, one.fresh, one.start, 12))
