"""After bad data nothing that is bound changes any more under the same ticket: no cache has a hole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from binding.decoders import fixed, growing
from expecttest import assert_expected_inline
from onnx import TensorProto, helper
from runtime.capturelab import counted, injected
from runtime.test_validation import unreadable, word_of
from textmodel import message, model

import torch_ort_session as tos
from torch_ort_session.runtime.bindings.attached import write
from torch_ort_session.runtime.validation import word as layout
from torch_ort_session.runtime.validation.validator import ValidationWord

CAPACITY, WIDTH, WORDS = 8, 8, 12
BAD = 99
LATE = ["deferred", "together", "deferred together"]
"""Ways in which the word is read after results were written."""


class Decoder:
    """A binding of a model that puts what belongs to a token at a position of a cache.

    Attributes:
        late: How it is asked whether data was bad.
    """

    def __init__(
        self, proto: onnx.ModelProto, late: str, states: dict[str, torch.Tensor], *dims: int
    ) -> None:
        self.late = late
        validate = "deferred" if "deferred" in late else "run"
        self.session = tos.load(proto, options=tos.Options(validate=validate))
        self.binding = self.session.bind()
        self.token = torch.zeros(1, dtype=torch.int64)
        self.states = states
        self.dims = dims
        inputs = [port.name for port in self.session.inputs]
        self.binding.input("token", self.token)
        port = next((port for port in self.session.inputs if port.name == "position"), None)
        self.position = torch.zeros(1 if port is None else port.shape, dtype=torch.int64)
        if port is not None:
            self.position = self.position.to(port.dtype)
            self.binding.input("position", self.position)
        names = [name for name in inputs if name.startswith("past")]
        for name, tensor in zip(names, states.values(), strict=True):
            self.binding.state(name, name.replace("past", "present"), tensor, *dims)
        for port in self.session.outputs:
            if not port.name.startswith("present"):
                self.states[port.name] = torch.zeros([d if isinstance(d, int) else 1 for d in port.shape])
                self.binding.output(port.name, self.states[port.name])
        self.names = names

    def step(self, token: int, position: int) -> None:
        self.token.fill_(token)
        self.position.fill_(position)
        self.binding.run()

    def state(self) -> list[Any]:
        lengths = [self.binding.length(name) for name in self.names] if self.dims else []
        return [*[tensor.clone() for tensor in self.states.values()], *lengths]

    def run(self, steps: list[tuple[int, int]]) -> None:
        """Steps under one ticket, or each under its own; asks at the end."""
        with self.binding.together() if "together" in self.late else contextlib.nullcontext():
            for token, position in steps:
                self.step(token, position)
                if "together" not in self.late:
                    self.session.check()
        self.session.check()


def same(got: list[Any], want: list[Any]) -> None:
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert torch.equal(ours, theirs) if isinstance(theirs, torch.Tensor) else ours == theirs


def caches(*shape: int) -> dict[str, torch.Tensor]:
    return {"k": torch.zeros(*shape), "v": torch.zeros(*shape)}


def scattering(op: str) -> onnx.ModelProto:
    """present = the past with the token's row at the position."""
    wide = f"[1, {CAPACITY}, {WIDTH}]" if op == "TensorScatter" else f"[{CAPACITY}, {WIDTH}]"
    head = (
        f"g (int64[1] token, int64[1] position, float{wide} past_k) => (float{wide} present_k, float[1] last)"
    )
    put = {
        "ScatterND": "at = Unsqueeze(position, one) present_k = ScatterND(past_k, at, row)",
        "ScatterElements": "at = Expand(position, dims) present_k = ScatterElements(past_k, at, row)",
        "TensorScatter": "row3 = Unsqueeze(row, zero) present_k = TensorScatter(past_k, row3, position)",
    }[op]
    body = f"{{ row = Gather(embed, token) {put} last = ReduceMax <keepdims = 0> (row) }}"
    text = f"{head} <int64[1] one = {{1}}, int64[1] zero = {{0}}, int64[2] dims = {{1, {WIDTH}}}> {body}"
    text = text.replace("float[1] last", "float last")
    return model(text, opset=24, ir=11, weights={"embed": rows()})


