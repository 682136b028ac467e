"""Native activations: every set of instructions beside float64, and where kernels call them."""

from __future__ import annotations

import math
import sys

import pytest
import tapelab
import torch
import torch.nn.functional as F
from guarded import guarded
from opcase import OpCase, t
from textmodel import message
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.ops.common.gates import Gate, activated
from torch_ort_session.ops.microsoft.gelu import quick_gelu

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
STEPS = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def activate(
    kind: Gate,
    x: Tensor,
    up: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    halves: bool = False,
    numbers: tuple[float, float, float] = (1.0, 0.0, 0.0),
    rounded: bool = False,
    instructions: int = -1,
) -> Tensor:
    made: Tensor = OPS.activate.default(x, up, bias, int(kind), halves, *numbers, rounded, instructions)
    return made


def exact(kind: Gate, x: Tensor, alpha: float = 1.0) -> Tensor:
    """The activation in float64."""
    if kind is Gate.SIGMOID:
        return x.double() * torch.sigmoid(x.double() * alpha)
    return F.gelu(x.double(), approximate="tanh" if kind is Gate.TANH_GELU else "none")


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("kind", list(Gate))
def test_each_activation_is_near_float64_everywhere(instructions: int, kind: Gate) -> None:
    x = torch.cat(
        (torch.linspace(-30, 30, 20001), torch.logspace(-38, 38, 3001), -torch.logspace(-38, 38, 3001))
    )
    got = activate(kind, x, numbers=(1.702, 0.0, 0.0), instructions=instructions)
    wanted = exact(kind, x, 1.702)
    torch.testing.assert_close(got.double(), wanted, rtol=3e-7, atol=6e-7)
    # What is left of a row, number by number, is as the rest of it.
    apart = torch.cat([activate(kind, part, numbers=(1.702, 0.0, 0.0)) for part in x[:200].split(3)])
    torch.testing.assert_close(apart, got[:200], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("kind", list(Gate))
@pytest.mark.parametrize("count", [1, 3, 40])
def test_what_is_not_finite_is_as_by_torch(instructions: int, kind: Gate, count: int) -> None:
    for dtype in DTYPES:
        for value in (math.nan, math.inf, -math.inf):
            x = torch.full((count,), value, dtype=dtype)
            got = activate(kind, x, instructions=instructions)
            if value == math.inf:
                assert bool((got == math.inf).all())
            else:
                assert bool(got.isnan().all())
            cut = activate(kind, x, x, numbers=(1.0, 0.0, 2.0), instructions=instructions)
            assert bool(cut.isnan().all()) == math.isnan(value) or value == -math.inf


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", list(Gate))
def test_sums_and_products_are_those_of_plain_ops(instructions: int, dtype: torch.dtype, kind: Gate) -> None:
    torch.manual_seed(0)
    for shape in ((1,), (3, 6), (2, 3, 38), (0, 4), (2, 0), (70, 514)):
        x, up, bias = (
            torch.randn(shape).to(dtype),
            torch.randn(shape).to(dtype),
            torch.randn(shape[-1]).to(dtype),
        )
        near = {"rtol": STEPS[dtype], "atol": STEPS[dtype]}
        got = activate(kind, x, None, bias, instructions=instructions)
        torch.testing.assert_close(got.double(), exact(kind, x + bias), **near)
        got = activate(kind, x, up, numbers=(1.5, 0.25, 0.75), instructions=instructions)
        gate, other = x.clamp(max=0.75), up.clamp(-0.75, 0.75).double() + 0.25
        torch.testing.assert_close(got.double(), exact(kind, gate, 1.5) * other, **near)
        got = activate(kind, x, up, rounded=True, instructions=instructions)
        torch.testing.assert_close(got.double(), exact(kind, x).to(dtype).double() * up.double(), **near)
        if shape[-1] % 2 == 0:
            got = activate(kind, x, None, bias, halves=True, instructions=instructions)
            first, second = (x + bias).chunk(2, -1)
            gate, other = (first, second) if kind is Gate.SIGMOID else (second, first)
            torch.testing.assert_close(got.double(), exact(kind, gate) * other.double(), **near)


def test_strides_do_not_matter() -> None:
    torch.manual_seed(0)
    wide = torch.randn(4, 5, 30)
    for x in (wide[..., :10], wide[:, 1:, 10:20], wide[..., ::3], wide.transpose(1, 2), wide[:, :1, :7]):
        up = x.flip(0)
        assert torch.equal(
            activate(Gate.SIGMOID, x, up), activate(Gate.SIGMOID, x.contiguous(), up.contiguous())
        )
        assert torch.equal(activate(Gate.GELU, up, x), activate(Gate.GELU, up.contiguous(), x.contiguous()))
    halves = wide[:, ::2, 2:14]
    assert torch.equal(
        activate(Gate.GELU, halves, halves=True), activate(Gate.GELU, halves.contiguous(), halves=True)
    )


def test_a_result_may_lie_where_its_argument_lies() -> None:
    x, up = torch.randn(3, 77), torch.randn(3, 77)
    for given in ((x, up), (x, None)):
        wanted = activate(Gate.SIGMOID, *given)
        place = x.clone()
        OPS.activate.out(place, given[1], None, 2, False, 1.0, 0.0, 0.0, False, out=place)
        assert torch.equal(place, wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with mprotect")
def test_nothing_behind_a_tensor_is_read() -> None:
    guarded("""
        for instructions in range(len(ops.cpu_instructions())):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                for width in (2, 6, 32, 66):
                    x = at_the_end(torch.ones(2, width, dtype=dtype))
                    row = at_the_end(torch.ones(width, dtype=dtype))
                    for kind in range(3):
                        for up, bias, halves in ((x, None, False), (None, row, False), (None, row, True)):
                            out = at_the_end(torch.empty(2, width // 2 if halves else width, dtype=dtype))
                            given = x, up, bias, kind, halves, 1.0, 0.0, 0.0, False, instructions
                            ops.activate.out(*given, out=out)
                            assert (out > 0.5).all()
        print("done")
    """)


def test_what_does_not_fit_is_refused() -> None:
    x, row = torch.randn(2, 6), torch.randn(6)

    def told(*given: object, halves: bool = False, kind: int = 0) -> str:
        numbers = (1.0, 0.0, 0.0, False)
        return message(ValueError, lambda: OPS.activate.default(*given, kind, halves, *numbers))

    assert "not float32, float16 or bfloat16" in told(x.double(), None, None)
    assert "x has no rows" in told(x[0, 0], None, None)
    assert "3 is no number of an activation" in told(x, None, None, kind=3)
    assert "halves are those of an even number" in told(x[:, :5], None, None, halves=True)
    assert "without another factor" in told(x, x, None, halves=True)
    for wrong in (x[:1], x.half()):
        assert "the other factor is not of the shape" in told(x, wrong, None)
    for wrong in (row[1:], row.half(), x, row.repeat(2)[::2]):
        assert "the bias is not a contiguous row" in told(x, None, wrong)
    assert "the bias is not a contiguous row" in told(x, x, row)
    for out in (x[:1], x.half(), x.t().contiguous().t()):
        given = x, None, None, 0, False, 1.0, 0.0, 0.0, False
        told_of = message(ValueError, lambda out=out, given=given: OPS.activate.out(*given, out=out))
        assert "does not fit into what is given" in told_of


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_can_rely_on_its_schema(dtype: torch.dtype) -> None:
    x, row = torch.randn(2, 3, 6).to(dtype), torch.randn(6).to(dtype)
    for given in ((x, x, None, 2, False), (x, None, row, 0, True), (x, None, None, 1, False)):
        results = torch.library.opcheck(OPS.activate.default, (*given, 1.0, 0.0, 0.0, False))
        assert set(results.values()) == {"SUCCESS"}


def test_the_number_of_threads_changes_no_bit() -> None:
    before = torch.get_num_threads()
    x = torch.randn(130, 1000)
    wanted = activate(Gate.SIGMOID, x, x)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(activate(Gate.SIGMOID, x, x), wanted)
    finally:
        torch.set_num_threads(before)


def test_what_it_cannot_do_is_left_to_torch() -> None:
    x, row = torch.randn(2, 8), torch.randn(8)
    assert activated(Gate.GELU, x, bias=row) is not None
    for given in ((x.double(), None, None), (x, x[:1], None), (x, x.half(), None), (x, None, row.half())):
        assert activated(Gate.GELU, *given) is None
    for given in ((x, None, x), (x.to("meta"), None, None), (x.clone().requires_grad_(), None, None)):
        assert activated(Gate.GELU, *given) is None
    assert activated(Gate.GELU, x[:, :7], halves=True) is None
    rows = torch.vmap(quick_gelu)(x)
    torch.testing.assert_close(rows, quick_gelu(x))


X, LINE = t(2, 3, 8), t(8)
CASES = [
    OpCase("BiasGelu", [X, LINE], domain="com.microsoft", opset=1),
    OpCase("FastGelu", [X, LINE], domain="com.microsoft", opset=1),
    OpCase("QuickGelu", [X], domain="com.microsoft", opset=1),
    OpCase("SwiGLU", [X, X], domain="com.microsoft", opset=1),
    OpCase("SwiGLU", [X], {"limit": 0.5}, domain="com.microsoft", opset=1, id="SwiGLU of halves"),
    OpCase("BiasSplitGelu", [X, LINE], domain="com.microsoft", opset=1),
    OpCase("Gelu", [X], {"approximate": "tanh"}, opset=20),
    OpCase("Swish", [X], {"alpha": 2.0}, opset=24),
]


@tapelab.needs_extension
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id or case.op)
def test_a_recording_has_one_call_for_it(case: OpCase) -> None:
    session = tos.load(case.model("float32", case.opset or 18))
    plain = tos.load(case.model("float32", case.opset or 18), options=tos.Options(capture="off"))
    for draw in range(5):
        feeds = case.feeds("float32", draw)
        torch.testing.assert_close(session.run(None, feeds)[0], plain.run(None, feeds)[0])
    assert session.stats()["replays"]
    held = (entry.captured for _, entry in session._engine.state.dispatcher.everything())
    (whole,) = (captured.whole for captured in held if captured is not None)
    assert whole.stats.calls == 1


def test_it_is_part_of_an_exported_and_of_a_compiled_graph() -> None:
    x = torch.randn(2, 6)
    exported = torch.export.export(Activated(), (x,))
    assert "torch_ort_session.activate.default" in [str(node.target) for node in exported.graph.nodes]
    wanted = F.silu(x) * 2 * x
    torch.testing.assert_close(exported.module()(x), wanted)
    torch.testing.assert_close(torch.compile(Activated(), backend="aot_eager", fullgraph=True)(x), wanted)


class Activated(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return activate(Gate.SIGMOID, x, 2 * x)
