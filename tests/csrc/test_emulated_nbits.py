"""The CUDA kernels of MatMulNBits, emulated, beside float64."""

from __future__ import annotations

import pytest
import torch
from hostcuda import launch, needs_compiler, poisoned
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_ort_session.ops import native
from torch_ort_session.ops._helpers.nibbles import unpacked
from torch_ort_session.ops.microsoft.matmul_nbits import Sizes, _by_codes

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


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


def sizes_of(rows: int, columns: int, block: int, zeros: str) -> Tensor:
    return torch.tensor([rows, columns, -(-columns // block), block, zeros == "packed"])


@needs_compiler
@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
def test_few_rows_read_the_weight_as_it_lies(dtype: torch.dtype, bits: int, zeros: str) -> None:
    torch.manual_seed(bits)
    name = f"matmul_nbits_{str(dtype).removeprefix('torch.')}_{bits}"
    for count, rows, columns, block in ((1, 5, 1, 16), (2, 4, 70, 16), (5, 9, 300, 32), (4, 3, 1100, 128)):
        codes, scales, points, weight = drawn(rows, columns, bits, block, zeros, dtype)
        x, bias = torch.randn(count, columns).to(dtype), torch.randn(rows).to(dtype)
        y, plain = poisoned(count, rows, dtype=dtype), poisoned(count, rows, dtype=dtype)
        sizes = sizes_of(rows, columns, block, zeros)
        launch("matmul_nbits", name, x, codes, scales, points, bias, y, sizes, count)
        launch("matmul_nbits", name, x, codes, scales, points, None, plain, sizes, count)
        exact = x.double() @ weight.t()
        most = float(exact.abs().max())
        assert float((plain.double() - exact).abs().max()) <= TOLERANCES[dtype] * most
        assert float((y.double() - exact - bias.double()).abs().max()) <= 2 * TOLERANCES[dtype] * (most + 1)


@needs_compiler
@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
def test_many_rows_are_given_floats(dtype: torch.dtype, bits: int, zeros: str) -> None:
    torch.manual_seed(bits)
    name = f"nbits_floats_{str(dtype).removeprefix('torch.')}_{bits}"
    for rows, columns, block in ((1, 1, 16), (3, 70, 32), (37, 300, 16), (2, 1100, 256)):
        codes, scales, points, weight = drawn(rows, columns, bits, block, zeros, dtype)
        out = poisoned(rows, columns, dtype=dtype)
        launch("matmul_nbits", name, codes, scales, points, out, sizes_of(rows, columns, block, zeros))
        torch.testing.assert_close(out, weight.to(dtype), rtol=TOLERANCES[dtype], atol=1e-6)


@needs_compiler
def test_what_is_not_finite_stays_in_its_place() -> None:
    codes, scales, _, _ = drawn(5, 64, 4, 16, "", torch.float32)
    scales[3, 1] = torch.nan
    x = torch.ones(2, 64)
    x[1, 7] = torch.inf
    y = poisoned(2, 5)
    sizes = sizes_of(5, 64, 16, "")
    launch("matmul_nbits", "matmul_nbits_float32_4", x, codes, scales, None, None, y, sizes, 2)
    assert y[0, 3].isnan() and y[0, [0, 1, 2, 4]].isfinite().all()
    assert not y[1].isfinite().any()


def test_floats_of_one_type_and_4_or_8_bits_are_served_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
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
            got = _by_codes(a, codes, scales, None, None, sizes, 0)
            assert (got is not None) == (bits != 2)
            for point in (None, scales.to(torch.float32)):
                assert _by_codes(a, codes, scales.to(torch.float32), point, None, sizes, 0) is None
            assert _by_codes(a, codes, scales, scales.to(torch.float32), None, sizes, 0) is None
    assert asked == [(5, 4, 32, False), (5, 8, 32, False)]
