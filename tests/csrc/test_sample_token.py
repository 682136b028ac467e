"""Tokens drawn by the native op beside plain ops, and on CUDA, emulated, beside both."""

from __future__ import annotations

import math

import pytest
import torch
from axes import crossed
from hostcuda import launch, needs_compiler, poisoned
from textmodel import message
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.microsoft.generation.drawing import drawn_tokens, philox, plainly_drawn, uniforms

OPS = torch.ops.torch_ort_session
needs_extension = pytest.mark.skipif(
    not native.status().usable, reason=f"native ops: {native.status().reason}"
)
RULES = [
    (1.0, 0, 1.0, 1, False),
    (0.7, 0, 0.9, 1, False),
    (1.0, 0, 0.9, 1, True),
    (1.0, 5, 2.0, 1, False),
    (2.0, 40, 0.8, 10, True),
    (1.0, 0, 0.0, 1, False),
    (1.0, 0, 0.0, 1, True),
    (1.0, 3, 0.0, 7, True),
]


def state(seed: int = 7, turn: int = 0) -> Tensor:
    return torch.tensor([seed, turn])


def scores(rows: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(rows * size)
    return (3 * torch.randn(rows, size, generator=generator)).to(dtype)


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_generator_gives_its_published_numbers(
    counter: tuple[int, ...], key: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    made = philox([torch.tensor([word]) for word in counter], *(torch.tensor([word]) for word in key))
    assert tuple(int(word) for word in made) == wanted


def test_random_numbers_are_spread_evenly() -> None:
    found = torch.cat([uniforms(state(-5, turn), 1000) for turn in range(20)])
    assert found.unique().numel() == 20_000 and float(found.min()) >= 0 and float(found.max()) < 1
    assert torch.histc(found, 20, 0, 1).sub(1000).abs().max() < 150


@needs_extension
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_both_ways_draw_the_same(rules: tuple[float, int, float, int, bool], dtype: torch.dtype) -> None:
    native.load()
    for rows, size in ((1, 1), (0, 5), (4, 7), (300, 50), (3, 5000)):
        given, ours, theirs = scores(rows, size, dtype), state(2**62 + 11, 2**33), state(2**62 + 11, 2**33)
        for _ in range(3):
            got, wanted = OPS.sample_token.default(given, ours, *rules), plainly_drawn(given, theirs, *rules)
            assert got.dtype is torch.int64 and torch.equal(got, wanted) and torch.equal(ours, theirs)
        assert ours[1] == 2**33 + (3 if rows else 0)


@needs_extension
@pytest.mark.parametrize("closed", [False, True])
def test_of_equal_scores_some_stay(closed: bool) -> None:
    """Four tokens of a quarter each: half of the probability is two of them."""
    equal = torch.zeros(4000, 4)
    for way in (OPS.sample_token.default, plainly_drawn):
        found = set(way(equal, state(), 1.0, 0, 0.5, 1, closed).tolist())
        assert found == ({0, 1, 2} if closed else {2, 3})


@pytest.mark.parametrize("plain", [False, True])
def test_tokens_come_as_often_as_they_are_probable(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(native, "device_op", lambda *given: None)
    one = scores(1, 12)
    found = drawn_tokens(one.expand(20_000, 12), state(), temperature=2.0)
    share = torch.softmax(one[0] / 2.0, 0)
    often = torch.bincount(found, minlength=12) / 20_000
    assert ((often - share).abs() <= 5 * (share * (1 - share) / 20_000).sqrt() + 1e-4).all()


@pytest.mark.parametrize("plain", [False, True])
def test_what_leaves_nothing_to_draw_is_told(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(native, "device_op", lambda *given: None)
    rows = torch.zeros(5, 300)
    rows[0, 7], rows[1, 299], rows[2] = math.nan, math.inf, -math.inf
    rows[3, :299] = -math.inf
    found = drawn_tokens(rows, state()).tolist()
    assert found[:4] == [-1, -1, -1, 299] and found[4] >= 0


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("temperature", [1e-300, 1e-50, 1e-45, 1e-38])
def test_the_least_temperatures_choose_the_greatest(
    temperature: float, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(native, "device_op", lambda *given: None)
    rows = scores(20, 300)
    rows[3, 5], rows[4] = -math.inf, -1e30 - 1e25 * torch.arange(300)
    assert torch.equal(drawn_tokens(rows, state(), temperature=temperature), rows.argmax(1))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("temperature", [1e38, 1e300, math.inf])
def test_the_greatest_temperatures_draw_evenly(
    temperature: float, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(native, "device_op", lambda *given: None)
    rows = scores(1, 4).expand(8000, 4).clone()
    rows[:, 1] = -math.inf
    often = torch.bincount(drawn_tokens(rows, state(), temperature=temperature), minlength=4)
    assert often[1] == 0 and (often[[0, 2, 3]] - 8000 / 3).abs().max() < 250


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_other_temperatures_are_refused(
    temperature: float, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(native, "device_op", lambda *given: None)
    told = message(ValueError, lambda: drawn_tokens(scores(2, 3), state(), temperature=temperature))
    assert "not above 0" in told


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("top_k", "top_p", "keep"),
    [(0, 0.0, 1), (0, -1.0, 1), (0, math.nan, 1), (1, 1.0, 1), (1, 1.0, 300), (1, math.inf, 2**62)],
)
def test_rules_that_leave_one_token_choose_the_greatest(
    top_k: int, top_p: float, keep: int, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(native, "device_op", lambda *given: None)
    rows = scores(20, 300)
    assert torch.equal(
        drawn_tokens(rows, state(), top_k=top_k, top_p=top_p, keep=keep, closed=True), rows.argmax(1)
    )


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("top_k", [0, 300, 301, 2**62])
def test_rules_that_leave_all_change_nothing(
    top_k: int, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(native, "device_op", lambda *given: None)
    rows = scores(50, 300)
    wanted = drawn_tokens(rows, state())
    for top_p, keep in ((1.0, 1), (math.inf, 1), (0.0, 300), (0.0, 2**62)):
        assert torch.equal(drawn_tokens(rows, state(), top_k=top_k, top_p=top_p, keep=keep), wanted)


@needs_extension
def test_what_does_not_fit_is_refused() -> None:
    native.load()
    given = scores(2, 5)

    def told(*arguments: object) -> str:
        return message(ValueError, lambda: OPS.sample_token.default(*arguments))

    rest = (1.0, 0, 1.0, 1, False)
    assert "not float32, float16 or bfloat16" in told(given.double(), state(), *rest)
    assert "not [rows, tokens]" in told(given[0], state(), *rest)
    assert "not [rows, tokens]" in told(given[:, :0], state(), *rest)
    for wrong in (state()[:1], state().int(), state().repeat(2)[::2]):
        assert "the state is not int64 [2]" in told(given, wrong, *rest)
    assert "not above 0" in told(given, state(), 0.0, *rest[1:])
    assert "is below 0" in told(given, state(), 1.0, -1, 1.0, 1, False)
    assert "below 1" in told(given, state(), 1.0, 0, 1.0, 0, False)


@needs_extension
def test_torch_can_rely_on_its_schema() -> None:
    native.load()
    results = torch.library.opcheck(OPS.sample_token.default, (scores(3, 20), state(), 1.0, 0, 0.9, 1, False))
    assert set(results.values()) == {"SUCCESS"}


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "number"), crossed([torch.float32, torch.float16, torch.bfloat16], range(len(RULES)))
)
def test_the_kernel_of_cuda_draws_the_same(dtype: torch.dtype, number: int) -> None:
    temperature, top_k, top_p, keep, closed = rules = RULES[number]
    for rows, size in ((1, 1), (3, 7), (40, 300), (2, 3000)):
        given, ours, theirs = scores(rows, size, dtype), state(), state()
        if rows == 3:
            given[1, 2] = math.nan
        token, sizes = poisoned(rows, dtype=torch.int64), torch.tensor([rows, size, top_k, keep, closed])
        numbers = torch.tensor([temperature, top_p], dtype=torch.float64)
        launch(
            "sample_token",
            f"sample_token_{str(dtype).removeprefix('torch.')}",
            given,
            ours,
            token,
            sizes,
            numbers,
        )
        wanted = plainly_drawn(given, theirs, *rules)
        assert torch.equal(token, wanted) and torch.equal(ours, theirs)
