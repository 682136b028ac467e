"""Results are the caller's: no replay writes to one, and what becomes of feeds afterwards changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from runtime.capturelab import agree, counted, pair, same, session_on, warmed
from session.test_session_results import ALIASES

MODELS = {
    **ALIASES,
    "a seam's result and a view of it": (
        "g (float[2,3] x) => (int64[2,k] y, int64[k,2] z, float[2,3] u)"
        " { u = Exp(x) y = NonZero(x) z = Transpose(y) }"
    ),
    "a seam's result that a segment reads": (
        "g (float[2,3] x) => (int64[2,k] z, int64[2,k] y) { z = NonZero(x) y = Neg(z) }"
    ),
    "a segment's result that a seam views": (
        "g (float[2,3] x) => (float[2,3] a, float[2,3] y, int64[2,k] z) { a = Exp(x) z = NonZero(a)"
        " p = ReduceMax <keepdims = 0> (a) zero = Constant <value_float = 0.0> () c = Greater(p, zero)"
        " y = If (c) <then_branch = t () => (float[2,3] s) { s = Identity(a) },"
        " else_branch = e () => (float[2,3] f) { f = Neg(a) }> }"
    ),
    "a sequence of results and feeds": (
        "g (float[2,3] x) => (seq(float[2,3]) q, float[2,3] a) { a = Exp(x) q = SequenceConstruct(a, x, a) }"
    ),
    "a static value": "g (float[2,3] x) => (int64[2] s, float[2,3] y) { s = Shape(x) y = Exp(x) }",
    "a static value twice": (
        "g (float[2,3] x) => (int64[2] s, int64[2] s, float[2,3] y) { s = Shape(x) y = Exp(x) }"
    ),
    "a part of a result": (
        "g (float[2,3] x) => (float[2,1] y) <int64[1] a = {1}, int64[1] b = {2}>"
        " { e = Exp(x) y = Slice(e, a, b, a) }"
    ),
    "an expanded result": (
        "g (float[2,3] x) => (float[4,2,3] y) <int64[3] s = {4, 1, 1}> { e = Exp(x) y = Expand(e, s) }"
    ),
    "an initializer that is a default": (
        "g (float[2,3] x, float[2] w) => (float[2] w, float[2,3] y) <float[2] w = {1, 2}> { y = Exp(x) }"
    ),
    "the input in a sequence": (
        "g (float[2,3] x) => (float[2,3] y, float[2,3] z) <int64 i = {0}>"
        " { q = SequenceConstruct(x, x) y = SequenceAt(q, i) z = Exp(x) }"
    ),
}


def flat(results: list[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for result in results:
        found += flat(list(result)) if isinstance(result, tuple) else [result]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_m17_m19_results_that_are_kept_and_changed_across_replays(name: str) -> None:
    session, eager = pair(MODELS[name])
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for step in range(9):
        x = torch.randn(2, 3)
        want = eager.run(None, {"x": x.clone()})
        got = session.run(None, {"x": x})
        same(got, want)
        x.fill_(-1000)  # the feed is the caller's to reuse
        same(got, want)
        for result in flat(got):
            if step % 2:
                result.add_(1)
            kept.append((result, result.clone()))
        for result, then in kept:
            assert torch.equal(result, then)
    storages = [result.untyped_storage().data_ptr() for result, _ in kept if result.numel()]
    assert len(set(storages)) == len(storages)


def test_m19_an_output_listed_twice_is_written_twice_every_run() -> None:
    session, eager = pair(MODELS["a static value twice"])
    for _ in range(6):
        x = torch.randn(2, 3)
        first, second, _ = session.run(None, {"x": x})
        first.fill_(7)
        assert second.tolist() == [2, 3]
        agree(session, eager, {"x": x})
    assert counted(session, "captures") == (1,)


def test_m19_the_weights_of_the_session_are_never_handed_out() -> None:
    session = session_on("g (float[2] x) => (float[2] w, float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    for _ in range(6):
        w, y = session.run(None, {"x": torch.zeros(2)})
        assert (w.tolist(), y.tolist()) == ([1, 2], [1, 2])
        w.zero_()


def test_m17_feeds_of_every_layout_are_copied_and_left_alone() -> None:
    session, eager = pair("g (float[a,b] x) => (float[a,b] y, float[a,b] x) { y = Exp(x) }")
    base = torch.randn(4, 4)
    array = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    frozen = array.copy()
    frozen.flags.writeable = False
    for _ in range(3):
        for value in (base, base.t(), base[:1].expand(4, 4), array, array.T, array[::-1], frozen):
            given = {"x": value}
            same(session.run(None, given), eager.run(None, given))
    assert counted(session, "captures") == (1,)
    assert session.stats()["bytes copied"] == session.stats()["replays"] * 64


def test_m17_one_tensor_fed_twice() -> None:
    session, eager = pair("g (float[n] x, float[n] w) => (float[n] y) { y = Sub(x, w) }")
    for step in range(6):
        x = torch.randn(3)
        agree(session, eager, {"x": x, "w": x if step % 2 else torch.randn(3)})


def test_m17_a_result_fed_back_is_read_before_it_is_replaced() -> None:
    session = session_on("g (float[n] x) => (float[n] y) { a = Mul(x, x) y = Sub(a, x) }")
    x = torch.tensor([0.5, -0.25])
    expected = x
    for _ in range(8):
        x, expected = session.run(None, {"x": x})[0], expected * expected - expected
        assert torch.equal(x, expected)


@pytest.mark.parametrize("seam", ["z = NonZero(b)", "z = Shape(x)"])
def test_m20_a_result_that_shows_one_element_in_many_places(seam: str) -> None:
    text = (
        "g (float[n] x) => (float[?] e, float[?, ?] w, float[n] y, int64[?] z) <int64[2] two = {2, 1}>"
        f" {{ b = Exp(x) {seam} m = ReduceSum <keepdims = 1> (b) e = Expand(m, two) f = Neg(b)"
        " w = Expand(f, two) y = Abs(f) }"
    )
    session, eager = pair(text)
    for _ in range(6):
        agree(session, eager, {"x": torch.rand(3)})
    assert counted(session, "captures", "replays", "failed captures") == (1, 3, 0)


def test_m19_only_constants_as_outputs() -> None:
    session, eager = pair("g (float[n] x) => (int64[1] s, float[2] w) <float[2] w = {1, 2}> { s = Shape(x) }")
    for length in (2, 3, 2, 2, 2, 2):
        agree(session, eager, {"x": torch.randn(length)})


def test_a_read_only_session_of_empty_tensors() -> None:
    session, eager = pair("g (float[n] x) => (float[n] y, float[n] x) { y = Exp(x) }")
    for _ in range(5):
        agree(session, eager, {"x": torch.randn(0)})
    warmed(session, {"x": torch.randn(0)})


def test_m19_intermediate_values_asked_for_by_name() -> None:
    session, eager = pair("g (float[n] x) => (float[n] y) { a = Exp(x) b = Neg(a) y = Abs(b) }")
    for step in range(12):
        names = [["a", "y"], ["b"], ["y", "y", "x"]][step % 3]
        agree(session, eager, {"x": torch.randn(3)}, names)
    assert counted(session, "captures") == (3,)
