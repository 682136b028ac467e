"""The CUDA kernels of MoE and QMoE, emulated, beside float64 and the op of the CPU."""

from __future__ import annotations

import itertools

import pytest
import torch
from axes import crossed
from hostcuda import launch, needs_compiler, poisoned
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_ort_session.ops import native
from torch_ort_session.ops.microsoft.experts import Projection
from torch_ort_session.ops.microsoft.mixture import _numbers, _same
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
EXPERTS = torch.tensor([3, 0, 3, 2, 4])
SKEW = 8
"""Bytes off an address that allows 16 at once."""
FAR = 1 << 62

needs_extension = pytest.mark.skipif(
    not native.status().usable, reason=f"native ops: {native.status().reason}"
)


def entry(dtype: torch.dtype, bits: int = 0) -> str:
    name = f"expert_rows_{str(dtype).removeprefix('torch.')}"
    return f"{name}_{bits}" if bits else name


def kind_of(given: Tensor | None) -> int:
    """The number of a type of floats, which packed bytes have as well."""
    if given is None:
        return 0
    return PACKED if given.dtype is torch.uint8 else REALS.index(given.dtype)


def close(got: Tensor, wanted: Tensor, tolerance: float) -> bool:
    return float((got.double() - wanted.double()).abs().max()) <= tolerance * float(wanted.abs().max() + 1)


def of_floats(
    x: Tensor, experts: Tensor, weight: Tensor, bias: Tensor | None, wide: bool, skew: int = 0
) -> Tensor:
    """What the kernel makes of rows [P, K] and weights [E, N, K]."""
    (count, rows, columns), routes = weight.shape, len(experts)
    y = poisoned(routes, rows, dtype=x.dtype)
    sizes = torch.tensor([routes, columns, rows, count, kind_of(bias)])
    launch("expert_rows", entry(x.dtype), x, experts, weight, bias, y, sizes, int(wide), skew=skew)
    return y


def of_codes(
    x: Tensor,
    experts: Tensor,
    codes: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bias: Tensor | None,
    bits: int,
) -> Tensor:
    """What the kernel makes of rows [P, K], codes [E, N, bytes] and scales [E, N, blocks]."""
    (count, rows, blocks), (routes, columns) = scales.shape, x.shape
    block = codes.shape[2] * 8 // bits // blocks
    y = poisoned(routes, rows, dtype=x.dtype)
    kinds = kind_of(scales), kind_of(zeros)
    sizes = torch.tensor([routes, columns, rows, count, kind_of(bias), blocks, block, *kinds])
    launch("expert_rows", entry(x.dtype, bits), x, experts, codes, scales, zeros, bias, y, sizes)
    return y


