"""Chains of elementwise steps in one pass, beside the same steps by torch, for each set of instructions."""

from __future__ import annotations

import math
import sys

import pytest
import torch
import torch.nn.functional as F
from guarded import guarded
from textmodel import message
from torch import Tensor

from torch_ort_session.ops import native
from torch_ort_session.ops.native.chain import Code, chain, composite

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
DIFFERENT_ROUNDINGS = {
    Code.POW: 2.0,
    Code.SIGMOID: 2.0,
    Code.SOFTPLUS: 2.0,
    Code.ELU: 2.0,
    Code.SILU: 2.0,
    Code.MISH: 4.0,
}
"""Codes that are not bit for bit torch's, and by how many units in the last place of float32."""
MKL = torch.backends.mkl.is_available()
if not MKL:
    # Torch then has other functions of its own, whose erf is near in absolute terms alone.
    DIFFERENT_ROUNDINGS |= dict.fromkeys((Code.SQRT, Code.EXP, Code.LOG, Code.TANH, Code.SIN, Code.COS), 4.0)
    DIFFERENT_ROUNDINGS[Code.ERF] = 4.0
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3e-41]
SPECIAL += [-3e-41, 1e-8, 3e38, -3e38, 8388609.0, -8388607.5, 20.5, 41.0, 88.9, -88.9, -104.0]


def line(code: Code, *operands: int) -> list[int]:
    """A row of a program."""
    return [int(code), *operands, *[-1] * (3 - len(operands))]


def run(inputs: list[Tensor], program: list[int], constants: list[float], instructions: int = -1) -> Tensor:
    made: Tensor = OPS.elementwise_chain.default(inputs, program, constants, instructions)
    return made


def values(dtype: torch.dtype, count: int = 3000) -> Tensor:
    torch.manual_seed(0)
    return torch.cat((torch.tensor(SPECIAL), 4 * torch.randn(count))).to(dtype)


def bits(x: Tensor) -> Tensor:
    """What tells -0 from 0; every NaN is the same."""
    whole = x.view(torch.int32 if x.dtype == torch.float32 else torch.int16)
    return whole.masked_fill(x.isnan(), 0x7FC0)


def alone(code: Code, dtype: torch.dtype) -> tuple[list[Tensor], list[int], list[float]]:
    """A program of that code, and what it is given."""
    x = values(dtype)
    if code <= Code.POW:
        return [x, x[torch.randperm(len(x))]], line(code, 0, 1), []
    if code is Code.CLIP:
        return [x], line(code, 0, 1, 2), [-1.25, 2.0]
    if code is Code.HARD_SIGMOID:
        return [x], line(code, 0, 1, 2), [0.3, 0.45]
    return [x], line(code, *range(code.operands)), [0.0625] if code.operands == 2 else []


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", sorted(set(Code) - {Code.GELU_ERF, Code.GELU_TANH}))
def test_each_code_gives_what_torch_gives(code: Code, dtype: torch.dtype, instructions: int) -> None:
    inputs, program, constants = alone(code, dtype)
    got, wanted = run(inputs, program, constants, instructions), composite(inputs, program, constants)
    if code not in DIFFERENT_ROUNDINGS:
        assert torch.equal(bits(got), bits(wanted))
        return
    units = DIFFERENT_ROUNDINGS[code] * torch.finfo(torch.float32).eps
    step = units if dtype == torch.float32 else torch.finfo(dtype).eps
    least = 2e-7 if code is Code.ERF else 1e-44
    torch.testing.assert_close(got, wanted, rtol=step, atol=least, equal_nan=True)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", [Code.GELU_ERF, Code.GELU_TANH])
def test_gelu_is_near_float64(code: Code, dtype: torch.dtype, instructions: int) -> None:
    x = values(dtype)
    got = run([x], line(code, 0), [], instructions)
    wanted = F.gelu(x.double(), approximate="none" if code is Code.GELU_ERF else "tanh").to(dtype)
    # For the greatest numbers torch's own formulas give infinity times zero here and there.
    usual = x.abs() < 1e4
    near = 5e-7 if dtype == torch.float32 else torch.finfo(dtype).eps
    torch.testing.assert_close(got[usual], wanted[usual], rtol=near, atol=1e-6)
    assert bool(got[x.isnan()].isnan().all()) and bool((got[x == math.inf] == math.inf).all())


