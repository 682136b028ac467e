"""The native rotation of heads: every set of instructions beside float64, and where kernels call it."""

from __future__ import annotations

import sys

import pytest
import tapelab
import torch
from guarded import guarded
from onnx import TensorProto, helper
from opcase import OpCase, const, t
from textmodel import message
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.ops.common.rotary import rotate
from torch_ort_session.runtime.validation import word as layout

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    heads: int = 0,
    *,
    interleaved: bool = False,
    word: Tensor | None = None,
    instructions: int = -1,
) -> Tensor:
    made: Tensor = OPS.rotary.default(x, cos, sin, positions, heads, interleaved, 3, word, instructions)
    return made


def plain(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None, heads: int, interleaved: bool
) -> Tensor:
    """In float64, without any check."""
    x, cos, sin = x.double(), cos.double(), sin.double()
    length = x.shape[1 if x.dim() == 3 else 2]
    if positions is not None:
        if positions.dim() == 1:
            positions = positions + torch.arange(length)[None]
        cos, sin = cos[positions], sin[positions]
    width = 2 * cos.shape[-1]
    if x.dim() == 4:
        return rotate(x, cos.unsqueeze(1), sin.unsqueeze(1), width, interleaved)
    split = x.unflatten(2, (heads, -1))
    return rotate(split, cos.unsqueeze(2), sin.unsqueeze(2), width, interleaved).flatten(2)


