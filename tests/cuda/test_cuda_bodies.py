"""Bodies of If, Loop and Scan on CUDA graphs, without a device: see `fake_session.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from bodylab import CHOICE, STEADY, chosen, fed, long, looped
from fake_session import FakeTorch
from runtime.capturelab import agree, counted, same
from textmodel import model

import torch_ort_session as tos
from torch_ort_session.runtime.dynamic import control_flow as bodies

CAPTURED, REPLAYED = "body captures", "body replays"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTorch]:
    made = FakeTorch()
    with made.watching(monkeypatch):
        # The driver stands where a device is: it is nobody who has to see each call.
        monkeypatch.setattr(bodies, "stepwise", lambda: False)
        yield made
    assert made.open_pools() == [] and made.capture is None


def eager(text: str) -> tos.Session:
    return tos.load(model(text), options=tos.Options(capture="off"))


def test_m10_a_loops_body_is_one_graph_of_its_own(driver: FakeTorch) -> None:
    session, plain = driver.session(model(STEADY)), eager(STEADY)
    held = []
    for trips in (5, 5, 2, 0, 7):
        given = fed(trips=trips)
        results = session.run(None, given)
        same(results, plain.run(None, given))
        held += [(result, result.clone()) for result in results]
    for result, then in held:
        assert torch.equal(result, then)
    assert counted(session, CAPTURED, REPLAYED, "quarantined operators") == (1, 16, 0)
    assert len(driver.graphs) == 1
    session.release_memory()


def test_m9_branches_are_graphs_between_the_graphs_of_the_run(driver: FakeTorch) -> None:
    text = CHOICE.replace("=> (float[n] y) {", "=> (float[n] v) {")[:-2] + f" {long('y', 'v', 'o')} }}"
    session, plain = driver.session(model(text)), eager(text)
    for sign in (1, 1, 1, -1, -1, -1, 1, -1, 1):
        agree(session, plain, chosen(sign))
    assert counted(session, "captures", CAPTURED, REPLAYED) == (1, 2, 3)
    session.release_memory()


def test_m10_bodies_within_bodies(driver: FakeTorch) -> None:
    inner = (
        f"q (int64 j, bool f, float[n] p) => (bool h, float[n] u) {{ h = Identity(f) {long('p', 'u', 'i')} }}"
    )
    text = looped(
        "b (int64 i, bool c, float[n] s) => (bool d, float[n] r, float[n] o) { d = Identity(c)"
        f" {long('s', 'a')} e = Exp(a) l = Loop (k, , a) <body = {inner}> z = Mul(l, e) {long('z', 'r', 'k')}"
        " o = Sub(e, l) }",
        outputs="float[n] y, float[k,n] z",
    )
    session, plain = driver.session(model(text)), eager(text)
    for trips in (4, 2, 5):
        agree(session, plain, fed(trips=trips))
    assert counted(session, CAPTURED) == (2,)
    session.release_memory()
