"""What must hold when a tape replays: in any mode of the caller's, after failures, beside other tapes."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from expecttest import assert_expected_inline
from finishing import finish
from tapelab import data, forked, load_provoking_ops, needs_extension, tape_recorder

from torch_ort_session.ops.native import checks as native_checks
from torch_ort_session.runtime.recorders.api import Diverged, Recording, Refused
from torch_ort_session.runtime.validation import word as layout

pytestmark = needs_extension

W = torch.linspace(-1, 1, 64).view(8, 8)
BIAS = torch.linspace(-1, 1, 8)


def network(x: torch.Tensor) -> torch.Tensor:
    """Calls with and without `out`, views, a copy, a state-free norm and attention."""
    y = F.layer_norm(torch.relu(x @ W + BIAS), (8,))
    heads = y.view(1, 4, 2, 4).transpose(1, 2)
    z = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(4, 8)
    parts = torch.stack([z.cumsum(0), torch.roll(y, 1, 1)])
    return parts.mean(0).t().contiguous().t() + F.softmax(y, -1)


def made(
    body: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, **options: Any
) -> tuple[Recording, torch.Tensor]:
    """A finished recording of a body, and its result."""
    results: list[torch.Tensor] = []
    recording = tape_recorder(**options).record(lambda: results.append(body(x)))
    finish(recording, [*results, x])
    return recording, results[0]


def eager(body: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return body(x.clone())


def test_recording_runs_the_body_exactly_once() -> None:
    state, x = torch.zeros(4, 8), data(0)
    recording = tape_recorder().record(lambda: then_add(state, x))
    assert torch.equal(state, x)
    recording.replay()
    assert torch.equal(state, x + x)


def then_add(state: torch.Tensor, x: torch.Tensor) -> None:
    state.add_(x)


def test_replay_equals_eager_with_other_data() -> None:
    x = data(0)
    recording, result = made(network, x)
    for turn in (1, 2, 3):
        x.copy_(data(turn))
        recording.replay()
        assert torch.equal(result, eager(network, x))


def test_autograd_notices_that_a_replay_wrote_into_what_it_saved() -> None:
    state, x = torch.ones(3), torch.ones(3)
    recording = tape_recorder().record(lambda: state.add_(x))
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * state).sum()
    recording.replay()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_op_written_in_python_is_replayed() -> None:
    with torch.library._scoped_library("tapetest", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")

        def twice(x: torch.Tensor) -> torch.Tensor:
            if x.sum() < 0:
                raise LookupError("the sum is negative")
            return x * 2

        library.impl("twice", twice, "CPU")
        x = data(0).abs()
        recording, result = made(lambda t: torch.ops.tapetest.twice(t + 1) + 1, x)
        x.copy_(data(1).abs())
        recording.replay()
        assert torch.equal(result, (x + 1) * 2 + 1)
        x.fill_(-2)
        with pytest.raises(LookupError, match="the sum is negative"):
            recording.replay()
        recording.close()


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    """A mode of the caller's that would see every call."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


MODES: dict[str, Callable[[], Any]] = {
    "grad": torch.enable_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default dtype": lambda: default_dtype(torch.float64),
    "default device": lambda: torch.device("meta"),
    "two threads": lambda: threads(2),
    "dispatch mode": Counting,
    "profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
}


def with_factories(x: torch.Tensor) -> torch.Tensor:
    return network(x) + torch.full((8,), 2.0) + torch.arange(8) + torch.true_divide(torch.arange(8), 3)


