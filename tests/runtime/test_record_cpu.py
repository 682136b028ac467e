"""The CPU's recorder: what it refuses, leaves behind and plans, and its native tape beside one in Python."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from finishing import finish
from pytape import PyTapes
from tapecases import CASES
from tapelab import data, load_provoking_ops, needs_extension, tape_recorder, trial
from torch.overrides import _len_torch_function_stack

from torch_ort_session.errors import KernelError
from torch_ort_session.ops import native
from torch_ort_session.runtime.recorders import devices
from torch_ort_session.runtime.recorders.api import Recorder, RecordingStats, Refused
from torch_ort_session.runtime.recorders.devices import recorder_for
from torch_ort_session.runtime.recorders.tape.recorder import TapeRecorder

CPU = torch.device("cpu")


def recorders() -> list[Any]:
    return [
        pytest.param(lambda: TapeRecorder(PyTapes()), id="python"),
        pytest.param(tape_recorder, id="native", marks=needs_extension),
    ]


both = pytest.mark.parametrize("make", recorders())


def modes() -> tuple[int, int, bool, bool, bool]:
    return (
        _len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_cache_enabled(),
    )


def test_without_the_extension_there_is_no_recorder_for_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "status", lambda: native.Status(None, False, "extension not built"))
    assert recorder_for(CPU) is None
    assert devices.unavailable(CPU) == "extension not built"


def test_there_is_no_recorder_for_other_devices() -> None:
    assert recorder_for(torch.device("meta")) is None
    assert devices.unavailable(torch.device("meta")) == "there is no recorder for meta devices"


@needs_extension
def test_with_the_extension_there_is_a_recorder_for_the_cpu() -> None:
    assert devices.unavailable(CPU) == ""
    assert isinstance(recorder_for(CPU), TapeRecorder)


@both
def test_a_refusal_names_reason_and_op_and_leaves_no_mode_on(make: Callable[[], Recorder]) -> None:
    before, x = modes(), data(0)
    with pytest.raises(Refused) as caught:
        make().record(lambda: x[x > 0].sum())
    assert caught.value.op == "aten.index.Tensor"
    assert_expected_inline(str(caught.value), """aten.index.Tensor: its result's shape depends on a mask""")
    assert modes() == before


@both
def test_an_error_of_the_body_comes_as_it_is_and_leaves_no_mode_on(make: Callable[[], Recorder]) -> None:
    before, x = modes(), data(0)
    with pytest.raises(RuntimeError, match="size of tensor") as caught:
        make().record(lambda: x + torch.ones(3))
    assert type(caught.value) is RuntimeError
    assert modes() == before


@both
def test_an_interrupt_leaves_no_mode_on(make: Callable[[], Recorder]) -> None:
    before = modes()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make().record(interrupted)
    assert modes() == before


@both
def test_a_swallowed_refusal_still_refuses(make: Callable[[], Recorder]) -> None:
    x = data(0)

    def body() -> None:
        try:
            x.tolist()
        except Exception:
            x.add_(1)

    with pytest.raises(Refused, match="tolist"):
        make().record(body)


@both
def test_a_refusal_keeps_the_error_that_names_the_node(make: Callable[[], Recorder]) -> None:
    x = data(0)

    def body() -> None:
        try:
            x.nonzero()
        except Exception as error:
            raise KernelError(str(error), node="n", op="NonZero") from error

    with pytest.raises(Refused) as caught:
        make().record(body)
    assert isinstance(caught.value.__cause__, KernelError)
    assert caught.value.__cause__.node == "n"
    assert caught.value.op == "aten.nonzero.default"


@both
def test_modes_are_back_after_a_recording(make: Callable[[], Recorder]) -> None:
    before, x = modes(), data(0)
    make().record(lambda: x.add_(1))
    assert modes() == before


@both
def test_calls_of_other_threads_are_not_recorded(make: Callable[[], Recorder]) -> None:
    x, other = data(0), data(1)
    worker = threading.Thread(target=lambda: [other.mul_(1) for _ in range(50)])

    def body() -> None:
        worker.start()
        x.add_(1)
        worker.join()

    assert make().record(body).stats.calls == 1


@needs_extension
def test_two_threads_record_at_the_same_time() -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        try:
            for turn in range(10):
                x, results = data(seed + turn), []
                recording = tape_recorder().record(lambda x=x, results=results: results.append(chain(x)))
                finish(recording, [*results, x])
                x.mul_(2)
                recording.replay()
                wrong.extend([] if torch.equal(results[0], chain(x)) else [seed])
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(100 * i,)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@both
def test_views_are_not_replayed(make: Callable[[], Recorder]) -> None:
    x, results = data(0), []
    recording = make().record(lambda: results.append(x.t()[2:].reshape(3, 2, 4).flatten(1).add(1)))
    assert (recording.stats.calls, recording.stats.views) == (2, 4)


@both
def test_a_copy_is_written_in_place(make: Callable[[], Recorder]) -> None:
    x = data(0)
    recording = make().record(lambda: x.t().contiguous().to(torch.float64).sum(0))
    assert finish(recording, [x]).fresh == 0


