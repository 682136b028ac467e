"""Shared bytes, against marks that are left element by element."""

from __future__ import annotations

import random

import pytest
import torch

from torch_ort_session.runtime.values.overlap import overlap, overlaps_itself


def places(tensor: torch.Tensor) -> list[int]:
    """Every byte that a tensor's elements take."""
    first = [tensor.data_ptr()]
    for stride, size in zip(tensor.stride(), tensor.shape, strict=True):
        first = [at + i * stride * tensor.element_size() for at in first for i in range(size)]
    return [at + byte for at in first for byte in range(tensor.element_size())]


def drawn(rng: random.Random, storage: torch.Tensor) -> torch.Tensor:
    typed = storage.view(rng.choice([torch.uint8, torch.int16, torch.float32]))
    rank = rng.randint(0, 3)
    shape = [rng.randint(0 if rng.random() < 0.1 else 1, 4) for _ in range(rank)]
    stride = [rng.randint(0, 11) for _ in range(rank)]
    extent = sum(s * max(n - 1, 0) for s, n in zip(stride, shape, strict=True))
    return typed.as_strided(shape, stride, rng.randint(0, max(0, typed.numel() - extent - 1)))


def test_overlap_is_what_marks_on_bytes_show() -> None:
    rng, storage = random.Random(0), torch.zeros(400, dtype=torch.uint8)
    seen = {True: 0, False: 0}
    for _ in range(3000):
        a, b = drawn(rng, storage), drawn(rng, storage)
        expected = not set(places(a)).isdisjoint(places(b))
        assert overlap(a, b) is expected, (a.shape, a.stride(), b.shape, b.stride())
        assert overlap(b, a) is expected
        seen[expected] += 1
    assert min(seen.values()) > 200


def test_a_tensor_that_writes_an_element_twice_is_never_passed() -> None:
    rng, storage = random.Random(1), torch.zeros(512, dtype=torch.uint8)
    passed = 0
    for _ in range(3000):
        a = drawn(rng, storage)
        marks = places(a)
        if not overlaps_itself(a):
            assert len(set(marks)) == len(marks)
            passed += 1
    assert passed > 500


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(3, 4),
        torch.zeros(3, 4).t(),
        torch.zeros(2, 5, 8).narrow(1, 1, 3),
        torch.zeros(8)[::2],
        torch.zeros(()),
        torch.zeros(0, 3),
        torch.zeros(1, 3).expand(1, 3),
        torch.zeros(2, 3, 4, 5).permute(3, 1, 0, 2)[1:3, :, :, ::2],
    ],
    ids=str,
)
def test_what_slicing_and_permuting_make_can_be_written(tensor: torch.Tensor) -> None:
    assert not overlaps_itself(tensor)


def test_keys_and_values_side_by_side_in_one_cache_are_apart() -> None:
    cache = torch.zeros(4, 2, 8, 1024, 64)
    assert not overlap(cache[:, 0], cache[:, 1])
    assert overlap(cache[:, 0], cache[2:, :, 7])


def test_an_answer_that_would_take_too_long_is_yes() -> None:
    storage = torch.zeros(1 << 21, dtype=torch.uint8)
    steps = [2 * 3**k for k in range(12)]
    a = storage.as_strided([3] * 12, [s + 2 for s in steps], 0)
    b = storage.as_strided([3] * 12, [s + 4 for s in reversed(steps)], 1)
    assert overlap(a, b)