@pytest.mark.parametrize("instructions", SETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_every_set_of_instructions_gives_what_float64_gives(
    instructions: int, dtype: torch.dtype, interleaved: bool
) -> None:
    torch.manual_seed(0)
    step = torch.finfo(dtype).eps
    for batch, heads, length, size, half in (
        (1, 1, 1, 2, 1),
        (2, 3, 5, 8, 4),
        (1, 4, 1, 128, 64),
        (2, 2, 3, 70, 35),
        (1, 5, 2, 37, 9),
        (0, 2, 3, 8, 4),
        (2, 2, 0, 8, 4),
        (3, 2, 2, 6, 0),
    ):
        cos, sin = torch.randn(11, half).to(dtype), torch.randn(11, half).to(dtype)
        each = torch.randint(11, (batch, length))
        for positions in (each, torch.tensor([4])):
            four = torch.randn(batch, heads, length, size).to(dtype)
            turned = torch.randn(batch, length, heads, size).to(dtype).transpose(1, 2)
            three = torch.randn(batch, length, heads * size).to(dtype)
            apart = torch.randn(batch, length, 3, heads * size).to(dtype)[:, :, 1]
            for x in (four, turned, three, apart):
                got = rotary(
                    x, cos, sin, positions, heads, interleaved=interleaved, instructions=instructions
                )
                assert got.dtype is dtype and got.is_contiguous() and got.shape == x.shape
                wanted = plain(x, cos, sin, positions, heads, interleaved)
                torch.testing.assert_close(got.double(), wanted, rtol=step, atol=4 * max(step, 1e-6))
                if x.dim() == 4:
                    assert torch.equal(got[..., 2 * half :], x[..., 2 * half :])
        angles = torch.randn(2, batch, length, half).to(dtype)
        got = rotary(three, *angles, None, heads, interleaved=interleaved, instructions=instructions)
        wanted = plain(three, *angles, None, heads, interleaved)
        torch.testing.assert_close(got.double(), wanted, rtol=step, atol=4 * max(step, 1e-6))


@pytest.mark.parametrize("base", [-3, 0, 2, 9, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("counted", [True, False])
def test_m11_positions_are_checked_as_indices_are(base: int, counted: bool) -> None:
    x, angles = torch.randn(2, 3, 8), torch.randn(2, 4, 4)
    base_of = torch.tensor([base])
    positions = base_of + torch.arange(3).expand(2, 3)
    ours, theirs = (torch.zeros(layout.SIZE, dtype=torch.int32) for _ in range(2))
    got = rotary(x, *angles, base_of if counted else positions, 1, word=ours)
    safe = layout.check_range(positions, 0, 3, layout.Flag.INDEX, 3, theirs)
    assert torch.equal(ours, theirs)
    torch.testing.assert_close(got, plain(x, *angles, safe, 1, False).float())
    assert torch.equal(rotary(x, *angles, base_of if counted else positions, 1), got)


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with mprotect")
def test_nothing_behind_a_tensor_is_read() -> None:
    guarded("""
        for instructions in range(len(ops.cpu_instructions())):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                for half, size in ((1, 2), (5, 10), (8, 16), (16, 33), (33, 66)):
                    x = at_the_end(torch.ones(1, 2, 3, size, dtype=dtype))
                    cos, sin = (at_the_end(torch.ones(4, half, dtype=dtype)) for _ in range(2))
                    out = at_the_end(torch.empty(1, 2, 3, size, dtype=dtype))
                    positions = at_the_end(torch.tensor([[1, 3, 7]]))
                    for interleaved in (False, True):
                        given = x, cos, sin, positions, 0, interleaved, 0, None, instructions
                        ops.rotary.out(*given, out=out)
                        assert out.sum() == 6 * (2 * half + size - 2 * half)
        print("done")
    """)


def test_what_does_not_fit_is_refused() -> None:
    x, cos, each = torch.randn(2, 3, 8), torch.randn(5, 4), torch.zeros(2, 3, dtype=torch.int64)

    def told(*given: object, **more: object) -> str:
        return message((ValueError, IndexError), lambda: rotary(*given, **more))  # type: ignore[arg-type]

    assert "not float32, float16 or bfloat16" in told(x.double(), cos.double(), cos.double(), each, 1)
    assert "neither [B, H, L, D] nor [B, L, H * D]" in told(x[0], cos, cos, each, 1)
    assert "of 3 heads" in told(x, cos, cos, each, 3)
    assert "do not lie side by side" in told(x.transpose(1, 2), cos, cos, each, 1)
    for wrong in (cos.half(), cos[1:], cos.t().contiguous().t()):
        assert "not contiguous, of one shape and of the type of x" in told(x, cos, wrong, each, 1)
    assert "8 of 4 features cannot be turned" in told(x, cos, cos, each, 2)
    assert "cosines for each token, not [5, 4]" in told(x, cos, cos, None, 1)
    assert "the cosines are of rank 3" in told(x, cos[None], cos[None], each, 1)
    for wrong in (each.int(), each[:1], each[:, :2], each[0, :2], each.t().contiguous().t()):
        assert "neither int64 [B, L] nor [1]" in told(x, cos, cos, wrong, 1)
    assert "the indexed axis is empty" in told(x, cos[:0], cos[:0], each, 1)
    assert "not an int32 tensor of" in told(x, cos, cos, each, 1, word=torch.zeros(3, dtype=torch.int32))
    for out in (x[:1], x.half(), x.transpose(1, 2).contiguous().transpose(1, 2)):
        given = x, cos, cos, each, 1, False, 0, None
        told_of = message(ValueError, lambda out=out, given=given: OPS.rotary.out(*given, out=out))
        assert "does not fit into what is given" in told_of


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_can_rely_on_its_schema(dtype: torch.dtype) -> None:
    x, angles = torch.randn(2, 3, 8).to(dtype), torch.randn(2, 5, 4).to(dtype)
    each, word = torch.tensor([[0, 1, 9], [2, 3, 4]]), torch.zeros(layout.SIZE, dtype=torch.int32)
    for given in (
        (x, *angles, each, 1, False, 3, word),
        (x.unsqueeze(1), *angles, torch.tensor([1]), 0, True, 3, None),
        (x, *torch.randn(2, 2, 3, 2).to(dtype), None, 2, False, 0, None),
    ):
        assert set(torch.library.opcheck(OPS.rotary.default, given).values()) == {"SUCCESS"}


def test_the_number_of_threads_changes_no_bit() -> None:
    before = torch.get_num_threads()
    x, angles, each = torch.randn(2, 70, 512), torch.randn(2, 70, 32), torch.arange(70).expand(2, -1)
    wanted = rotary(x, *angles, each.contiguous(), 8)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(rotary(x, *angles, each.contiguous(), 8), wanted)
    finally:
        torch.set_num_threads(before)


IDS = const([[0, 2, 1], [4, 3, 3]], "int64")
CASES = [
    OpCase("RotaryEmbedding", [t(2, 3, 32), t(5, 4), t(5, 4), IDS], {"num_heads": 4}, opset=23, id="onnx"),
    OpCase("RotaryEmbedding", [t(2, 4, 3, 8), t(2, 3, 4), t(2, 3, 4)], opset=23, id="no positions"),
    OpCase(
        "RotaryEmbedding",
        [t(2, 3, 32), const([1], "int64"), t(5, 4), t(5, 4)],
        domain="com.microsoft",
        opset=1,
        id="microsoft",
    ),
]


@tapelab.needs_extension
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_recording_has_one_call_for_it(case: OpCase) -> None:
    session = tos.load(case.model("float32", case.opset or 23))
    plainly = tos.load(case.model("float32", case.opset or 23), options=tos.Options(capture="off"))
    for draw in range(5):
        feeds = case.feeds("float32", draw)
        torch.testing.assert_close(session.run(None, feeds)[0], plainly.run(None, feeds)[0])
    assert session.stats()["replays"]
    held = (entry.captured for _, entry in session._engine.state.dispatcher.everything())
    (whole,) = (captured.whole for captured in held if captured is not None)
    assert whole.stats.calls == 1


@tapelab.needs_extension
def test_m11_a_bad_position_of_a_replay_names_the_node() -> None:
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8]),
        helper.make_tensor_value_info("p", TensorProto.INT64, [1]),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 4]) for name in "cs"),
    ]
    node = helper.make_node("RotaryEmbedding", list("xpcs"), ["y"], domain="com.microsoft", name="turn")
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", 0, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    session = tos.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    x, angles = torch.randn(1, 2, 8), torch.randn(2, 5, 4)

    def run(position: int) -> Tensor:
        feeds = {"x": x, "p": torch.tensor([position]), "c": angles[0], "s": angles[1]}
        made: Tensor = session.run(None, feeds)[0]
        return made

    for _ in range(4):
        run(1)
    replays = session.stats()["replays"]
    with pytest.raises(tos.DeviceIndexError) as caught:
        run(4)
    assert caught.value.node == "turn" and caught.value.value == 5
    wanted = plain(x, *angles, torch.tensor([[2, 3]]), 1, False).float()
    torch.testing.assert_close(run(2), wanted)
    assert session.stats()["replays"] > replays


class Turned(torch.nn.Module):
    cos: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cos", torch.randn(5, 4))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return rotary(2 * x, self.cos, self.cos, positions, 2)


def test_it_is_part_of_an_exported_and_of_a_compiled_graph() -> None:
    x, module, positions = torch.randn(1, 3, 16), Turned(), torch.tensor([[0, 4, 2]])
    exported = torch.export.export(module, (x, positions))
    assert "torch_ort_session.rotary.default" in [str(node.target) for node in exported.graph.nodes]
    wanted = plain(2 * x, module.cos, module.cos, positions, 2, False).float()
    torch.testing.assert_close(exported.module()(x, positions), wanted)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, positions), wanted)
