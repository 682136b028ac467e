"""The CUDA kernel that makes indices safe, emulated, beside plain ops that do the same."""

from __future__ import annotations

import pytest
import torch
from hostcuda import launch, needs_compiler, poisoned

from torch_ort_session.ops.common.faults import Flag
from torch_ort_session.runtime.validation import word as layout

pytestmark = needs_compiler

DTYPES = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
MANY = 3 * 4096 + 77
"""Enough for several blocks, the last one not full."""


def word() -> torch.Tensor:
    return torch.zeros(layout.SIZE, dtype=torch.int32)


def check(index: torch.Tensor, size: int, found: torch.Tensor | None, *, free: bool = False) -> torch.Tensor:
    """What the kernel gives and notes for node 3; with `free`, what is noted may depend on the order."""
    safe = poisoned(*index.shape, dtype=torch.int64)
    name = f"check_index_{str(index.dtype).removeprefix('torch.')}"
    launches = launch(
        "check_index", name, index, safe, index.numel(), size, 3, found, free={5} if free else ()
    )
    if free and found is not None:
        bad = set(index[safe != torch.where(index < 0, index + size, index)].tolist())
        for left in launches:
            told = layout.fault_of(left[2].tolist(), [("", "")] * 3)
            assert told is not None and told.value in bad and (told.low, told.high) == (-size, size - 1)
            assert torch.equal(left[2][layout.COUNT], found[layout.COUNT])
    return safe


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 31, 32, 33, 255, 257, 600])
@pytest.mark.parametrize("size", [1, 100])
def test_m11_it_does_what_plain_ops_do(dtype: torch.dtype, count: int, size: int) -> None:
    generator = torch.Generator().manual_seed(count * size)
    low = 0 if dtype is torch.uint8 else -120
    for bounds in ((low, 120), (0, size)):
        index = torch.randint(*bounds, (count,), generator=generator).to(dtype)
        ours, theirs = word(), word()
        assert torch.equal(check(index, size, ours), layout.check_index(index, size, 3, theirs))
        assert torch.equal(ours, theirs)


def test_m11_of_several_blocks_one_tells_and_all_count() -> None:
    index = torch.arange(MANY) % 70 - 35
    index[[5, 4097, MANY - 1]] = torch.tensor([50, -51, 2**62])
    found = word()
    safe = check(index, 50, found, free=True)
    assert torch.equal(safe, layout.check_index(index, 50, 3, None))
    assert found[layout.COUNT] == 3
    assert found[layout.NODE] == 3 and found[layout.FLAGS] == Flag.INDEX


def test_m11_node_value_and_limit_come_from_one_thread() -> None:
    # Every block has a fault of its own, so that each order lets another one tell.
    index = torch.arange(MANY) + 100
    found = word()
    check(index, 50, found, free=True)
    assert found[layout.COUNT] == MANY


def test_m12_the_first_fault_stays_and_later_ones_count() -> None:
    found = word()
    check(torch.tensor([1, 9]), 5, found)
    before = found.clone()
    check(torch.tensor([-77, 66, 1]), 3, found)
    before[layout.COUNT] = 3
    assert torch.equal(found, before)


def test_m11_the_count_stays_at_the_greatest_number() -> None:
    found = word()
    found[layout.COUNT] = 2**31 - 2
    check(torch.arange(MANY) + 7, 5, found, free=True)
    assert found[layout.COUNT] == 2**31 - 1


def test_m11_without_a_word_indices_are_safe_all_the_same() -> None:
    extreme = torch.tensor([2**63 - 1, -(2**63), -(2**63) + 1])
    assert check(extreme, 2**62, None).tolist() == [2**62 - 1, 0, 0]
    assert check(torch.tensor([-1, 7, -8]), 5, None).tolist() == [4, 4, 0]
