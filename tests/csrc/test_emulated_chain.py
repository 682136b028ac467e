"""The CUDA kernel of chains of elementwise steps, emulated, beside its twin on the CPU."""

from __future__ import annotations

import pytest
import torch
from hostcuda import launch, needs_compiler, poisoned
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.native.chain import Code

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}"),
]

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
DIMS = 6
ROUNDED_ALIKE = {Code.ADD, Code.SUB, Code.MUL, Code.DIV, Code.MIN, Code.MAX, Code.NEG, Code.ABS, Code.RELU}
ROUNDED_ALIKE |= {Code.RECIPROCAL, Code.FLOOR, Code.CEIL, Code.ROUND, Code.SQUARE, Code.SOFTSIGN}
ROUNDED_ALIKE |= {Code.CLIP, Code.LEAKY_RELU, Code.HARD_SIGMOID, Code.HARD_SWISH}


def collapsed(x: Tensor, shape: torch.Size) -> list[int]:
    """Dimensions, sizes and strides of a tensor in a broadcast, the innermost first."""
    pieces: list[list[int]] = []
    for size, stride in reversed(list(zip(shape, x.expand(shape).stride(), strict=True))):
        if size == 1:
            continue
        if pieces and stride == pieces[-1][0] * pieces[-1][1]:
            pieces[-1][0] *= size
        else:
            pieces.append([size, stride])
    pieces = pieces or [[1, 1]]
    padding = [0] * (DIMS - len(pieces))
    return [len(pieces), *(size for size, _ in pieces), *padding, *(stride for _, stride in pieces), *padding]


def both(
    inputs: list[Tensor], program: list[int], constants: list[float], *, far: bool = False, skew: int = 0
) -> tuple[Tensor, Tensor]:
    """What the emulated kernel gives, and the op."""
    native.load()
    wanted = torch.ops.torch_ort_session.elementwise_chain.default(inputs, program, constants)
    shape, dtype = wanted.shape, inputs[0].dtype
    sizes = [len(inputs), len(constants), len(program) // 4, wanted.numel()]
    for each in inputs:
        sizes += collapsed(each, shape)
    out = poisoned(*shape, dtype=dtype)
    name = f"elementwise_chain_{str(dtype).removeprefix('torch.')}{'_far' if far else ''}"
    numbers = torch.tensor(constants or [0.0])
    given = [*inputs, *[None] * (3 - len(inputs))]
    launch(
        "elementwise_chain", name, torch.tensor(program), torch.tensor(sizes), numbers, *given, out, skew=skew
    )
    return out, wanted


def line(code: Code, *operands: int) -> list[int]:
    return [int(code), *operands, *[-1] * (3 - len(operands))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", list(Code))
def test_both_devices_give_the_same(code: Code, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    special = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 0.5, 1.5, -2.5, 3e-41, 41.0, -104.0])
    x = torch.cat((special, 4 * torch.randn(90))).to(dtype)
    two, three = [x, x.flip(0).clone()], [0.3, 0.45]
    if code <= Code.POW:
        got, wanted = both(two, line(code, 0, 1), [])
    else:
        got, wanted = both([x], line(code, *range(code.operands)), three[: code.operands - 1])
    usual = x.abs() < 1e4 if code in (Code.GELU_ERF, Code.GELU_TANH) else torch.ones_like(x, dtype=torch.bool)
    step = 0.0 if code in ROUNDED_ALIKE else max(5e-7, torch.finfo(dtype).eps)
    torch.testing.assert_close(
        got[usual], wanted[usual], rtol=step, atol=0.6 * step if step else 0.0, equal_nan=True
    )


CHAIN = [*line(Code.SUB, 0, 1), *line(Code.MUL, 4, 2), *line(Code.ADD, 5, 3), *line(Code.MAX, 6, 0)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("skew", [0, 4])
@pytest.mark.parametrize(
    "shapes",
    [
        ((1,), (), ()),
        ((3,), (1,), (3,)),
        ((515,), (), (515,)),
        ((1025,), (1025,), (1,)),
        ((7, 12), (12,), (7, 1)),
        ((12, 7), (7,), (12, 1)),
        ((3, 5, 4), (5, 1), (3, 1, 4)),
        ((3, 1, 5), (1, 9, 1), (5,)),
        ((2, 1, 3, 1, 2), (1, 4, 1, 5, 1), ()),
    ],
)
def test_inputs_broadcast(shapes: tuple[tuple[int, ...], ...], skew: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    got, wanted = both([torch.randn(shape).to(dtype) for shape in shapes], CHAIN, [0.25], skew=skew)
    assert torch.equal(got, wanted)
    if dtype == torch.float32:
        got, wanted = both([torch.randn(shape) for shape in shapes], CHAIN, [0.25], far=True, skew=skew)
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("bounds", [(-1, -1), (1, -1), (-1, 1), (1, 2)])
def test_a_bound_that_is_left_out_does_not_bind(bounds: tuple[int, int]) -> None:
    x = torch.cat((torch.randn(40), torch.tensor([torch.nan, torch.inf, -torch.inf])))
    got, wanted = both([x], line(Code.CLIP, 0, *bounds), [-0.5, 0.5])
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


def test_many_registers_take_smaller_blocks() -> None:
    # Every row is read again at the end, so that none gives its memory back.
    torch.manual_seed(0)
    program = [number for row in range(16) for number in line(Code.ADD, max(2 + row, 2) - 1, 0)]
    for row in range(16):
        program += line(Code.MUL, 2 + row, 2 + 15 + row)
    got, wanted = both([torch.rand(600), torch.rand(600)], program, [])
    assert torch.equal(got, wanted)
    far_apart = [number for row in range(31) for number in line(Code.ADD, 0, 1)]
    got, wanted = both([torch.rand(600), torch.rand(600)], [*far_apart, *line(Code.ADD, 2, 32)], [])
    assert torch.equal(got, wanted)
