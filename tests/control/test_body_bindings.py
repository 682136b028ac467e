"""Bodies in runs through a binding: states advance once a run, whatever becomes of the captures of bodies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from bodylab import long, plans
from runtime.capturelab import Failing, counted, injected, refusal, session_on

import torch_ort_session as tos
from torch_ort_session.runtime.recorders.api import Recorder

CAPTURED, REPLAYED = "body captures", "body replays"
STATEFUL = (
    "g (float[n] x, float[n] h, int64[1] k, float[n] w) => (float[n] y, float[n] g) { k1 = Squeeze(k)"
    " p = Add(x, h) g, y = Loop (k1, , p, p) <body = b (int64 i, bool c, float[n] s, float[n] t) => (bool d,"
    f" float[n] r, float[n] u) {{ d = Identity(c) a = Add(s, t) {long('a', 'r')} u = Neg(s) }}> }}"
)
FLIPS = (
    "g (float[n] x, bool[1] f, float[n] h, float[n] w) => (float[m] y, float[n] g) { g = Add(h, x)"
    f" z = If (f) <then_branch = t () => (float[n] a) {{ {long('x', 'a')} }},"
    f" else_branch = e () => (float[k] b) {{ {long('x', 'q', 'e')} b = Concat <axis = 0> (q, q) }}>"
    " y = Neg(z) }"
)


def bound(session: tos.Session, trips: int) -> tuple[tos.Binding, dict[str, torch.Tensor]]:
    held = {"x": torch.randn(4), "h": torch.randn(4), "k": torch.tensor([trips]), "w": torch.randn(4)}
    binding = session.bind()
    for name in ("x", "k", "w"):
        binding.input(name, held[name])
    binding.state("h", "g", held["h"])
    return binding, held


def failing(at: int) -> Callable[[], Recorder]:
    made: list[Recorder] = []

    def make() -> Recorder:
        made.append(Failing(at if len(made) < 2 else -1, refusal))
        return made[-1]

    return make


@pytest.mark.parametrize("at", [-1, 1, 2, 9])
@pytest.mark.parametrize("captured", [False, True])
def test_m10_a_state_that_a_loop_advances_advances_once_a_run(captured: bool, at: int) -> None:
    session, eager = session_on(STATEFUL), session_on(STATEFUL, capture="off")
    injected(session, failing(at))
    binding, held = bound(session, 4)
    for step in range(8):
        want = eager.run(None, held)
        if captured and step == 0:
            before = held["h"].clone()
            if binding.capture() is not None:
                assert torch.equal(held["h"], before)
                continue
        else:
            binding.run()
        assert torch.equal(binding.read("y"), want[0])
        assert torch.equal(held["h"], want[1])
    assert counted(session, CAPTURED)[0] >= 1


def test_m9_a_flip_to_another_shape_ends_a_replay_though_both_branches_are_captured() -> None:
    session, eager = session_on(FLIPS), session_on(FLIPS, capture="off")
    session._engine.state.dispatcher.learnt.demoted.add("f")
    held = {"x": torch.randn(2), "f": torch.tensor([True]), "h": torch.zeros(2), "w": torch.randn(2)}
    for flag in (False, False, False, True, True, True):
        session.run(None, {**held, "f": torch.tensor([flag])})
    assert counted(session, CAPTURED) == (2,)
    binding = session.bind()
    for name in ("x", "f", "w"):
        binding.input(name, held[name])
    binding.state("h", "g", held["h"])
    for flags in ([True, True, False], [False, False, True]):
        for place, flag in enumerate(flags):
            held["f"].fill_(flag)
            want = eager.run(None, held)
            valid = (binding.capture() is None) if place == 0 else binding.replay()
            assert valid is (place < 2)
            assert torch.equal(binding.read("y"), want[0]) and torch.equal(held["h"], want[1])
    assert counted(session, CAPTURED, "body retirements") == (2, 0)
    assert len(plans(session)) >= 2
