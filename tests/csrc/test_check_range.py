"""The native check of numbers within bounds, and its CUDA kernel emulated, beside plain ops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hostcuda import launch, needs_compiler, poisoned
from textmodel import message

from torch_ort_session.ops import native
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.native import checks as native_checks
from torch_ort_session.runtime.validation import word as layout

DTYPES = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
BOUNDS = [(0, 0), (0, 63), (-5, 40), (1, 1), (60, 2**40)]
Found = torch.Tensor | None
MANY = 3 * 4096 + 77

needs_extension = pytest.mark.skipif(
    not native.status().usable, reason=f"native ops: {native.status().reason}"
)


def word() -> torch.Tensor:
    return torch.zeros(layout.SIZE, dtype=torch.int32)


def on_cpu(values: torch.Tensor, low: int, high: int, flag: Flag, found: Found) -> torch.Tensor:
    op = native_checks.range_check()
    assert op is not None
    return op(values, low, high, int(flag), 3, found)


def emulated(values: torch.Tensor, low: int, high: int, flag: Flag, found: Found) -> torch.Tensor:
    safe = poisoned(*values.shape, dtype=torch.int64)
    name = f"check_range_{str(values.dtype).removeprefix('torch.')}"
    launch("check_index", name, values, safe, values.numel(), low, high, int(flag), 3, found)
    return safe


WAYS = [
    pytest.param(on_cpu, marks=needs_extension, id="native"),
    pytest.param(emulated, marks=needs_compiler, id="emulated"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 31, 33, 257, 600])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_m11_it_does_what_plain_ops_do(
    way: Callable[..., torch.Tensor], dtype: torch.dtype, count: int, bounds: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(count)
    low = 0 if dtype is torch.uint8 else -120
    for span in ((low, 120), (max(bounds[0], low), min(bounds[1] + 1, 120))):
        values = torch.randint(*span, (count,), generator=generator).to(dtype)
        ours, theirs = word(), word()
        want = layout.check_range(values, *bounds, Flag.LENGTH, 3, theirs)
        got = way(values, *bounds, Flag.LENGTH, ours)
        assert torch.equal(got, want) and got.dtype is torch.int64
        assert torch.equal(ours, theirs)
        assert torch.equal(way(values, *bounds, Flag.LENGTH, None), want)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bounds", [(-(2**63), 2**63 - 1), (-(2**63), -(2**63)), (2**63 - 1,) * 2, (0, 0)])
def test_m11_the_extremes_of_a_dtype_are_held_and_noted(
    way: Callable[..., torch.Tensor], dtype: torch.dtype, bounds: tuple[int, int]
) -> None:
    low, high = bounds
    given = [torch.iinfo(dtype).min, torch.iinfo(dtype).max, 0, 1] * 9
    bad = [number for number in given if not low <= number <= high]
    found = word()
    safe = way(torch.tensor(given, dtype=dtype), low, high, Flag.LENGTH, found)
    assert safe.tolist() == [min(max(number, low), high) for number in given]
    fault = layout.fault_of(found.tolist(), [("n", "Op")] * 3)
    if not bad:
        assert fault is None
        return
    assert fault is not None
    assert (fault.value, fault.low, fault.high, fault.count) == (bad[0], low, high, len(bad))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flag", Flag)
def test_m11_the_flag_and_the_bounds_are_noted(way: Callable[..., torch.Tensor], flag: Flag) -> None:
    found = word()
    values = torch.tensor([2, -(2**40), 2**33 + 9, 2**33 + 10])
    assert way(values, 1, 2**33 + 8, flag, found).tolist() == [2, 1, 2**33 + 8, 2**33 + 8]
    assert found.tolist() == [flag, 3, 0, -256, 3, 8, 2, 0, 1, 0]


@pytest.mark.parametrize("way", WAYS)
def test_m12_the_first_fault_stays_whatever_kind_comes_later(way: Callable[..., torch.Tensor]) -> None:
    found = word()
    way(torch.tensor([7]), 0, 3, Flag.CLASS, found)
    before = found.clone()
    way(torch.tensor([0, 0]), 1, 1, Flag.DIVISION, found)
    before[layout.COUNT] = 3
    assert torch.equal(found, before)


@needs_compiler
def test_m11_of_several_blocks_all_count() -> None:
    values = torch.arange(MANY) % 70
    values[[5, 4097, MANY - 1]] = 70
    found = word()
    assert torch.equal(emulated(values, 0, 69, Flag.CLASS, found), values.clamp(max=69))
    assert found.tolist() == [Flag.CLASS, 3, 70, 0, 3, 69, 0, 0, 0, 0]


@needs_extension
def test_m11_where_nothing_is_valid_nothing_may_be_given() -> None:
    nothing = torch.zeros(0, dtype=torch.int32)
    for way in (on_cpu, lambda v, low, high, flag, found: layout.check_range(v, low, high, flag, 3, found)):
        told = message(IndexError, lambda way=way: way(torch.tensor([0]), 0, -1, Flag.CLASS, word()))
        assert told.startswith("there is nothing, so that no number is valid")
        assert way(nothing, 0, -1, Flag.CLASS, word()).shape == (0,)


@needs_extension
def test_m11_what_is_no_integer_is_refused() -> None:
    told = message(ValueError, lambda: on_cpu(torch.zeros(2), 0, 3, Flag.LENGTH, None))
    assert "check_range: what is checked is Float, not an integer" in told


@needs_extension
@pytest.mark.parametrize("with_word", [True, False])
def test_m11_torch_can_rely_on_its_schema(with_word: bool) -> None:
    native.load()
    op = torch.ops.torch_ort_session.check_range.default
    values = torch.tensor([[0, -1, 7]], dtype=torch.int32).t()
    results = torch.library.opcheck(op, (values, 0, 5, int(Flag.LENGTH), 1, word() if with_word else None))
    assert set(results.values()) == {"SUCCESS"}