# Results that alias each other, or that a call both writes and gives, are more than a copy can rebuild.
ALIASING = {"fused convolution that adds in place", "two results in one storage"}
AGREEING = [name for name, (_, came) in CASES.items() if came == "right" and name not in ALIASING]


@pytest.mark.parametrize("name", AGREEING)
@needs_extension
def test_native_and_python_tapes_agree(name: str) -> None:
    load_provoking_ops()
    body, _ = CASES[name]
    assert trial(body, TapeRecorder(PyTapes())) == "right"


def chain(x: torch.Tensor) -> torch.Tensor:
    """Eight activations of 64 KiB in a row, each written over the one before, and two functional ones."""
    for _ in range(8):
        x = torch.relu(x)
    return torch.roll(torch.roll(x, 1, 0), 1, 1) + 0


@needs_extension
def test_slots_are_shared_and_functional_results_are_released() -> None:
    x, results = torch.ones(128, 128), []
    recording = tape_recorder().record(lambda: results.append(chain(x)))
    size = 128 * 128 * 4
    assert finish(recording, [*results, x]) == RecordingStats(
        calls=11,
        views=0,
        arena=size,
        bound=size,
        fresh=2 * size,
        kept=size,
        naive=11 * size,
        slotted=8 * size,
        functional=2 * size,
        live=2 * size,
    )


@needs_extension
def test_the_block_comes_from_the_caller() -> None:
    asked: list[int] = []
    x, results = torch.ones(128, 128), []

    def block(nbytes: int) -> torch.Tensor:
        asked.append(nbytes)
        return torch.empty(nbytes, dtype=torch.uint8)

    recording = tape_recorder().record(lambda: results.append(chain(x)))
    assert asked == [] and [finish(recording, [*results, x], block).arena] == asked


@needs_extension
def test_slots_lie_within_the_part_of_memory_that_is_given() -> None:
    x, held = torch.ones(8, 8), []
    memory = torch.empty(4096, dtype=torch.uint8)

    def body() -> None:
        held.append(x * 2)
        x.copy_(held[0])

    recording = tape_recorder().record(body)
    finish(recording, [x], lambda nbytes: memory[1024 : 1024 + nbytes])
    assert held[0].data_ptr() == memory.data_ptr() + 1024


@needs_extension
def test_a_recording_holds_its_block_until_it_is_closed() -> None:
    blocks: list[weakref.ref[torch.Tensor]] = []
    x, results = torch.ones(128, 128), []

    def block(nbytes: int) -> torch.Tensor:
        made = torch.empty(nbytes, dtype=torch.uint8)
        blocks.append(weakref.ref(made))
        return made

    recording = tape_recorder().record(lambda: results.append(chain(x)))
    finish(recording, [*results, x], block)
    assert blocks[0]() is not None
    recording.close()
    assert blocks[0]() is None


@needs_extension
def test_a_block_that_is_too_small_is_refused() -> None:
    x, results = torch.ones(128, 128), []
    recording = tape_recorder().record(lambda: results.append(chain(x)))
    with pytest.raises(RuntimeError, match="leaves its block"):
        finish(recording, [*results, x], lambda nbytes: torch.empty(nbytes - 1, dtype=torch.uint8))


@needs_extension
def test_a_recording_is_finished_once() -> None:
    x, results = data(0), []
    recording = tape_recorder().record(lambda: results.append(chain(x)))
    finish(recording, [*results, x])
    with pytest.raises(RuntimeError, match="planned once"):
        finish(recording, [*results, x])


@needs_extension
def test_a_recording_replays_before_it_is_finished() -> None:
    x, results = data(0), []
    recording = tape_recorder().record(lambda: results.append(chain(x)))
    x.copy_(data(1))
    recording.replay()
    assert torch.equal(results[0], chain(data(1)))


@needs_extension
def test_what_is_foreign_is_neither_placed_nor_released() -> None:
    x, held, results = data(0), [], []

    def body() -> None:
        held.extend([x * 2, torch.roll(x, 1, 1)])
        results.append(held[0] + held[1])

    recording = tape_recorder().record(body)
    stats = finish(recording, [*results, x, *held])
    recording.replay()
    assert stats.arena == stats.fresh == 0
    assert torch.equal(held[0] + held[1], results[0])


@needs_extension
def test_a_view_of_a_result_keeps_all_of_it() -> None:
    x, results = data(0), []
    recording = tape_recorder().record(lambda: results.append((x * 2).t()[1:3]))
    finish(recording, [*results, x])
    x.copy_(data(1))
    recording.replay()
    assert torch.equal(results[0], (data(1) * 2).t()[1:3])


@needs_extension
def test_m3_a_result_in_memory_that_no_recorded_call_wrote_is_refused() -> None:
    x, results = data(0), []
    recording = tape_recorder().record(lambda: results.append(torch._shape_as_tensor(x)))
    with pytest.raises(Refused, match="a result lies in memory that no recorded call wrote"):
        finish(recording, results)
    finish(recording, [])
