"""The native products of rows with the weights of their experts: every set of instructions beside float64."""

from __future__ import annotations

import math

import pytest
import torch
from textmodel import message
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.microsoft.experts import Projection
from torch_ort_session.ops.microsoft.mixture import _numbers, _same
from torch_ort_session.ops.microsoft.nibbles import unpacked

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
ROUNDING = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
EXPERTS = torch.tensor([3, 0, 3, 2])


def close(got: Tensor, wanted: Tensor, tolerance: float) -> bool:
    return float((got.double() - wanted).abs().max()) <= tolerance * float(wanted.abs().max())


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", list(ROUNDING))
def test_each_row_meets_its_expert(instructions: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for rows, columns in ((1, 1), (5, 33), (300, 257)):
        x, weight = torch.randn(4, columns).to(dtype), torch.randn(5, rows, columns).to(dtype)
        bias = torch.randn(5, rows).to(dtype)
        wanted = torch.einsum("pk,pnk->pn", x.double(), weight.double()[EXPERTS])
        plain = OPS.expert_rows(x, EXPERTS, weight, None, instructions)
        assert plain.dtype is dtype and close(plain, wanted, ROUNDING[dtype])
        got = OPS.expert_rows(x, EXPERTS, weight, bias, instructions)
        assert close(got, wanted + bias.double()[EXPERTS], ROUNDING[dtype])


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_each_row_meets_the_numbers_of_its_expert(instructions: int, bits: int, zeros: bool) -> None:
    torch.manual_seed(bits)
    for rows, blocks, block in ((1, 1, 16), (7, 3, 32), (130, 4, 128)):
        codes = torch.randint(0, 256, (5, rows, blocks * block * bits // 8), dtype=torch.uint8)
        scales = torch.rand(5, rows, blocks) + 0.01
        points = None
        if zeros:
            points = torch.randint(0, 256, (5, rows, -(-blocks * bits // 8)), dtype=torch.uint8)
        wide = _numbers(codes, scales.double(), points, bits=bits)
        x, bias = torch.randn(4, blocks * block), torch.randn(5, rows)
        x[1, 0] = math.inf
        got = OPS.expert_rows_nbits(x, EXPERTS, codes, scales, points, bias, bits, block, instructions)
        wanted = torch.einsum("pk,pnk->pn", x.double(), wide[EXPERTS]) + bias.double()[EXPERTS]
        finite = [0, 2, 3]
        assert close(got[finite], wanted[finite], 1e-5)
        torch.testing.assert_close(got[1].double(), wanted[1], equal_nan=True)


@pytest.mark.parametrize("instructions", SETS)
def test_a_zero_point_that_is_not_finite_counts_for_each_number(instructions: int) -> None:
    torch.manual_seed(0)
    codes, scales = torch.randint(0, 256, (5, 7, 32), dtype=torch.uint8), torch.rand(5, 7, 2) + 0.01
    zeros = torch.rand(5, 7, 2) * 16
    zeros[3, 2, 1] = math.inf
    numbers = unpacked(codes, 4).double().reshape(5, 7, 2, 32) - zeros.double().unsqueeze(3)
    wide = (numbers * scales.double().unsqueeze(3)).flatten(2)
    x = torch.randn(4, 64)
    x[0] = x[0].abs() + 1
    got = OPS.expert_rows_nbits(x, EXPERTS, codes, scales, zeros, None, 4, 32, instructions)
    wanted = torch.einsum("pk,pnk->pn", x.double(), wide[EXPERTS])
    torch.testing.assert_close(got.double(), wanted, equal_nan=True, rtol=1e-4, atol=1e-4)
    assert wanted[0, 2] == -math.inf and wanted[2, 2].isnan()


@pytest.mark.parametrize("bits", [0, 4, 8])
def test_a_projection_is_read_where_gradients_are_not_wanted(bits: int) -> None:
    x, bias = torch.randn(4, 64), torch.randn(5, 6)
    parts: tuple[Tensor | None, ...] = (torch.randn(5, 6, 64),)
    make = _same
    if bits:
        codes = torch.randint(0, 256, (5, 6, 8 * bits), dtype=torch.uint8)
        parts = (codes, torch.rand(5, 6, 2), None)

        def make(*some: Tensor | None) -> Tensor:  # type: ignore[misc]
            return _numbers(*some, bits=bits)  # type: ignore[arg-type]

    read, plain = Projection(parts, make, bias, bits), Projection(parts, make, bias)
    assert read._read(x, EXPERTS) is not None
    torch.testing.assert_close(read.each(x, EXPERTS), plain.each(x, EXPERTS), rtol=1e-4, atol=1e-4)
    assert read._read(x.requires_grad_(), EXPERTS) is None
    assert read._read(x.detach().double(), EXPERTS) is None


def test_zero_points_of_whole_rows_are_left_to_plain_ops() -> None:
    codes = torch.randint(0, 256, (5, 6, 32), dtype=torch.uint8)
    scales, points = torch.rand(5, 6), torch.randint(0, 256, (5, 3), dtype=torch.uint8)
    x = torch.randn(4, 64)
    assert Projection((codes, scales, points), _same, None, 4)._read(x, EXPERTS) is None
    got = Projection((codes, scales, None), _same, None, 4)._read(x, EXPERTS)
    numbers = (unpacked(codes, 4).double() - 8) * scales.double().unsqueeze(2)
    assert got is not None
    assert close(got, torch.einsum("pk,pnk->pn", x.double(), numbers[EXPERTS]), 1e-5)


def test_what_does_not_fit_is_refused() -> None:
    x, weight = torch.randn(4, 8), torch.randn(5, 3, 8)

    def told(*arguments: object, kind: type[Exception] = ValueError) -> str:
        return message(kind, lambda: OPS.expert_rows(*arguments))

    assert "not rows of floats" in told(x.double(), EXPERTS, weight.double(), None)
    assert "not a matrix for each expert" in told(x, EXPERTS, weight[0], None)
    assert "not one expert for each of 4 rows" in told(x, EXPERTS[1:], weight, None)
    assert "not one expert for each of 4 rows" in told(x, EXPERTS.int(), weight, None)
    assert "not 8 columns of the type of x" in told(x, EXPERTS, weight[..., 1:], None)
    assert "not 8 columns of the type of x" in told(x, EXPERTS, weight.half(), None)
    assert "the bias is not 3 floats for each of 5 experts" in told(x, EXPERTS, weight, torch.zeros(5, 4))
    for bad in (-1, 5):
        assert f"expert {bad} of 5" in told(x, EXPERTS.clone().fill_(bad), weight, None, kind=IndexError)


def test_torch_can_rely_on_their_schemas() -> None:
    x, weight, bias = torch.randn(4, 64), torch.randn(5, 3, 64), torch.randn(5, 3)
    results = torch.library.opcheck(OPS.expert_rows.default, (x, EXPERTS, weight, bias))
    codes = torch.randint(0, 256, (5, 3, 32), dtype=torch.uint8)
    given = (x, EXPERTS, codes, torch.rand(5, 3, 2), None, None, 4, 32)
    results |= torch.library.opcheck(OPS.expert_rows_nbits.default, given)
    assert set(results.values()) == {"SUCCESS"}