def rows() -> np.ndarray[Any, Any]:
    return np.arange(WORDS * WIDTH, dtype=np.float32).reshape(WORDS, WIDTH) + 1


def group_query() -> onnx.ModelProto:
    """One head over a cache of fixed capacity; the token's row holds query, key and value."""
    shape = [1, 1, CAPACITY, WIDTH]
    nodes = [
        helper.make_node("Gather", ["embed", "token"], ["row"]),
        helper.make_node("Unsqueeze", ["row", "zero"], ["qkv"]),
        helper.make_node(
            "GroupQueryAttention",
            ["qkv", "", "", "past_k", "past_v", "position", "total"],
            ["y", "present_k", "present_v"],
            domain="com.microsoft",
            num_heads=1,
            kv_num_heads=1,
        ),
    ]
    inputs = [
        helper.make_tensor_value_info("token", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("position", TensorProto.INT32, [1]),
        *[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("past_k", "past_v")],
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, WIDTH]),
        *[
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name in ("present_k", "present_v")
        ],
    ]
    weights = {
        "embed": np.tile(rows(), (1, 3)),
        "zero": np.zeros(1, np.int64),
        "total": np.full(1, CAPACITY, np.int32),
    }
    made = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, made)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


WRITERS: dict[str, Callable[[str], Decoder]] = {
    "ScatterND": lambda late: Decoder(scattering("ScatterND"), late, {"k": torch.zeros(CAPACITY, WIDTH)}),
    "ScatterElements": lambda late: Decoder(
        scattering("ScatterElements"), late, {"k": torch.zeros(CAPACITY, WIDTH)}
    ),
    "TensorScatter": lambda late: Decoder(
        scattering("TensorScatter"), late, {"k": torch.zeros(1, CAPACITY, WIDTH)}
    ),
    "GroupQueryAttention": lambda late: Decoder(group_query(), late, caches(1, 1, CAPACITY, WIDTH)),
    "a decoder of fixed capacity": lambda late: Decoder(fixed(CAPACITY), late, caches(CAPACITY, WIDTH)),
    "a decoder that grows": lambda late: Decoder(growing(), late, caches(CAPACITY, WIDTH), 0),
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("name", WRITERS)
def test_m12_tensors_and_lengths_are_those_before_the_step_that_met_bad_data(name: str, late: str) -> None:
    bad, clean = WRITERS[name](late), WRITERS[name]("run")
    good = [(3, 0), (5, 1), (7, 2), (2, 3)]
    for step in good:
        bad.run([step])
        clean.run([step])
    same(bad.state(), clean.state())
    # Two good steps, a bad one, and two more that must not be written behind the hole.
    before, after = [(1, 4), (4, 5)], [(6, 6), (8, 7)]
    with pytest.raises(tos.DeviceIndexError, match=f"index {BAD}"):
        bad.run([*before, (BAD, 6), *after])
    clean.run(before)
    same(bad.state(), clean.state())
    # Readers of a late run are told once more; then it goes on as if nothing had been.
    for _ in range(3):
        with contextlib.suppress(tos.DeviceIndexError):
            bad.binding.snapshot()
    bad.run(after)
    clean.run(after)
    same(bad.state(), clean.state())


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("name", ["ScatterND", "ScatterElements", "TensorScatter", "GroupQueryAttention"])
def test_m12_a_position_outside_of_the_cache_writes_nothing(name: str, late: str) -> None:
    one = WRITERS[name](late)
    for step in range(4):
        one.run([(step, step)])
    before = one.state()
    for position in (CAPACITY, CAPACITY + 1000):
        with pytest.raises(tos.DeviceIndexError, match=f"(index|position) {position} is outside"):
            one.run([(1, position)])
        with contextlib.suppress(tos.DeviceIndexError):
            one.binding.snapshot()
        same(one.state(), before)
    one.run([(4, 4)])
    assert any(torch.ne(ours, theirs).any() for ours, theirs in zip(one.state(), before, strict=True))


def test_m12_the_word_is_read_once_for_all_runs_of_a_ticket() -> None:
    one = WRITERS["ScatterND"]("run")
    for step in range(4):
        one.step(step, step)
    word, waits = word_of(one.session), []
    fetch = word.fetch
    word.fetch = lambda: waits.append(1) or fetch()  # type: ignore[func-returns-value]
    with one.binding.together():
        assert len(waits) == 1
        for step in range(4):
            one.step(step, step)
        assert len(waits) == 1
    assert len(waits) == 2
    assert counted(one.session, "replays") == (5,)


def test_m12_the_first_step_that_met_bad_data_is_told() -> None:
    one = WRITERS["ScatterND"]("run")
    with pytest.raises(tos.DeviceIndexError) as caught, one.binding.together():
        one.step(1, 1)
        one.step(BAD, 2)
        one.step(BAD + 1, 3)
    assert caught.value.value == BAD


def test_m12_who_reads_in_between_is_told_in_between() -> None:
    one = WRITERS["ScatterND"]("run")
    reached = []
    with pytest.raises(tos.DeviceIndexError), one.binding.together():
        one.step(1, 1)
        one.binding.read("last")
        one.step(BAD, 2)
        reached.append("written")
        one.binding.read("last")
        reached.append("read")
    assert reached == ["written"]
    one.step(1, 1)


def test_m12_together_within_together_is_one_ticket() -> None:
    one = WRITERS["ScatterND"]("run")
    generation = word_of(one.session).generation
    with one.binding.together(), one.binding.together():
        one.step(1, 1)
        one.step(2, 2)
    assert word_of(one.session).generation == generation + 1


@pytest.mark.parametrize("validate", ["run", "deferred"])
def test_m12_no_capture_relies_on_what_a_run_with_bad_data_showed_under_the_same_ticket(
    validate: str,
) -> None:
    text = """g (float[n] x, int64[1] k) => (float[n] y, float[m] z) <float[3] c = {1, 2, 3}> {
      p = Gather(c, k)  y = Add(x, p)  s = Identity(k)  z = Expand(x, s) }"""
    session = tos.load(model(text), options=tos.Options(validate=validate))
    binding, y, z = session.bind(), torch.zeros(1), torch.zeros(7)
    binding.input("x", torch.ones(1))
    binding.input("k", torch.tensor([7]))
    binding.output("y", y)
    binding.output("z", z)
    for _ in range(3):
        with pytest.raises(tos.DeviceIndexError), binding.together():
            for _ in range(4):
                binding.run()
            session.check()
        with pytest.raises(tos.DeviceIndexError):
            binding.run()
            session.check()
    assert not y.any()
    assert not z.any()


def test_m1_an_error_among_runs_together_comes_second() -> None:
    one = WRITERS["a decoder that grows"]("run")
    one.step(1, 0)
    before = one.state()
    with pytest.raises(tos.DeviceIndexError) as caught, one.binding.together():
        one.step(BAD, 0)
        raise LookupError("something else")
    assert isinstance(caught.value.__cause__, LookupError)
    same(one.state(), before)
    with pytest.raises(LookupError), one.binding.together():
        one.step(2, 0)
        raise LookupError("something else")
    assert one.binding.length("past_k") == before[-1] + 1


def test_m12_lengths_go_back_once_an_unreadable_word_was_read() -> None:
    one = WRITERS["a decoder that grows"]("run")
    one.step(1, 0)
    before, word = one.state(), word_of(one.session)
    with pytest.raises(OSError, match="lost"), contextlib.ExitStack() as stack:
        stack.enter_context(unreadable(word))
        fetch, word.fetch = word.fetch, word.word.tolist
        with one.binding.together():
            one.step(2, 0)
            one.step(BAD, 0)
            word.fetch = fetch
    assert one.binding.length("past_k") == before[-1] + 2
    with pytest.raises(tos.DeviceIndexError):
        one.session.check()
    assert one.binding.length("past_k") == before[-1] + 1


def test_m12_other_runs_wait_for_the_end_of_a_ticket() -> None:
    one = WRITERS["ScatterND"]("run")
    feed = {"token": torch.tensor([1]), "position": torch.tensor([1]), "past_k": torch.zeros(CAPACITY, WIDTH)}
    with one.binding.together():
        one.step(1, 1)
        for call in (
            lambda: one.session.run(None, feed),
            lambda: one.session.bind().together().__enter__(),
        ):
            assert_expected_inline(
                message(tos.DeviceValidationError, call),
                """\
whether the run before met bad data was not asked yet; runs of binding.together() are under way;
make other runs of the session after its block, or with another session""",
            )
        one.step(2, 2)
    one.session.run(None, feed)


@pytest.mark.parametrize("validate", ["run", "deferred"])
def test_m12_check_in_between_is_told_and_leaves_the_ticket_to_the_runs(validate: str) -> None:
    one = WRITERS["ScatterND"](validate)
    with one.binding.together():
        one.step(1, 1)
        one.session.check()
        one.step(2, 2)
        one.session.check()
    one.session.check()
    before = one.state()
    with pytest.raises(tos.DeviceIndexError), one.binding.together():
        one.step(BAD, 3)
        with pytest.raises(tos.DeviceIndexError):
            one.session.check()
        one.step(3, 3)
        one.session.check()
    same(one.state(), before)
    one.step(3, 3)
    one.session.check()


def test_m12_where_nobody_validates_runs_together_are_runs() -> None:
    session = tos.load(scattering("ScatterND"), options=tos.Options(validate="off"))
    binding, cache = session.bind(), torch.zeros(CAPACITY, WIDTH)
    binding.state("past_k", "present_k", cache)
    with binding.together():
        binding.run({"token": torch.tensor([BAD]), "position": torch.tensor([CAPACITY + 3])})
    assert torch.equal(cache[-1], torch.from_numpy(rows()[-1]))
    assert not cache[:-1].any()


def test_m12_writing_asks_the_word_on_the_device() -> None:
    word = ValidationWord(torch.device("cpu"))
    places = [torch.zeros(3), torch.zeros(2, dtype=torch.int64)]
    values = [torch.ones(3), torch.ones(2, dtype=torch.int64)]
    assert write(list(zip(places, values, strict=True)), (), word.word) == 28
    noted = [int(place == layout.DONE) for place in range(layout.SIZE)]
    assert places[0].tolist() == [1, 1, 1] and word.word.tolist() == noted
    word.word[0] = 1
    write([(place, value * 5) for place, value in zip(places, values, strict=True)], (), word.word)
    assert places[0].tolist() == [1, 1, 1] and places[1].tolist() == [1, 1]
    write([], (), word.word)
    assert word.word.tolist() == [1, *noted[1:]]


def test_m12_a_declined_capture_among_runs_together_changes_nothing() -> None:
    one = WRITERS["a decoder of fixed capacity"]("run")
    injected(one.session, lambda: "it was told not to")
    binding = one.session.bind()
    for name, tensor in (("past_k", torch.zeros(CAPACITY, WIDTH)), ("past_v", torch.zeros(CAPACITY, WIDTH))):
        binding.state(name, name.replace("past", "present"), tensor)
    with binding.together():
        assert binding.capture({"token": torch.tensor([1]), "position": torch.tensor([[0]])}) is not None
    assert not binding.read("past_k").any()
