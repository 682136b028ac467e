"""Native layers of LSTM and GRU: every set of instructions beside the steps in float64."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import tapelab
import torch
from guarded import guarded
from opcase import OpCase, const, t
from textmodel import message
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops import native
from torch_ort_session.ops.common import recurrent, recurrent_cells
from torch_ort_session.ops.common.recurrent_activations import activations, by_direction, clipped
from torch_ort_session.ops.onnx import recurrent_native

pytestmark = pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")

OPS = torch.ops.torch_ort_session
SETS = range(len(OPS.cpu_instructions()) if native.status().usable and native.load() else 1)
GATES = {"lstm": 4, "gru": 3, "gru_linear": 3}
DIRECTIONS = ("forward", "reverse", "bidirectional")


def drawn(
    kind: str, time: int, batch: int, hidden: int, direction: str, width: int = 5
) -> tuple[Tensor, tuple[Tensor, ...], list[Tensor]]:
    """The sequence, the first states, and W, R and B."""
    ways, rows = 2 if direction == "bidirectional" else 1, GATES[kind] * hidden
    states = tuple(torch.randn(ways, batch, hidden) for _ in range(2 if kind == "lstm" else 1))
    weights = [torch.randn(ways, rows, width), torch.randn(ways, rows, hidden), torch.randn(ways, 2 * rows)]
    return torch.randn(time, batch, width), states, [weights[0], weights[1] * hidden**-0.5, weights[2]]


def stepped(
    kind: str,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    direction: str,
    lengths: Tensor | None = None,
    clip: float | None = None,
) -> list[Tensor]:
    """Every step by torch's ops, in float64."""
    w, r, b = (None if part is None else part.double() for part in weights)
    assert w is not None and r is not None
    names = ["sigmoid", "tanh", "tanh"] if kind == "lstm" else ["sigmoid", "tanh"]
    functions = activations(names * w.shape[0], None, None)
    functions = [f if kind == "lstm" and i % 3 == 2 else clipped(f, clip) for i, f in enumerate(functions)]
    cells = []
    for at, own in by_direction(functions, w.shape[0]):
        part = None if b is None else b[at]
        if kind == "lstm":
            cells.append(recurrent_cells.lstm_cell(w[at], r[at], part, None, own, False))
        else:
            made = recurrent_cells.gru_cell if kind == "gru" else recurrent_cells.gru_cell_linear
            cells.append(made(w[at], r[at], part, own))
    y, ends = recurrent.unroll(
        cells, x.double(), tuple(state.double() for state in states), direction, lengths
    )
    return [y, *ends]


def layer(
    kind: str,
    x: Tensor,
    states: tuple[Tensor, ...],
    weights: Sequence[Any],
    direction: str,
    lengths: Tensor | None = None,
    clip: float | None = None,
) -> list[Tensor]:
    given = (x, states, weights, direction, lengths, clip)
    if kind == "lstm":
        made = recurrent_native.lstm_layer(*given)
    else:
        made = recurrent_native.gru_layer(*given, kind == "gru_linear")
    assert made is not None
    return [made[0], *made[1]]


def close(got: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=2e-6)