def drawn(
    rows: int, columns: int, bits: int, block: int, zeros: str, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Codes, scales, zero points of five experts, and their weights in float64 [5, rows, columns]."""
    blocks = -(-columns // block)
    codes = torch.randint(0, 256, (5, rows, blocks * block * bits // 8), dtype=torch.uint8)
    scales = (torch.rand(5, rows, blocks) + 0.01).to(dtype)
    points = None
    wide: Tensor | float = float(1 << (bits - 1))
    if zeros == "packed":
        points = torch.randint(0, 256, (5, rows, -(-blocks * bits // 8)), dtype=torch.uint8)
        wide = unpacked(points, bits)[..., :blocks].double().unsqueeze(3)
    elif zeros == "floats":
        points = (torch.rand(5, rows, blocks) * (1 << bits)).to(dtype)
        wide = points.double().unsqueeze(3)
    numbers = unpacked(codes, bits).double().reshape(5, rows, blocks, block) - wide
    return codes, scales, points, (numbers * scales.double().unsqueeze(3)).flatten(2)[..., :columns]


def by_expert(x: Tensor, experts: Tensor, weight: Tensor) -> Tensor:
    return torch.einsum("pk,pnk->pn", x.double(), weight.double()[experts])


@needs_compiler
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_each_row_meets_its_expert(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for rows, columns, wide in (
        (1, 1, False),
        (5, 33, False),
        (9, 8, True),
        (3, 264, True),
        (4, 1050, False),
    ):
        x, weight = torch.randn(5, columns).to(dtype), torch.randn(5, rows, columns).to(dtype)
        bias = torch.randn(5, rows).to(dtype)
        wanted = by_expert(x, EXPERTS, weight)
        plain = of_floats(x, EXPERTS, weight, None, wide)
        assert close(plain, wanted, TOLERANCES[dtype])
        got = of_floats(x, EXPERTS, weight, bias, wide)
        assert close(got, wanted + bias.double()[EXPERTS], TOLERANCES[dtype])
        other = bias.to(MIXED[dtype])
        got = of_floats(x, EXPERTS, weight, other, wide)
        assert close(got, wanted + other.double()[EXPERTS], TOLERANCES[dtype])
        # Rows that are not where many floats can be taken at once are read one by one.
        apart = of_floats(x, EXPERTS, weight, other, False, skew=SKEW)
        assert close(apart, got, TOLERANCES[dtype])


@needs_compiler
@pytest.mark.parametrize(("dtype", "bits", "mixed", "zeros"), KINDS)
def test_each_row_meets_the_numbers_of_its_expert(
    dtype: torch.dtype, bits: int, zeros: str, mixed: bool
) -> None:
    torch.manual_seed(bits)
    kind = MIXED[dtype] if mixed else dtype
    for rows, columns, block in ((1, 16, 16), (5, 70, 32), (9, 288, 32), (3, 1152, 128)):
        codes, scales, points, weight = drawn(rows, columns, bits, block, zeros, kind)
        x, bias = torch.randn(5, columns).to(dtype), torch.randn(5, rows).to(kind)
        wanted = by_expert(x, EXPERTS, weight)
        plain = of_codes(x, EXPERTS, codes, scales, points, None, bits)
        assert close(plain, wanted, TOLERANCES[dtype])
        got = of_codes(x, EXPERTS, codes, scales, points, bias, bits)
        assert close(got, wanted + bias.double()[EXPERTS], TOLERANCES[dtype])


@needs_compiler
@needs_extension
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_devices_agree(dtype: torch.dtype) -> None:
    assert native.load()
    ops = torch.ops.torch_ort_session
    x, bias = torch.randn(5, 96).to(dtype), torch.randn(5, 7).to(dtype)
    weight = torch.randn(5, 7, 96).to(dtype)
    got = of_floats(x, EXPERTS, weight, bias, True)
    assert close(got, ops.expert_rows(x, EXPERTS, weight, bias), TOLERANCES[dtype])
    for bits in (2, 4, 8):
        codes, scales, points, _ = drawn(7, 96, bits, 32, "packed", MIXED[dtype])
        for zeros in (None, points):
            got = of_codes(x, EXPERTS, codes, scales, zeros, bias, bits)
            wanted = ops.expert_rows_nbits(x, EXPERTS, codes, scales, zeros, bias, bits, 32)
            assert close(got, wanted, TOLERANCES[dtype])


@needs_compiler
@pytest.mark.parametrize("wide", [False, True])
def test_an_expert_that_does_not_exist_is_the_nearest_that_does(wide: bool) -> None:
    x, bias = torch.randn(5, 64), torch.randn(5, 3)
    asked = torch.tensor([-1, 5, -FAR, FAR, 2])
    near = torch.tensor([0, 4, 0, 4, 2])
    columns = 64 if wide else 63
    rows, weight = x[:, :columns].contiguous(), torch.randn(5, 3, columns)
    assert torch.equal(of_floats(rows, asked, weight, bias, wide), of_floats(rows, near, weight, bias, wide))
    for bits in (2, 4, 8):
        codes, scales, points, _ = drawn(3, 64, bits, 16, "packed", torch.float32)
        got = of_codes(x, asked, codes, scales, points, bias, bits)
        assert torch.equal(got, of_codes(x, near, codes, scales, points, bias, bits))
        assert got.isfinite().all()


@needs_compiler
def test_what_is_not_finite_stays_in_its_place() -> None:
    x, weight = torch.ones(5, 64), torch.ones(5, 6, 64)
    x[1, 7], weight[2, 3, 1] = torch.inf, torch.nan
    # Expert 1 is asked by nobody.
    weight[1] = torch.nan
    y = of_floats(x, EXPERTS, weight, None, True)
    assert y[3, 3].isnan() and y[3, [0, 1, 2, 4, 5]].isfinite().all()
    assert (y[1] == torch.inf).all() and y[[0, 2, 4]].isfinite().all()
    codes, scales, _, _ = drawn(6, 64, 4, 16, "", torch.float32)
    scales[1], scales[2, 3, 1] = torch.nan, torch.nan
    y = of_codes(x, EXPERTS, codes, scales, None, None, 4)
    assert y[3, 3].isnan() and y[3, [0, 1, 2, 4, 5]].isfinite().all()
    assert not y[1].isfinite().any() and y[[0, 2, 4]].isfinite().all()


def test_what_the_cpu_takes_is_served_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def op(x: Tensor, experts: Tensor, weight: Tensor, *given: object) -> Tensor:
        asked.append(tuple(each for each in given if isinstance(each, int)))
        return x.new_empty(x.shape[0], weight.shape[1])

    monkeypatch.setattr(native, "status", lambda: native.Status(None, True, ""))
    monkeypatch.setattr(native, "load", lambda: True)
    served = (("expert_rows", "cuda"), ("expert_rows_nbits", "cuda"))
    monkeypatch.setattr(native, "_op_on", lambda *wanted: op if wanted in served else None)
    with FakeTensorMode():
        x = torch.empty(4, 64, device="cuda", dtype=torch.float16)
        experts = torch.empty(4, dtype=torch.int64, device="cuda")
        bias, weight = x.new_empty(5, 6), x.new_empty(5, 6, 64)

        def read(parts: tuple[Tensor | None, ...], bias: Tensor | None, bits: int) -> bool:
            make = _numbers if bits else _same
            return Projection(parts, make, bias, bits)._read(x, experts) is not None

        assert read((weight,), bias, 0) and read((weight,), None, 0)
        assert read((weight,), bias.to(torch.float32), 0)
        assert not read((weight.to(torch.float32),), None, 0)
        with torch.enable_grad():
            assert not read((weight.clone().requires_grad_(),), None, 0)
        assert not read((weight.cpu(),), None, 0)
        for bits in (2, 4, 8):
            codes = torch.empty(5, 6, 8 * bits, dtype=torch.uint8, device="cuda")
            scales = x.new_empty(5, 6, 2)
            points = torch.empty(5, 6, 1, dtype=torch.uint8, device="cuda")
            for zeros in (None, points):
                assert read((codes, scales, zeros), bias, bits)
            wide = bias.to(torch.float32)
            assert read((codes, scales.to(torch.float32), None), wide, bits)
            assert not read((codes, scales.to(torch.float64), None), bias, bits)
    assert asked == [(), (), (), *((bits, 32) for bits in (2, 4, 8) for _ in range(3))]
