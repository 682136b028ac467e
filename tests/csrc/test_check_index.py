"""The native check of indices: as torch sees the op, and beside plain ops that do the same."""

from __future__ import annotations

import pytest
import torch
from textmodel import message

from torch_ort_session.ops import native
from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.ops.native import checks as native_checks
from torch_ort_session.runtime.validation import word as layout

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

DTYPES = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def word() -> torch.Tensor:
    return torch.zeros(layout.SIZE, dtype=torch.int32)


def check(index: torch.Tensor, size: int, found: torch.Tensor | None, number: int = 3) -> torch.Tensor:
    op = native_checks.index_check()
    assert op is not None
    return op(index, size, number, found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0, 2), (5, 4), (2, 3, 70)])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_m11_it_does_what_plain_ops_do(dtype: torch.dtype, shape: tuple[int, ...], size: int) -> None:
    low = 0 if dtype is torch.uint8 else -120
    for index in (torch.randint(low, 120, shape).to(dtype), torch.randint(0, size, shape).to(dtype)):
        ours, theirs = word(), word()
        got, want = check(index, size, ours), layout.check_index(index, size, 3, theirs)
        assert torch.equal(got, want) and got.dtype is torch.int64 and got.is_contiguous()
        assert torch.equal(ours, theirs)
        assert torch.equal(check(index, size, None), want)


@pytest.mark.parametrize(
    "index",
    [
        torch.arange(24).reshape(4, 6).t(),
        torch.arange(24)[::3],
        torch.tensor(7).expand(5),
        torch.tensor([[1], [-9]]).expand(2, 3),
        torch.arange(5).flip(0),
    ],
    ids=["transposed", "strided", "expanded", "expanded rows", "flipped"],
)
def test_m11_strides_of_the_index_do_not_matter(index: torch.Tensor) -> None:
    ours, theirs = word(), word()
    before = index.clone()
    assert torch.equal(check(index, 6, ours), layout.check_index(index.contiguous(), 6, 3, theirs))
    assert torch.equal(ours, theirs)
    assert torch.equal(index, before)


def test_m11_the_first_of_many_bad_indices_is_told() -> None:
    found, index = word(), torch.zeros(100_000, dtype=torch.int64)
    index[[40_000, 99_999]] = torch.tensor([-77, 66])
    safe = check(index, 50, found)
    assert found.tolist() == [Flag.INDEX, 3, -77, -1, 2, 49, 0, 0, -50, -1]
    assert (safe[40_000].item(), safe[99_999].item()) == (0, 49)


def test_m11_no_index_overflows() -> None:
    extreme = torch.tensor([2**63 - 1, -(2**63), -(2**63) + 1])
    assert check(extreme, 2**62, None).tolist() == [2**62 - 1, 0, 0]
    narrow = torch.tensor([127, -128, -1], dtype=torch.int8)
    assert check(narrow, 1000, None).tolist() == [127, 872, 999]


def test_m11_what_is_no_index_or_no_word_is_refused() -> None:
    index = torch.zeros(2, dtype=torch.int64)
    assert "not an integer" in message(ValueError, lambda: check(index.to(torch.float32), 3, None))
    assert "not an integer" in message(ValueError, lambda: check(index.to(torch.bool), 3, None))
    for wrong in (word()[:-1], word().to(torch.int64), word().repeat(2)[::2]):
        assert "int32 tensor of 10" in message(ValueError, lambda wrong=wrong: check(index, 3, wrong))
    assert "empty" in message(IndexError, lambda: check(index, 0, word()))


@pytest.mark.parametrize("index", [torch.tensor([0, -1, 7]), torch.tensor([], dtype=torch.int32)])
@pytest.mark.parametrize("with_word", [True, False])
def test_m11_torch_can_rely_on_its_schema(index: torch.Tensor, with_word: bool) -> None:
    op = torch.ops.torch_ort_session.check_index.default
    native.load()
    results = torch.library.opcheck(op, (index, 5, 1, word() if with_word else None))
    assert set(results.values()) == {"SUCCESS"}


def test_m11_it_has_a_shape_where_there_is_no_data() -> None:
    made = check(torch.empty(2, 3, dtype=torch.int32, device="meta"), 5, None)
    assert made.shape == (2, 3) and made.dtype is torch.int64 and made.is_meta
