"""Key feeds: a host number that decides branches and shapes is part of the signature, until it varies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runtime.capturelab import agree, counted, pair, regions, same, states, warmed

RATE = (
    "g (float[1,n] x, int64 sr) => (float[1,k] y) <int64 fast = {16000}, float[1,1] f = {3}> {"
    " q = Equal(sr, fast) n = Neg(x)"
    " b = If (q) <then_branch = t () => (float[1,a] s) { m = Mul(n, f) s = Exp(m) },"
    " else_branch = e () => (float[1,c] s) { d = Concat <axis = 1> (n, n) s = Sin(d) }> y = Abs(b) }"
)
LENGTH = (
    "g (float[n] x, int64 k) => (float[m] y) <int64[1] a = {0}>"
    " { r = Unsqueeze(k, a) e = Exp(x) y = Tile(e, r) }"
)


def at(rate: Any) -> dict[str, Any]:
    return {"x": torch.randn(1, 6), "sr": rate}


def test_an_if_on_a_key_feed_folds_away() -> None:
    session, eager = pair(RATE)
    for step in range(12):
        agree(session, eager, at(torch.tensor(16000 if step % 3 else 8000)))
    captured = [entry.captured for entry in session._engine.state.dispatcher.entries.values()]
    assert [len(one.regions) for one in captured if one is not None] == [1, 1]
    assert regions(session) in (["4 recorded"], ["4 recorded", "Identity"], ["5 recorded"])


def test_key_feeds_that_come_as_python_numbers() -> None:
    session, eager = pair(RATE)
    for _ in range(4):
        for rate in (16000, 8000):
            given = at(rate)
            same(session.run(None, given), eager.run(None, given))
    assert states(session) == ["captured", "captured"]


def test_the_callers_key_tensor_may_change_in_place() -> None:
    session, eager = pair(RATE)
    rate = torch.tensor(0)
    for value in (16000, 8000, 16000, 16000, 8000, 8000, 16000, 8000, 1, 16000):
        rate.fill_(value)
        agree(session, eager, at(rate))
    assert counted(session, "captures") == (2,)


def test_a_view_of_a_key_feed_is_a_constant_of_the_plan() -> None:
    text = (
        "g (float[n] x, int64 k) => (float[n] y, int64[1] v) <int64[1] a = {0}, int64[1] one = {1}>"
        " { v = Unsqueeze(k, a) r = Expand(x, v) c = Cast <to = 1> (v) y = Add(r, c) }"
    )
    session, eager = pair(text)
    k = torch.tensor(5)
    held = []
    for value in (5, 5, 5, 5, 1, 1, 1, 1, 5, 1):
        k.fill_(value)
        given = {"x": torch.randn(1), "k": k}
        results = session.run(None, given)
        same(results, eager.run(None, given))
        results[1].add_(1)
        held.append((results[1], results[1].clone()))
    for result, then in held:
        assert torch.equal(result, then)


def test_a_fifth_value_makes_a_key_feed_data_and_results_stay_right() -> None:
    session, eager = pair(LENGTH)

    def times(k: int) -> dict[str, Any]:
        return {"x": torch.randn(3), "k": torch.tensor(k)}

    for k in (1, 2, 3, 4):
        for _ in range(4):
            agree(session, eager, times(k))
    assert counted(session, "plans", "demoted key feeds") == (4, 0)
    agree(session, eager, times(5))
    assert counted(session, "plans", "demoted key feeds") == (0, 1)
    for k in (1, 2, 3, 4, 5, 6, 7, 1, 1):
        agree(session, eager, times(k))
    assert regions(session) == ["2 recorded", "Tile"]
    assert counted(session, "captures", "retirements") == (5, 0)
    assert "key feeds with too many values: k" in session.explain()


@pytest.mark.parametrize("shape", [(), (1,)])
def test_bool_keys(shape: tuple[int, ...]) -> None:
    dims = "[1]" if shape else ""
    text = (
        f"g (float[n] x, bool{dims} c) => (float[m] y) {{ e = Exp(x) b = If (c) <then_branch = t () =>"
        " (float[a] s) { s = Neg(e) }, else_branch = f () => (float[d] s) { s = Concat <axis = 0> (e, e) }>"
        " y = Abs(b) }"
    )
    session, eager = pair(text)
    for step in range(16):
        agree(session, eager, {"x": torch.randn(3), "c": torch.full(shape, step % 4 < 2)})
    assert states(session) == ["captured", "captured"]
    assert all(
        len(e.captured.regions) == 1 for e in session._engine.state.dispatcher.entries.values() if e.captured
    )


def test_a_feed_that_decides_nothing_is_no_key() -> None:
    session, eager = pair("g (float[n] x, int64 k) => (float[n] y) { c = Cast <to = 1> (k) y = Add(x, c) }")
    for k in range(12):
        agree(session, eager, {"x": torch.randn(3), "k": torch.tensor(k)})
    assert counted(session, "captures", "signatures", "replays") == (1, 1, 9)


def test_a_default_that_is_not_fed_is_static_and_one_that_is_fed_is_not() -> None:
    text = "g (float[n] x, int64[1] k) => (float[m] y) <int64[1] k = {2}> { e = Exp(x) y = Tile(e, k) }"
    session, eager = pair(text)
    for step in range(24):
        given: dict[str, Any] = {"x": torch.randn(3)}
        if step % 2:
            given["k"] = torch.tensor([step % 3])
        agree(session, eager, given)
    assert set(states(session)) == {"captured"}


def test_a_branch_that_reads_the_key_and_a_weight_of_its_own() -> None:
    text = (
        "g (float[n] x, int64 k) => (float[n] y, int64 j) <int64 two = {2}> { q = Less(k, two)"
        " b, j = If (q) <then_branch = t () => (float[n] s, int64 i) <float[1] w = {3}>"
        " { s = Mul(x, w) i = Identity(k) },"
        " else_branch = e () => (float[n] s, int64 i) { s = Identity(x) i = Neg(k) }> y = Exp(b) }"
    )
    session, eager = pair(text)
    for step in range(20):
        given = {"x": torch.randn(3), "k": torch.tensor(step % 4)}
        results = session.run(None, given)
        same(results, eager.run(None, given))
        for result in results:
            result.add_(1)
    warmed(session, {"x": torch.randn(3), "k": torch.tensor(0)}, 1)
    assert states(session) == ["captured"] * 4
