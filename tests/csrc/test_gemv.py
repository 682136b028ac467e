"""The native product of one row: every set of instructions beside float64."""

from __future__ import annotations

import math
import sys

import pytest
import tapelab
import torch
from guarded import guarded
from opcase import OpCase, t
from textmodel import message
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.ops.common.rows import row_product

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
ROUNDING = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def gemv(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, instructions: int = -1) -> Tensor:
    return OPS.gemv.default(x, weight, bias, instructions)


def error(got: Tensor, wanted: Tensor) -> float:
    most = float(wanted.abs().max()) if wanted.numel() else 0.0
    return float((got.double() - wanted).abs().max()) / (most or 1.0) if wanted.numel() else 0.0


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", list(ROUNDING))
def test_every_set_of_instructions_gives_what_float64_gives(instructions: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for rows in (0, 1, 5, 8, 16, 33, 100, 513):
        for columns in (0, 1, 5, 16, 63, 64, 65, 200, 2049):
            x, bias = torch.randn(1, rows).to(dtype), torch.randn(columns).to(dtype)
            for weight in (
                torch.randn(rows, columns).to(dtype),
                torch.randn(columns, rows).to(dtype).t(),
                torch.randn(columns, 2 * rows + 1).to(dtype)[:, 1 : rows + 1].t(),
                torch.randn(rows, columns + 3).to(dtype)[:, 1 : columns + 1],
                torch.randn(2 * rows, 2 * columns).to(dtype)[::2, ::2],
                torch.randn(1, 1).to(dtype).expand(rows, columns),
            ):
                got = gemv(x, weight, bias, instructions=instructions)
                assert got.dtype is dtype and got.shape == (1, columns)
                assert error(got, x.double() @ weight.double() + bias.double()) < ROUNDING[dtype]


@pytest.mark.parametrize("shape", [(40,), (1, 40), (1, 1, 40)])
def test_it_keeps_the_rank_of_the_row(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), torch.randn(40, 7)
    got = gemv(x, weight)
    torch.testing.assert_close(got, x @ weight)
    out = torch.full_like(got, math.nan)
    assert OPS.gemv.out(x, weight, None, out=out) is out
    assert torch.equal(out, got)
    wide = torch.randn(*shape[:-1], 80)[..., ::2]
    torch.testing.assert_close(gemv(wide, weight), wide @ weight)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("turned", [False, True])
def test_what_is_not_finite_stays_so(instructions: int, value: float, turned: bool) -> None:
    for dtype in ROUNDING:
        weight = torch.rand(70, 90).to(dtype) + 1
        x = torch.rand(1, 70).to(dtype) + 1
        laid = weight.t().contiguous().t() if turned else weight.clone()
        laid[33, 17] = value
        got = gemv(x, laid, instructions=instructions)
        wanted = torch.tensor(value, dtype=dtype)
        torch.testing.assert_close(got[0, 17], wanted, equal_nan=True)
        assert got[0, :17].isfinite().all() and got[0, 18:].isfinite().all()
        x[0, 5] = value
        assert not gemv(x, laid, instructions=instructions).isfinite().any()


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with mprotect")
def test_nothing_behind_a_tensor_is_read() -> None:
    guarded("""
        for instructions in range(len(ops.cpu_instructions())):
            for dtype in (torch.float32, torch.bfloat16):
                for rows in (1, 7, 40, 65):
                    for columns in (1, 5, 31, 66):
                        x = at_the_end(torch.ones(1, rows, dtype=dtype))
                        weight = at_the_end(torch.ones(rows, columns, dtype=dtype))
                        bias = at_the_end(torch.ones(columns, dtype=dtype))
                        assert ops.gemv(x, weight, bias, instructions)[0, -1] == rows + 1
                        turned = at_the_end(torch.ones(columns, rows, dtype=dtype)).t()
                        assert ops.gemv(x, turned, bias, instructions)[0, -1] == rows + 1
        print("done")
    """)


def test_what_does_not_fit_is_refused() -> None:
    x, weight, bias = torch.randn(1, 8), torch.randn(8, 5), torch.randn(5)

    def told(*arguments: object) -> str:
        return message(ValueError, lambda: OPS.gemv.default(*arguments))

    assert "not one row" in told(torch.randn(2, 8), weight)
    assert "not one row" in told(torch.zeros(0, 0), torch.zeros(0, 2))
    assert "not one row" in told(torch.zeros(5, 0), torch.zeros(0, 2))
    assert "not one row" in told(x.double(), weight.double())
    assert "not one row" in told(x[0, 0], weight)
    assert "not a matrix of the row's type" in told(x, weight.half())
    assert "not a matrix of the row's type" in told(x, weight[0])
    assert "a row of 8 and a weight of 7 rows" in told(x, weight[1:])
    assert "the bias is not 5 floats" in told(x, weight, bias[1:])
    assert "the bias is not 5 floats" in told(x, weight, bias.half())
    assert "no number of a set" in told(x, weight, bias, 77)
    for out in (torch.empty(5), torch.empty(1, 4), torch.empty(1, 5).half(), torch.empty(1, 10)[:, ::2]):
        assert "does not fit" in message(ValueError, lambda out=out: OPS.gemv.out(x, weight, bias, out=out))


# torch 2.14 means to hide this warning of its own, which it cannot where warnings are errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", list(ROUNDING))
def test_torch_can_rely_on_its_schema(dtype: torch.dtype, grad: bool) -> None:
    x, weight, bias = (torch.randn(s).to(dtype).requires_grad_(grad) for s in ((1, 12), (12, 5), (5,)))
    results = torch.library.opcheck(OPS.gemv.default, (x, weight, bias))
    results |= torch.library.opcheck(OPS.gemv.default, (x.detach(), weight.detach().t().contiguous().t()))
    assert set(results.values()) == {"SUCCESS"}


def test_torch_can_rely_on_the_schema_that_writes() -> None:
    utils = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if hasattr(torch.Tag, "out"):
        assert torch.Tag.out in OPS.gemv.out.tags
        utils += ["test_aot_dispatch_dynamic"]
    arguments = torch.randn(1, 12), torch.randn(12, 5), torch.randn(5)
    results = torch.library.opcheck(OPS.gemv.out, arguments, {"out": torch.empty(1, 5)}, test_utils=utils)
    assert set(results.values()) == {"SUCCESS"}


def test_gradients_are_those_of_the_plain_product() -> None:
    def of(product: object) -> list[Tensor]:
        torch.manual_seed(0)
        leaves = [torch.randn(s, requires_grad=True) for s in ((1, 1, 12), (12, 5), (1, 5))]
        product(*leaves).square().sum().backward()  # type: ignore[operator]
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    torch.testing.assert_close(of(gemv), of(lambda x, weight, bias: x @ weight + bias))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    before = torch.get_num_threads()
    x, weight = torch.randn(1, 300), torch.randn(300, 1000)
    turned = weight.t().contiguous().t()
    wanted = gemv(x, weight), gemv(x, turned)
    try:
        torch.set_num_threads(threads)
        assert torch.equal(gemv(x, weight), wanted[0]) and torch.equal(gemv(x, turned), wanted[1])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_only_one_row_of_a_large_weight_is_served(dtype: torch.dtype) -> None:
    x, weight = torch.randn(1, 1, 256).to(dtype), torch.randn(256, 300).to(dtype)
    got = row_product(x, weight)
    assert got is not None
    assert error(got, x.double() @ weight.double()) < ROUNDING[dtype]
    assert row_product(x.expand(1, 2, 256), weight) is None
    assert row_product(x.float(), weight.float()) is None
    assert row_product(x, weight.float()) is None
    assert row_product(x, weight[:, :8]) is None
    assert row_product(x, weight.requires_grad_()) is None
    with torch.no_grad():
        assert row_product(x, weight) is not None


def recorded_calls(case: OpCase) -> int:
    """How many calls a replay of a model of one op makes; its results are compared on the way."""
    session = tos.load(case.model("float32", case.opset or 18))
    for draw in range(5):
        feeds = case.feeds("float32", draw)
        (y,) = session.run(None, feeds)
        wanted = tos.load(case.model("float32", case.opset or 18), options=tos.Options(capture="off"))
        torch.testing.assert_close(y, wanted.run(None, feeds)[0])
    assert session.stats()["replays"]
    held = (entry.captured for _, entry in session._engine.state.dispatcher.everything())
    (whole,) = (captured.whole for captured in held if captured is not None)
    return int(whole.stats.calls)


@tapelab.needs_extension
@pytest.mark.parametrize(
    "case",
    [
        OpCase("MatMul", [t(1, 1, 256), t(256, 300)], opset=13),
        OpCase("Gemm", [t(1, 256), t(300, 256), t(300)], {"transB": 1}, opset=13),
        OpCase(
            "MatMulNBits",
            [t(1, 1, 64), t(5, 2, 16, low=0, high=256, dtype="uint8"), t(5, 2, low=0.01)],
            {"K": 64, "N": 5, "bits": 4, "block_size": 32},
            domain="com.microsoft",
            opset=1,
        ),
    ],
    ids=lambda case: case.op,
)
def test_a_recording_has_one_call_for_it(case: OpCase) -> None:
    assert recorded_calls(case) == 1


def test_it_is_part_of_a_compiled_graph() -> None:
    x, weight = torch.randn(1, 256), torch.randn(256, 300)
    exported = torch.export.export(Product(weight), (x,))
    targets = [str(node.target) for node in exported.graph.nodes]
    assert "torch_ort_session.gemv.default" in targets
    assert torch.equal(exported.module()(x), gemv(x, weight))


class Product(torch.nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return OPS.gemv.default(x, self.weight)
