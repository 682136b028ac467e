"""Convolutions on a tape: results in slots, weights that are packed once, and the same bits."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from textmodel import model
from torch import Tensor

import torch_ort_session as tos
from torch_ort_session.ops.onnx.images.layout import channels_last
from torch_ort_session.runtime.recorders.devices import unavailable
from torch_ort_session.runtime.recorders.tape import prepack as packing
from torch_ort_session.runtime.recorders.tape.prepack import Prepacked
from torch_ort_session.runtime.recorders.tape.recorder import TapeRecording

pytestmark = pytest.mark.skipif(bool(unavailable(torch.device("cpu"))), reason="the extension is not built")

PACKED = "packed weight bytes"


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def session_of(shape: tuple[int, ...], w: Tensor, attributes: str = "", **options: Any) -> tos.Session:
    """A model of a convolution between two other steps."""
    text = (
        f"g (float[{','.join(map(str, shape))}] x) => (float[{','.join('abcd'[: len(shape)])}] y)"
        f" {{ p = Sigmoid(x) q = Conv {attributes} (p, w, b) y = Neg(q) }}"
    )
    proto = model(text, weights={"w": w, "b": noise(w.shape[0], seed=9)})
    return tos.load(proto, options=tos.Options(**options))


def convolved(session: tos.Session) -> bool:
    """Whether the convolution itself is recorded, whose result has no slot."""
    (entry,) = (entry for _, entry in session._engine.state.dispatcher.everything())
    assert entry.captured is not None
    (stage,) = entry.captured.regions
    assert isinstance(stage.recording, TapeRecording)
    tape = stage.recording._tape
    names = {tape.name(place) for place in range(len(tape))}
    return not names.isdisjoint(("aten::convolution", "mkldnn::_convolution_pointwise"))


# The input's shape, the weight's, attributes, and whether the weight is packed.
KINDS = {
    "3x3": ((1, 64, 30, 20), (32, 64, 3, 3), "<pads = [1, 1, 1, 1]>", True),
    "of several images": ((3, 8, 9, 9), (16, 8, 3, 3), "", True),
    "depthwise": ((1, 24, 14, 14), (24, 1, 3, 3), "<group = 24, pads = [1, 1, 1, 1]>", True),
    "grouped": ((1, 12, 14, 14), (8, 6, 3, 3), "<group = 2>", True),
    "strided": ((1, 3, 90, 91), (8, 3, 3, 3), "<strides = [2, 3]>", True),
    "dilated": ((1, 8, 60, 60), (8, 8, 3, 3), "<dilations = [2, 2]>", True),
    "one channel": ((1, 1, 150, 150), (8, 1, 3, 3), "", True),
    "one result channel": ((1, 32, 40, 40), (1, 32, 3, 3), "", True),
    "padded on one side": ((1, 16, 40, 40), (8, 16, 3, 3), "<pads = [0, 0, 1, 1]>", True),
    "large windows": ((1, 8, 12, 12), (4, 8, 5, 5), "", True),
    "small": ((1, 8, 9, 9), (8, 8, 3, 3), "", False),
    "small, with a large weight": ((1, 32, 6, 6), (64, 32, 3, 3), "", False),
    "1x1": ((1, 16, 24, 24), (8, 16, 1, 1), "", False),
    "lines": ((1, 16, 2000), (8, 16, 3), "<pads = [2, 0]>", True),
    "depthwise lines": ((2, 16, 40), (16, 1, 5), "<group = 16, strides = [2]>", True),
    "short lines": ((1, 64, 4), (64, 64, 3), "", False),
}


@pytest.mark.parametrize("shape, weight, attributes, packed", KINDS.values(), ids=KINDS)
def test_m13_results_of_convolutions_lie_in_slots(
    shape: tuple[int, ...], weight: tuple[int, ...], attributes: str, packed: bool
) -> None:
    w = noise(*weight, seed=1)
    eager = session_of(shape, w, attributes, capture="off")
    session = session_of(shape, w, attributes, capture="required")
    for seed in range(5):
        feed = {"x": noise(*shape, seed=seed)}
        (ours,), (theirs,) = session.run(None, feed), eager.run(None, feed)
        assert torch.equal(ours, theirs)
    assert session.stats()["replays"] > 0
    assert not convolved(session)
    assert session.stats()[PACKED] == (w.nbytes if packed else 0)


def test_m13_late_reads_would_show() -> None:
    w, shape = noise(8, 8, 3, 3, seed=1), (1, 8, 60, 60)
    eager = session_of(shape, w, capture="off")
    session = session_of(shape, w, capture="required", verify=True)
    for seed in range(5):
        feed = {"x": noise(*shape, seed=seed)}
        assert torch.equal(session.run(None, feed)[0], eager.run(None, feed)[0])
    assert session.stats()["probes"] == 1 and session.stats()["probe mismatches"] == 0


def test_a_weight_that_is_fed_is_not_packed() -> None:
    shape = (1, 8, 60, 60)
    text = "g (float[1,8,60,60] x, float[8,8,3,3] w) => (float[a,b,c,d] y) { p = Sigmoid(x) y = Conv(p, w) }"
    session = tos.load(model(text), options=tos.Options(capture="required"))
    for seed in range(5):
        x, w = noise(*shape, seed=seed), noise(8, 8, 3, 3, seed=seed + 10)
        (y,) = session.run(None, {"x": x, "w": w})
        torch.testing.assert_close(y, torch.conv2d(torch.sigmoid(x), w), rtol=1e-5, atol=1e-5)
    assert session.stats()["replays"] > 0 and session.stats()[PACKED] == 0


def test_m22_captures_share_packed_weights_and_release_them() -> None:
    w = noise(8, 8, 3, 3, seed=1)
    text = "g (float[n,8,h,60] x) => (float[a,b,c,d] y, float[a,b,c,d] z) { y = Conv(x, w) z = Neg(y) }"
    session = tos.load(model(text, weights={"w": w}), options=tos.Options(capture="required"))

    def run(height: int, names: list[str] | None = None) -> None:
        for seed in range(4):
            session.run(names, {"x": noise(1, 8, height, 60, seed=seed)})

    run(60)
    assert session.stats()[PACKED] == w.nbytes
    run(60, ["z"])
    assert session.stats()["plans"] == 2 and session.stats()[PACKED] == w.nbytes
    run(50)
    assert session.stats()["plans"] == 3 and session.stats()[PACKED] == 2 * w.nbytes
    session.release_memory()
    assert session.stats()[PACKED] == 0
    run(60)
    assert session.stats()[PACKED] == w.nbytes


@pytest.mark.parametrize(
    "name, lacking",
    [("_has_sum", lambda: False), ("_same", lambda arguments, result: False)],
    ids=["without the ops", "where bits differ"],
)
def test_else_the_convolution_itself_is_recorded(
    monkeypatch: pytest.MonkeyPatch, name: str, lacking: Any
) -> None:
    monkeypatch.setattr(packing, name, lacking)
    w, shape = noise(8, 8, 3, 3, seed=1), (1, 8, 60, 60)
    eager = session_of(shape, w, capture="off")
    session = session_of(shape, w, capture="required")
    for seed in range(5):
        feed = {"x": noise(*shape, seed=seed)}
        assert torch.equal(session.run(None, feed)[0], eager.run(None, feed)[0])
    assert session.stats()[PACKED] == 0
    assert convolved(session)


def into(pack: Prepacked, x: Tensor, w: Tensor) -> list[packing.OpCall]:
    full = [x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    return pack.into(full, torch.ops.aten.convolution(*full))


def test_what_torch_computes_is_left_to_it_where_it_does_not_tell_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pack, x, w = Prepacked(), channels_last(noise(1, 8, 60, 60)), noise(9, 8, 3, 3)
    with pack.admitting([w]):
        assert into(pack, x, w)
        monkeypatch.setattr(packing, "_backend", lambda full: "")
        assert not into(pack, x, w)


def test_what_else_a_convolution_does_is_kept() -> None:
    pack, x, w = Prepacked(), channels_last(noise(1, 8, 60, 60)), noise(9, 8, 3, 3)
    where = [[0, 0], [1, 1], [1, 1], 1]
    for does, calls in (("none", 2), ("relu", 0)):
        full = [x, w, None, *where, does, [], ""]
        with pack.admitting([w]), torch.no_grad():
            made = torch.ops.mkldnn._convolution_pointwise(*full)
            assert len(pack.summed(full, made)) == calls


# The input's shape, the weight's, attributes.
TRANSPOSED = {
    "images": ((1, 8, 30, 20), (8, 16, 3, 3), "<strides = [2, 2], pads = [1, 1, 1, 1]>"),
    "several": ((3, 8, 30, 20), (8, 16, 3, 3), "<strides = [2, 2], pads = [0, 0, 1, 1]>"),
    "extended": ((1, 8, 30, 20), (8, 16, 3, 3), "<strides = [2, 2], output_padding = [1, 1]>"),
    "lines": ((1, 32, 200), (32, 16, 12), "<strides = [6], pads = [3, 3]>"),
    "depthwise lines": ((1, 512, 43), (512, 1, 3), "<strides = [2], group = 512>"),
}


@pytest.mark.parametrize("shape, weight, attributes", TRANSPOSED.values(), ids=TRANSPOSED)
def test_m13_transposed_convolutions_have_packed_weights(
    shape: tuple[int, ...], weight: tuple[int, ...], attributes: str
) -> None:
    w = noise(*weight, seed=1)
    text = (
        f"g (float[{','.join(map(str, shape))}] x) => (float[{','.join('abcd'[: len(shape)])}] y)"
        f" {{ p = Sigmoid(x) q = ConvTranspose {attributes} (p, w) y = Neg(q) }}"
    )
    proto = model(text, weights={"w": w})
    eager = tos.load(proto, options=tos.Options(capture="off"))
    session = tos.load(proto, options=tos.Options(capture="required"))
    for seed in range(5):
        feed = {"x": noise(*shape, seed=seed)}
        (ours,), (theirs,) = session.run(None, feed), eager.run(None, feed)
        assert torch.equal(ours, theirs)
        torch.testing.assert_close(ours, eager(x=feed["x"].requires_grad_()).detach(), rtol=1e-5, atol=1e-5)
    assert session.stats()["replays"] > 0
    assert session.stats()[PACKED] == w.nbytes


def test_only_weights_in_admitted_memory_are_packed() -> None:
    pack, x, w = Prepacked(), channels_last(noise(1, 8, 60, 60)), noise(9, 8, 3, 3)
    assert not into(pack, x, w)
    with pack.admitting([None, w, "text"]):
        with pack.admitting([x]):
            assert not into(pack, x, w)
        calls, part = into(pack, x, w), into(pack, x, w[1:])
        assert [name for name, _, _ in calls] == ["aten::zero_", "mkldnn::_convolution_pointwise_"]
        assert into(pack, x, w)[1][2][2] is calls[1][2][2]
        assert part[1][2][2] is not calls[1][2][2]
        assert pack.nbytes == w.nbytes + w[1:].nbytes
    assert not into(pack, x, w)
    del calls, part
    gc.collect()
    assert pack.nbytes == 0


def test_weights_are_packed_for_so_many_threads(one_thread: None) -> None:
    w, shape = noise(8, 8, 3, 3, seed=1), (1, 8, 60, 60)
    session, eager = session_of(shape, w, capture="required"), session_of(shape, w, capture="off")
    for threads in (1, 2, 1, 2):
        torch.set_num_threads(threads)
        for seed in range(4):
            feed = {"x": noise(*shape, seed=seed)}
            assert torch.equal(session.run(None, feed)[0], eager.run(None, feed)[0])
    assert session.stats()["captures"] == 2
    assert session.stats()[PACKED] == 2 * w.nbytes


def test_m10_a_convolution_in_a_body_has_a_packed_weight() -> None:
    w, shape = noise(8, 8, 3, 3, seed=1), "1,8,30,30"
    chain = " ".join(f"p{i + 1} = Sigmoid(p{i})" for i in range(8))
    body = (
        f"b (int64 i, bool c, float[{shape}] s) => (bool d, float[{shape}] r)"
        f" {{ d = Identity(c) p0 = Conv <pads = [1, 1, 1, 1]> (s, w) {chain} r = Neg(p8) }}"
    )
    declared = f"g (float[{shape}] x, int64 n, bool k) => (float[{shape}] y)"
    proto = model(f"{declared} {{ y = Loop <body = {body}> (n, k, x) }}", weights={"w": w})
    session, eager = tos.load(proto), tos.load(proto, options=tos.Options(capture="off"))
    for seed in range(4):
        feed = {"x": noise(1, 8, 30, 30, seed=seed), "n": torch.tensor(5), "k": torch.tensor(True)}
        assert torch.equal(session.run(None, feed)[0], eager.run(None, feed)[0])
    assert session.stats()["body replays"] > 0
    assert session.stats()[PACKED] == w.nbytes
