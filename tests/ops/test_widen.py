"""The unsigned types against numpy over random bit patterns of every width."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torch_ort_session.ops.common import widen


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
def test_unsigned_arithmetic_equals_numpys(kind: type[np.unsignedinteger]) -> None:
    rng = np.random.default_rng(0)
    ends = np.iinfo(kind)
    a = rng.integers(0, ends.max, 5000, dtype=kind, endpoint=True)
    b = rng.integers(1, ends.max, 5000, dtype=kind, endpoint=True) >> rng.integers(0, ends.bits, 5000).astype(
        kind
    )
    b = np.maximum(b, kind(1))
    a[:4], b[:4] = ends.max, (ends.max, 1, 2, ends.max // 2 + 1)
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    assert (widen.divide_truncating(left, right).numpy() == a // b).all()
    assert (widen.remainder_unsigned(left, right).numpy() == a % b).all()
    assert (widen.with_order(torch.maximum, left, right).numpy() == np.maximum(a, b)).all()
    assert (widen.with_order(torch.minimum, left, right).numpy() == np.minimum(a, b)).all()
    assert (widen.with_bits(torch.add, left, right).numpy() == a + b).all()
    assert (widen.with_bits(torch.mul, left, right).numpy() == a * b).all()
    count = rng.integers(0, ends.bits + 5, 5000).astype(kind)
    shifted = np.where(count < ends.bits, a >> np.minimum(count, kind(ends.bits - 1)), kind(0))
    assert (widen.shift_right_unsigned(left, torch.from_numpy(count)).numpy() == shifted).all()


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_the_ordered_form_sorts_alike_and_comes_back(dtype: torch.dtype) -> None:
    ends = torch.iinfo(dtype)
    values = [0, 1, ends.max // 2, ends.max // 2 + 1, ends.max - 1, ends.max]
    x = torch.tensor(values, dtype=dtype)
    ordered = widen.ordered(x)
    assert (ordered.diff() > 0)[1:2].all()
    assert ordered.tolist() == sorted(ordered.tolist())
    assert widen.unordered(ordered, dtype).tolist() == values


def test_other_dtypes_are_left_alone() -> None:
    for dtype in (torch.int8, torch.uint8, torch.int64, torch.float16, torch.bool):
        x = torch.ones(2, dtype=dtype)
        assert widen.same_bits(x) is x
        assert widen.ordered(x) is x
        assert widen.to_wide(x) is x


def test_values_survive_widening() -> None:
    assert widen.to_wide(torch.tensor([65535], dtype=torch.uint16)).tolist() == [65535]
    assert widen.to_wide(torch.tensor([2**32 - 1], dtype=torch.uint32)).tolist() == [2**32 - 1]
    assert widen.to_wide(torch.tensor([0.5]).to(torch.float8_e5m2)).tolist() == [0.5]
    assert widen.to_float(torch.tensor([7])).dtype is torch.float64
    assert widen.to_float(torch.ones(1, dtype=torch.bfloat16)).dtype is torch.float32
