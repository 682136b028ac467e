"""The CUDA recorder, against the fake driver and, where there is a device, for real.

Numbers such as H1 are those of the hazards of capturing.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from cudalab import KINDS, RealLab, make_lab
from expecttest import assert_expected_inline
from fake_driver import SEGMENT, FakeError, FakeLab
from finishing import allocated, finish

from torch_ort_session.runtime.recorders.api import Refused, Shared, Use
from torch_ort_session.runtime.recorders.cuda import CudaRecorder

CUDA = torch.device("cuda", 0)


@pytest.fixture(params=KINDS)
def lab(request: pytest.FixtureRequest) -> Any:
    return make_lab(request.param)


@pytest.fixture
def fake() -> FakeLab:
    return FakeLab()


def recorder(lab: Any, device: torch.device = CUDA) -> CudaRecorder:
    return CudaRecorder(device, lab.driver)


def test_h1_after_record_the_effects_took_place_once(lab: Any) -> None:
    state = lab.tensor(5.0)
    recording = recorder(lab).record(lambda: lab.add_(state, 1.0))
    assert lab.read(state) == 6.0
    recording.replay()
    recording.replay()
    assert lab.read(state) == 8.0


def test_replay_reads_what_its_inputs_hold_now(lab: Any) -> None:
    x, results = lab.tensor(1.0), []
    recording = recorder(lab).record(lambda: results.append(lab.plus(x, 10.0)))
    finish(recording, [*results, x])
    assert lab.read(results[0]) == 11.0
    lab.fill_(x, 5.0)
    recording.replay()
    assert lab.read(results[0]) == 15.0


def test_h1_a_failed_capture_leaves_everything_usable(lab: Any) -> None:
    state, made = lab.tensor(1.0), recorder(lab)

    def body() -> None:
        lab.add_(state, 1.0)
        lab.read(state)

    with pytest.raises(Refused) as caught:
        made.record(body)
    assert "captur" in str(caught.value)
    assert caught.value.__cause__ is not None
    lab.fill_(state, 3.0)
    assert lab.read(lab.plus(state, 1.0)) == 4.0
    lab.driver.empty_cache()
    recording = made.record(lambda: lab.add_(state, 1.0))
    recording.replay()
    assert lab.read(state) == 5.0


@pytest.mark.cuda
def test_h1_random_numbers_work_after_a_failed_capture() -> None:
    lab = RealLab()
    x = lab.tensor(1.0)
    with pytest.raises(Refused):
        recorder(lab).record(lambda: lab.read(x))
    assert torch.randn(8, device="cuda").isfinite().all().item()


def test_h1_an_error_of_the_body_comes_as_it_is(lab: Any) -> None:
    state = lab.tensor(1.0)

    def body() -> None:
        lab.add_(state, 1.0)
        raise ValueError("the body's own")

    with pytest.raises(ValueError, match="the body's own"):
        recorder(lab).record(body)
    recording = recorder(lab).record(lambda: lab.add_(state, 1.0))
    recording.replay()
    assert lab.read(state) == 3.0


def test_h1_a_failed_graph_object_is_thrown_away(fake: FakeLab) -> None:
    made = recorder(fake)
    graphs: list[Any] = []
    make = fake.driver.CUDAGraph
    fake.driver.CUDAGraph = lambda: graphs.append(make()) or graphs[-1]
    x = fake.tensor(1.0)
    with pytest.raises(Refused):
        made.record(lambda: fake.read(x))
    made.record(lambda: fake.add_(x, 1.0))
    assert [graph.state for graph in graphs] == ["reset", "captured"]
    assert not fake.driver.directed
    assert graphs[0].pool() != graphs[1].pool()


def test_h1_an_interrupt_ends_the_capture(lab: Any) -> None:
    x = lab.tensor(1.0)

    def body() -> None:
        lab.add_(x, 1.0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorder(lab).record(body)
    recorder(lab).record(lambda: lab.add_(x, 1.0))
    assert lab.read(x) == 2.0


def test_h2_regions_of_one_plan_replay_in_order_and_share_values(lab: Any) -> None:
    made = recorder(lab)
    x, first, second = lab.tensor(1.0), [], []
    one = made.record(lambda: first.append(lab.plus(lab.plus(x, 1.0), 1.0)))
    two = made.record(lambda: second.append(lab.plus(first[0], 100.0)))
    shared = [Shared(value, Use.HELD, None, 2) for value in (x, *first, *second)]
    assert one.finish_all([one, two], shared, allocated).stats.calls == 2
    for value in (5.0, 7.0):
        lab.fill_(x, value)
        one.replay()
        two.replay()
        assert lab.read(second[0]) == value + 102.0


def test_h2_kept_results_are_held(fake: FakeLab) -> None:
    import gc
    import weakref

    results: list[Any] = []
    x = fake.tensor(1.0)
    recording = recorder(fake).record(lambda: results.append(fake.plus(x, 1.0)))
    finish(recording, results)
    watch = weakref.ref(results[0])
    results.clear()
    gc.collect()
    assert watch() is not None
    recording.close()
    del recording
    gc.collect()
    assert watch() is None


def test_h3_one_stream_and_one_pool_a_plan(fake: FakeLab) -> None:
    made = recorder(fake)
    streams: list[Any] = []
    x = fake.tensor(1.0)

    def body() -> None:
        streams.append(fake.driver.current_stream())
        fake.add_(x, 1.0)

    for _ in range(3):
        made.record(body)
    other = recorder(fake)
    other.record(body)
    assert len(set(streams[:3])) == 1
    assert streams[3] not in streams[:3]
    assert [len(graphs) for graphs in fake.driver.pools.values()] == [3, 1]


def test_h3_recordings_of_one_plan_are_retired_together(lab: Any) -> None:
    made, x = recorder(lab), lab.tensor(1.0)
    one, two = (made.record(lambda: lab.add_(x, 1.0)) for _ in range(2))
    one.close()
    with pytest.raises(RuntimeError) as caught:
        two.replay()
    assert_expected_inline(
        str(caught.value), """this recording is retired: another one of its plan was closed or failed"""
    )
    made.record(lambda: lab.add_(x, 1.0)).replay()
    assert lab.read(x) == 5.0


def test_h4_one_flush_a_plan(fake: FakeLab) -> None:
    made, x = recorder(fake), fake.tensor(1.0)
    for _ in range(4):
        made.record(lambda: fake.add_(x, 1.0))
    assert fake.driver.flushes == 1


def test_m13_the_layout_tells_what_the_allocator_took_for_the_pool(fake: FakeLab) -> None:
    made, x = recorder(fake), fake.tensor(1.0)
    one = made.record(lambda: fake.plus(fake.plus(x, 1.0), 1.0))
    two = made.record(lambda: fake.plus(x, 1.0))
    layout = one.finish_all([one, None, two], [], lambda nbytes: torch.empty(0)).layout
    assert (layout.pool, layout.arena, layout.calls, layout.starts) == (3 * SEGMENT, 0, 2, (0, 1, 2, 3))
    one.close()
    three = made.record(lambda: fake.plus(x, 1.0))
    assert three.finish_all([three], [], lambda nbytes: torch.empty(0)).layout.pool == SEGMENT


def test_h5_out_of_memory_in_a_capture_comes_as_it_is(fake: FakeLab) -> None:
    made, x = recorder(fake), fake.tensor(1.0)
    fake.driver.room = 2
    with pytest.raises(torch.OutOfMemoryError):
        made.record(lambda: [fake.plus(x, 1.0) for _ in range(3)])
    fake.driver.room = 100
    made.record(lambda: fake.add_(x, 1.0))
    assert fake.read(x) == 2.0
    assert not fake.driver.directed


def test_h5_what_the_cache_holds_is_given_back_before_a_capture(fake: FakeLab) -> None:
    x = fake.tensor(1.0)
    fake.driver.room, fake.driver.cached = 0, 5
    results: list[Any] = []
    recording = recorder(fake).record(lambda: results.append(fake.plus(x, 1.0)))
    recording.replay()
    assert fake.read(results[0]) == 2.0


def test_h6_capture_waits_for_the_current_stream_and_the_replay_runs_there(lab: Any) -> None:
    x = lab.tensor(1.0)
    side = lab.driver.Stream(CUDA)
    made = recorder(lab)
    with lab.driver.stream(side):
        lab.fill_(x, 10.0)
        recording = made.record(lambda: lab.add_(x, 1.0))
        lab.add_(x, 100.0)
        recording.replay()
        assert lab.read(x) == 112.0


def test_h6_a_replay_on_another_stream_is_ordered_by_its_caller(fake: FakeLab) -> None:
    x = fake.tensor(1.0)
    recording = recorder(fake).record(lambda: fake.add_(x, 1.0))
    side, other = fake.driver.Stream(CUDA), fake.driver.Stream(CUDA)
    other.wait_stream(fake.driver.current_stream())
    with fake.driver.stream(other):
        fake.fill_(x, 3.0)
    with fake.driver.stream(side), pytest.raises(FakeError, match="not ordered"):
        recording.replay()


def test_h7_graphs_of_one_pool_never_run_at_once(lab: Any) -> None:
    made = recorder(lab)
    x, y = lab.tensor(1.0), lab.tensor(1.0)
    one, two = made.record(lambda: lab.add_(x, 1.0)), made.record(lambda: lab.add_(y, 1.0))
    one.replay()
    side = lab.driver.Stream(CUDA)
    side.wait_stream(lab.driver.current_stream(CUDA))
    with lab.driver.stream(side):
        two.replay()
    one.replay()
    assert (lab.read(x), lab.read(y)) == (4.0, 3.0)


def test_h8_two_threads_capture_one_after_the_other(lab: Any) -> None:
    tensors = [lab.tensor(0.0) for _ in range(4)]
    errors: list[BaseException] = []

    def work(x: Any) -> None:
        try:
            made = recorder(lab)
            for _ in range(20):
                made.record(lambda: lab.add_(x, 1.0))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(x,)) for x in tensors]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    assert [lab.read(x) for x in tensors] == [20.0] * 4


def test_h8_a_capture_within_a_capture_is_refused(lab: Any) -> None:
    x = lab.tensor(1.0)

    def body() -> None:
        recorder(lab).record(lambda: lab.add_(x, 1.0))

    with pytest.raises(RuntimeError) as caught:
        recorder(lab).record(body)
    assert "cannot capture another one" in str(caught.value)
    recorder(lab).record(lambda: lab.add_(x, 1.0))
    assert lab.read(x) == 2.0


def test_h8_another_thread_may_allocate_during_a_capture(fake: FakeLab) -> None:
    x = fake.tensor(1.0)

    def body() -> None:
        worker = threading.Thread(target=fake.tensor, args=(1.0,))
        worker.start()
        worker.join()
        fake.add_(x, 1.0)

    recorder(fake).record(body)
    assert fake.read(x) == 2.0


def test_memory_of_another_stream_cannot_be_had_in_a_capture(fake: FakeLab) -> None:
    x = fake.tensor(1.0)

    def body() -> None:
        fake.add_(x, 1.0)
        fake.foreign_memory()

    with pytest.raises(Refused):
        recorder(fake).record(body)
    assert not fake.driver.directed


def test_h9_the_recorders_device_is_current_while_it_captures_and_replays(lab: Any) -> None:
    if lab.second is None:
        pytest.skip("one CUDA device only")
    with lab.driver.device(lab.second):
        x = lab.tensor(1.0)
    seen: list[int] = []

    def body() -> None:
        seen.append(lab.driver.current_device())
        lab.add_(x, 1.0)

    recording = recorder(lab, lab.second).record(body)
    recording.replay()
    assert seen == [1]
    assert lab.driver.current_device() == 0
    assert lab.read(x) == 3.0
    recording.close()


def test_a_device_without_an_index_is_the_current_one(fake: FakeLab) -> None:
    x = fake.tensor(1.0)
    seen: list[int] = []
    with fake.driver.device(torch.device("cuda", 1)):
        made = recorder(fake, torch.device("cuda"))
    made.record(lambda: seen.append(fake.driver.current_device()))
    assert seen == [1]
    assert x.device.index == 0


def test_a_broken_device_is_raised_and_never_taken_for_a_refusal(fake: FakeLab) -> None:
    x = fake.tensor(1.0)

    def body() -> None:
        fake.add_(x, 1.0)
        fake.driver.broken = "CUDA error: an illegal memory access was encountered"
        fake.add_(x, 1.0)

    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        recorder(fake).record(body)


def test_a_replay_that_fails_retires_the_recording(fake: FakeLab) -> None:
    x = fake.tensor(1.0)
    recording = recorder(fake).record(lambda: fake.add_(x, 1.0))
    fake.driver.fail_replay = "CUDA error: unspecified launch failure"
    with pytest.raises(torch.AcceleratorError, match="launch failure"):
        recording.replay()
    fake.driver.fail_replay = ""
    with pytest.raises(RuntimeError) as caught:
        recording.replay()
    assert_expected_inline(str(caught.value), """this recording is retired: a replay failed""")


def test_m11_a_replay_under_a_word_clears_it_first_and_tells_of_a_fault(
    fake: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, word = fake.tensor(1.0), torch.full((8,), 9, dtype=torch.int32)
    recording = recorder(fake).record(lambda: fake.add_(x, 1.0))
    assert recording.replay(word) is False and word.tolist() == [0] * 8
    replay = recording._lane.replay

    def noting(graph: Any) -> None:
        assert word.tolist() == [0] * 8
        replay(graph)
        word[0] = 1

    monkeypatch.setattr(recording._lane, "replay", noting)
    assert recording.replay(word) is True
    assert recording.replay(word) is True, "the word is cleared before each"
    assert fake.read(x) == 5.0


def test_a_closed_recording_waits_for_its_replay_and_is_not_replayed_again(lab: Any) -> None:
    x = lab.tensor(1.0)
    recording = recorder(lab).record(lambda: lab.add_(x, 1.0))
    recording.replay()
    recording.close()
    recording.close()
    with pytest.raises(RuntimeError) as caught:
        recording.replay()
    assert_expected_inline(str(caught.value), """this recording is retired: closed""")
    assert lab.read(x) == 3.0


@pytest.mark.cuda
def test_h10_a_random_op_replays_with_fresh_numbers() -> None:
    lab = RealLab()
    results: list[torch.Tensor] = []
    recording = recorder(lab).record(lambda: results.append(torch.randn(64, device="cuda")))
    finish(recording, results)
    before = results[0].clone()
    recording.replay()
    assert not torch.equal(before, results[0])


def test_memory_is_back_after_many_failed_captures(lab: Any) -> None:
    x, made = lab.tensor(1.0), recorder(lab)
    for _ in range(20):
        with pytest.raises(Refused):
            made.record(lambda: lab.read(x))
    if not isinstance(lab, FakeLab):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        for _ in range(20):
            with pytest.raises(Refused):
                made.record(lambda: lab.read(lab.plus(x, 1.0)))
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == before
    made.record(lambda: lab.add_(x, 1.0))
    assert lab.read(x) == 2.0
