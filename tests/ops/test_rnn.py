"""RNN, GRU and LSTM where no oracle computes: the fused path against the steps, and edges of the lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common import recurrent
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.onnx.gru import gru, gru_1
from torch_ort_session.ops.onnx.rnn import lstm, rnn

CTX = KernelContext(
    node=Node(name="n", op="LSTM", domain="", inputs=(), outputs=("y", "h", "c"), attributes={}, since=22),
    device=torch.device("cpu"),
    wanted=(True, True, True),
)


def _weights(gates: int, *, ways: int = 1, batch: int = 3, time: int = 9) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(7)
    shapes = [(time, batch, 4), (ways, gates * 2, 4), (ways, gates * 2, 2), (ways, gates * 4)]
    return [torch.randn(shape, generator=make, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [None, [9, 1, 3], [0, 9, 2]])
def test_fused_layers_equal_the_steps(direction: str, lengths: list[int] | None) -> None:
    ways = 2 if direction == "bidirectional" else 1
    counts = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    runs: list[tuple[Any, int, dict[str, Any]]] = [
        (rnn, 1, {}),
        (gru, 3, {"linear_before_reset": 1}),
        (lstm, 4, {}),
    ]
    for function, gates, attrs in runs:
        x, w, r, b = _weights(gates, ways=ways)
        state = [torch.randn(ways, 3, 2, dtype=torch.float64)] * (2 if function is lstm else 1)
        tail = [None] if function is lstm else []
        fused = function(x, w, r, b, counts, *state, *tail, direction=direction, ctx=CTX, **attrs)
        stepped = function(x, w, r, b, counts, *state, *tail, direction=direction, clip=1e9, ctx=CTX, **attrs)
        for one, other in zip(fused, stepped, strict=True):
            torch.testing.assert_close(one, other)


def test_a_sequence_of_no_steps_leaves_the_state() -> None:
    x, w, r, b = _weights(4)
    h = torch.full((1, 3, 2), 0.5, dtype=torch.float64)
    y, y_h, y_c = lstm(x, w, r, b, torch.tensor([0, 9, 0]), h, h * 2, None, ctx=CTX)
    assert y is not None and y_h is not None and y_c is not None
    assert torch.equal(y[:, :, 0], torch.zeros(9, 1, 2, dtype=torch.float64))
    assert torch.equal(y_h[:, 0], h[:, 0])
    assert torch.equal(y_c[:, 2], 2 * h[:, 0])


def test_no_time_steps_at_all() -> None:
    for function, gates in ((rnn, 1), (gru, 3)):
        x, w, r, b = _weights(gates, time=0)
        y, y_h = function(x, w, r, b, None, None, ctx=CTX)
        assert y is not None and y_h is not None
        assert y.shape == (0, 1, 3, 2)
        assert torch.equal(y_h, torch.zeros(1, 3, 2, dtype=torch.float64))
    x, w, r, b = _weights(4, time=0)
    y, _, y_c = lstm(x, w, r, b, None, None, None, None, ctx=CTX)
    assert y is not None and y_c is not None
    assert y.shape == (0, 1, 3, 2) and y_c.shape == (1, 3, 2)


@pytest.mark.parametrize("time", [0, 1, 2])
def test_results_share_no_memory(time: int) -> None:
    x, w, r, b = _weights(4, time=time)
    h = torch.ones(1, 3, 2, dtype=torch.float64)
    results = lstm(x, w, r, b, None, h, h, None, ctx=CTX)
    storages = [t.untyped_storage().data_ptr() for t in (h, *results) if t is not None and t.numel()]
    assert len(set(storages)) == len(storages)


def test_the_first_gru_reads_its_misspelt_default() -> None:
    x, w, r, b = _weights(3)
    for one, other in zip(
        gru_1(x, w, r, b, None, None, ctx=CTX), gru(x, w, r, b, None, None, ctx=CTX), strict=True
    ):
        assert one is not None and other is not None
        torch.testing.assert_close(one, other)


def test_what_does_not_fit_is_said() -> None:
    x, w, r, b = _weights(4)
    with pytest.raises(ValueError) as directions:
        lstm(x, w, r, b, None, None, None, None, direction="bidirectional", ctx=CTX)
    assert_expected_inline(
        str(directions.value), """W is for 1 directions where direction 'bidirectional' needs 2."""
    )
    with pytest.raises(ValueError) as gates:
        gru(x, w, r, b, None, None, ctx=CTX)
    assert_expected_inline(
        str(gates.value),
        """X [9, 3, 4], W [1, 8, 4] and R [1, 8, 2] do not fit together with 3 gates and hidden_size None.""",
    )
    with pytest.raises(ValueError) as name:
        lstm(x, w, r, b, None, None, None, None, activations=["Sigmoid", "Tanh", "Sine"], ctx=CTX)
    assert_expected_inline(str(name.value), """'sine' is not an activation that RNN, GRU and LSTM define.""")
    with pytest.raises(ValueError) as few:
        lstm(x, w, r, b, None, None, None, None, activations=["Sigmoid"], ctx=CTX)
    assert_expected_inline(str(few.value), """activations names 1 functions where 3 are needed.""")


def test_parameters_in_one_block_lie_as_cudnn_has_them() -> None:
    """Matrices of each direction, then biases, without a gap: what a CUDA device is given."""
    _, w, r, b = _weights(4, ways=2)
    first, second, biases = recurrent._in_one_block(w, r, b.reshape(4, -1))
    assert biases is not None
    assert torch.equal(first, w) and torch.equal(second, r) and torch.equal(biases.reshape(2, -1), b)
    order = [first[0], second[0], first[1], second[1], *biases]
    places = [tensor.data_ptr() for tensor in order]
    sizes = [tensor.nbytes for tensor in order]
    assert places == [places[0] + sum(sizes[:i]) for i in range(len(order))]
    assert all(tensor.is_contiguous() for tensor in order)