@pytest.fixture(params=SETS)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A set of instructions, which layers are asked for by."""
    real = native.device_op

    def asked(name: str, *tensors: Tensor | None) -> Any:
        op = real(name, *tensors)
        return None if op is None else lambda *arguments: op(*arguments, request.param)

    monkeypatch.setattr(native, "device_op", asked)
    return int(request.param)


@pytest.mark.parametrize("kind", GATES)
def test_every_set_of_instructions_gives_what_the_steps_give(instructions: int, kind: str) -> None:
    torch.manual_seed(instructions)
    sizes = itertools.product((1, 2, 7), (1, 2, 3, 5, 9), (1, 2, 15, 16, 17, 33, 70))
    for number, (time, batch, hidden) in enumerate(sizes):
        direction = DIRECTIONS[number % 3]
        x, states, weights = drawn(kind, time, batch, hidden, direction)
        bias = weights[2] if number % 4 else None
        close(
            layer(kind, x, states, [*weights[:2], bias], direction),
            stepped(kind, x, states, [*weights[:2], bias], direction),
        )


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sequences_end_where_their_lengths_say(kind: str, direction: str) -> None:
    x, states, weights = drawn(kind, 6, 5, 9, direction)
    for lengths in ([6, 0, 1, 5, 3], [0, 0, 0, 0, 0], [9, -1, 6, 2, 2]):
        for dtype in (torch.int32, torch.int64):
            counts = torch.tensor(lengths, dtype=dtype)
            within = counts.clamp(0, 6)
            close(
                layer(kind, x, states, weights, direction, counts),
                stepped(kind, x, states, weights, direction, within),
            )


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("clip", [0.1, 1.5])
def test_what_goes_into_a_function_is_bounded(kind: str, clip: float) -> None:
    x, states, weights = drawn(kind, 4, 3, 21, "bidirectional")
    got = layer(kind, x, states, weights, "bidirectional", clip=clip)
    close(got, stepped(kind, x, states, weights, "bidirectional", clip=clip))
    free = layer(kind, x, states, weights, "bidirectional")
    assert not torch.allclose(got[0], free[0], atol=1e-2)


def test_functions_are_right_everywhere(instructions: int) -> None:
    """The output gate is open in the first run and the cell's input in the second: sigmoid, then tanh."""
    ends = torch.tensor([0.0, -0.0, 1e-30, -1e-8, 0.624, 0.626, 88.0, -86.0, 1e4, -1e4, math.inf, -math.inf])
    x = torch.cat([torch.linspace(-20, 20, 3001), torch.linspace(-1, 1, 2001), ends])
    none, one = torch.full_like(x, -math.inf), torch.full_like(x, math.inf)
    zeros = torch.zeros(x.numel(), 1, 1)
    for which, function in ((1, torch.sigmoid), (3, torch.tanh)):
        gates = torch.stack([one, one, none, one], 1)
        gates[:, which] = x
        # Every number is a sequence of its own of one hidden value.
        y, _, cell = OPS.lstm_layer.default(
            gates[None],
            torch.zeros(1, 4, 1),
            zeros.movedim(0, 1),
            zeros.movedim(0, 1),
            None,
            0,
            math.inf,
            instructions,
        )
        got = y.flatten() / math.tanh(1.0) if which == 1 else cell.flatten()
        torch.testing.assert_close(got.double(), function(x.double()), rtol=5e-7, atol=1e-38)


def test_what_is_no_number_stays_none(instructions: int) -> None:
    for kind in GATES:
        x, states, weights = drawn(kind, 3, 2, 18, "forward")
        x[1, 0, 2] = math.nan
        y, *finals = layer(kind, x, states, weights, "forward")
        assert y[0].isfinite().all() and y[:, :, 1].isfinite().all()
        assert y[1:, :, 0].isnan().all() and finals[0][:, 0].isnan().all()


@pytest.mark.parametrize("kind", GATES)
def test_nothing_to_do(kind: str) -> None:
    for time, batch, hidden in ((0, 2, 3), (2, 0, 3)):
        x, states, weights = drawn(kind, time, batch, hidden, "bidirectional")
        got = layer(kind, x, states, weights, "bidirectional")
        assert got[0].shape == (time, 2, batch, hidden)
        for state, first in zip(got[1:], states, strict=True):
            assert torch.equal(state, first)
            assert not batch or state.data_ptr() != first.data_ptr()


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with mprotect")
def test_nothing_behind_a_tensor_is_read() -> None:
    guarded("""
        from math import inf
        for instructions in range(len(ops.cpu_instructions())):
            for time, batch, hidden in ((1, 1, 1), (2, 3, 17), (9, 5, 33), (20, 1, 70)):
                for ways in (1, 2):
                    h = at_the_end(torch.zeros(ways, batch, hidden))
                    lengths = at_the_end(torch.full((batch,), time, dtype=torch.int32))
                    r = at_the_end(torch.ones(ways, 4 * hidden, hidden))
                    gates = at_the_end(torch.zeros(time, batch, ways * 4 * hidden))
                    found = ops.lstm_layer(gates, r, h, h, lengths, 2 * (ways - 1), inf, instructions)
                    assert float(found[0].abs().max()) == 0.0
                    r = at_the_end(torch.ones(ways, 3 * hidden, hidden))
                    gates = at_the_end(torch.zeros(time, batch, ways * 3 * hidden))
                    bias = at_the_end(torch.zeros(ways, hidden))
                    for linear in (False, True):
                        found = ops.gru_layer(
                            gates, r, bias, h, lengths, 2 * (ways - 1), inf, linear, instructions
                        )
                        assert float(found[0].abs().max()) == 0.0
        print("done")
    """)


