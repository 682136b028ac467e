"""Handover: a result that nobody else reads leaves with its bytes; everything else is copied."""

from __future__ import annotations

import copy
import gc
import threading
from typing import Any

import pytest
import torch
from finishing import finish
from runtime.capturelab import CHAIN, agree, counted, entries, pair, states, warmed
from tapelab import needs_extension, tape_recorder

import torch_ort_session as tos
from torch_ort_session.runtime.recorders.api import Shared, Use
from torch_ort_session.trace import counters

ROLLED = "g (float[n,4] x) => (float[n,4] y, float[n,4] z) { a = Exp(x) y = Neg(a) z = Softmax(y) }"
SEAM = (
    "g (float[n] x) => (float[n] a, float[n] b, int64[1,k] z)"
    " { a = Exp(x) b = Mul(a, x) c = Neg(b) d = Abs(c) z = NonZero(d) }"
)


def given(session: tos.Session) -> tuple[bool, ...]:
    captured = entries(session)[-1].captured
    assert captured is not None, states(session)
    return captured.donation.given


def addresses(session: tos.Session) -> set[int]:
    """Where the session keeps values from run to run."""
    captured = entries(session)[-1].captured
    assert captured is not None
    found = set()
    for held in captured.frame:
        if isinstance(held, torch.Tensor) and held.untyped_storage()._cdata not in given_storages(captured):
            found.add(held.untyped_storage().data_ptr())
    return found


def given_storages(captured: Any) -> set[int]:
    outputs = [captured.frame[value] for value in captured.planned.program.steps.outputs]
    return {
        held.untyped_storage()._cdata
        for held, leaves in zip(outputs, captured.donation.given, strict=True)
        if leaves
    }


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        (ROLLED, (True, True)),
        (
            "g (float[n,4] x) => (float[n,4] y) <float[4] w = {1, 2, 3, 4}> { y = LayerNormalization(x, w) }",
            (True,),
        ),
        (
            "g (float[n,4] x) => (float[n,4] y, float[m] v) <int64[1] s = {-1}>"
            " { y = Exp(x) v = Reshape(y, s) }",
            (False, False),
        ),
        ("g (float[n,4] x) => (float[n,4] y, float[n,4] y) { y = Exp(x) }", (False, False)),
        (
            "g (float[n,4] x) => (float[4,n] t, float[n,4] y) { a = Exp(x) t = Transpose(a) y = Neg(a) }",
            (False, True),
        ),
        ("g (float[n,4] x) => (float[n,4] x2, float[n,4] y) { x2 = Identity(x) y = Exp(x) }", (False, True)),
        (
            "g (float[n,4] x) => (float[2] w, float[n,4] y) <float[2] w = {1, 2}> { y = Exp(x) }",
            (False, True),
        ),
        (
            "g (float[n,4] x) => (float[1,4] s, float[n,4] y) <int64[1] o = {0}, int64[1] t = {1}>"
            " { y = Exp(x) a = Neg(x) s = Slice(a, o, t, o) }",
            (False, True),
        ),
    ],
    ids=["two", "made anew", "a view of it too", "twice", "turned", "a feed", "a constant", "a part"],
)
@needs_extension
def test_m20_only_results_that_fill_memory_of_their_own_leave_with_it(
    text: str, leaves: tuple[bool, ...]
) -> None:
    session, eager = pair(text)
    for turn in range(6):
        agree(session, eager, {"x": torch.randn(3, 4) + turn})
    assert given(session) == leaves


@needs_extension
def test_m16_m20_a_result_that_leaves_is_in_nobody_elses_memory_and_was_not_copied() -> None:
    session, eager = pair(ROLLED)
    feed = {"x": torch.randn(5, 4)}
    warmed(session, feed, 4)
    held = [session.run(None, feed) for _ in range(5)]
    pointers = [result.data_ptr() for results in held for result in results]
    assert len(set(pointers)) == len(pointers)
    assert not addresses(session) & set(pointers)
    captured = entries(session)[-1].captured
    for result in captured.results:
        with pytest.raises(RuntimeError, match=r"no bytes|invalid"):
            captured.donation.recording.donate([result])
    for results in held:
        for result in results:
            assert result.is_contiguous() and not result.requires_grad and not result.is_inference()
            assert result.untyped_storage().nbytes() == result.nbytes
            result.resize_(2).fill_(7)
    agree(session, eager, feed)


@needs_extension
def test_m17_results_outlive_the_capture_and_the_session() -> None:
    session, eager = pair(SEAM)
    feeds = [{"x": torch.rand(64) + turn} for turn in range(6)]
    held = [session.run(None, feed) for feed in feeds]
    session.release_memory()
    del session
    gc.collect()
    scratch = [torch.full((64,), float("nan")) for _ in range(50)]
    for feed, results in zip(feeds, held, strict=True):
        for ours, theirs in zip(results, eager.run(None, feed), strict=True):
            assert torch.equal(ours, theirs)
    assert len(scratch) == 50


