"""The native product with weights of a few bits: every set of instructions beside float64."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import pytest
import torch
from guarded import guarded
from textmodel import message
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.microsoft.nibbles import unpacked

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
BLOCKS = (16, 32, 64, 128, 256)
COARSE = 0.08
"""Of the largest result, for sums of few products that were rounded to 8 bits."""


@dataclass(frozen=True)
class Weight:
    codes: Tensor
    scales: Tensor
    zeros: Tensor | None
    bits: int
    block: int
    columns: int

    @property
    def rows(self) -> int:
        return self.codes.shape[0]

    def wide(self) -> Tensor:
        """The numbers in float64 [rows, columns]."""
        codes = unpacked(self.codes.flatten(1), self.bits).double()
        zeros: Tensor | float = float(1 << (self.bits - 1))
        if self.zeros is not None:
            packed = self.zeros.dtype is torch.uint8
            zeros = (
                unpacked(self.zeros, self.bits)[:, : self.scales.shape[1]] if packed else self.zeros
            ).double()
            zeros = zeros.unsqueeze(2)
        numbers = codes.reshape(self.rows, -1, self.block) - zeros
        return (numbers * self.scales.double().unsqueeze(2)).flatten(1)[:, : self.columns]


def weight(
    rows: int,
    columns: int,
    bits: int = 4,
    block: int = 32,
    zeros: str = "",
    dtype: torch.dtype = torch.float32,
) -> Weight:
    count = -(-columns // block)
    codes = torch.randint(0, 256, (rows, count, block * bits // 8), dtype=torch.uint8)
    points = None
    if zeros == "packed":
        points = torch.randint(0, 256, (rows, -(-count * bits // 8)), dtype=torch.uint8)
    elif zeros == "floats":
        points = (torch.rand(rows, count) * (1 << bits)).to(dtype)
    return Weight(codes, (torch.rand(rows, count) + 0.01).to(dtype), points, bits, block, columns)


def product(
    a: Tensor, w: Weight, bias: Tensor | None = None, *, coarse: bool = False, instructions: int = -1
) -> Tensor:
    return OPS.matmul_nbits.default(
        a, w.codes, w.scales, w.zeros, bias, w.rows, w.bits, w.block, coarse, instructions
    )


def error(got: Tensor, wanted: Tensor) -> float:
    most = float(wanted.abs().max())
    return float((got.double() - wanted).abs().max()) / (most or 1.0)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", BLOCKS)
def test_every_set_of_instructions_gives_what_float64_gives(instructions: int, bits: int, block: int) -> None:
    torch.manual_seed(bits + block)
    for columns in (1, 16, 50, 256, 300, 513):
        for zeros in ("", "packed", "floats"):
            w = weight(7, columns, bits, block, zeros)
            wide = w.wide().t()
            for rows in (1, 2, 3, 4, 5, 16, 17):
                a = torch.randn(rows, columns)
                wanted = a.double() @ wide
                assert error(product(a, w, instructions=instructions), wanted) < 5e-6
                assert error(product(a, w, coarse=True, instructions=instructions), wanted) < COARSE


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
def test_it_takes_halves(instructions: int, dtype: torch.dtype, tolerance: float, zeros: str) -> None:
    w = weight(33, 300, 4, 32, zeros, dtype)
    bias = torch.randn(33).to(dtype)
    for rows in (1, 3, 20):
        a = torch.randn(2, rows, 300).to(dtype)
        got = product(a, w, bias, instructions=instructions)
        assert got.dtype is dtype and got.shape == (2, rows, 33)
        assert error(got, a.double() @ w.wide().t() + bias.double()) < tolerance


@pytest.mark.parametrize("instructions", SETS)
def test_rounding_the_row_costs_a_hundredth_and_no_more(instructions: int) -> None:
    torch.manual_seed(0)
    for bits in (4, 8):
        for zeros in ("", "packed"):
            w = weight(64, 2048, bits, 32, zeros)
            a = torch.randn(1, 2048)
            wanted = a.double() @ w.wide().t()
            got = product(a, w, coarse=True, instructions=instructions)
            assert 1e-5 < error(got, wanted) < 1e-2


@pytest.mark.parametrize("instructions", SETS)
def test_sets_of_instructions_round_rows_alike(instructions: int) -> None:
    torch.manual_seed(1)
    w, a = weight(9, 1000, 4, 64, "packed"), torch.randn(2, 1000)
    wanted = product(a, w, coarse=True, instructions=0)
    torch.testing.assert_close(
        product(a, w, coarse=True, instructions=instructions), wanted, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("shape", [(0, 64), (2, 0, 64), (1, 64), (2, 3, 64), (64,)])
def test_shapes(shape: tuple[int, ...], coarse: bool) -> None:
    w, bias = weight(5, 64), torch.randn(5)
    a = torch.randn(shape)
    got = product(a, w, bias, coarse=coarse)
    wanted = a.double() @ w.wide().t() + bias
    assert got.shape == wanted.shape and got.is_contiguous()
    if got.numel():
        assert error(got, wanted) < COARSE
    assert product(a, weight(0, 64), coarse=coarse).shape == (*shape[:-1], 0)


@pytest.mark.parametrize("coarse", [False, True])
def test_strides_and_places_in_memory_do_not_matter(coarse: bool) -> None:
    torch.manual_seed(2)
    w, a = weight(40, 192, zeros="packed"), torch.randn(3, 192)
    assert w.zeros is not None
    wanted = product(a, w, coarse=coarse)

    def misplaced(tensor: Tensor) -> Tensor:
        memory = bytearray(1) + bytearray(tensor.contiguous().view(torch.uint8).flatten().tolist())
        return torch.frombuffer(memory, dtype=tensor.dtype, offset=1).reshape(tensor.shape)

    odd = Weight(*map(misplaced, (w.codes, w.scales, w.zeros)), w.bits, w.block, w.columns)
    assert torch.equal(product(misplaced(a), odd, coarse=coarse), wanted)
    strided = Weight(
        w.codes.transpose(0, 2).contiguous().transpose(0, 2),
        w.scales.t().contiguous().t(),
        w.zeros.t().contiguous().t(),
        w.bits,
        w.block,
        w.columns,
    )
    assert torch.equal(product(a.t().contiguous().t(), strided, coarse=coarse), wanted)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("zeros", ["", "packed"])
def test_what_is_not_finite_stays_so(instructions: int, coarse: bool, value: float, zeros: str) -> None:
    w = weight(50, 70, zeros=zeros)
    a = torch.randn(2, 70)
    a[1, 33] = value
    wanted = a.double() @ w.wide().t()
    got = product(a, w, coarse=coarse, instructions=instructions)
    torch.testing.assert_close(got[1].double(), wanted[1], equal_nan=True, rtol=0, atol=0)
    assert error(got[0], wanted[0]) < COARSE
    broken = Weight(w.codes, w.scales.clone(), w.zeros, w.bits, w.block, w.columns)
    broken.scales[7, 0] = math.nan
    got = product(torch.randn(2, 70), broken, coarse=coarse, instructions=instructions)
    assert got[:, 7].isnan().all() and not got[:, :7].isnan().any() and not got[:, 8:].isnan().any()


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("part", ["zeros", "scales"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_in_a_weight_counts_for_each_number(
    instructions: int, coarse: bool, part: str, value: float
) -> None:
    torch.manual_seed(0)
    for bits in (2, 4, 8):
        w = weight(50, 70, bits=bits, zeros="floats")
        # In a block within a row, and in the last one, of which a part is behind the row.
        getattr(w, part)[[7, 9], [1, 2]] = value
        for a in (torch.randn(2, 70), torch.rand(1, 70) + 1):
            wanted = a.double() @ w.wide().t()
            got = product(a, w, coarse=coarse, instructions=instructions).double()
            torch.testing.assert_close(got[:, [7, 9]], wanted[:, [7, 9]], equal_nan=True, rtol=0, atol=0)
            assert error(*(each[:, 10:] for each in (got, wanted))) < COARSE


def test_a_row_of_zeros_gives_zeros() -> None:
    w = weight(20, 100, zeros="packed")
    for coarse in (False, True):
        assert not product(torch.zeros(1, 100), w, coarse=coarse).any()


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with mprotect")
def test_nothing_behind_a_tensor_is_read() -> None:
    guarded("""
        bias = at_the_end(torch.ones(3))
        for instructions in range(len(ops.cpu_instructions())):
            for bits in (2, 4, 8):
                for block in (16, 32, 128, 256):
                    for columns in (1, 40, 300):
                        count = -(-columns // block)
                        codes = at_the_end(torch.zeros(3, count, block * bits // 8, dtype=torch.uint8))
                        a = at_the_end(torch.zeros(2, columns, dtype=torch.float16))
                        for dtype in (torch.float32, torch.float16):
                            scales = at_the_end(torch.ones(3, count, dtype=dtype))
                            packed = at_the_end(torch.zeros(3, -(-count * bits // 8), dtype=torch.uint8))
                            for zeros in (None, packed, scales):
                                for coarse in (False, True):
                                    sizes = (3, bits, block, coarse, instructions)
                                    ops.matmul_nbits(a, codes, scales, zeros, bias, *sizes)
        print("done")
    """)


def test_what_does_not_fit_is_refused() -> None:
    w, a = weight(5, 64, zeros="packed"), torch.randn(2, 64)

    def told(**changed: object) -> str:
        values = {
            "a": a, "codes": w.codes, "scales": w.scales, "zeros": w.zeros, "bias": torch.zeros(5), "rows": 5,
            "bits": 4, "block": 32, "coarse": False, "instructions": -1,
        } | changed  # fmt: skip
        return message(ValueError, lambda: OPS.matmul_nbits.default(*values.values()))

    assert "not a row of floats" in told(a=a.double())
    assert "not a row of floats" in told(a=a[0, 0])
    assert "has no columns" in told(a=a[:, :0])
    assert "5 rows of 48 bytes" in told(a=torch.randn(2, 65))
    assert "not uint8 of 5 rows of 32 bytes" in told(codes=w.codes[1:])
    assert "not uint8 of 5 rows" in told(codes=w.codes.view(torch.int8))
    assert "not floats for 5 rows of 2 blocks" in told(scales=w.scales[:, :1])
    assert "not floats for 5 rows of 2 blocks" in told(scales=w.scales.double())
    assert "nor packed bytes" in told(zeros=torch.zeros(5, 2, dtype=torch.uint8))
    assert "nor packed bytes" in told(zeros=torch.zeros(5, 1))
    assert "bias is not floats for 5 rows" in told(bias=torch.zeros(4))
    assert "a weight of -1 rows" in told(rows=-1, bias=None)
    assert "numbers of 3 bits" in told(bits=3)
    for block in (0, -32, 8, 48, 1 << 20):
        assert f"blocks of {block} numbers" in told(block=block)
    assert "no number of a set" in told(instructions=9)
    assert "no number of a set" in told(instructions=-2)


@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
@pytest.mark.parametrize("coarse", [False, True])
def test_torch_can_rely_on_its_schema(zeros: str, coarse: bool) -> None:
    w = weight(6, 70, zeros=zeros)
    op = OPS.matmul_nbits.default
    bias = torch.randn(6) if coarse else None
    results = torch.library.opcheck(
        op, (torch.randn(2, 70), w.codes, w.scales, w.zeros, bias, 6, 4, 32, coarse)
    )
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    before = torch.get_num_threads()
    torch.manual_seed(3)
    w, a = weight(700, 512), torch.randn(6, 512)
    wanted = product(a, w), product(a, w, coarse=True)
    try:
        torch.set_num_threads(threads)
        assert torch.equal(product(a, w), wanted[0])
        assert torch.equal(product(a, w, coarse=True), wanted[1])
    finally:
        torch.set_num_threads(before)


def test_a_run_makes_no_weight_of_floats() -> None:
    w = weight(4096, 2048)
    of_floats = 4096 * 2048 * 4
    for rows in (1, 8, 40):
        a = torch.randn(rows, 2048)
        product(a, w)
        with torch.profiler.profile(profile_memory=True) as profile:
            product(a, w)
        taken = sum(max(event.cpu_memory_usage, 0) for event in profile.events() or ())
        assert taken < of_floats / 8
