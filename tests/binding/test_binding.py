"""Bindings as users drive them: run, capture, replay, read and write."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from binding.decoders import WIDTH, WORDS, cell, fixed, growing
from binding.drivers import DRIVERS, drive_replay, drive_run
from expecttest import assert_expected_inline
from textmodel import load, message, model

import torch_ort_session as tos

EAGER = tos.Options(capture="off")


@pytest.mark.parametrize(
    ("drive", "capture"), [(drive_run, "auto"), (drive_run, "off"), (drive_replay, "auto")]
)
def test_m18_a_state_advances_once_a_run(drive: Callable[[tos.Binding], None], capture: str) -> None:
    session = tos.load(cell(), options=tos.Options(capture=capture))  # type: ignore[arg-type]
    plain = tos.load(cell(), options=EAGER)
    x, h, y = torch.empty(1, 4), torch.zeros(1, 4), torch.empty(1, 4)
    binding = session.bind()
    binding.input("x", x)
    binding.state("h", "h_next", h)
    binding.output("y", y)
    expected = torch.zeros(1, 4)
    for step in range(12):
        x.copy_(torch.randn(1, 4))
        want, expected = plain.run(["y", "h_next"], {"x": x, "h": expected})
        drive(binding)
        assert torch.equal(h, expected), step
        assert torch.equal(y, want), step
    assert session.stats()["bytes copied"] == 0
    assert session.stats()["captures"] == (capture == "auto")


@pytest.mark.parametrize("drive", DRIVERS)
def test_m18_200_tokens_of_fixed_capacity_are_one_capture(drive: Callable[[tos.Binding], None]) -> None:
    capacity = 200
    session, plain = tos.load(fixed(capacity)), tos.load(fixed(capacity), options=EAGER)
    token, position = torch.zeros(1, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.int64)
    keys, values, logits = torch.zeros(capacity, WIDTH), torch.zeros(capacity, WIDTH), torch.empty(1, WORDS)
    binding = session.bind()
    binding.input("token", token)
    binding.input("position", position)
    binding.state("past_k", "present_k", keys)
    binding.state("past_v", "present_v", values)
    binding.output("logits", logits)
    k, v, t = torch.zeros(capacity, WIDTH), torch.zeros(capacity, WIDTH), torch.zeros(1, dtype=torch.int64)
    for step in range(capacity):
        feed = {"token": t, "position": torch.tensor([[step]]), "past_k": k, "past_v": v}
        want, k, v = plain.run(None, feed)
        position.fill_(step)
        drive(binding)
        assert torch.equal(logits, want), step
        t = want.argmax(1)
        token.copy_(logits.argmax(1))
    assert torch.equal(keys, k)
    assert torch.equal(values, v)
    stats = session.stats()
    assert stats["captures"] == 1
    assert stats["replays"] >= capacity - 3
    assert stats["retirements"] == stats["declines"] == 0


def test_m18_200_tokens_of_a_growing_cache() -> None:
    session, plain = tos.load(growing()), tos.load(growing(), options=EAGER)
    keys, values = torch.zeros(200, WIDTH), torch.zeros(2, 200, WIDTH)[1]
    token, logits = torch.zeros(1, dtype=torch.int64), torch.empty(1, WORDS)
    binding = session.bind()
    binding.input("token", token)
    binding.state("past_k", "present_k", keys, capacity_dim=0)
    binding.state("past_v", "present_v", values, capacity_dim=-2)
    binding.output("logits", logits)
    k, v, t = torch.zeros(0, WIDTH), torch.zeros(0, WIDTH), torch.zeros(1, dtype=torch.int64)
    for step in range(200):
        assert binding.length("past_k") == binding.length("present_v") == step
        want, k, v = plain.run(None, {"token": t, "past_k": k, "past_v": v})
        binding.run()
        assert torch.equal(logits, want), step
        t = want.argmax(1)
        token.copy_(t)
    assert torch.equal(keys, k)
    assert torch.equal(values, v)
    # Of both caches only the new entry was written, beside the logits.
    assert session.stats()["bytes delivered"] == 200 * 4 * (2 * WIDTH + WORDS)
    before = keys.clone()
    text = message(tos.InputError, binding.run)
    assert_expected_inline(
        text,
        """\