@pytest.mark.parametrize("name", MODES)
def test_replay_does_not_depend_on_the_callers_mode(name: str) -> None:
    x = data(0)
    recording, result = made(with_factories, x)
    expected = eager(with_factories, data(1))
    x.copy_(data(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the profiler's own
        with MODES[name]() as mode:
            recording.replay()
    assert torch.equal(result, expected)
    assert not result.requires_grad
    assert not result.is_inference()
    assert not isinstance(mode, Counting) or mode.calls == 0


@pytest.mark.parametrize("name", ["grad", "inference", "autocast"])
def test_recording_within_a_mode_gives_plain_results(name: str) -> None:
    x, weight = data(0), W.clone().requires_grad_()

    def body(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight).to(torch.float32) + 1

    with MODES[name]():
        recording, result = made(body, x)
        x.copy_(data(1))
        recording.replay()
        expected = eager(body, x)
    assert torch.equal(result, expected)
    assert not result.requires_grad
    assert not result.is_inference()


def test_a_parameter_that_requires_grad_is_read_as_it_is() -> None:
    x, weight = data(0), W.clone().requires_grad_()
    recording, result = made(lambda x: x @ weight, x)
    with torch.no_grad():
        weight.mul_(2)
    recording.replay()
    assert torch.equal(result, x @ weight.detach())


def test_the_profiler_sees_the_calls_of_a_replay() -> None:
    x = data(0)
    recording, _ = made(network, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            recording.replay()
    names = {event.key for event in profile.key_averages()}
    assert {"aten::mm", "aten::_softmax", "aten::native_layer_norm"} <= names


def test_two_tapes_interleave() -> None:
    x, y = data(0), data(1)
    first, one = made(network, x)
    second, other = made(lambda t: network(t * 2) - 1, y)
    for turn in (2, 3, 4):
        x.copy_(data(turn))
        y.copy_(data(turn + 5))
        first.replay()
        second.replay()
        assert torch.equal(one, eager(network, x))
        assert torch.equal(other, eager(lambda t: network(t * 2) - 1, y))


def test_tapes_may_share_a_block_when_they_take_turns() -> None:
    block = torch.empty(1 << 16, dtype=torch.uint8)
    x = data(0)
    made_of: list[tuple[Recording, torch.Tensor]] = []
    for _ in range(2):
        results: list[torch.Tensor] = []
        recording = tape_recorder().record(lambda results=results: results.append(network(x)))
        finish(recording, [*results, x], lambda nbytes: block[256 : 256 + nbytes])
        made_of.append((recording, results[0]))
    x.copy_(data(1))
    for recording, result in made_of:
        recording.replay()
        assert torch.equal(result, eager(network, x))


def test_independent_tapes_replay_in_two_threads() -> None:
    x = [data(0), data(1)]
    tapes = [made(network, t) for t in x]
    expected = [eager(network, t) for t in x]
    wrong: list[int] = []

    def work(index: int) -> None:
        recording, result = tapes[index]
        for _ in range(200):
            recording.replay()
            if not torch.equal(result, expected[index]):
                wrong.append(index)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_interpreter_is_free_during_a_replay() -> None:
    x = torch.ones(400, 400)

    def heavy(x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = x @ x / 400
        return x

    with threads(1):
        recording, _ = made(heavy, x)
        done = threading.Event()
        worker = threading.Thread(target=lambda: (recording.replay(), done.set()))
        ticks = 0
        worker.start()
        while not done.wait(0.001):
            ticks += 1
        worker.join()
    assert ticks > 3


def test_one_tape_is_not_replayed_by_two_threads_at_once() -> None:
    x = torch.ones(300, 300)
    recording, _ = made(lambda t: t @ t @ t @ t @ t @ t @ t @ t, x)
    messages: list[str] = []

    def work() -> None:
        for _ in range(20):
            try:
                recording.replay()
            except RuntimeError as error:
                messages.append(str(error))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert set(messages) <= {"this tape is being replayed by another thread"}
    recording.replay()


def test_an_exception_in_a_replay_retires_the_tape_and_names_the_call() -> None:
    load_provoking_ops()
    x = data(0).abs()
    recording, result = made(lambda t: torch.ops.provoking.throws_on_negative(t * 2) * 3, x)
    before = result.clone()
    x.neg_()
    with pytest.raises(IndexError) as caught:
        recording.replay()
    assert str(caught.value).splitlines()[0] == "the sum is negative"
    assert_expected_inline(
        caught.value.__notes__[0], """in a replay, at call 1 (provoking::throws_on_negative)"""
    )
    assert torch.equal(result, before)
    x.neg_()
    with pytest.raises(RuntimeError) as again:
        recording.replay()
    assert_expected_inline(
        str(again.value).splitlines()[0], """this tape is retired: a call failed in a replay"""
    )


def test_an_index_out_of_range_in_a_replay_is_an_index_error() -> None:
    index = torch.tensor([0, 3])
    recording, _ = made(lambda i: torch.index_select(W, 0, i), index)
    index.fill_(99)
    with pytest.raises(IndexError, match="out of range"):
        recording.replay()
    assert torch.equal(eager(network, data(1)), eager(network, data(1)))


def test_a_divergence_retires_the_tape_and_names_the_call() -> None:
    load_provoking_ops()
    x = data(0).abs()
    recording, result = made(lambda t: torch.ops.provoking.hidden_length(t) * 2, x)
    before = result.clone()
    x.neg_()
    with pytest.raises(Diverged) as caught:
        recording.replay()
    assert_expected_inline(
        str(caught.value),
        """call 0 (provoking::hidden_length) diverged: another replay changed the shape""",
    )
    assert (caught.value.op, caught.value.call, caught.value.what) == (
        "provoking::hidden_length",
        0,
        "the shape",
    )
    assert torch.equal(result, before)
    with pytest.raises(RuntimeError) as again:
        recording.replay()
    assert_expected_inline(str(again.value).splitlines()[0], """this tape is retired: a replay diverged""")


def test_a_closed_tape_is_not_replayed() -> None:
    recording, result = made(network, data(0))
    before = result.clone()
    recording.close()
    recording.close()
    with pytest.raises(RuntimeError) as caught:
        recording.replay()
    assert_expected_inline(str(caught.value).splitlines()[0], """this tape is retired: closed""")
    assert torch.equal(result, before)


def test_a_result_outlives_its_tape_and_its_block() -> None:
    held: list[torch.Tensor] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        held.append(x * 2)  # lies in a slot once the tape is finished
        return held[0] + 1

    recording, _ = made(body, data(0), poison=False)
    recording.replay()
    recording.close()
    del recording
    gc.collect()
    held[0].fill_(7)
    assert held[0].sum().item() == 7 * 32


def test_what_is_not_kept_is_poisoned_after_its_last_reader() -> None:
    held: list[torch.Tensor] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        held.extend([x * 2, torch.roll(x, 1, 1)])
        return held[0] + held[1]

    recording, result = made(body, data(0))
    recording.replay()
    assert torch.isnan(held[0]).all()
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        held[1].clone()
    assert torch.equal(result, data(0) * 2 + torch.roll(data(0), 1, 1))


def test_a_slot_cannot_be_resized() -> None:
    held: list[torch.Tensor] = []

    def body(x: torch.Tensor) -> torch.Tensor:
        held.append(x * 2)
        return held[0] + 1

    made(body, data(0))
    with pytest.raises(RuntimeError, match="not resizable"):
        held[0].resize_(400, 800)


def test_memory_is_back_after_recordings_are_closed() -> None:
    def measured() -> str:
        def resident() -> int:
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        x = torch.ones(256, 1024)
        after = 0
        for cycle in range(110):
            recording, _ = made(lambda t: torch.roll(t * 2, 1, 0) + t.cumsum(0), x)
            recording.replay()
            recording.close()
            if cycle == 10:
                gc.collect()
                after = resident()
        gc.collect()
        grown = resident() - after
        # One tensor a cycle would be 100 MiB; blocks of malloc's come and go.
        return "steady" if grown < 16 << 20 else f"{grown} bytes grown"

    assert forked(measured) == "steady"


def test_a_failed_recording_leaves_no_tensor_behind() -> None:
    kept: list[weakref.ref[torch.Tensor]] = []

    def body(x: torch.Tensor) -> None:
        y = x * 2
        kept.append(weakref.ref(y))
        y.tolist()

    def attempt() -> None:
        x = data(0)
        with pytest.raises(Refused):
            tape_recorder().record(lambda: body(x))

    attempt()
    gc.collect()
    assert kept[0]() is None


def test_m11_a_replay_under_a_word_clears_it_and_tells_of_a_fault() -> None:
    check = native_checks.index_check()
    assert check is not None
    word = torch.zeros(layout.SIZE, dtype=torch.int32)
    index = torch.tensor([0, 2])
    results: list[torch.Tensor] = []
    recording = tape_recorder().record(lambda: results.append(check(index, 3, 5, word)))
    finish(recording, [*results, index, word])
    word.fill_(9)
    assert recording.replay(word) is False and word.tolist() == [0] * layout.SIZE
    index.copy_(torch.tensor([0, 7]))
    assert recording.replay(word) is True
    assert (word[layout.NODE], word[layout.VALUE]) == (5, 7) and results[0].tolist() == [0, 2]
    assert recording.replay() is False and word[layout.COUNT] == 2, "the word stays as it is without a ticket"
    index.zero_()
    assert recording.replay(word) is False and word.tolist() == [0] * layout.SIZE


@pytest.mark.parametrize(
    "word", [torch.zeros(7, dtype=torch.int32), torch.zeros(8), torch.zeros(16, dtype=torch.int32)[::2]]
)
def test_m11_what_is_no_word_is_refused(word: torch.Tensor) -> None:
    recording, _ = made(network, data(0))
    with pytest.raises(ValueError, match="the word is not an int32 tensor of 10 elements"):
        recording.replay(word)
    recording.replay()
