"""Loops that collect tensors in a list: what came in earlier turns makes no new signature of the body."""

from __future__ import annotations

import onnx
import pytest
import torch
from bodylab import body_states, fed, long

import torch_ort_session as tos


def collecting(steps: str) -> onnx.ModelProto:
    """A loop over a state ``s`` with a list ``l``, which becomes ``r`` and ``o``; ``c`` is true."""
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>'
        " g (float[n] x, int64 k, float[n] w) => (float[n] y, float[m,n] z) {"
        " empty = SequenceEmpty <dtype = 1> () y, all = Loop (k, , x, empty) <body ="
        " b (int64 i, bool c, float[n] s, seq(float[n]) l) => (bool d, float[n] r, seq(float[n]) o)"
        f" {{ d = Identity(c) {long('s', 'r')} {steps} }}>"
        " z = ConcatFromSequence <axis = 0, new_axis = 1> (all) }"
    )


APPENDED = "o = SequenceInsert(l, r)"
HANDED_ON = "same = Identity(l) more = SequenceInsert(same, r) o = Identity(more)"
PICKED = (
    "half = Constant <value_float = 0.0> () t = ReduceSum <keepdims = 0> (r) p = Greater(t, half)"
    " twice = Add(r, r) o = If (p) <then_branch = t () => (seq(float[n]) a) { a = SequenceInsert(l, r) },"
    " else_branch = e () => (seq(float[n]) b) { n = SequenceInsert(l, r) b = SequenceInsert(n, twice) }>"
)


@pytest.mark.parametrize("steps", [APPENDED, HANDED_ON, PICKED])
def test_a_list_that_only_grows_is_one_signature(steps: str) -> None:
    model = collecting(steps)
    session, eager = tos.load(model), tos.load(model, options=tos.Options(capture="off"))
    for trips in (7, 7, 7, 3, 9):
        feed = fed(trips=trips)
        got, want = session.run(None, feed), eager.run(None, feed)
        for ours, theirs in zip(got, want, strict=True):
            assert torch.equal(ours, theirs)
    assert body_states(session).count("captured") == 1
    assert session.stats()["body replays"] >= 20


def test_entries_stay_as_they_were() -> None:
    """What a turn puts in lies in no memory that later turns, or later runs, write."""
    model = collecting(APPENDED)
    session, eager = tos.load(model), tos.load(model, options=tos.Options(capture="off"))
    feeds = [fed(trips=6) for _ in range(5)]
    held = [session.run(["all"], feed)[0] for feed in feeds]
    for feed, entries in zip(feeds, held, strict=True):
        want = eager.run(["all"], feed)[0]
        assert len(entries) == 6
        for ours, theirs in zip(entries, want, strict=True):
            assert torch.equal(ours, theirs)


READ = {
    "length": "n = SequenceLength(l) f = Cast <to = 1> (n) g = Add(r, f) o = SequenceInsert(l, g)",
    "entry": (
        "z = Constant <value_int = 0> () first = SequenceInsert(l, s) f = SequenceAt(first, z)"
        " g = Add(r, f) o = SequenceInsert(l, g)"
    ),
    "place": "z = Constant <value_int = 0> () o = SequenceInsert(l, r, z)",
    "all": (
        "more = SequenceInsert(l, r) t = ConcatFromSequence <axis = 0, new_axis = 1> (more)"
        " f = ReduceMax <keepdims = 0> (t) g = Add(r, f) o = SequenceInsert(l, g)"
    ),
    "inside": (
        "o = If (c) <then_branch = t () => (seq(float[n]) a) {"
        " n = SequenceLength(l) f = Cast <to = 1> (n) g = Add(r, f) a = SequenceInsert(l, g) },"
        " else_branch = e () => (seq(float[n]) b) { b = Identity(l) }>"
    ),
}


@pytest.mark.parametrize("steps", READ.values(), ids=READ.keys())
def test_a_list_that_is_read_gives_what_eager_runs_give(steps: str) -> None:
    model = collecting(steps)
    session, eager = tos.load(model), tos.load(model, options=tos.Options(capture="off"))
    for trips in (5, 5, 5, 5, 3, 6):
        feed = fed(trips=trips)
        got, want = session.run(None, feed), eager.run(None, feed)
        for ours, theirs in zip(got, want, strict=True):
            assert torch.equal(ours, theirs)