state 'past_k': the new value has 201 entries along dim 0, the bound tensor has room for 200;
bind a larger tensor, or go back with set_length()""",
    )
    assert torch.equal(keys, before)
    assert binding.length("past_k") == 200


def test_a_feed_beside_what_is_bound() -> None:
    session = tos.load(cell())
    h = torch.zeros(1, 4)
    binding = session.bind()
    binding.state("h", "h_next", h)
    for step in range(6):
        before, x = h.clone(), torch.randn(1, 4)
        binding.run({"x": x})
        y, after = tos.load(cell(), options=EAGER).run(None, {"x": x, "h": before})
        assert torch.equal(h, after), step
        assert torch.equal(binding.read("y"), y)
    assert_expected_inline(
        message(tos.InputError, lambda: binding.run({"x": torch.zeros(1, 4), "h": h})),
        """input 'h' is bound and was fed as well; leave it out of the feed, or unbind() it""",
    )
    assert_expected_inline(
        message(tos.InputError, binding.run), """required input(s) 'x' are missing; 'h' was fed"""
    )
    assert_expected_inline(
        message(tos.InputError, lambda: binding.run([torch.zeros(1, 4)])),  # type: ignore[arg-type]
        """feed is a mapping from input names to values, not a list""",
    )


def test_an_unbound_output_is_the_callers_and_stays() -> None:
    session = tos.load(cell())
    x, h = torch.ones(1, 4), torch.zeros(1, 4)
    binding = session.bind()
    binding.input("x", x)
    binding.state("h", "h_next", h)
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(6):
        binding.run()
        y = binding.read("y")
        assert torch.equal(y, 2 * h)
        held.append((y, y.clone()))
    for y, then in held:
        assert torch.equal(y, then)


def test_read_gives_copies_and_write_sets_lengths() -> None:
    session = tos.load(growing())
    binding, cache = session.bind(), torch.zeros(6, WIDTH)
    binding.state("past_k", "present_k", cache, capacity_dim=0)
    binding.write("past_k", torch.ones(4, WIDTH))
    assert binding.length("past_k") == 4
    got = binding.read("present_k")
    assert torch.equal(got, torch.ones(4, WIDTH))
    got.zero_()
    assert bool((cache[:4] == 1).all())
    binding.set_length("present_k", 2)
    assert binding.read("past_k").shape == (2, WIDTH)
    binding.write("past_k", [[3.0] * WIDTH])
    assert binding.length("past_k") == 1
    assert bool((cache[0] == 3).all())
    assert_expected_inline(
        message(tos.InputError, lambda: binding.write("past_k", torch.ones(7, WIDTH))),
        """\
state 'past_k': the new value has 7 entries along dim 0, the bound tensor has room for 6; bind a
larger tensor, or go back with set_length()""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: binding.write("past_k", torch.ones(1, WIDTH).double())),
        """\
input 'past_k': got dtype float64, expected float32[p, 8]; convert it, with .to(torch.float32)
for example: a feed is never cast silently""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: binding.read("logits")),
        """\
