"""M17, M19, M20: bound outputs are written by every run, whatever makes them, and never through an alias."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from binding.drivers import DRIVERS, drive_replay
from textmodel import load, model

import torch_ort_session as tos

Drive = Callable[[tos.Binding], None]

PRODUCERLESS = {
    "an initializer": "g (float[3] x) => (float[3] y, float[3] z) <float[3] y = {1, 2, 3}> { z = Neg(x) }",
    "a constant": "g (float[3] x) => (float[3] y, float[3] z) { y = Constant <value = float[3] {1, 2, 3}> ()"
    " z = Neg(x) }",
    "folded": "g (float[3] x) => (int64[1] y, float[3] z) { y = Shape(x) z = Neg(x) }",
    "the input itself": "g (float[3] x) => (float[3] x, float[3] z) { z = Neg(x) }",
    "handed through": "g (float[3] x) => (float[3] y, float[3] z) { y = Identity(x) z = Neg(x) }",
    "a view of the input": "g (float[3] x) => (float[3, 1] y, float[3] z) <int64[2] s = {3, 1}>"
    " { y = Reshape(x, s) z = Neg(x) }",
}


@pytest.mark.parametrize("drive", DRIVERS)
@pytest.mark.parametrize("case", PRODUCERLESS)
def test_m19_an_output_that_no_node_makes_is_written_every_run(case: str, drive: Drive) -> None:
    proto = model(PRODUCERLESS[case])
    session, plain = tos.load(proto), tos.load(proto, options=tos.Options(capture="off"))
    x = torch.zeros(3)
    names = [port.name for port in session.outputs]
    bound = [torch.empty_like(value) for value in plain.run(None, {"x": x})]
    binding = session.bind()
    binding.input("x", x)
    for name, tensor in zip(names, bound, strict=True):
        binding.output(name, tensor)
    for step in range(7):
        x.fill_(step + 0.5)
        for tensor in bound:
            tensor.fill_(-99)  # the caller may do so between runs
        drive(binding)
        for got, want in zip(bound, plain.run(None, {"x": x}), strict=True):
            assert torch.equal(got, want), step


@pytest.mark.parametrize("drive", DRIVERS)
def test_m19_weights_are_never_what_the_caller_holds(drive: Drive) -> None:
    session = load("g (float[2] x) => (float[2] w, float[2] y) <float[2] w = {3, 4}> { y = Mul(x, w) }")
    binding, w = session.bind(), torch.zeros(2)
    binding.input("x", torch.ones(2))
    binding.output("w", w)
    for _ in range(6):
        drive(binding)
        assert torch.equal(w, torch.tensor([3.0, 4.0]))
        assert torch.equal(binding.read("y"), torch.tensor([3.0, 4.0]))
        w.zero_()


@pytest.mark.parametrize("drive", DRIVERS)
def test_m20_two_names_of_one_value_are_two_tensors(drive: Drive) -> None:
    session = load("g (float[2] x) => (float[2] y, float[2] z) { y = Exp(x) z = Identity(y) }")
    binding, x, y = session.bind(), torch.zeros(2), torch.zeros(2)
    binding.input("x", x)
    binding.output("y", y)
    for step in range(6):
        x.fill_(step)
        drive(binding)
        z = binding.read("z")
        assert torch.equal(y, x.exp()) and torch.equal(z, y)
        y.zero_()
        assert torch.equal(z, x.exp())


@pytest.mark.parametrize("drive", DRIVERS)
def test_m17_an_output_that_is_the_old_state(drive: Drive) -> None:
    """The state's new value is written at the end of the run: what aliases the old one must not see it."""
    session = load(
        "g (float[2, 2] h) => (float[2, 2] next, float[2, 2] old, float[4] flat, float[2, 2] turned)"
        " <float one = {1}, int64[1] s = {4}>"
        " { next = Add(h, one) old = Identity(h) flat = Reshape(h, s) turned = Transpose(h) }"
    )
    h, old, turned = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 2), torch.zeros(2, 2)
    binding = session.bind()
    binding.state("h", "next", h)
    binding.output("old", old)
    binding.output("turned", turned)
    for step in range(6):
        before = h.clone()
        drive(binding)
        assert torch.equal(h, before + 1), step
        assert torch.equal(old, before)
        assert torch.equal(turned, before.t())
        assert torch.equal(binding.read("flat"), before.reshape(4))


@pytest.mark.parametrize("drive", DRIVERS)
def test_m18_states_that_hand_their_values_on(drive: Drive) -> None:
    session = load(
        "g (float[2] x, float[2] a, float[2] b, float[2] c) => (float[2] na, float[2] nb, float[2] nc,"
        " float[2] same) { na = Identity(x) nb = Identity(a) nc = Neg(b) same = Identity(c) }"
    )
    x, a, b, c = (torch.full((2,), float(i)) for i in range(4))
    binding = session.bind()
    binding.input("x", x)
    binding.state("a", "na", a)
    binding.state("b", "nb", b)
    binding.state("c", "nc", c)
    expected = [1.0, 2.0, 3.0]
    for step in range(8):
        x.fill_(10 + step)
        last = expected[2]
        expected = [10 + step, expected[0], -expected[1]]
        drive(binding)
        assert [float(t[0]) for t in (a, b, c)] == expected
        assert float(binding.read("same")[0]) == last


