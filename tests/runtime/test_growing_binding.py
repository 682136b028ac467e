"""M14 and M15 with bindings: bound tensors that grow, and views of bound tensors that stay."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from textmodel import model

import torch_ort_session as tos
from benchmarks.decoder import Size, first_feed, make_decoder, next_feed
from torch_ort_session import Binding, Options
from torch_ort_session.trace import counters

Feed = dict[str, torch.Tensor]
SIZE = Size(layers=2)
NAMES = ["logits", *(f"present.{layer}.{part}" for layer in range(2) for part in ("key", "value"))]
CACHES = [name for name in NAMES if name != "logits"]


@pytest.fixture(scope="module")
def proto() -> Any:
    return make_decoder(SIZE)


def growth(session: tos.Session) -> dict[str, int]:
    names = (counters.PRIMED, counters.REBUILT, counters.GROWN, counters.INELIGIBLE, counters.CAPTURES)
    stats = session.stats()
    return {name.rpartition(" ")[2]: stats[name] for name in names if stats[name]}


def past(name: str) -> str:
    return name.replace("present", "past")


def same(binding: Binding, want: dict[str, torch.Tensor]) -> None:
    for name, value in want.items():
        got = binding.read(name)
        assert got.shape == value.shape
        torch.testing.assert_close(got, value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("verify", [False, True])
def test_m14_a_longer_cache_bound_at_each_step(proto: Any, verify: bool) -> None:
    session, eager = tos.load(proto, options=Options(verify=verify)), tos.load(proto)
    binding = session.bind()
    feed = first_feed(SIZE, past=5)
    for _ in range(14):
        for name in CACHES:
            binding.input(past(name), feed[past(name)])
        rest = {name: value for name, value in feed.items() if "past" not in name}
        binding.run(rest)
        want = dict(zip(NAMES, eager.run(None, feed), strict=True))
        same(binding, want)
        feed = next_feed(feed, want)
    assert growth(session) == {"primed": 2, "replayed": 10, "captures": 1}
    assert session.stats()[counters.MISMATCHES] == 0


@pytest.mark.parametrize("verify", [False, True])
def test_m14_a_state_whose_length_grows(proto: Any, verify: bool) -> None:
    session, eager = tos.load(proto, options=Options(verify=verify)), tos.load(proto)
    binding = session.bind()
    feed = first_feed(SIZE, past=5)
    states = {name: torch.zeros(1, SIZE.groups, 64, SIZE.width) for name in CACHES}
    for name, state in states.items():
        state[:, :, :5] = feed[past(name)]
        binding.state(past(name), name, state, capacity_dim=2, length=5)
    logits = torch.zeros(1, 1, SIZE.words)
    binding.output("logits", logits)
    for token in range(14):
        rest = {name: value for name, value in feed.items() if "past" not in name}
        binding.run(rest)
        want = dict(zip(NAMES, eager.run(None, feed), strict=True))
        same(binding, want)
        torch.testing.assert_close(logits, want["logits"], rtol=1e-6, atol=1e-6)
        assert all(binding.length(name) == 6 + token for name in CACHES)
        feed = next_feed(feed, want)
    assert growth(session) == {"primed": 2, "replayed": 10, "captures": 1}
    # Back to a shorter prompt, in place.
    for name in CACHES:
        binding.set_length(name, 3)
    feed = first_feed(SIZE, past=3)
    for name, state in states.items():
        state[:, :, :3] = feed[past(name)]
    for _ in range(8):
        binding.run({name: value for name, value in feed.items() if "past" not in name})
        want = dict(zip(NAMES, eager.run(None, feed), strict=True))
        same(binding, want)
        feed = next_feed(feed, want)
    found = growth(session)
    assert found["rebuilt"] == 1 and found["captures"] == 2 and "ineligible" not in found


def test_m14_a_binding_and_its_session_grow_apart(proto: Any) -> None:
    session, eager = tos.load(proto), tos.load(proto)
    binding = session.bind()
    bound, fed = first_feed(SIZE, past=30, seed=1), first_feed(SIZE, past=5)
    for _ in range(12):
        binding.run(bound)
        want = dict(zip(NAMES, eager.run(None, bound), strict=True))
        same(binding, want)
        bound = next_feed(bound, want)
        got = session.run(None, fed)
        for one, other in zip(got, eager.run(None, fed), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        fed = next_feed(fed, dict(zip(NAMES, got, strict=True)))
    assert growth(session)["captures"] == 2 and "rebuilt" not in growth(session)
    session.release_memory()
    assert session.stats()["static input bytes"] == 0


def test_m14_a_result_that_does_not_fit_leaves_bound_tensors_as_they_were(proto: Any) -> None:
    session = tos.load(proto)
    binding = session.bind()
    feed = first_feed(SIZE, past=5)
    state = torch.zeros(1, SIZE.groups, 18, SIZE.width)
    binding.state("past.0.key", "present.0.key", state, capacity_dim=2, length=5)
    for _ in range(13):
        binding.run({name: value for name, value in feed.items() if name != "past.0.key"})
        results = {name: binding.read(name) for name in NAMES}
        feed = next_feed(feed, results)
    assert binding.length("past.0.key") == 18
    before = state.clone()
    with pytest.raises(tos.InputError, match="has room for 18"):
        binding.run({name: value for name, value in feed.items() if name != "past.0.key"})
    assert torch.equal(state, before) and binding.length("past.0.key") == 18
    # The memo is none the worse for it.
    binding.set_length("past.0.key", 10)
    feed = first_feed(SIZE, past=10)
    state[:, :, :10] = feed["past.0.key"]
    binding.run({name: value for name, value in feed.items() if name != "past.0.key"})
    want = tos.load(proto, options=Options(capture="off")).run(None, feed)
    same(binding, dict(zip(NAMES, want, strict=True)))


def test_m14_bound_tensors_of_one_size_are_read_as_they_are_at_each_run() -> None:
    text = (
        "g (float[n, 2] x, float[2, 2] k) => (float[a, b] y, float[c, d] z) <float[1, 1] w = {7}>"
        " { e = Exp(k) f = MatMul(e, k) y = MatMul(x, f) s = Shape(x) z = Expand(w, s) }"
    )
    session, eager = tos.load(model(text)), tos.load(model(text))
    binding = session.bind()
    k = torch.zeros(2, 2)
    binding.input("k", k)
    for n in range(3, 14):
        k.fill_(n / 10)
        x = torch.randn(n, 2)
        binding.run({"x": x})
        for name, want in zip(("y", "z"), eager.run(None, {"x": x, "k": k}), strict=True):
            torch.testing.assert_close(binding.read(name), want)
    assert growth(session)["captures"] == 1
