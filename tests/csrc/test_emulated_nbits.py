"""The CUDA kernels of MatMulNBits, emulated, beside float64."""

from __future__ import annotations

import itertools

import pytest
import torch
from axes import crossed
from hostcuda import launch, needs_compiler, poisoned
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_ort_session.ops import native
from torch_ort_session.ops.microsoft.matmul_nbits import Sizes, Weight, _by_codes
from torch_ort_session.ops.microsoft.nibbles import unpacked

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


REALS = list(TOLERANCES)
PACKED = 3
MIXED = {torch.float32: torch.float16, torch.float16: torch.float32, torch.bfloat16: torch.float32}
"""For each type another that scales, zero points and bias may have."""
KINDS = crossed(
    list(itertools.product(TOLERANCES, (4, 2, 8))),
    list(itertools.product((False, True), ("packed", "", "floats"))),
)
"""Of a weight: its dtype and bits, which a kernel is made for, and what else it is told."""


def drawn(
    rows: int, columns: int, bits: int, block: int, zeros: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Codes, scales, zero points, and the weight in float64 [rows, columns]."""
    count = -(-columns // block)
    codes = torch.randint(0, 256, (rows, count, block * bits // 8), dtype=torch.uint8)
    scales = (torch.rand(rows, count) + 0.01).to(dtype)
    points = None
    wide: Tensor | float = float(1 << (bits - 1))
    if zeros == "packed":
        points = torch.randint(0, 256, (rows, -(-count * bits // 8)), dtype=torch.uint8)
        wide = unpacked(points, bits)[:, :count].double().unsqueeze(2)
    elif zeros == "floats":
        points = (torch.rand(rows, count) * (1 << bits)).to(dtype)
        wide = points.double().unsqueeze(2)
    numbers = unpacked(codes.flatten(1), bits).double().reshape(rows, count, block) - wide
    return codes, scales, points, (numbers * scales.double().unsqueeze(2)).flatten(1)[:, :columns]


def sizes_of(codes: Tensor, scales: Tensor, points: Tensor | None, bits: int, columns: int) -> list[int]:
    rows, blocks, each = codes.shape
    kind = PACKED if points is None or points.dtype is torch.uint8 else REALS.index(points.dtype)
    return [rows, columns, blocks, each * 8 // bits, REALS.index(scales.dtype), kind]


def of_rows(
    x: Tensor,
    codes: Tensor,
    scales: Tensor,
    points: Tensor | None,
    bias: Tensor | None,
    bits: int,
    skew: int = 0,
) -> Tensor:
    """What the kernel makes of few rows."""
    y = poisoned(len(x), len(codes), dtype=x.dtype)
    sizes = sizes_of(codes, scales, points, bits, x.shape[1])
    sizes.append(REALS.index(scales.dtype if bias is None else bias.dtype))
    name = f"matmul_nbits_{str(x.dtype).removeprefix('torch.')}_{bits}"
    given = (x, codes, scales, points, bias, y, torch.tensor(sizes), len(x))
    launch("matmul_nbits", name, *given, skew=skew)
    return y


@needs_compiler
@pytest.mark.parametrize(("dtype", "bits", "mixed", "zeros"), KINDS)
def test_few_rows_read_the_weight_as_it_lies(dtype: torch.dtype, bits: int, zeros: str, mixed: bool) -> None:
    torch.manual_seed(bits)
    kind = MIXED[dtype] if mixed else dtype
    for count, rows, columns, block, skew in (
        (1, 5, 1, 16, 0),
        (2, 4, 70, 16, 0),
        (5, 9, 296, 32, 0),
        (1, 3, 640, 32, 0),
        (1, 3, 640, 32, 8),
        (4, 3, 1100, 128, 0),
    ):
        codes, scales, points, weight = drawn(rows, columns, bits, block, zeros, kind)
        x, bias = torch.randn(count, columns).to(dtype), torch.randn(rows).to(kind)
        y = of_rows(x, codes, scales, points, bias, bits, skew)
        plain = of_rows(x, codes, scales, points, None, bits, skew)
        exact = x.double() @ weight.t()
        most = float(exact.abs().max())
        assert float((plain.double() - exact).abs().max()) <= TOLERANCES[dtype] * most
        assert float((y.double() - exact - bias.double()).abs().max()) <= 2 * TOLERANCES[dtype] * (most + 1)


@needs_compiler
@pytest.mark.parametrize(("dtype", "bits", "mixed", "zeros"), KINDS)
def test_many_rows_are_given_floats(dtype: torch.dtype, bits: int, zeros: str, mixed: bool) -> None:
    torch.manual_seed(bits)
    name = f"nbits_floats_{str(dtype).removeprefix('torch.')}_{bits}"
    for rows, columns, block, skew in (
        (1, 1, 16, 0),
        (3, 70, 32, 0),
        (37, 296, 16, 0),
        (9, 296, 16, 8),
        (2, 1100, 256, 0),
    ):
        codes, scales, points, weight = drawn(
            rows, columns, bits, block, zeros, MIXED[dtype] if mixed else dtype
        )
        out = poisoned(rows, columns, dtype=dtype)
        sizes = torch.tensor(sizes_of(codes, scales, points, bits, columns))
        launch("matmul_nbits", name, codes, scales, points, out, sizes, skew=skew)
        torch.testing.assert_close(out, weight.to(dtype), rtol=TOLERANCES[dtype], atol=1e-6)


@needs_compiler
def test_what_is_not_finite_stays_in_its_place() -> None:
    codes, scales, _, _ = drawn(5, 64, 4, 16, "", torch.float32)
    scales[3, 1] = torch.nan
    x = torch.ones(2, 64)
    x[1, 7] = torch.inf
    y = of_rows(x, codes, scales, None, None, 4)
    assert y[0, 3].isnan() and y[0, [0, 1, 2, 4]].isfinite().all()
    assert not y[1].isfinite().any()


@needs_compiler
@pytest.mark.parametrize("part", ["scales", "points"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_in_a_weight_counts_for_each_number(part: str, value: float) -> None:
    torch.manual_seed(0)
    for bits in (2, 4, 8):
        codes, scales, points, _ = drawn(4, 70, bits, 32, "floats", torch.float32)
        assert points is not None
        # In a block within a row, and in the last one, of which a part is behind the row.
        {"scales": scales, "points": points}[part][[1, 2], [1, 2]] = value
        numbers = unpacked(codes.flatten(1), bits).double().reshape(4, 3, 32) - points.double().unsqueeze(2)
        weight = (numbers * scales.double().unsqueeze(2)).flatten(1)[:, :70]
        for x in (torch.rand(2, 70) + 1, torch.randn(1, 70)):
            y, exact = of_rows(x, codes, scales, points, None, bits), x.double() @ weight.t()
            torch.testing.assert_close(y.double(), exact, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_what_the_cpu_takes_is_served_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def op(a: Tensor, *given: object) -> Tensor:
        asked.append(given[4:])
        return a.new_empty(*a.shape[:-1], 5)

    monkeypatch.setattr(native, "status", lambda: native.Status(None, True, ""))
    monkeypatch.setattr(native, "load", lambda: True)
    served = ("matmul_nbits", "cuda")
    monkeypatch.setattr(native, "_op_on", lambda *wanted: op if wanted == served else None)
    with FakeTensorMode():
        a = torch.empty(1, 64, device="cuda", dtype=torch.float16)
        for bits in (2, 4, 8):
            codes = torch.empty(5, 2, 4 * bits, dtype=torch.uint8, device="cuda")
            sizes = Sizes(5, 64, bits, 32)
            scales = a.new_empty(5, 2)
            wide = scales.to(torch.float32)
            bias = torch.empty(5, device="cuda")
            assert _by_codes(a, Weight(codes, scales, sizes), None, 0) is not None
            assert _by_codes(a, Weight(codes, wide, sizes, wide), bias, 0) is not None
            assert _by_codes(a, Weight(codes, scales.to(torch.float64), sizes), None, 0) is None
            assert _by_codes(a, Weight(codes, scales.cpu(), sizes), None, 0) is None
    assert asked == [(5, bits, 32, False) for bits in (2, 2, 4, 4, 8, 8)]
