"""What looks bad and is not, since an operator gives it a meaning; and numbers that are read on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from badfeeds import Bad, feeds_of, same
from textmodel import load

import torch_ort_session as tos
from torch_ort_session.ops.common.faults import Flag

MS = "com.microsoft"
MEANT = [
    # "Any entries outside the range [-depth, depth-1] will result in all 'off_value'."
    Bad("OneHot", 0, 99, Flag.INDEX),
    Bad("OneHot", 0, -99, Flag.INDEX),
    # "Unlike ONNX Gather, an out-of-range index produces zeros."
    Bad("GatherBlockQuantized", 1, 999, Flag.INDEX, domain=MS),
    # "When mode is circular, the write index is modulo max_sequence_length."
    Bad("TensorScatter", 2, 99, Flag.POSITION, id="circular"),
    # No block is mapped there, so that nothing is written or read.
    Bad("PagedAttention", 7, -1, Flag.INDEX, domain=MS),
    Bad("PagedAttention", 10, -1, Flag.POSITION, domain=MS),
    # "it may have a value outside [0, C)", where ignore_index says so.
    Bad("NegativeLogLikelihoodLoss", 1, -100, Flag.CLASS, id="2d_mean_True_-100"),
    # Floats divide by zero.
    Bad("Div", 1, 0, Flag.DIVISION, dtype="float32"),
    Bad("Mod", 1, 0, Flag.DIVISION, id="fmod", dtype="float32"),
]


@pytest.mark.parametrize("bad", MEANT, ids=str)
def test_what_has_a_meaning_is_no_fault(bad: Bad) -> None:
    model, good, other = feeds_of(bad)
    eager, session = tos.load(model, options=tos.Options(capture="off")), tos.load(model)
    want = [eager.run(None, feed) for feed in (good, other)]
    for _ in range(3):
        for feed, result in zip((good, other), want, strict=True):
            got = session.run(None, feed)
            same([x.nan_to_num(9.0) for x in got], [x.nan_to_num(9.0) for x in result])


I64 = torch.int64
HOST = {
    "TopK": ("g (float[n] x, int64[1] k) => (float[m] y, int64[m] i) { [host] y, i = TopK(x, k) }", [9]),
    "a negative k": (
        "g (float[n] x, int64[1] k) => (float[m] y, int64[m] i) { [host] y, i = TopK(x, k) }",
        [-1],
    ),
    "Expand": ("g (float[n] x, int64[1] k) => (float[m] y) { [host] y = Expand(x, k) }", [3]),
    "Tile": ("g (float[n] x, int64[1] k) => (float[m] y) { [host] y = Tile(x, k) }", [-2]),
    "Reshape": ("g (float[n] x, int64[1] k) => (float[m] y) { [host] y = Reshape(x, k) }", [7]),
    "Split": ("g (float[n] x, int64[2] k) => (float[m] y, float[l] z) { [host] y, z = Split(x, k) }", [3, 4]),
    "Pad": ("g (float[n] x, int64[2] k) => (float[m] y) { [host] y = Pad(x, k) }", [-3, -3]),
    "Squeeze": ("g (float[n] x, int64[1] k) => (float[m] y) { [host] y = Squeeze(x, k) }", [5]),
    "Unsqueeze": ("g (float[n] x, int64[1] k) => (float[m, l] y) { [host] y = Unsqueeze(x, k) }", [5]),
    "ReduceSum": ("g (float[n] x, int64[1] k) => (float[m] y) { [host] y = ReduceSum(x, k) }", [3]),
    "CumSum": ("g (float[n] x, int64 k) => (float[m] y) { [host] y = CumSum(x, k) }", 4),
    "Slice": (
        "g (float[n] x, int64[1] k) => (float[m] y) <int64[1] s = {0}, int64[1] e = {3}>"
        " { [host] y = Slice(x, s, e, k) }",
        [6],
    ),
    "a step of 0": (
        "g (float[n] x, int64[1] k) => (float[m] y) <int64[1] s = {0}, int64[1] e = {3}, int64[1] a = {0}>"
        " { [host] y = Slice(x, s, e, a, k) }",
        [0],
    ),
    "ConstantOfShape": ("g (float[n] x, int64[1] k) => (float[m] y) { [host] y = ConstantOfShape(k) }", [-4]),
    "Range": (
        "g (float[n] x, int64 k) => (int64[m] y) <int64 a = {0}, int64 b = {5}>"
        " { [host] y = Range(a, b, k) }",
        0,
    ),
    "OneHot": (
        "g (float[n] x, int64[1] k) => (float[m, l] y) <float[2] v = {0, 1}>"
        " { i = Cast <to = 7> (x) [host] y = OneHot(i, k, v) }",
        [-2],
    ),
    "SequenceAt": (
        "g (float[n] x, int64 k) => (float[m] y) { s = SequenceConstruct(x, x) [host] y = SequenceAt(s, k) }",
        7,
    ),
    "CenterCropPad": ("g (float[n] x, int64[1] k) => (float[m] y) { [host] y = CenterCropPad(x, k) }", [-5]),
}
"""A model whose input k is read as a number, and what of it is bad."""
GOOD = {
    "Expand": [5], "Reshape": [5], "Split": [2, 3], "Pad": [1, 1], "Squeeze": [0], "Unsqueeze": [0],
    "ReduceSum": [0], "CumSum": 0, "Slice": [0], "Range": 1, "SequenceAt": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", HOST)
def test_a_number_of_the_host_is_refused_by_its_node(name: str) -> None:
    text, bad = HOST[name]
    session = load(text)
    x = torch.arange(1.0, 2.0) if name == "Squeeze" else torch.arange(5.0)
    good = {"x": x, "k": torch.tensor(GOOD.get(name, [2]), dtype=I64)}
    wrong: dict[str, Any] = {"x": x, "k": torch.tensor(bad, dtype=I64)}
    want = session.run(None, good)
    for _ in range(4):
        with pytest.raises(tos.KernelError) as caught:
            session.run(None, wrong)
        assert caught.value.node == "host"
        same(session.run(None, good), want)


def test_compress_leaves_out_what_a_longer_condition_names() -> None:
    session = load("g (float[n] x, bool[k] c) => (float[m] y) { y = Compress(x, c) }")
    for _ in range(3):
        (y,) = session.run(None, {"x": torch.arange(3.0), "c": torch.tensor([True, False, True, True])})
        assert y.tolist() == [0, 2]


@pytest.mark.parametrize("trips", [0, -3, np.iinfo(np.int64).min])
def test_a_loop_with_no_trips_to_make_makes_none(trips: int) -> None:
    session = load(
        "g (float[n] x, int64 m, bool c) => (float[n] y) { y = Loop (m, c, x) <body = b"
        " (int64 i, bool d, float[n] a) => (bool e, float[n] z) { e = Identity(d) z = Add(a, a) }> }"
    )
    feed = {"x": torch.ones(2), "c": torch.tensor(True)}
    for count, result in ((trips, 1.0), (2, 4.0), (trips, 1.0)):
        (y,) = session.run(None, {**feed, "m": torch.tensor(count)})
        assert y.tolist() == [result] * 2