def test_the_codes_are_those_of_torch_in_its_own_dtype() -> None:
    for dtype in DTYPES:
        x, y = values(dtype), values(dtype).flip(0)
        for code, plain in (
            (Code.ADD, torch.add),
            (Code.SUB, torch.sub),
            (Code.MUL, torch.mul),
            (Code.DIV, torch.div),
            (Code.MIN, torch.minimum),
            (Code.MAX, torch.maximum),
        ):
            assert torch.equal(bits(run([x, y], line(code, 0, 1), [])), bits(plain(x, y)))
        assert torch.equal(bits(run([x], line(Code.MUL, 0, 1), [0.1])), bits(x * 0.1))
        assert torch.equal(bits(run([x], line(Code.CUBE, 0), [])), bits(x**3))
        assert torch.equal(bits(run([x], line(Code.SQUARE, 0), [])), bits(x**2))
        assert torch.equal(bits(run([x], line(Code.RELU, 0), [])), bits(torch.clamp_min(x, 0)))
        got = run([x], line(Code.LEAKY_RELU, 0, 1), [0.3])
        assert torch.equal(bits(got), bits(F.leaky_relu(x, 0.3)))
        assert torch.equal(bits(run([x], line(Code.HARD_SWISH, 0), [])), bits(F.hardswish(x)))


def test_a_bound_that_is_left_out_does_not_bind() -> None:
    x = values(torch.float32)
    for low, high in ((-1, -1), (1, -1), (-1, 1)):
        program = line(Code.CLIP, 0, low, high)
        assert torch.equal(bits(run([x], program, [0.5])), bits(composite([x], program, [0.5])))
    for bounds in ([math.nan, 1.0], [1.0, math.nan], [2.0, -2.0]):
        got = run([x], line(Code.CLIP, 0, 1, 2), bounds)
        low_bound, high_bound = torch.tensor(bounds)
        assert torch.equal(bits(got), bits(torch.clamp(x, low_bound, high_bound)))


GELU = [*line(Code.DIV, 0, 1), *line(Code.ERF, 4), *line(Code.ADD, 5, 2), *line(Code.MUL, 0, 6)]
GELU += line(Code.MUL, 7, 3)
TAIL = [*line(Code.SUB, 0, 1), *line(Code.DIV, 5, 2), *line(Code.MUL, 6, 3), *line(Code.ADD, 7, 4)]


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_chain_is_its_steps(dtype: torch.dtype, instructions: int) -> None:
    for count in (0, 1, 3, 15, 16, 17, 63, 1023, 1024, 1025, 2047, 5003):
        x = values(dtype)[:count].clone()
        steps = torch.mul(torch.mul(x, torch.erf(x / math.sqrt(2)) + 1.0), 0.5)
        got = run([x], GELU, [math.sqrt(2), 1.0, 0.5], instructions)
        near = 1e-6 * (not MKL) if dtype == torch.float32 else torch.finfo(dtype).eps
        torch.testing.assert_close(got, steps, rtol=near, atol=near, equal_nan=True)
    rows, one = torch.randn(37, 53).to(dtype), torch.rand(37, 1).to(dtype) + 1
    scale, shift = torch.randn(53).to(dtype), torch.randn(53).to(dtype)
    steps = (rows - one) / one.sqrt() * scale + shift
    assert torch.equal(run([rows, one, one.sqrt(), scale, shift], TAIL, [], instructions), steps)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 5), ()),
        ((), ()),
        ((4, 300), (300,)),
        ((300, 4), (300, 1)),
        ((3, 257, 5), (3, 1, 5)),
        ((3, 257, 5), (257, 1)),
        ((3, 1, 5), (1, 700, 1)),
        ((6, 1), (1, 1500)),
        ((2, 1, 3, 1, 2), (1, 4, 1, 5, 1)),
        ((2, 1, 2, 1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 2, 1, 3)),
        ((2, 1500), (2, 1500)),
        ((0, 3), (1, 3)),
        ((0, 1), (1, 7)),
    ],
)
def test_inputs_broadcast(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype, instructions: int
) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(shape).to(dtype) for shape in shapes)
    for a, b in ((x, y), (y, x)):
        got = run([a, b], [*line(Code.SUB, 0, 1), *line(Code.MUL, 2, 3)], [1.5], instructions)
        wanted = torch.sub(a, b) * 1.5
        assert torch.equal(got, wanted) and got.shape == wanted.shape and got.is_contiguous()


