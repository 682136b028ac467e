"""Integer products are exact on every path, whatever the device offers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torch_ort_session.ops.common import bytes_mm
from torch_ort_session.ops.common.bytes_mm import byte_conv, byte_matmul
from torch_ort_session.ops.common.windows import Geometry
from torch_ort_session.ops.onnx import intmm


def draw(*shape: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    bounds = torch.iinfo(dtype)
    return torch.randint(bounds.min, bounds.max, shape, dtype=dtype, generator=generator)


@pytest.mark.parametrize(("dtype", "bits"), [(torch.int32, 32), (torch.int64, 64)])
def test_limbs_give_the_product_that_wraps(dtype: torch.dtype, bits: int) -> None:
    a, b = draw(2, 5, 70, dtype=dtype), draw(70, 4, dtype=dtype)
    limbs = intmm._limb_matmul(a.to(torch.int64), b.to(torch.int64), bits).to(dtype)
    assert torch.equal(limbs, a @ b)


def test_unsigned_products_wrap() -> None:
    largest = torch.full((1, 2), -1, dtype=torch.int64).view(torch.uint64)
    assert intmm.wrapping_matmul(largest, largest.reshape(2, 1)).view(torch.int64).tolist() == [[2]]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("left", [torch.uint8, torch.int8])
@pytest.mark.parametrize("right", [torch.uint8, torch.int8])
@pytest.mark.parametrize("terms", [8, 200, 900])
def test_byte_products(
    exact: bool, left: torch.dtype, right: torch.dtype, terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytes_mm, "_sums_exactly", lambda: exact)
    a, b = draw(9, terms, dtype=left), draw(terms, 40, dtype=right)
    for a_zero in (None, draw(1, dtype=left)[0], draw(9, dtype=left)):
        for b_zero in (None, draw(1, dtype=right), draw(40, dtype=right)):
            wide_a, wide_b = a.to(torch.int64), b.to(torch.int64)
            if a_zero is not None:
                wide_a = wide_a - a_zero.reshape(-1, 1)
            if b_zero is not None:
                wide_b = wide_b - b_zero
            got = byte_matmul(a, b, a_zero, b_zero)
            assert got.dtype is torch.int32
            assert torch.equal(got.to(torch.int64), wide_a @ wide_b)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("kind", [torch.uint8, torch.int8])
def test_byte_convolutions(
    exact: bool, group: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytes_mm, "_sums_exactly", lambda: exact)
    x, w = draw(2, 64, 7, 6, dtype=kind), draw(4, 64 // group, 3, 2, dtype=torch.int8)
    over = Geometry([3, 2], strides=[2, 1], dilations=[1, 2], begin=[1, 0], end=[0, 2])
    for x_zero in (None, draw(1, dtype=kind)[0]):
        for w_zero in (None, draw(4, dtype=torch.int8)):
            wide_x, wide_w = x.to(torch.float64), w.to(torch.float64)
            if x_zero is not None:
                wide_x = wide_x - x_zero
            if w_zero is not None:
                wide_w = wide_w - w_zero.reshape(-1, 1, 1, 1)
            padded = torch.nn.functional.pad(wide_x, (0, 2, 1, 0))
            want = torch.nn.functional.conv2d(padded, wide_w, None, (2, 1), 0, (1, 2), group)
            got = byte_conv(x, w, x_zero, w_zero, over, group)
            assert got.dtype is torch.int32
            assert torch.equal(got.to(torch.float64), want)


@pytest.mark.parametrize("strides", [(1, 2), (2, 1), (0, 1), (1, 0), (1, 1), (5, 2), (1, 7), (20, 1), (0, 0)])
@pytest.mark.parametrize("shape", [(3, 20), (20, 3), (1, 20), (20, 1)])
def test_byte_products_of_matrices_with_any_strides(strides: tuple[int, int], shape: tuple[int, int]) -> None:
    rows, columns = shape
    a = draw(500, dtype=torch.int8).as_strided(shape, strides)
    b, c = draw(columns, 4, dtype=torch.int8), draw(4, rows, dtype=torch.int8)
    wide = a.to(torch.int64)
    assert torch.equal(byte_matmul(a, b, None, None).to(torch.int64), wide @ b.to(torch.int64))
    assert torch.equal(byte_matmul(c, a, None, None).to(torch.int64), c.to(torch.int64) @ wide)
