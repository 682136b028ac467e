"""The state machine on CUDA graphs, without a device: a fake driver lets nothing pass that CUDA forbids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fake_session import FakeTorch
from runtime.capturelab import BRANCHES, CHAIN, SEAMS, agree, counted, entries, reasons, same, states
from textmodel import declare, model, operator

import torch_ort_session as tos
from torch_ort_session.ir.text import byte_size
from torch_ort_session.plan.partition.report import Reason


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    made = FakeTorch()
    with made.watching(monkeypatch):
        yield made
    assert made.open_pools() == [] and made.capture is None


def eager(text: str) -> tos.Session:
    return tos.load(model(text), options=tos.Options(capture="off"))


def feed(length: int = 8) -> dict[str, Any]:
    return {"x": torch.rand(length) + 0.5, "w": torch.rand(length) + 1}


@pytest.mark.parametrize("text", [CHAIN, SEAMS])
def test_m2_replays_follow_their_feeds_and_leave_results_alone(driver: FakeTorch, text: str) -> None:
    session, plain = driver.session(model(text)), eager(text)
    held = []
    for step in range(12):
        given = feed(9 if step % 3 == 2 else 8)
        results = session.run(None, given)
        same(results, plain.run(None, given))
        held += [(result, result.clone()) for result in results]
    for result, then in held:
        assert torch.equal(result, then)
    assert counted(session, "captures", "replays", "quarantined operators") == (2, 6, 0)


def test_h3_h4_the_graphs_of_a_plan_share_a_stream_a_pool_and_one_flush(driver: FakeTorch) -> None:
    session = driver.session(model(SEAMS))
    for _ in range(5):
        session.run(None, feed())
    assert len(driver.graphs) == 2 and driver.flushes == 1
    assert (
        len({graph.stream for graph in driver.graphs}) == len({graph.pool() for graph in driver.graphs}) == 1
    )


def test_m13_reports_tell_of_the_pool_and_of_no_arena(driver: FakeTorch) -> None:
    session = driver.session(model(SEAMS))
    for _ in range(4):
        session.run(None, feed())
    stats, known = session.stats(), session.explain()
    assert stats["arena bytes"] == 0 < stats["graph pool bytes"]
    memory = known.partition("\nmemory\n")[2]
    assert memory.split()[:4] == ["graph", "pool", *byte_size(stats["graph pool bytes"]).split()]
    assert "arena" not in known
    planned = session.plan(feed()).memory
    assert planned is not None
    assert planned.pool == stats["graph pool bytes"]
    assert session.stats() == stats
    assert [graph.state for graph in driver.graphs].count("captured") == 2


def test_h6_runs_on_the_callers_stream(driver: FakeTorch) -> None:
    """Feeds are made on the stream that is current, and each run takes its turn after the one before."""
    session, plain = driver.session(model(SEAMS)), eager(SEAMS)
    streams = [driver.Stream(torch.device("cuda", 0)) for _ in range(2)]
    for step in range(10):
        with driver.stream(streams[step % 2]):
            agree(session, plain, feed())
        driver.synchronize()
    assert counted(session, "captures", "replays") == (1, 7)


def test_m9_branches_that_flip_to_another_shape(driver: FakeTorch) -> None:
    session, plain = driver.session(model(BRANCHES)), eager(BRANCHES)
    for step in range(16):
        agree(session, plain, {"x": (torch.rand(8) + 0.1) * (1 if step % 4 else -1)})
    assert counted(session, "captures") >= (2,) and counted(session, "retirements") >= (1,)
    assert {graph.state for graph in driver.graphs} <= {"captured", "reset"}


def test_h1_m8_what_reads_data_is_quarantined_and_leaves_nothing_open(driver: FakeTorch) -> None:
    @declare
    def Reads(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum().item())

    text = (
        "g (float[n] x, float[n] w) => (float[n] y)"
        " { a = Exp(x) b = Neg(a) e = tests.Reads(b) y = Mul(e, w) }"
    )
    with operator(Reads):
        session, plain = driver.session(model(text)), eager(text)
        for _ in range(6):
            agree(session, plain, feed())
            assert driver.open_pools() == []
    assert states(session) == ["captured"]
    assert session._engine.state.dispatcher.quarantined == {("tests", "Reads")}
    assert [graph.state for graph in driver.graphs] == ["reset", "captured", "captured"]


def test_h5_out_of_memory_in_a_capture_declines_it_and_quarantines_nothing(driver: FakeTorch) -> None:
    session, plain = driver.session(model(SEAMS)), eager(SEAMS)
    driver.scarce = True
    for _ in range(3):
        agree(session, plain, feed())
    assert reasons(session) == [Reason.MEMORY]
    assert counted(session, "quarantined operators", "captures") == (0, 0)
    assert {graph.state for graph in driver.graphs} == {"reset"}
    driver.scarce = False
    for _ in range(4):
        agree(session, plain, feed())
    assert counted(session, "captures", "replays") == (1, 2)


def test_h7_h8_two_sessions_take_turns(driver: FakeTorch) -> None:
    plain = {text: eager(text) for text in (SEAMS, CHAIN)}
    sessions = [(driver.session(model(text)), plain[text]) for text in (SEAMS, CHAIN, SEAMS)]
    for _ in range(7):
        for session, other in sessions:
            agree(session, other, feed())
    assert [counted(session, "captures", "replays") for session, _ in sessions] == [(1, 4)] * 3
    sessions[0][0].release_memory()
    for _ in range(4):
        for session, other in sessions:
            agree(session, other, feed())


def test_m7_a_divergence_retires_the_graphs_once_they_are_done(driver: FakeTorch) -> None:
    session, plain = driver.session(model(SEAMS)), eager(SEAMS)
    for _ in range(4):
        agree(session, plain, feed())
    captured = entries(session)[0].captured
    given = feed()
    given["x"][:3] = float("-inf")
    agree(session, plain, given)
    assert counted(session, "retirements") == (1,) and captured is not None
    assert [graph.state for graph in driver.graphs] == ["reset", "reset"]
    for _ in range(4):
        agree(session, plain, feed())


def test_h10_random_steps_draw_in_every_replay(driver: FakeTorch) -> None:
    text = "g (float[n] x, float[n] w) => (float[n] y) { a = Exp(x) r = RandomUniformLike(a) y = Mul(r, w) }"
    session, plain = driver.session(model(text)), eager(text)
    for step in range(8):
        given = feed()
        results = []
        for runs in (session, plain):
            torch.manual_seed(step)
            results.append((*runs.run(None, given), torch.get_rng_state()))
        same(*results)
    assert counted(session, "captures") == (1,)


def test_m16_release_resets_every_graph(driver: FakeTorch) -> None:
    session = driver.session(model(SEAMS))
    for length in (4, 5, 6):
        for _ in range(4):
            session.run(None, feed(length))
    session.release_memory()
    assert [graph.state for graph in driver.graphs] == ["reset"] * 6
