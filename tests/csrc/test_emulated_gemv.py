"""The CUDA kernels of products of one row, emulated, beside float64 and the op of the CPU."""

from __future__ import annotations

import pytest
import torch
from hostcuda import LaunchError, launch, needs_compiler, poisoned
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_ort_session.ops import native
from torch_ort_session.ops.common.rows import row_product

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SKEW = 8
"""Bytes off an address that allows 16 at once."""

needs_extension = pytest.mark.skipif(
    not native.status().usable, reason=f"native ops: {native.status().reason}"
)


def product(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    turned: bool = False,
    wide: bool,
    shared: int,
    width: int | None = None,
    skew: int = 0,
) -> Tensor:
    """What the kernels make of a row [K] and of rows [K, more than N], or columns [N, more than K].

    Args:
        x: The row.
        weight: As it lies in memory; what is behind ``width`` is not part of it.
        bias: [N].
        turned: Whether ``weight`` lies column by column.
        wide: Whether it has to be read in pieces of 16 bytes.
        shared: The columns that a block has to have where it is turned, else the parts of the rows.
        width: N, or K where it is turned.
        skew: Bytes by which everything is moved off its alignment.
    """
    beside = weight.shape[1] if width is None else width
    rows, columns = (beside, weight.shape[0]) if turned else (weight.shape[0], beside)
    y = poisoned(columns, dtype=x.dtype)
    sums = poisoned(1 if turned else shared, columns)
    sizes = torch.tensor([rows, columns, weight.shape[1], turned, wide, shared])
    entry = f"gemv_{str(x.dtype).removeprefix('torch.')}"
    launch("gemv", entry, x, weight, bias, y, sums, sizes, skew=skew)
    return y


def close(got: Tensor, wanted: Tensor) -> bool:
    tolerance = TOLERANCES[got.dtype]
    return float((got.double() - wanted.double()).abs().max()) <= tolerance * float(wanted.abs().max() + 1)


def per_piece(dtype: torch.dtype) -> int:
    """Floats of 16 bytes."""
    return 16 // dtype.itemsize


