"""The native normalization of rows: every set of instructions beside float64, and where kernels call it."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import tapelab
import torch
from guarded import guarded
from opcase import OpCase, t
from textmodel import message
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.ops.common.norms import row_norm
from torch_ort_session.ops.microsoft.norm import simplified_layer_normalization
from torch_ort_session.ops.onnx.norm_layer import rms_normalization

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def norm(
    x: Tensor,
    skip: Tensor | None,
    bias: Tensor | None,
    gamma: Tensor,
    *,
    total: bool = False,
    inverse: bool = False,
    instructions: int = -1,
) -> tuple[Tensor, Tensor, Tensor]:
    made: tuple[Tensor, Tensor, Tensor] = OPS.skip_rms_norm.default(
        x, skip, bias, gamma, 1e-5, total, inverse, instructions
    )
    return made


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parts", ["skip and bias", "skip", "bias", ""])
def test_every_set_of_instructions_gives_what_float64_gives(
    instructions: int, dtype: torch.dtype, parts: str
) -> None:
    torch.manual_seed(0)
    for shape in ((1, 1), (3, 7), (2, 16), (0, 5), (2, 2, 63), (1, 64), (5, 257), (70, 1100)):
        x, gamma = torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
        skip = torch.randn(shape).to(dtype) if "skip" in parts else None
        bias = torch.randn(shape[-1]).to(dtype) if "bias" in parts else None
        plain = x if skip is None else x + skip
        plain = plain if bias is None else plain + bias
        exact = plain.double()
        root = torch.rsqrt(exact.square().mean(-1, keepdim=True) + 1e-5)
        wanted = exact * root * gamma.double()
        for total in (True, False) if parts else (False,):
            y, added, inverse = norm(
                x, skip, bias, gamma, total=total, inverse=True, instructions=instructions
            )
            step = torch.finfo(dtype).eps
            torch.testing.assert_close(y.double(), wanted, rtol=max(step, 1e-5), atol=step * 1e-3)
            torch.testing.assert_close(inverse.double(), root, rtol=1e-5, atol=0)
            assert inverse.dtype is torch.float32
            assert torch.equal(added, plain) if total else added.shape == (0,)
            again = norm(x, skip, bias, gamma, instructions=instructions)
            assert torch.equal(again[0], y) and again[2].shape == (0,)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_is_read_and_rounded_as_torch_does(instructions: int, dtype: torch.dtype) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    gamma = torch.ones(2**16, dtype=dtype)
    for skip in (torch.zeros_like(every), torch.full_like(every, 3.14159), every.flip(0)):
        _, added, _ = norm(every[None], skip[None], None, gamma, total=True, instructions=instructions)
        wanted = every + skip
        finite = ~wanted.isnan()
        assert torch.equal(added[0].isnan(), wanted.isnan())
        # A sum of zeros of both signs has the sign that torch gives it.
        assert torch.equal(added[0][finite].view(torch.int16), wanted[finite].view(torch.int16))
        narrow = every[None, :5]
        _, added, _ = norm(narrow, skip[None, :5], None, gamma[:5], total=True, instructions=instructions)
        assert torch.equal(added[0].nan_to_num(), wanted[:5].nan_to_num())


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 40, 69])
def test_what_is_not_finite_stays_in_its_row(instructions: int, value: float, place: int) -> None:
    for dtype in DTYPES:
        x = torch.ones(3, 70, dtype=dtype)
        x[1, place] = value
        y, _, _ = norm(x, None, None, torch.ones(70, dtype=dtype), instructions=instructions)
        assert y[1, place].isnan() and y[[0, 2]].isfinite().all()
        if math.isnan(value):
            assert y[1].isnan().all()


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with mprotect")
def test_rows_without_elements_have_no_mean() -> None:
    y, _, inverse = norm(torch.zeros(3000, 0), None, None, torch.zeros(0), inverse=True)
    assert y.shape == (3000, 0) and inverse.shape == (3000, 1) and inverse.isnan().all()


def test_nothing_behind_a_tensor_is_read() -> None:
    guarded("""
        for instructions in range(len(ops.cpu_instructions())):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                for width in (1, 5, 31, 66, 128):
                    x = at_the_end(torch.ones(2, width, dtype=dtype))
                    row = at_the_end(torch.ones(width, dtype=dtype))
                    y = at_the_end(torch.empty(2, width, dtype=dtype))
                    one, none = at_the_end(torch.empty(2, 1)), torch.empty(0, dtype=dtype)
                    given = x, None, None, row, 0.0, False, True, instructions
                    ops.skip_rms_norm.out(*given, y=y, total=none, inverse=one)
                    assert (y == 1).all() and (one == 1).all()
                    total = at_the_end(torch.empty(2, width, dtype=dtype))
                    given = x, x, row, row, 0.0, True, True, instructions
                    ops.skip_rms_norm.out(*given, y=y, total=total, inverse=one)
                    assert (total == 3).all() and (one - 1 / 3).abs().max() < 1e-6
        print("done")
    """)


def test_what_does_not_fit_is_refused() -> None:
    x, row = torch.randn(2, 8), torch.randn(8)

    def told(*given: object) -> str:
        return message(ValueError, lambda: OPS.skip_rms_norm.default(*given))

    assert "not float32, float16 or bfloat16" in told(x.double(), None, None, row.double(), 0.0, False, False)
    assert "not contiguous rows" in told(x.t(), None, None, row[:2], 0.0, False, False)
    assert "not contiguous rows" in told(x[0, 0], None, None, row, 0.0, False, False)
    assert "gamma is not contiguous of shape [8]" in told(x, None, None, row[1:], 0.0, False, False)
    assert "gamma is not contiguous" in told(x, None, None, row.half(), 0.0, False, False)
    assert "skip is not contiguous of shape [2, 8]" in told(x, x[:1], None, row, 0.0, False, False)
    assert "bias is not contiguous of shape [8]" in told(x, x, x, row, 0.0, False, False)
    assert "a sum is wanted of x alone" in told(x, None, None, row, 0.0, True, False)
    assert "no number of a set" in told(x, None, None, row, 0.0, False, False, 77)
    none, one = torch.empty(0), torch.empty(2, 1)
    for y, total, inverse in ((x[:1], none, one), (x, x, one), (x, none, none), (x, none, one.half())):
        given = {"y": y, "total": total, "inverse": inverse}
        told_of = message(
            ValueError,
            lambda given=given: OPS.skip_rms_norm.out(x, None, None, row, 0.0, False, True, **given),
        )
        assert "do not fit into what is given" in told_of


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_can_rely_on_its_schema(dtype: torch.dtype) -> None:
    x, gamma = torch.randn(2, 3, 12).to(dtype), torch.randn(12).to(dtype)
    for given in ((x, x, gamma, gamma, 1e-5, True, True), (x, None, None, gamma, 1e-5, False, False)):
        results = torch.library.opcheck(OPS.skip_rms_norm.default, given)
        assert set(results.values()) == {"SUCCESS"}


def test_the_number_of_threads_changes_no_bit() -> None:
    before = torch.get_num_threads()
    x, gamma = torch.randn(130, 1000), torch.randn(1000)
    wanted = norm(x, x, gamma, gamma, total=True)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert all(map(torch.equal, norm(x, x, gamma, gamma, total=True), wanted))
    finally:
        torch.set_num_threads(before)


def test_what_it_cannot_do_is_left_to_torch() -> None:
    x, gamma = torch.randn(2, 8), torch.randn(8)
    made = row_norm(x, None, None, gamma, 1e-5)
    assert made is not None
    torch.testing.assert_close(made[0], torch.rms_norm(x, (8,), gamma, 1e-5))
    wide = torch.randn(8, 2).t()
    for given in (
        (x.double(), None, None, gamma.double()),
        (wide, None, None, gamma),
        (x, wide, None, gamma),
        (x, x[:1], None, gamma),
        (x, None, x, gamma),
        (x, None, None, gamma.half()),
        (x.to("meta"), None, None, gamma.to("meta")),
        (x, None, None, gamma.clone().requires_grad_()),
    ):
        assert row_norm(*given, 1e-5) is None
    with torch.no_grad():
        assert row_norm(x, None, None, gamma.clone().requires_grad_(), 1e-5) is not None
    rows = torch.vmap(lambda row: rms_normalization(row, gamma))(x)
    torch.testing.assert_close(rows, rms_normalization(x, gamma))
    with torch.autograd.forward_ad.dual_level():
        assert row_norm(x, None, None, gamma, 1e-5) is None


def test_the_inverse_root_comes_with_the_result() -> None:
    x, gamma = torch.randn(2, 3, 8), torch.randn(8)
    node = SimpleNamespace(wants=lambda place: True)
    y, inverse = simplified_layer_normalization(x, gamma, epsilon=1e-5, ctx=node)
    torch.testing.assert_close(y, rms_normalization(x, gamma, epsilon=1e-5))
    torch.testing.assert_close(inverse, torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))
    y, inverse = simplified_layer_normalization(x, x[0], axis=1, epsilon=1e-5, ctx=node)
    torch.testing.assert_close(inverse, torch.rsqrt(x.square().mean((1, 2), keepdim=True) + 1e-5))


CASES = [
    OpCase("RMSNormalization", [t(3, 64), t(64)], opset=23),
    OpCase(
        "SkipSimplifiedLayerNormalization",
        [t(1, 3, 64), t(1, 3, 64), t(64), t(64)],
        {"epsilon": 1e-5},
        domain="com.microsoft",
        opset=1,
    ),
]


@tapelab.needs_extension
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
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
    x, module = torch.randn(2, 64), Normalized()
    exported = torch.export.export(module, (x,))
    targets = [str(node.target) for node in exported.graph.nodes]
    assert "torch_ort_session.skip_rms_norm.default" in targets
    wanted = torch.rms_norm(2 * x, (64,), module.gamma, 1e-5)
    torch.testing.assert_close(exported.module()(x), wanted)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), wanted)


class Normalized(torch.nn.Module):
    gamma: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gamma", torch.randn(64))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = OPS.skip_rms_norm.default(x, x, None, self.gamma, 1e-5, True, False)[0]
        return y
