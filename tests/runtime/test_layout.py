"""Layout: all recordings of a capture lie in one block, with what they hand to one another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import agree, counted, entries, pair, regions, warmed
from tapelab import needs_extension, tape_recorder

from torch_ort_session.runtime.recorders.api import Shared, Use
from torch_ort_session.runtime.recorders.tape.aten import scratch_of

SEAM = "z = NonZero(c) f = Cast <to = 1> (z) s = ReduceSum <keepdims = 0> (f) t = Add(s, b)"
CROSSING = (
    "g (float[n] x) => (float[n] y) { a = Exp(x) b = Mul(a, x) c = Neg(b) "
    + SEAM
    + " u = Mul(t, a) y = Sub(u, b) }"
)
BRANCH = (
    "<then_branch = t () => (float[n] s) { s = Identity(a) },"
    " else_branch = e () => (float[n] f) { f = Neg(a) }>"
)
HANDED_ON = (
    "g (float[n] x) => (float[n] y, float[n] v) { a = Exp(x) p = ReduceMax <keepdims = 0> (a)"
    " zero = Constant <value_float = 0.0> () q = Greater(p, zero)"
    f" h = If (q) {BRANCH} b = Neg(x) c = Sin(b) d = Cos(c) y = Sqrt(d) v = Identity(h) }}"
)
FED_TO_SEAMS = (
    "g (float[n] x, float[n] w) => (float[n] y, int64[1,k] z)"
    " { a = Exp(x) b = Neg(a) z = NonZero(w) y = Abs(b) }"
)


def block_of(session: Any) -> torch.Tensor:
    captured = entries(session)[-1].captured
    (block, *others) = {
        id(s.recording._block): s.recording._block for s in captured.regions if s.recording
    }.values()
    assert not others
    return block


def inside(block: torch.Tensor, tensor: torch.Tensor) -> bool:
    start = block.untyped_storage().data_ptr()
    return start <= tensor.untyped_storage().data_ptr() < start + block.nbytes


@needs_extension
def test_m16_static_inputs_crossing_values_and_landings_lie_in_one_block() -> None:
    session, eager = pair(CROSSING)
    for turn in range(5):
        agree(session, eager, {"x": torch.rand(300) + turn})
    captured = entries(session)[-1].captured
    assert [s.recording is None for s in captured.regions].count(True) >= 1
    block = block_of(session)
    names = captured.planned.program.steps.names
    held = {
        names[value]: inside(block, tensor)
        for value, tensor in enumerate(captured.frame)
        if isinstance(tensor, torch.Tensor) and names[value] in ("x", "a", "b", "c", "z", "t")
    }
    assert held
    assert all(held.values())
    assert captured.memory.recorded.kept == 0
    assert captured.memory.placed == captured.memory.static_inputs


@pytest.mark.parametrize("text", [CROSSING, HANDED_ON], ids=["crossing", "handed on"])
@needs_extension
def test_m16_nothing_in_the_block_counts_from_one_run_to_the_next(text: str) -> None:
    session, eager = pair(text)
    warmed(session, {"x": torch.rand(40)}, 4)
    for turn in range(6):
        block_of(session).fill_(0xFF)
        agree(session, eager, {"x": torch.rand(40) - 0.1 * turn})
    assert session.stats()["replays"] >= 6


@needs_extension
def test_m16_what_a_seam_hands_on_lives_as_long_as_it_is_read() -> None:
    session, eager = pair(HANDED_ON, verify=True)
    held = []
    for turn in range(8):
        feed = {"x": torch.rand(40) + turn / 8}
        held.append((session.run(None, feed), eager.run(None, feed)))
    for ours, theirs in held:
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert "If" in regions(session)


@needs_extension
def test_m17_a_feed_that_only_seams_read_is_not_copied() -> None:
    session, eager = pair(FED_TO_SEAMS)
    for turn in range(6):
        agree(session, eager, {"x": torch.rand(30), "w": torch.rand(30) - turn / 9})
    assert counted(session, "static input bytes") == (120,)


@needs_extension
def test_m17_a_feed_that_only_seams_read_is_not_handed_to_the_user() -> None:
    text = (
        "g (float[n] x, float[n] a, float[1] p) => (float[n] y, float[n] h) {"
        " b = Exp(x) zero = Constant <value_float = 0.0> () q = Greater(p, zero)"
        f" h = If (q) {BRANCH} y = Neg(b) }}"
    )
    session, eager = pair(text)
    for turn in range(8):
        feed = {"x": torch.rand(6), "a": torch.rand(6), "p": torch.tensor([1.0 - 2 * (turn % 2)])}
        agree(session, eager, feed)
        session.run(None, feed)[1].fill_(9)
        assert float(feed["a"].max()) <= 1


@needs_extension
def test_m16_two_recordings_and_what_lies_between_them() -> None:
    x, w = torch.rand(64), torch.full((64,), 0.5)
    made: list[torch.Tensor] = []
    one = tape_recorder(poison=True).record(lambda: made.extend([x * 2, torch.roll(x, 1)]))
    landing = (made[0] + made[1]).clone()
    two = tape_recorder(poison=True).record(lambda: made.append((landing * w) - made[0]))
    shared = [
        Shared(x, Use.INPUT, 0, 0),
        Shared(made[0], Use.SHARED, None, 2),
        Shared(made[1], Use.SHARED, None, 1),
        Shared(landing, Use.SHARED, 1, 2),
        Shared(made[2], Use.GIVEN, None, 3),
    ]
    expected = made[2].clone()
    blocks: list[torch.Tensor] = []

    def block(nbytes: int) -> torch.Tensor:
        blocks.append(torch.empty(nbytes, dtype=torch.uint8))
        return blocks[-1]

    finished = one.finish_all([one, None, two], shared, block)
    assert len(blocks) == 1
    assert finished.stats.calls == 4
    assert finished.stats.given == 256
    # Only a recorded call frees what another one made, and a seam is the last to read it here.
    assert finished.stats.kept == 256
    assert torch.equal(two.donate([made[2]])[0], expected)
    for turn in range(3):
        x.copy_(torch.rand(64) + turn)
        feed = x.clone()
        one.replay()
        landing.copy_(made[0] + made[1])
        two.replay()
        (result,) = two.donate([made[2]])
        twice = feed * 2
        assert torch.equal(result, (twice + torch.roll(feed, 1)) * w - twice)


@needs_extension
def test_m16_memory_of_constants_and_of_bound_tensors_is_left_alone() -> None:
    x, w, made = torch.rand(8), torch.rand(8), []
    recording = tape_recorder().record(lambda: made.extend([w.view(2, 4), x[:4], x * w]))
    pointers = [w.data_ptr(), x.data_ptr()]
    shared = [Shared(made[0], Use.GIVEN, None, 1), Shared(made[1], Use.SHARED, None, 1)]
    finished = recording.finish_all([recording], shared, lambda n: torch.empty(n, dtype=torch.uint8))
    assert finished.given == frozenset()
    recording.replay()
    assert [w.data_ptr(), x.data_ptr()] == pointers


@needs_extension
def test_m13_slots_make_room_where_a_call_takes_scratch_memory_at_another_time() -> None:
    x, w, made = torch.rand(1, 8, 20, 20), torch.rand(2, 8, 3, 3), []
    arguments = [w, [3, 3], None, [1, 1], [1, 1]]

    def body() -> torch.Tensor:
        wide = torch.cat([x, x, x, x], 1).cumsum(1)
        narrow = wide[:, ::4].cumsum(2)
        return torch.ops.aten._slow_conv2d_forward(narrow, *arguments).sum(3)

    result = torch.empty(1, 2, 20, 20)
    assert scratch_of("aten::_slow_conv2d_forward", [x, *arguments, result]) == 8 * 9 * 400 * 4
    point = [torch.rand(2, 8, 1, 1), [1, 1], None, [1, 1], [0, 0], result]
    assert scratch_of("aten::_slow_conv2d_forward", [x, *point]) == 0
    assert scratch_of("aten::add", [x, x]) == 0
    recording = tape_recorder().record(lambda: made.append(body()))
    shared = [Shared(made[0], Use.GIVEN, None, 1)]
    finished = recording.finish_all([recording], shared, lambda n: torch.empty(n, dtype=torch.uint8))
    # The two wide tensors have bytes of their own, which the windows take afterwards.
    assert finished.stats.arena < 2 * x.nbytes < 8 * x.nbytes == finished.stats.fresh
    x.add_(1)
    recording.replay()
    assert torch.equal(recording.donate(made)[0], body())


@needs_extension
def test_m13_explain_says_what_recordings_came_to() -> None:
    session, _ = pair("g (float[n] x) => (float[n] y) <int64 zero = {0}> { a = CumSum(x, zero) y = Exp(a) }")
    warmed(session, {"x": torch.rand(1024)}, 4)
    assert_expected_inline(
        session.explain().partition("memory\n")[2],
        """\
  arena       8.2 KB   2 storages in it, at least 8.2 KB needed
  beside      4.1 KB   the most at once that a replay allocates, 4.1 KB of results leave with it
  written     12.3 KB  3 storages of 2 recorded calls
  at once     8.2 KB   the most that has to be there at one call
  eager peak  8.2 KB   the most that an eager run holds at once
  saved       0 B      by slots that are used again
largest slots
  x  4.1 KB  calls 0 to 0
  a  4.1 KB  calls 0 to 1""",
    )