@needs_compiler
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_a_weight_is_read_row_by_row(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    piece = per_piece(dtype)
    for rows, columns, wide, parts in (
        (0, piece, True, 1),
        (1, 1, False, 1),
        (5, 3, False, 1),
        (64, 33, False, 1),
        (65, 32 * piece, True, 2),
        (70, 40 * piece, True, 2),
        (301, 2 * piece, True, 5),
        (600, 35, False, 10),
    ):
        x, weight = torch.randn(rows).to(dtype), torch.randn(rows, columns).to(dtype)
        bias = torch.randn(columns).to(dtype)
        wanted = x.double() @ weight.double()
        assert close(product(x, weight, None, wide=wide, shared=parts), wanted)
        got = product(x, weight, bias, wide=wide, shared=parts)
        assert close(got, wanted + bias.double())
        if rows:
            # What does not lie where 16 bytes can be taken at once is taken float by float.
            apart = product(x, weight, bias, wide=False, shared=parts, skew=SKEW)
            assert close(apart, wanted + bias.double())


@needs_compiler
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_a_turned_weight_is_read_column_by_column(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    piece = per_piece(dtype)
    long = 256 * 4 * piece
    for rows, columns, wide, together in (
        (0, 3, True, 8),
        (1, 1, False, 8),
        (33, 9, False, 8),
        (piece, 17, True, 8),
        (32 * 4 * piece + 32 * piece, 8, True, 8),
        (32 * 4 + 37, 5, False, 8),
        (long, 3, True, 1),
        (long + 5 * piece, 2, True, 1),
        (long + 1, 2, False, 1),
    ):
        x, weight = torch.randn(rows).to(dtype), torch.randn(columns, rows).to(dtype)
        bias = torch.randn(columns).to(dtype)
        wanted = weight.double() @ x.double()
        assert close(product(x, weight, None, turned=True, wide=wide, shared=together), wanted)
        got = product(x, weight, bias, turned=True, wide=wide, shared=together)
        assert close(got, wanted + bias.double())
        if rows:
            apart = product(x, weight, bias, turned=True, wide=False, shared=together, skew=SKEW)
            assert close(apart, wanted + bias.double())


@needs_compiler
def test_a_weight_within_a_larger_one_is_left_alone_beside_it() -> None:
    torch.manual_seed(0)
    for width, stride, wide in ((64, 72, True), (64, 71, False), (63, 72, False)):
        for turned in (False, True):
            weight = torch.randn(70, stride).to(torch.bfloat16)
            weight[:, width:] = torch.nan
            part = weight[:, :width].t() if turned else weight[:, :width]
            x = torch.randn(part.shape[0]).to(torch.bfloat16)
            got = product(x, weight, None, turned=turned, wide=wide, shared=8 if turned else 2, width=width)
            assert close(got, x.double() @ part.double())


@needs_compiler
@needs_extension
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_devices_agree(dtype: torch.dtype) -> None:
    assert native.load()
    x, weight, bias = (torch.randn(s).to(dtype) for s in ((200,), (200, 96), (96,)))
    wanted = torch.ops.torch_ort_session.gemv(x, weight, bias)
    assert close(product(x, weight, bias, wide=True, shared=4), wanted)
    laid = weight.t().contiguous()
    assert close(product(x, laid, bias, turned=True, wide=True, shared=8), wanted)


@needs_compiler
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_in_its_place(value: float) -> None:
    weight = torch.rand(130, 40) + 1
    weight[100, 7] = value
    for turned in (False, True):
        laid = weight.t().contiguous() if turned else weight
        got = product(torch.ones(130), laid, None, turned=turned, wide=not turned, shared=8 if turned else 3)
        assert torch.equal(got[7].isnan(), torch.tensor(value != torch.inf)) and not got[7].isfinite()
        got[7] = 0
        assert got.isfinite().all()


@needs_compiler
def test_a_test_says_how_the_work_is_shared_out() -> None:
    x, weight = torch.ones(70), torch.ones(70, 8)
    with pytest.raises(LaunchError, match="not as many parts"):
        product(x, weight, None, wide=True, shared=3)
    with pytest.raises(LaunchError, match="not the width"):
        product(x, weight, None, wide=False, shared=2)


def test_large_weights_of_two_bytes_are_served_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def op(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        asked.append((tuple(weight.shape), bias is not None))
        return x.new_empty(1, weight.shape[1])

    monkeypatch.setattr(native, "status", lambda: native.Status(None, True, ""))
    monkeypatch.setattr(native, "load", lambda: True)
    monkeypatch.setattr(native, "_op_on", lambda *wanted: op if wanted == ("gemv", "cuda") else None)
    with FakeTensorMode():
        x = torch.empty(1, 2048, device="cuda", dtype=torch.bfloat16)
        weight, bias = x.new_empty(2048, 4096), x.new_empty(4096)

        def within(columns: int, *strides: int) -> Tensor:
            return torch.empty_strided((2048, columns), strides, device="cuda", dtype=x.dtype)

        assert row_product(x, weight) is not None
        assert row_product(x, weight, bias) is not None
        assert row_product(x, within(4096, 1, 2048)) is not None
        assert row_product(x, within(4096, 8192, 1)) is not None
        # Rows that would be read float by float, or that do not lie in order, are torch's.
        for apart in (
            within(4097, 4097, 1),
            within(4096, 4097, 1),
            within(4096, 8192, 2),
            within(4096, 0, 1),
        ):
            assert row_product(x, apart) is None
        assert row_product(x, x.new_empty(2048, 64)) is None
        assert row_product(x.to(torch.float32), weight.to(torch.float32)) is None
        assert row_product(x.new_empty(2, 2048), weight) is None
        assert row_product(x, weight, bias.cpu()) is None
        assert row_product(x, weight.requires_grad_()) is None
    shape = (2048, 4096)
    assert asked == [(shape, False), (shape, True), (shape, False), (shape, False)]