def test_strides_do_not_matter() -> None:
    torch.manual_seed(0)
    wide = torch.randn(6, 40, 60)
    program = [*line(Code.ADD, 0, 1), *line(Code.RELU, 2)]
    for x in (wide[..., ::3], wide.transpose(0, 2), wide[:, 3:9, 1:], wide[::2], wide[:1].expand(5, 40, 60)):
        for y in (x.flip(0), x, wide.new_ones(1)[:, None, None].expand(x.shape)):
            wanted = torch.relu(x + y)
            assert torch.equal(run([x, y], program, []), wanted)
            assert torch.equal(run([y, x.contiguous()], program, []), torch.relu(y + x))


def test_registers_are_read_as_often_as_one_likes() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(3000) for _ in range(8)]
    constants = [0.25 * i - 1.0 for i in range(16)]
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        program: list[int] = []
        for known in range(24, 24 + 32):
            code = [Code.ADD, Code.SUB, Code.MUL, Code.MAX, Code.ABS, Code.CLIP][
                int(torch.randint(6, (), generator=generator))
            ]
            taken = torch.randint(0, known, (code.operands,), generator=generator).tolist()
            program += line(code, *taken)
        assert torch.equal(run(inputs, program, constants), composite(inputs, program, constants))


def test_constants_alone_and_inputs_that_nobody_reads_give_their_shape() -> None:
    x = torch.randn(3, 1), torch.randn(4)
    got = run(list(x), line(Code.ADD, 2, 3), [1.5, 2.0])
    assert torch.equal(got, torch.full((3, 4), 3.5))


def test_a_result_may_lie_where_an_input_lies() -> None:
    x, y = torch.randn(3000), torch.randn(3000)
    wanted = (x - y) * x
    program = [*line(Code.SUB, 0, 1), *line(Code.MUL, 2, 0)]
    for inputs, place in (([x.clone(), y], 0), ([x, y.clone()], 1)):
        OPS.elementwise_chain.out(inputs, program, [], out=inputs[place])
        assert torch.equal(inputs[place], wanted)
    memory = torch.randn(10)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        OPS.elementwise_chain.out([memory[:8]], line(Code.ABS, 0), [], out=memory[1:9])


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with mprotect")
def test_nothing_behind_a_tensor_is_read_or_written() -> None:
    guarded("""
        for instructions in range(len(ops.cpu_instructions())):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                for width in (1, 3, 16, 37, 1025):
                    x = at_the_end(torch.ones(3, width, dtype=dtype))
                    for other in ((width,), (3, 1), ()):
                        row = at_the_end(torch.ones(other, dtype=dtype))
                        out = at_the_end(torch.empty(3, width, dtype=dtype))
                        for code in (0, 11, 13):
                            program = [0, 0, 1, -1, code, 2, 1 if code == 0 else -1, -1]
                            ops.elementwise_chain.out([x, row], program, [], instructions, out=out)
                            assert (out > 0.5).all()
        print("done")
    """)