def test_what_does_not_fit_is_refused() -> None:
    gates, r, h = torch.zeros(3, 2, 8), torch.zeros(1, 8, 2), torch.zeros(1, 2, 2)

    def lstm(*arguments: object) -> str:
        return message(ValueError, lambda: OPS.lstm_layer.default(*arguments))

    def gru(*arguments: object) -> str:
        return message(ValueError, lambda: OPS.gru_layer.default(*arguments))

    assert "need three axes" in lstm(gates[0], r, h, h, None, 0, 1.0)
    assert "direction 3 is no number of one" in lstm(gates, r, h, h, None, 3, 1.0)
    assert "in 2 direction(s)" in lstm(gates, r, h, h, None, 2, 1.0)
    assert "not floats that fit" in lstm(gates, r[:, 1:], h, h, None, 0, 1.0)
    assert "not floats that fit" in lstm(gates.double(), r, h, h, None, 0, 1.0)
    assert "the cell [1, 2, 1] is not as the state" in lstm(gates, r, h, h[..., :1], None, 0, 1.0)
    assert "one int32 for each of 2 sequences" in lstm(gates, r, h, h, torch.zeros(2), 0, 1.0)
    assert "one int32 for each of 2 sequences" in lstm(gates, r, h, h, torch.zeros(3).int(), 0, 1.0)
    assert "no number of a set" in lstm(gates, r, h, h, None, 0, 1.0, 77)
    narrow = gates[..., :6], r[:, :6]
    assert "the hidden gate's bias [2]" in gru(*narrow, torch.zeros(2), h, None, 0, 1.0, True)


@pytest.mark.parametrize("ways", [1, 2])
def test_torch_can_rely_on_its_schema(ways: int) -> None:
    h, lengths = torch.randn(ways, 3, 2), torch.tensor([4, 2, 0], dtype=torch.int32)
    r = torch.randn(ways, 8, 2)
    given = torch.randn(4, 3, ways * 8), r, h, h, lengths, 2 * (ways - 1), 2.0
    results = torch.library.opcheck(OPS.lstm_layer.default, given)
    given_gru = torch.randn(4, 3, ways * 6), r[:, :6], r[:, 0], h, lengths, 2 * (ways - 1), 2.0, False
    results |= torch.library.opcheck(OPS.gru_layer.default, given_gru)
    assert set(results.values()) == {"SUCCESS"}


def test_gradients_take_the_other_path() -> None:
    x, states, weights = drawn("lstm", 3, 2, 4, "forward")
    given = (x, states, weights, "forward", None, None)
    assert recurrent_native.lstm_layer(*given) is not None
    x.requires_grad_()
    assert recurrent_native.lstm_layer(*given) is None
    with torch.no_grad():
        assert recurrent_native.lstm_layer(*given) is not None
    assert recurrent_native.lstm_layer(x.detach().double(), *given[1:]) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_changes_no_bit(threads: int) -> None:
    before = torch.get_num_threads()
    x, states, weights = drawn("lstm", 30, 2, 80, "bidirectional")
    wanted = layer("lstm", x, states, weights, "bidirectional")
    try:
        torch.set_num_threads(threads)
        got = layer("lstm", x, states, weights, "bidirectional")
        assert all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True))
    finally:
        torch.set_num_threads(before)


@tapelab.needs_extension
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_a_recording_is_a_few_calls(op: str) -> None:
    """The sum of the biases, the input's product, the layer: none of them a step or a copy of the weights."""
    rows = {"LSTM": 4, "GRU": 3}[op] * 8
    inputs = [t(12, 3, 5), t(2, rows, 5), t(2, rows, 8), t(2, 2 * rows), const([12, 3, 7], "int32")]
    case = OpCase(op, inputs, attrs={"hidden_size": 8, "direction": "bidirectional"}, outputs=2)
    session = tos.load(case.model("float32", 22))
    for draw in range(5):
        session.run(None, case.feeds("float32", draw))
    assert session.stats()["replays"]
    held = (entry.captured for _, entry in session._engine.state.dispatcher.everything())
    (whole,) = (captured.whole for captured in held if captured is not None)
    assert whole.stats.calls <= 6
