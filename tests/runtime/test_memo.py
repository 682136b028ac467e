"""M14: runs whose feeds grow leave out what is known beforehand, and are never wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from runtime.capturelab import session_on, states
from runtime.keptlab import all_kept, kept
from textmodel import message, model

import torch_ort_session as tos
from benchmarks.decoder import Size, first_feed, make_decoder, next_feed
from torch_ort_session import Options
from torch_ort_session.ops.kernel import Value
from torch_ort_session.runtime.dynamic import growing
from torch_ort_session.runtime.dynamic.growing import GrowthCache
from torch_ort_session.runtime.dynamic.residual import ResidualProgram
from torch_ort_session.runtime.dynamic.shape_family import grown_since
from torch_ort_session.runtime.values.signature import signature_of
from torch_ort_session.trace import counters

ACTIONS = {
    "primed": counters.PRIMED,
    "rebuilt": counters.REBUILT,
    "replayed": counters.GROWN,
    "ineligible": counters.INELIGIBLE,
}


def actions(session: tos.Session) -> dict[str, int]:
    """What was done for the memo, less what was not."""
    stats = session.stats()
    return {name: stats[counter] for name, counter in ACTIONS.items() if stats[counter]}


def short(session: tos.Session) -> ResidualProgram:
    found = kept(session)
    assert found.short is not None
    return found.short


def ops(found: ResidualProgram) -> set[str]:
    return {step.kernel.op for step in found.program.steps.items}


def both(text: str, **options: Any) -> tuple[tos.Session, tos.Session]:
    return tos.load(model(text), options=Options(**options)), tos.load(
        model(text), options=Options(capture="off")
    )


def agree(session: tos.Session, eager: tos.Session, feeds: Iterable[Mapping[str, Any]]) -> None:
    """Every run gives what an eager one gives, bit by bit, and no result can be spoilt by its owner."""
    for feed in feeds:
        copies = {name: value.clone() for name, value in feed.items()}
        for got, want in zip(session.run(None, feed), eager.run(None, copies), strict=True):
            assert got.dtype == want.dtype and torch.equal(got, want)
            got.zero_()
        assert all(torch.equal(feed[name], value) for name, value in copies.items())


def lengths(numbers: Iterable[int], *rest: int) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(n, *rest)} for n in numbers]


@pytest.mark.parametrize("batch", [1, 3])
def test_m14_a_growing_decode_is_never_wrong_and_never_ineligible(batch: int) -> None:
    size = Size()
    proto = make_decoder(size)
    session, eager = tos.load(proto), tos.load(proto, options=Options(capture="off"))
    names = [port.name for port in session.outputs]
    feed = first_feed(size, batch, past=5)
    for _ in range(40):
        results = dict(zip(names, eager.run(None, feed), strict=True))
        agree(session, eager, [feed])
        feed = next_feed(feed, results)
    assert actions(session) == {"primed": 2, "replayed": 36}
    found = short(session)
    total = len(proto.graph.node)
    assert found.dropped > total * 0.5
    assert "Shape" not in ops(found)
    assert not any(wants_tensor for _, _, wants_tensor in found.even)


def test_m14_a_decode_from_an_empty_cache() -> None:
    size = Size(layers=1)
    proto = make_decoder(size)
    session, eager = tos.load(proto), tos.load(proto, options=Options(capture="off"))
    names = [port.name for port in session.outputs]
    feed = first_feed(size, 1, past=0)
    for _ in range(12):
        results = dict(zip(names, eager.run(None, feed), strict=True))
        agree(session, eager, [feed])
        feed = next_feed(feed, results)
    assert actions(session) == {"primed": 2, "replayed": 8}


READ = (
    "s = Shape(h) d = Gather(s, at) e = Unsqueeze(d, zero) t = Concat <axis = 0> (e, one) y = Expand(w, t)"
    " p = Shape(x) c = Gather(p, one) z = Expand(w, c)"
)
HIDDEN = {
    "broadcast": ("float[n, 1] x", "h = Add(x, row)", (1,)),
    "flipped broadcast": ("float[n, 1] x", "r = Add(x, row) h = Transpose(r)", (1,)),
    "reshape": ("float[n, 6] x", "h = Reshape(x, merged)", (6,)),
    "flatten": ("float[n, 2, 3] x", "h = Flatten <axis = 2> (x)", (2, 3)),
    "matmul batch": ("float[n, 2, 4] x", "h = MatMul(x, square)", (2, 4)),
    "tile": ("float[n, 2] x", "h = Tile(x, thrice)", (2,)),
    "pad": ("float[n, 2] x", "h = Pad(x, around)", (2,)),
    "range": ("float[n, 2] x", "q = Shape(x) m = Gather(q, at) h = Range(at, m, step)", (2,)),
    "two thirds": ("float[n, 2] x", "h = Slice(x, zero, far, zero, thirds)", (2,)),
    "limit": ("float[n, 2] x", "h = Slice(x, zero, ten, zero)", (2,)),
    "square": ("float[n, 1] x", "v = Transpose(x) o = Mul(x, v) h = Reshape(o, flat)", (1,)),
    "concat": ("float[n, 2] x", "h = Concat <axis = 0> (x, pair, x)", (2,)),
}
CONSTANTS = (
    "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] ten = {10}, int64[1] far = {1000}, int64 step = {1},"
    " int64[1] thirds = {3}, int64[2] merged = {-1, 3}, int64[1] flat = {-1}, int64[2] thrice = {3, 1},"
    " int64[4] around = {1, 0, 1, 0}, float[1, 4] row = {1, 2, 3, 4}, float[1, 2] pair = {1, 2},"
    " float[4, 4] square = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, float[1, 1] w = {7},"
    " int64 at = {0}>"
)


def hidden(name: str) -> str:
    declared, nodes, _ = HIDDEN[name]
    return f"g ({declared}) => (float[a, b] y, float[e, f] z) {CONSTANTS} {{ {nodes} {READ} }}"


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("by", [1, 2])
def test_m14_growth_that_hides_is_never_wrong(name: str, by: int) -> None:
    session, eager = both(hidden(name))
    agree(session, eager, lengths(range(3, 30, by), *HIDDEN[name][2]))
    done = actions(session)
    assert done["replayed"] > 0 and "ineligible" not in done
    assert done.get("rebuilt", 0) == (name in {"two thirds", "limit", "square"})
    found = short(session)
    if "rebuilt" in done:
        assert all_kept(session)[0].wild and "Shape" in ops(found)
    else:
        assert "Shape" not in ops(found) and "Gather" not in ops(found)


def test_m14_two_dims_that_grow_at_other_rates_begin_anew_and_then_stay_eager() -> None:
    text = (
        "g (float[n, 2] x, float[m, 2] v) => (float[a, b] y, float[c, d] z)"
        " <float[1, 1] w = {7}> { s = Shape(x) y = Expand(w, s) t = Shape(v) z = Expand(w, t) }"
    )
    session, eager = both(text)
    n, m, generator = 2, 2, torch.Generator().manual_seed(0)
    feeds = []
    for step in torch.randint(1, 5, (120, 2), generator=generator).tolist():
        n, m = n + step[0], m + step[1]
        feeds.append({"x": torch.zeros(n, 2), "v": torch.zeros(m, 2)})
    agree(session, eager, feeds)
    assert actions(session)["ineligible"] > 0 and all_kept(session)[0].latched
    assert session.stats()[counters.EAGER] > 40


def test_m14_a_second_and_shorter_decode_begins_anew_and_a_longer_one_goes_on() -> None:
    session, eager = both(hidden("reshape"))
    agree(session, eager, lengths(range(10, 20), 6))
    assert actions(session) == {"primed": 2, "replayed": 6}
    agree(session, eager, lengths(range(12, 22), 6))
    assert actions(session) == {"primed": 2, "replayed": 14}
    agree(session, eager, lengths(range(3, 13), 6))
    assert actions(session) == {"primed": 3, "rebuilt": 1, "replayed": 21}


def test_m14_another_dim_that_grows_is_another_form() -> None:
    session, eager = both(
        "g (float[b, n] x) => (float[c, d] y) <float[1, 1] w = {7}> { s = Shape(x) y = Expand(w, s) }"
    )
    sizes = [(2, n) for n in range(3, 9)] + [(b, 8) for b in range(3, 9)] + [(b, b + 1) for b in range(9, 15)]
    agree(session, eager, [{"x": torch.zeros(size)} for size in sizes])
    assert len(all_kept(session)) == 3
    assert all(one.short is not None for one in all_kept(session))


def test_m14_signatures_that_take_turns_are_captured_all_the_same() -> None:
    session = session_on(hidden("matmul batch"))
    for _ in range(4):
        for n in (3, 5):
            session.run(None, {"x": torch.zeros(n, 2, 4)})
    assert states(session) == ["captured", "captured"]
    assert not actions(session)


def test_m14_where_nothing_is_known_beforehand_runs_are_captured_as_ever() -> None:
    session = session_on("g (float[n] x) => (float[n] y) { y = Exp(x) }")
    for _ in range(12):
        for n in (3, 4, 5, 6):
            session.run(None, {"x": torch.zeros(n)})
    assert set(states(session)) == {"captured"}
    assert "replayed" not in actions(session) and actions(session)["ineligible"] > 0


def test_m14_random_steps_draw_as_in_eager_runs_also_when_a_run_is_begun_again() -> None:
    text = hidden("limit").replace("h = Slice", "r = RandomNormalLike(x) h = Slice")
    text = text.replace("(float[a, b] y", "(float[i, j] r, float[a, b] y")
    session, eager = both(text)
    for n in range(3, 20):
        feed = {"x": torch.zeros(n, 2)}
        torch.manual_seed(n)
        got = session.run(None, feed)
        after = torch.get_rng_state()
        torch.manual_seed(n)
        want = eager.run(None, feed)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
        assert torch.equal(after, torch.get_rng_state())
    assert actions(session)["rebuilt"] > 0 and actions(session)["replayed"] > 0


PICK = (
    "g (float[n, 2] x, int64[1] i) => (float[a, b] y, float[c, d] z) <float[1, 1] w = {7}>"
    " { s = Shape(x) y = Expand(w, s) z = Gather(x, i) }"
)


def test_m14_bad_data_is_told_in_the_eager_runs_words_and_costs_nothing() -> None:
    session, eager = both(PICK)
    for n in range(3, 9):
        agree(session, eager, [{"x": torch.zeros(n, 2), "i": torch.tensor([n - 1])}])
    bad = {"x": torch.zeros(9, 2), "i": torch.tensor([9])}
    told = message(tos.SessionError, lambda: session.run(None, bad))
    assert told == message(tos.SessionError, lambda: eager.run(None, bad))
    before = actions(session)["replayed"]
    agree(session, eager, [{"x": torch.zeros(n, 2), "i": torch.tensor([n - 1])} for n in range(10, 14)])
    assert actions(session) == {"primed": 2, "replayed": before + 4}


def test_m14_a_fault_of_the_memo_itself_costs_the_memo_and_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    session, eager = both(PICK)
    feeds = [{"x": torch.zeros(n, 2), "i": torch.tensor([n - 1])} for n in range(3, 12)]
    agree(session, eager, feeds[:6])

    def broken(*_: object) -> list[Value]:
        raise RuntimeError("broken")

    monkeypatch.setattr(growing, "_shortened", broken)
    agree(session, eager, feeds[6:])
    assert all_kept(session)[0].latched and actions(session)["ineligible"] == 3


def test_m14_verify_compares_each_run_with_a_full_one() -> None:
    session, eager = both(PICK, verify=True)
    feeds = [{"x": torch.zeros(n, 2), "i": torch.tensor([n - 1])} for n in range(3, 16)]
    agree(session, eager, feeds[:8])
    assert session.stats()[counters.PROBES] == actions(session)["replayed"] == 4
    assert session.stats()[counters.MISMATCHES] == 0
    found = kept(session)
    (even, names, wants_tensor) = short(session).even[0]
    wrong = dataclasses.replace(even, base=(even.base[0] + 1, *even.base[1:]))
    found.short = dataclasses.replace(short(session), even=((wrong, names, wants_tensor),))
    agree(session, eager, feeds[8:])
    assert session.stats()[counters.MISMATCHES] == 1 and found.latched


def test_m14_static_results_belong_to_their_owner() -> None:
    session, eager = both(
        "g (float[n, 2] x) => (int64[2] s, int64 d, float[e, f] y, int64[1] k)"
        " <int64 one = {1}, int64 at = {0}, int64[1] zero = {0}, float[1, 1] w = {7}>"
        " { s = Shape(x) d = Gather(s, at) y = Expand(w, s) c = Gather(s, one) k = Unsqueeze(c, zero) }"
    )
    agree(session, eager, lengths(range(3, 30), 2))
    assert actions(session) == {"primed": 2, "replayed": 23}


def test_m14_a_bound_run_and_a_required_capture_do_without() -> None:
    session = session_on(hidden("reshape"), capture="required")
    for n in range(3, 12):
        session.run(None, {"x": torch.zeros(n, 6)})
    assert not actions(session)


def test_m14_little_knowledge_does_not_keep_a_signature_that_comes_again_from_its_capture() -> None:
    nodes = " ".join(f"a{i + 1} = Exp(a{i})" for i in range(12))
    text = (
        "g (float[n, 2] a0) => (float[n, 2] a12, float[c, d] y) <float[1, 1] w = {7}>"
        f" {{ {nodes} s = Shape(a0) y = Expand(w, s) }}"
    )
    session = session_on(text)
    for n in range(3, 9):
        session.run(None, {"a0": torch.zeros(n, 2)})
    assert actions(session) == {"primed": 2, "replayed": 2} and short(session).dropped == 1
    for _ in range(3):
        for n in range(3, 9):
            session.run(None, {"a0": torch.zeros(n, 2)})
    assert states(session) == ["captured"] * 6


def test_m14_a_trace_shows_the_steps_that_are_run_and_changes_none() -> None:
    session, eager = both(hidden("reshape"))
    agree(session, eager, lengths(range(3, 9), 6))
    done = actions(session)["replayed"]
    with session.trace() as timeline:
        agree(session, eager, lengths((9,), 6))
    assert actions(session)["replayed"] == done + 1
    assert [span.name for span in timeline.spans if span.kind == "op"] == ["Reshape", "Expand"]


def test_m14_release_memory_drops_what_is_kept() -> None:
    session, eager = both(hidden("reshape"))
    agree(session, eager, lengths(range(3, 9), 6))
    assert "steps are known beforehand" in str(session._engine.state.growth)
    session.release_memory()
    assert not all_kept(session)
    agree(session, eager, lengths(range(9, 15), 6))
    assert actions(session) == {"primed": 4, "replayed": 4}


def test_m14_forms_have_a_cap() -> None:
    memo = GrowthCache(forms=2)
    program = tos.load(model(PICK))._engine.program(("y", "z"))[0]
    forms = []
    for width in range(2, 6):
        signatures = [signature_of(("y",), {"x": torch.zeros(n, width)}, ()) for n in (3, 4)]
        grown = grown_since(*signatures)
        assert grown is not None and grown.dims == (4,)
        forms.append(grown.form)
        memo.kept(grown.form, program)
    assert list(memo._entries) == forms[2:]


GREW = {
    "grew": ({"x": torch.zeros(3, 2)}, {"x": torch.zeros(4, 2)}, (4,)),
    "both grew": ({"x": torch.zeros(3, 2)}, {"x": torch.zeros(4, 3)}, (4, 3)),
    "the same": ({"x": torch.zeros(3, 2)}, {"x": torch.zeros(3, 2)}, None),
    "shrank": ({"x": torch.zeros(3, 2)}, {"x": torch.zeros(4, 1)}, None),
    "another dtype": ({"x": torch.zeros(3, 2)}, {"x": torch.zeros(4, 2).double()}, None),
    "another rank": ({"x": torch.zeros(3, 2)}, {"x": torch.zeros(4, 2, 1)}, None),
    "another name": ({"x": torch.zeros(3, 2)}, {"v": torch.zeros(4, 2)}, None),
    "another feed": ({"x": torch.zeros(3, 2)}, {"x": torch.zeros(4, 2), "v": torch.zeros(1)}, None),
    "no tensor": ({"x": torch.zeros(3)}, {"x": (torch.zeros(3),)}, None),
    "a longer sequence": ({"x": (torch.zeros(3),)}, {"x": (torch.zeros(3), torch.zeros(3))}, None),
}


@pytest.mark.parametrize("name", GREW)
def test_m14_what_counts_as_growth(name: str) -> None:
    before, after, dims = GREW[name]
    grown = grown_since(signature_of(("y",), before, ()), signature_of(("y",), after, ()))
    assert (None if grown is None else grown.dims) == dims
