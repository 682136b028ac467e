"""M14: steps that grow become strips of native calls, where two runs differ in nothing but sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from runtime.keptlab import kept
from tapelab import needs_extension
from textmodel import model

import torch_ort_session as tos
from benchmarks.decoder import Size, first_feed, make_decoder, next_feed
from torch_ort_session import Options
from torch_ort_session.runtime.dynamic.symbolic_tape import SymbolicTape
from torch_ort_session.trace import counters

pytestmark = needs_extension

CONSTANTS = (
    "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] ten = {10}, int64[1] last = {-1},"
    " int64[1] far = {100000}, int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64[2] flat = {-1, 2},"
    " float[1, 2] row = {1, 2}, float[2, 2] w = {1, 2, 3, 4}>"
)
# What does not grow is recorded: without any of that there would be no capture.
APART = " p = MatMul(q, w) r = Exp(p)"


def both(nodes: str, **options: Any) -> tuple[tos.Session, tos.Session]:
    declared = "g (float[n, 2] x, float[1, 2] q) => (float[a, b] y, float[c, d] r)"
    text = f"{declared} {CONSTANTS} {{ {APART} {nodes} }}"
    return tos.load(model(text), options=Options(**options)), tos.load(
        model(text), options=Options(capture="off")
    )


def agree(session: tos.Session, eager: tos.Session, lengths: Iterable[int]) -> None:
    for n in lengths:
        feed = {"x": torch.randn(n, 2), "q": torch.randn(1, 2)}
        for got, want in zip(session.run(None, feed), eager.run(None, feed), strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
            got.fill_(7)


def weave(session: tos.Session) -> SymbolicTape:
    found = kept(session).tape
    assert found is not None
    return found


def strips(session: tos.Session) -> list[int]:
    """For each seam that is made of one strip at least, the calls that are left of it."""
    return [
        len(stage.calls)
        for stage in weave(session).regions
        if stage.recording is None and any(_is_strip(call) for call in stage.calls)
    ]


def _is_strip(call: Any) -> bool:
    return getattr(call.call, "__name__", "") == "call_strip"


STRIPS = {
    "concat": "a = Concat <axis = 0> (x, row) b = Neg(a) y = Add(b, r)",
    "attention": "t = Transpose(x) m = MatMul(x, t) s = Softmax <axis = -1> (m) y = MatMul(s, x)",
    "expand to a dim": (
        "h = Shape(x) d = Slice(h, zero, one) s = Concat <axis = 0> (d, two) e = Expand(row, s) y = Mul(e, x)"
    ),
    "reshape to a dim": (
        "h = Shape(x) d = Gather(h, i0) m = Mul(d, i2) s = Unsqueeze(m, zero) e = Reshape(x, s)"
        " f = Reshape(e, flat) y = Neg(f)"
    ),
    "slice at a dim": (
        "h = Shape(x) d = Slice(h, zero, one) m = Sub(d, one) e = Slice(x, m, d, zero)"
        " c = Concat <axis = 0> (x, e) y = Add(c, r)"
    ),
    "range": (
        "h = Shape(x) d = Gather(h, i0) a = Range(i0, d, i1) c = Cast <to = 1> (a) u = Unsqueeze(c, one)"
        " y = Mul(u, row)"
    ),
    "range from a dim": (
        "h = Shape(x) d = Gather(h, i0) b = Mul(d, i2) a = Range(d, b, i1) c = Cast <to = 1> (a)"
        " u = Unsqueeze(c, one) y = Mul(u, row)"
    ),
    "filled": ("h = Shape(x) s = ConstantOfShape(h) t = Trilu <upper = 1> (s, i1) y = Add(t, x)"),
    "a mask": "g = Greater(x, row) n = Not(g) y = Where(n, x, row)",
}


@pytest.mark.parametrize("name", STRIPS)
@pytest.mark.parametrize("verify", [False, True])
def test_m14_steps_that_grow_run_as_one_strip(name: str, verify: bool) -> None:
    session, eager = both(STRIPS[name], verify=verify)
    agree(session, eager, range(3, 30))
    assert strips(session) == [1]
    assert session.stats()[counters.MISMATCHES] == 0
    assert session.stats()[counters.PROBES] == (23 if verify else 1)
    # Longer and shorter ones, and by other amounts.
    agree(session, eager, [40, 7, 90, 41, 5, 6])
    assert session.stats()[counters.REBUILT] == session.stats()[counters.INELIGIBLE] == 0


APARTS = {
    "every second one": (
        "h = Shape(x) d = Gather(h, i0) a = Range(i0, d, i2) c = Cast <to = 1> (a) u = Unsqueeze(c, one)"
        " y = Mul(u, row)",
        "Range",
    ),
    "every third row": ("t = Slice(x, zero, far, zero, two) a = Neg(t) y = Mul(a, row)", "Slice"),
    "an operator that hands no number on": ("a = Neg(x) b = CumSum(a, i0) y = Neg(b)", "CumSum"),
    "data decides": ("a = Neg(x) n = NonZero(a) c = Cast <to = 1> (n) y = Neg(c)", "NonZero"),
}


@pytest.mark.parametrize("name", APARTS)
def test_m14_other_steps_run_by_themselves(name: str) -> None:
    nodes, op = APARTS[name]
    session, eager = both(nodes)
    agree(session, eager, range(3, 40))
    left = [call for stage in weave(session).regions if stage.recording is None for call in stage.calls]
    assert op in {call.step.kernel.op for call in left if not _is_strip(call)}
    assert session.stats()[counters.MISMATCHES] == 0


def test_m14_a_size_that_stops_to_grow_ends_the_strip() -> None:
    session, eager = both("a = Slice(x, zero, ten, zero) b = Neg(a) y = Add(b, r)")
    agree(session, eager, range(2, 9))
    assert strips(session) == [1]
    agree(session, eager, range(9, 30))
    assert session.stats()[counters.REBUILT] == 1 and session.stats()[counters.MISMATCHES] == 0
    assert session.stats()[counters.INELIGIBLE] == 0


def test_m14_a_strip_that_is_wrong_is_found_by_its_first_run() -> None:
    session, eager = both(STRIPS["concat"])
    agree(session, eager, range(3, 10))
    found = weave(session)
    assert found.woven
    number, seam = next((n, s) for n, s in enumerate(found.regions) if s.recording is None)

    def wrong(values: list[Any]) -> None:
        seam.calls[0].call(values)
        for output in found.steps.outputs:
            if isinstance(values[output], torch.Tensor):
                values[output] = values[output] + 1

    calls = (dataclasses.replace(seam.calls[0], call=wrong), *seam.calls[1:])
    regions = list(found.regions)
    regions[number] = dataclasses.replace(seam, calls=calls)
    found.regions = tuple(regions)
    agree(session, eager, range(10, 15))
    assert session.stats()[counters.MISMATCHES] == 1 and session.stats()[counters.PROBES] == 1
    assert not strips(session) and found.proven and not found.watching
    assert session.stats()[counters.INELIGIBLE] == session.stats()[counters.REBUILT] == 0


def test_m14_a_strip_that_fails_costs_no_result() -> None:
    session, eager = both(STRIPS["attention"])
    agree(session, eager, range(3, 12))
    found = weave(session)
    number, seam = next((n, s) for n, s in enumerate(found.regions) if s.recording is None)

    def fail(_: list[Any]) -> None:
        raise RuntimeError("failed")

    regions = list(found.regions)
    regions[number] = dataclasses.replace(seam, calls=(dataclasses.replace(seam.calls[0], call=fail),))
    found.regions = tuple(regions)
    agree(session, eager, range(12, 20))
    stats = session.stats()
    assert stats[counters.RETIREMENTS] == 1 and stats[counters.CAPTURES] == 2
    assert strips(session) == [1] and weave(session) is not found


def test_m14_random_steps_stay_steps() -> None:
    session, eager = both("a = RandomNormalLike(x) b = Neg(a) y = Add(b, r)")
    for n in range(3, 16):
        feed = {"x": torch.randn(n, 2), "q": torch.randn(1, 2)}
        torch.manual_seed(n)
        got = session.run(None, feed)
        torch.manual_seed(n)
        for one, other in zip(got, eager.run(None, feed), strict=True):
            torch.testing.assert_close(one, other)


def test_m14_strips_beside_random_steps_are_compared_too() -> None:
    session, eager = both("u = RandomNormalLike(x) a = Mul(x, row) b = Neg(a) c = Exp(b) y = Add(c, u)")
    for n in range(3, 16):
        feed = {"x": torch.randn(n, 2), "q": torch.randn(1, 2)}
        results = []
        for runs in (session, eager):
            torch.manual_seed(n)
            results.append((*runs.run(None, feed), torch.get_rng_state()))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)
    assert strips(session) and weave(session).proven


def test_m14_numbers_that_follow_from_data_are_no_sizes() -> None:
    declared = "g (float[n, 2] x, int64[n] mask, float[1, 2] q) => (float[a, b] y, float[c, d] r)"
    nodes = (
        "s = ReduceSum <keepdims = 1> (mask) st = Sub(s, one) en = Add(st, one) e = Slice(x, st, en, zero)"
        " c = Concat <axis = 0> (x, row) y0 = Add(c, e) y = Mul(y0, row)"
    )
    text = f"{declared} {CONSTANTS} {{ {APART} {nodes} }}"
    session, eager = tos.load(model(text)), tos.load(model(text), options=Options(capture="off"))
    for n in range(3, 20):
        mask = torch.ones(n, dtype=torch.int64)
        mask[: 2 if n >= 14 else 0] = 0
        feed = {"x": torch.randn(n, 2), "mask": mask, "q": torch.randn(1, 2)}
        for one, other in zip(session.run(None, feed), eager.run(None, feed), strict=True):
            torch.testing.assert_close(one, other)


def test_m14_feeds_that_were_one_tensor_while_they_were_watched() -> None:
    declared = "g (float[n, 2] x, float[n, 2] z, float[1, 2] q) => (float[a, b] y, float[c, d] r)"
    text = f"{declared} {CONSTANTS} {{ {APART} a = Sub(x, z) y = Mul(a, row) }}"
    session, eager = tos.load(model(text)), tos.load(model(text), options=Options(capture="off"))
    for n in range(3, 20):
        x = torch.randn(n, 2)
        feed = {"x": x, "z": x if n < 14 else torch.randn(n, 2), "q": torch.randn(1, 2)}
        for one, other in zip(session.run(None, feed), eager.run(None, feed), strict=True):
            torch.testing.assert_close(one, other)


def test_m14_a_trace_shows_steps_and_a_profile_changes_nothing() -> None:
    session, eager = both(STRIPS["attention"])
    agree(session, eager, range(3, 12))
    with session.trace() as timeline:
        agree(session, eager, [12])
    assert {"Transpose", "MatMul", "Softmax"} <= {span.name for span in timeline.spans}
    agree(session, eager, range(13, 16))
    assert strips(session) == [1] and session.stats()[counters.CAPTURES] == 1


@pytest.mark.parametrize("batch", [1, 3])
def test_m14_all_that_grows_of_a_decoder_is_in_strips(batch: int) -> None:
    size = Size(layers=2)
    proto = make_decoder(size)
    session, eager = tos.load(proto), tos.load(proto, options=Options(capture="off"))
    names = [port.name for port in session.outputs]
    feed = first_feed(size, batch, past=0)
    for _ in range(30):
        got, want = session.run(None, feed), eager.run(None, feed)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        feed = next_feed(feed, dict(zip(names, got, strict=True)))
    seams = [stage for stage in weave(session).regions if stage.recording is None]
    alone = [c.step.kernel.op for stage in seams for c in stage.calls if not _is_strip(c)]
    # A view between two strips of the mask touches nothing that grows.
    assert set(alone) <= {"Reshape"} and len(strips(session)) >= 2
    assert session.stats()[counters.MISMATCHES] == 0 and weave(session).proven


def test_m14_what_was_watched_holds_no_tensor_of_the_run() -> None:
    session, eager = both(STRIPS["attention"])
    agree(session, eager, range(3, 9))
    found = weave(session)
    assert found.watching and len(found.traces) == 1
    seen = list(found.traces[0].seen.values())
    assert "aten::_softmax" in {call.name[0] for one in seen for call in one.calls}
    assert not [one for one in seen if _held(one)]


def _held(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, dict):
        return any(map(_held, value.values()))
    return isinstance(value, list | tuple) and any(map(_held, value))