'logits' is not bound to anything, nor an output that a run has given; bound are: 'past_k',
'present_k'""",
    )
    assert_expected_inline(
        message(tos.InputError, lambda: binding.write("token", 1)),
        """'token' is not bound; bound are: 'past_k', 'present_k'""",
    )


def test_a_snapshot_puts_states_and_lengths_back() -> None:
    session = tos.load(growing())
    token, keys, values = torch.zeros(1, dtype=torch.int64), torch.zeros(9, WIDTH), torch.zeros(9, WIDTH)
    binding = session.bind()
    binding.input("token", token)
    binding.state("past_k", "present_k", keys, capacity_dim=0)
    binding.state("past_v", "present_v", values, capacity_dim=0)
    for step in range(3):
        token.fill_(step)
        binding.run()
    saved = binding.snapshot()
    token.fill_(7)
    binding.run()
    first, logits = keys[:4].clone(), binding.read("logits")
    keys.fill_(-1)
    values.fill_(-1)
    binding.restore(saved)
    assert binding.length("past_k") == binding.length("past_v") == 3
    binding.run()
    assert torch.equal(keys[:4], first)
    assert torch.equal(binding.read("logits"), logits)
    binding.unbind("past_v")
    assert_expected_inline(
        message(tos.InputError, lambda: binding.restore(saved)),
        """the snapshot is of other states: past_k, past_v; bound are: past_k""",
    )


def test_what_is_bound_is_shown() -> None:
    binding = tos.load(growing()).bind()
    binding.input("token", torch.zeros(1, dtype=torch.int64))
    binding.state("past_k", "present_k", torch.zeros(9, WIDTH), capacity_dim=0, length=2)
    binding.output("logits", torch.zeros(1, WORDS))
    assert_expected_inline(
        repr(binding),
        """\
Binding of '<proto>' on cpu
  input 'token': int64[1]
  state 'past_k' -> 'present_k': float32[9, 8], 2 valid along 0
  output 'logits': float32[1, 12]""",
    )


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_binding_does_not_travel(way: Callable[[tos.Binding], object]) -> None:
    binding = tos.load(cell()).bind()
    with pytest.raises(TypeError, match=r"holds memory and cannot be copied or pickled"):
        way(binding)


def test_gradients_stay_out() -> None:
    session = load("g (float[n] x) => (float[n] y) { y = Tanh(x) }")
    x, y = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    binding = session.bind()
    binding.input("x", x)
    binding.output("y", y)
    for _ in range(5):
        binding.run()
    assert y.grad_fn is None
    assert torch.equal(y.detach(), x.detach().tanh())


def test_bindings_work_in_the_callers_modes() -> None:
    session = load("g (float[n] x) => (float[n] y) { y = Tanh(x) }")
    x, y = torch.ones(3), torch.zeros(3)
    binding = session.bind()
    binding.input("x", x)
    binding.output("y", y)
    for _ in range(4):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            x.add_(1)
            binding.run()
        assert torch.equal(y, x.tanh())


def test_strides_are_followed() -> None:
    session = load("g (float[2, 3] x) => (float[2, 3] y) { y = Mul(x, x) }")
    x, y = torch.arange(6.0).reshape(3, 2).t(), torch.zeros(3, 4)[:, ::2].t()
    binding = session.bind()
    binding.input("x", x)
    binding.output("y", y)
    for step in range(6):
        x.add_(step)
        binding.run()
        assert torch.equal(y, x * x), step
    assert session.stats()["replays"] == 3


@pytest.mark.parametrize("drive", DRIVERS)
def test_several_precisions(drive: Callable[[tos.Binding], None]) -> None:
    for name, dtype in [("float16", torch.float16), ("bfloat16", torch.bfloat16), ("int64", torch.int64)]:
        proto = model(f"g ({name}[n] x, {name}[n] h) => ({name}[n] s) {{ s = Add(x, h) }}")
        binding = tos.load(proto).bind()
        x, h = torch.ones(5, dtype=dtype), torch.zeros(5, dtype=dtype)
        binding.input("x", x)
        binding.state("h", "s", h)
        for step in range(1, 7):
            drive(binding)
            assert bool((h == step).all())


def test_a_session_counts_and_explains_the_signatures_of_its_bindings() -> None:
    session = load("g (float[n] x, float[n] h) => (float[n] y) { a = Exp(x) y = Mul(a, h) }")
    binding, y = session.bind(), torch.zeros(3)
    binding.input("x", torch.ones(3))
    binding.output("y", y)
    for _ in range(4):
        binding.run({"h": torch.ones(3)})
    stats = session.stats()
    assert (stats["signatures"], stats["plans"], stats["static input bytes"]) == (1, 1, 12)
    assert session.explain().splitlines()[0] == (
        "(x: float32[3], h: float32[3]) -> (y), bound: x, y: captured after 4 runs"
    )
    del binding
    assert session.stats()["signatures"] == session.stats()["plans"] == 0