@needs_extension
def test_m17_what_a_seam_reads_is_copied_and_what_it_does_not_read_leaves() -> None:
    session, eager = pair(
        "g (float[n] x) => (float[n] a, float[n] d, float[n] y)"
        " { a = Exp(x) d = Abs(x) p = ReduceMax <keepdims = 0> (a) zero = Constant <value_float = 0.0> ()"
        " c = Greater(p, zero)"
        " y = If (c) <then_branch = t () => (float[n] s) { s = Identity(a) },"
        " else_branch = e () => (float[n] f) { f = Neg(a) }> }"
    )
    held = []
    for turn in range(8):
        feed = {"x": torch.randn(6)}
        held.append((session.run(None, feed), eager.run(None, feed)))
        if turn > 4:
            held[-1][0][0].fill_(turn)
            held[-1][1][0].fill_(turn)
    assert given(session)[:2] == (False, True)
    for ours, theirs in held:
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@needs_extension
def test_m8_a_replay_that_fails_half_way_gives_nothing_and_takes_nothing_back() -> None:
    x, w, results = torch.rand(8), torch.rand(8), []
    recording = tape_recorder().record(lambda: results.extend([x.exp(), torch.add(x, w)]))
    finish(recording, [x, w, *results])
    w.resize_(3)
    with pytest.raises(RuntimeError, match="size"):
        recording.replay()
    recording.close()
    assert len(results) == 2


@needs_extension
def test_m17_results_that_were_given_stay_when_a_later_replay_fails() -> None:
    text = "g (float[n] x, int64[k] i) => (float[n] y, float[k] v) { y = Exp(x) v = Gather(x, i) }"
    session, eager = pair(text)
    good = {"x": torch.rand(4), "i": torch.tensor([0, 3])}
    warmed(session, good, 4)
    held = session.run(None, good)
    want = [result.clone() for result in held]
    with pytest.raises(tos.errors.SessionError):
        session.run(None, {**good, "i": torch.tensor([0, 9])})
    for _ in range(6):
        agree(session, eager, {**good, "x": torch.rand(4)})
    assert all(torch.equal(a, b) for a, b in zip(held, want, strict=True))


@needs_extension
def test_m17_copies_of_results_and_sessions_do_not_meet() -> None:
    session, eager = pair(ROLLED)
    feed = {"x": torch.randn(3, 4)}
    warmed(session, feed, 4)
    first = session.run(None, feed)
    other, again = copy.deepcopy(session), copy.deepcopy(first)
    for turn in range(5):
        agree(other, eager, {"x": torch.randn(3, 4) + turn})
        agree(session, eager, {"x": torch.randn(3, 4) - turn})
    want = eager.run(None, feed)
    for results in (first, again):
        assert all(torch.equal(a, b) for a, b in zip(results, want, strict=True))


@needs_extension
def test_m17_threads_that_share_a_session_keep_their_results() -> None:
    session, eager = pair(CHAIN)
    feed = {"x": torch.rand(300), "w": torch.rand(300)}
    warmed(session, feed, 4)
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            mine = {"x": torch.rand(300) + seed, "w": torch.rand(300)}
            want = eager.run(None, mine)
            held = [session.run(None, mine) for _ in range(20)]
            wrong.extend(seed for results in held if not torch.equal(results[0], want[0]))
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@needs_extension
def test_m18_bound_results_are_written_where_they_are_bound() -> None:
    session, eager = pair(ROLLED)
    x, place = torch.randn(3, 4), torch.empty(3, 4)
    binding = session.bind()
    binding.input("x", x)
    binding.output("y", place)
    for turn in range(6):
        x.copy_(torch.randn(3, 4) + turn)
        binding.run()
        y, z = eager.run(None, {"x": x})
        assert torch.equal(place, y)
        assert torch.equal(binding.read("z"), z)
    latest = binding._state.dispatcher.latest_capture()
    assert latest is not None
    captured = latest[1].captured
    assert captured is not None
    assert not any(captured.donation.given)


@needs_extension
def test_m20_results_without_elements_and_scalars() -> None:
    session, eager = pair(
        "g (float[n] x) => (float[n] y, float s) { y = Exp(x) s = ReduceSum <keepdims = 0> (y) }"
    )
    for length in (0, 1, 5):
        for turn in range(5):
            agree(session, eager, {"x": torch.randn(length) + turn})


@needs_extension
def test_a_tape_takes_no_tensor_for_a_result_that_has_no_bytes_of_its_own() -> None:
    x, results = torch.rand(8), []
    recording = tape_recorder().record(lambda: results.append(x * 2))
    shared = [Shared(results[0], Use.GIVEN, None, 1)]
    finished = recording.finish_all([recording], shared, lambda n: torch.empty(n, dtype=torch.uint8))
    assert finished.given == {results[0].untyped_storage()._cdata}
    want = x * 2
    made = recording.donate(results)
    assert torch.equal(made[0], want)
    with pytest.raises(RuntimeError, match=r"no bytes|invalid"):
        recording.donate(results)
    with pytest.raises(RuntimeError, match="only plain tensors"):
        recording.donate([torch.rand(2, dtype=torch.complex64).conj()])
    x.add_(1)
    recording.replay()
    assert torch.equal(recording.donate(results)[0], x * 2)
    assert torch.equal(made[0], want)


@needs_extension
def test_m17_results_are_not_counted_as_copied() -> None:
    session, _ = pair(ROLLED)
    feed = {"x": torch.randn(2, 4)}
    warmed(session, feed, 4)
    (before,) = counted(session, counters.COPIED)
    session.run(None, feed)
    assert counted(session, counters.COPIED) == (before + feed["x"].nbytes,)