@pytest.mark.parametrize("drive", DRIVERS)
def test_m18_a_state_that_the_model_leaves_as_it_is(drive: Drive) -> None:
    session = load(
        "g (float[2] h, float[2] x) => (float[2] same, float[2] y) { same = Identity(h) y = Add(h, x) }"
    )
    h, x = torch.ones(2), torch.ones(2)
    binding = session.bind()
    binding.state("h", "same", h)
    binding.input("x", x)
    for _ in range(5):
        drive(binding)
        assert torch.equal(h, torch.ones(2))
        assert torch.equal(binding.read("y"), 2 * torch.ones(2))
    assert session.stats()["bytes delivered"] == 0


def test_m17_a_feed_that_is_a_bound_outputs_memory() -> None:
    session = load("g (float[3] x) => (float[3] same, float[3] y) { same = Identity(x) y = Neg(x) }")
    held = torch.tensor([1.0, 2.0, 3.0])
    binding = session.bind()
    binding.output("y", held)
    for _ in range(6):
        before = held.clone()
        binding.run({"x": held})
        assert torch.equal(held, -before)
        assert torch.equal(binding.read("same"), before)


def test_m18_bound_inputs_are_read_when_the_run_starts_and_never_copied() -> None:
    session = load("g (float[3] x) => (float[3] y) { y = Neg(x) }")
    binding, x, y = session.bind(), torch.zeros(3), torch.zeros(3)
    binding.input("x", x)
    binding.output("y", y)
    drive_replay(binding)
    for step in range(5):
        x.fill_(step)
        drive_replay(binding)
        assert torch.equal(y, -x)
    assert session.stats()["static input bytes"] == session.stats()["bytes copied"] == 0


def test_m21_a_sequence_beside_bound_tensors() -> None:
    session = load(
        "g (float[4] x) => (seq(float[k]) parts, float[4] y) { parts = SplitToSequence(x) y = Neg(x) }"
    )
    binding, x, y = session.bind(), torch.zeros(4), torch.zeros(4)
    binding.input("x", x)
    binding.output("y", y)
    for step in range(6):
        x.fill_(step)
        binding.run()
        assert torch.equal(y, -x)
        parts = binding.read("parts")
        assert isinstance(parts, tuple) and all(float(part) == step for part in parts)


@pytest.mark.parametrize("drive", DRIVERS)
@pytest.mark.parametrize(
    "name",
    [
        *("float", "float16", "bfloat16", "double", "int8", "int16", "int32", "int64", "uint8", "uint16"),
        *(
            "uint32",
            "uint64",
            "bool",
            "complex64",
            "complex128",
            "float8e4m3fn",
            "float8e5m2",
            "int4",
            "uint4",
        ),
    ],
)
def test_every_dtype_reaches_its_place(name: str, drive: Drive) -> None:
    text = f"g ({name}[n] x, {name}[n] h) => ({name}[m] y, {name}[n] g)"
    session = load(f"{text} {{ y = Concat <axis = 0> (h, x) g = Identity(x) }}")
    dtype = session.inputs[0].dtype
    binding = session.bind()
    x, h, y = (torch.zeros(count).to(dtype) for count in (4, 4, 8))
    binding.input("x", x)
    binding.state("h", "g", h)
    binding.output("y", y)
    for step in range(5):
        before = bits(h).clone()
        x.copy_(torch.full((4,), step % 2).to(dtype))
        drive(binding)
        assert torch.equal(bits(h), bits(x))
        assert torch.equal(bits(y), torch.cat((before, bits(x))))


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)


@pytest.mark.parametrize("drive", DRIVERS)
def test_nothing_at_all_is_written_too(drive: Drive) -> None:
    session = load("g (float[n] x, float[m, 2] h) => (float[n] y, float[m, 2] g) { y = Neg(x) g = Exp(h) }")
    binding, x, h = session.bind(), torch.zeros(0), torch.zeros(0, 2)
    binding.input("x", x)
    binding.state("h", "g", h)
    binding.output("y", torch.zeros(0))
    for _ in range(4):
        drive(binding)
    assert h.shape == (0, 2)


@pytest.mark.parametrize("drive", DRIVERS)
def test_m18_bodies_read_what_is_bound(drive: Drive) -> None:
    """A body that ignored the binding would see what was there when it was captured."""
    session = load(
        "g (float[2] x, bool[1] f, float[2] h) => (float[2] g, float[2] y) {"
        " z = If (f) <then_branch = t () => (float[2] a) { a = Add(x, h) },"
        " else_branch = e () => (float[2] b) { b = Sub(x, h) }>"
        " g = Add(z, x) y = Neg(g) }"
    )
    session._engine.state.dispatcher.learnt.demoted.add("f")
    binding, x, f, h = session.bind(), torch.ones(2), torch.tensor([True]), torch.zeros(2)
    binding.input("x", x)
    binding.input("f", f)
    binding.state("h", "g", h)
    expected = torch.zeros(2)
    for step in range(8):
        x.fill_(step)
        f.fill_(step % 3 != 1)
        expected = (x + expected if step % 3 != 1 else x - expected) + x
        drive(binding)
        assert torch.equal(h, expected), step
        assert torch.equal(binding.read("y"), -expected)
