"""Elementwise ops on numbers of 8 bits: every set of instructions beside torch's own ops, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType, element_type_of
from torch_ort_session.ops import native
from torch_ort_session.ops.common import bytewise

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
SHAPES = ((3, 5), (130,), (2, 3, 65), (0, 4), (), (64, 64), (1, 1))
INF, NAN = float("inf"), float("nan")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Tensor]], Tensor]:
    """What something gives without the extension."""

    def run(made: Callable[[], Tensor]) -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(native, "cpu_op", lambda *_, **__: None)
            return made()

    return run


def drawn(dtype: torch.dtype, *shape: int) -> Tensor:
    low = -128 if dtype is torch.int8 else 0
    return torch.randint(low, low + 256, shape).to(dtype)


def same(got: Tensor, wanted: Tensor) -> None:
    assert got.dtype is wanted.dtype and got.stride() == wanted.stride() and torch.equal(got, wanted)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("product", [False, True])
def test_a_pair_is_what_torch_makes_of_it(
    plain: Any, instructions: int, dtype: torch.dtype, product: bool
) -> None:
    torch.manual_seed(instructions)
    for shape in SHAPES * 3:
        other = tuple(size if torch.rand(()) > 0.4 else 1 for size in shape)
        a, b = drawn(dtype, *shape), drawn(dtype, *other)
        if torch.rand(()) > 0.7 and a.dim() > 1:
            a, b = a.transpose(0, -1), b.transpose(0, -1)
        scales = [torch.rand(()) + 0.01 for _ in range(3)]
        zeros = [drawn(dtype) if torch.rand(()) > 0.2 else None for _ in range(3)]
        parts = (a, scales[0], zeros[0]), (b, scales[1], zeros[1]), scales[2], zeros[2]
        got = OPS.quantized_pair(*parts[0], *parts[1], *parts[2:], product, instructions)
        same(got, plain(lambda p=parts: bytewise.pair(*p, product=product)))


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("divide", [False, True])
def test_another_scale_is_what_torch_makes_of_it(
    plain: Any, instructions: int, dtype: torch.dtype, divide: bool
) -> None:
    torch.manual_seed(instructions)
    for shape in SHAPES:
        wide = torch.randn(shape) * 100, torch.randint(-(10**6), 10**6, shape).to(torch.int32)
        for x in (drawn(dtype, *shape), *wide):
            factors = [torch.rand(())]
            if shape:
                factors += [torch.rand(shape[-1]), torch.rand(shape[0], *[1] * (len(shape) - 1))]
            for factor in factors:
                before, behind = (drawn(dtype) if torch.rand(()) > 0.2 else None for _ in range(2))
                by = factor + 0.01
                got = OPS.requantize(x, before, by, divide, behind, dtype, instructions)
                parts = x, before, by, behind, element_type_of(dtype)
                same(got, plain(lambda p=parts: bytewise.requantized(*p, divide=divide)))


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("element", [ElementType.UINT8, ElementType.INT8])
def test_ties_ends_and_what_is_no_number(plain: Any, instructions: int, element: ElementType) -> None:
    x = torch.tensor([NAN, INF, -INF, 0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, 0.49999997, 127.5, 254.5, 3e9])
    for size in (14, 70):
        values = x.repeat(5)[:size]
        for zero in (None, torch.tensor(100, dtype=element.torch_dtype)):
            parts = values, None, torch.tensor(1.0), zero, element
            got = OPS.requantize(*parts[:3], False, zero, element.torch_dtype, instructions)
            same(got, plain(lambda p=parts: bytewise.requantized(*p)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_a_table_is_read_for_every_byte(plain: Any, dtype: torch.dtype) -> None:
    def turned(codes: Tensor) -> Tensor:
        return ((codes.to(torch.int32) * 7 + 3) % 256).to(torch.uint8)

    for x in (drawn(dtype, 4097), drawn(dtype, 64, 70).t(), drawn(dtype, 200, 100)[:, ::2]):
        assert x.numel() >= bytewise._WORTH_A_TABLE
        got = bytewise.of_each(x, turned)
        assert got.dtype is torch.uint8 and torch.equal(got, plain(lambda v=x: bytewise.of_each(v, turned)))


def test_the_schemas_are_honest() -> None:
    byte, scale, zero = drawn(torch.uint8, 3, 4), torch.tensor(0.1), torch.tensor(3, dtype=torch.uint8)
    pair = byte, scale, zero, drawn(torch.uint8, 4), scale, None, scale, zero, False
    torch.library.opcheck(OPS.quantized_pair.default, pair)
    torch.library.opcheck(OPS.requantize.default, (byte.t(), zero, scale, True, None, torch.int8))
    torch.library.opcheck(
        OPS.requantize.default, (torch.randn(3, 4), None, torch.rand(3, 1), False, zero, torch.uint8)
    )
    torch.library.opcheck(OPS.by_table.default, (byte.t(), drawn(torch.int8, 256)))


def test_what_they_do_not_take_is_refused() -> None:
    byte, scale, zero = drawn(torch.uint8, 4), torch.tensor(0.1), torch.tensor(3, dtype=torch.uint8)
    for call in (
        lambda: OPS.requantize(byte.long(), None, scale, False, None, torch.uint8),
        lambda: OPS.requantize(byte, None, scale, False, None, torch.int32),
        lambda: OPS.requantize(byte, None, scale.double(), False, None, torch.uint8),
        lambda: OPS.requantize(byte, byte, scale, False, None, torch.uint8),
        lambda: OPS.requantize(byte, None, scale, False, None, torch.uint8, 99),
        lambda: OPS.quantized_pair(byte, scale, zero, byte.to(torch.int8), scale, zero, scale, zero, False),
        lambda: OPS.quantized_pair(byte, byte, zero, byte, scale, zero, scale, zero, False),
        lambda: OPS.by_table(byte, byte),
    ):
        with pytest.raises(ValueError):
            call()


def test_many_threads_give_what_one_gives() -> None:
    x, scale, table = drawn(torch.uint8, 300_001), torch.tensor(0.37), drawn(torch.uint8, 256)
    before = torch.get_num_threads()
    made = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        made.append((OPS.requantize(x, None, scale, False, None, torch.uint8), OPS.by_table(x, table)))
    torch.set_num_threads(before)
    assert all(torch.equal(one, three) for one, three in zip(*made, strict=True))