def test_what_is_no_program_is_refused() -> None:
    x = torch.randn(6)

    def told(
        program: list[int], constants: list[float] | None = None, inputs: list[Tensor] | None = None
    ) -> str:
        return message(ValueError, lambda: run([x] if inputs is None else inputs, program, constants or []))

    add = line(Code.ADD, 0, 0)
    for program in ([], add[:3], add * 33):
        assert f"{len(program)} numbers are not 1 to 32 rows of 4" in told(program)
    assert "row 1: 35 is no number of a code" in told([*add, 35, 0, -1, -1])
    assert "row 0: -1 is no number of a code" in told([-1, 0, -1, -1])
    assert "row 1 reads register 2 of 2" in told([*add, *line(Code.NEG, 2)])
    assert "row 0 reads register -1 of 2" in told(line(Code.ADD, 0), [1.0])
    assert "row 0 reads register 300 of 1" in told(line(Code.NEG, 300))
    assert "row 0 reads register -2 of 1" in told(line(Code.CLIP, 0, -2))
    assert "row 0: code 7 takes 1 operands, not 0 as well" in told(line(Code.NEG, 0, 0))
    assert "17 constants, more than 16" in told(add, [1.0] * 17)
    assert "9 inputs, not 1 to 8" in told(add, [], [x] * 9)
    assert "input 0 is Double, not float32" in told(add, [], [x.double()])
    assert "input 1 is Half on cpu, input 0 Float on cpu" in told(add, [], [x, x.half()])
    for out in (x[:3], x.half(), x.repeat(2)[::2]):
        told_of = message(ValueError, lambda out=out: OPS.elementwise_chain.out([x], add, [], out=out))
        assert "does not fit into what is given" in told_of
    with pytest.raises(RuntimeError, match="must match"):
        run([x, x[:5]], add, [])
    with pytest.raises(ValueError, match="1 to 8 inputs, not 0"):
        chain([], add, [])
    with pytest.raises(ValueError, match="99 is no number of a set"):
        run([x], add, [], 99)


def test_the_number_of_threads_changes_no_bit() -> None:
    before = torch.get_num_threads()
    x, one = torch.randn(130, 1001), torch.randn(130, 1)
    program = [*line(Code.MUL, 0, 1), *line(Code.TANH, 2), *line(Code.EXP, 3), *line(Code.SIN, 4)]
    wanted = run([x, one], program, [])
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(run([x, one], program, []), wanted)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_can_rely_on_its_schema(dtype: torch.dtype) -> None:
    x, row = torch.randn(2, 3, 6).to(dtype), torch.randn(6).to(dtype)
    given = [x, row], [*line(Code.ADD, 0, 1), *line(Code.CLIP, 3, 2)], [0.5]
    assert set(torch.library.opcheck(OPS.elementwise_chain.default, given).values()) == {"SUCCESS"}
    results = torch.library.opcheck(OPS.elementwise_chain.out, given, {"out": torch.empty_like(x)})
    assert set(results.values()) == {"SUCCESS"}


def test_the_door_leaves_to_torch_what_it_cannot_do() -> None:
    x, program = torch.randn(4), line(Code.ADD, 0, 0)
    made = chain([x], program, [])
    assert made is not None and torch.equal(made, x + x)
    assert chain([x.double()], program, []) is None and chain([x, x.half()], program, []) is None
    trained = x.clone().requires_grad_()
    assert chain([x.to("meta")], program, []) is None and chain([trained], program, []) is None
    with torch.no_grad():
        assert chain([trained], program, []) is not None
    doubled = torch.vmap(
        lambda row: composite([row], program, []) if chain([row], program, []) is None else row
    )
    assert torch.equal(doubled(x[:, None]), 2 * x[:, None])


@pytest.mark.parametrize("code", sorted(set(Code)))
def test_plain_ops_have_gradients(code: Code) -> None:
    inputs, program, constants = alone(code, torch.float32)
    x = inputs[0][len(SPECIAL) : len(SPECIAL) + 20].abs().add(0.1).requires_grad_()
    composite([x, *[x.detach() for _ in inputs[1:]]], program, constants).sum().backward()
    assert x.grad is not None and bool(x.grad.isfinite().all())
