"""Results that are written over an argument: when, when not, and that every replay is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from finishing import finish
from tapelab import needs_extension, tape_recorder, trial

from torch_ort_session.plan.memory.slots import Interval
from torch_ort_session.runtime.recorders.tape.memory import Reuse, inplace_reuse, joined

SIZE = 64 * 64 * 4
Body = Callable[[torch.Tensor], torch.Tensor]


def later(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = torch.exp(y)
    return (z - y).sum(0)


def in_two_forms(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return (y + y.t()).sum(0)


def broadcast(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return (y + y[:1]).sum(0)


def other_dtype(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).to(torch.int32).mul(3).sum(0)


def not_pointwise(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x * 2, 0).sum(0)


def through_a_view(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).view(32, 128)
    return torch.exp(y).view(64, 64).neg().sum(0)


def twice_the_same(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return torch.mul(y, y).neg().sum(0)


def either(x: torch.Tensor) -> torch.Tensor:
    a, b = x * 2, x + 1
    return torch.maximum(a, b).sum(0)


def halved(x: torch.Tensor) -> torch.Tensor:
    y = torch.add(x, 1, out=torch.empty(64, 64))
    return (y[:32] * 2).sum(0)


@pytest.mark.parametrize(
    ("body", "slots"),
    [
        (later, 2),
        (in_two_forms, 2),
        (broadcast, 2),
        (other_dtype, 2),
        (not_pointwise, 2),
        (through_a_view, 1),
        (twice_the_same, 1),
        (either, 2),
        (halved, 1.5),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@needs_extension
def test_m13_a_result_takes_the_slot_of_an_argument_that_nobody_reads_afterwards(
    body: Body, slots: float
) -> None:
    x, results = torch.arange(4096.0).view(64, 64) / 999, []
    expected = body(x)
    recording = tape_recorder().record(lambda: results.append(body(x)))
    stats = finish(recording, [*results, x])
    assert stats.arena == stats.bound == slots * SIZE
    for turn in range(3):
        x.add_(turn)
        expected = body(x)
        recording.replay()
        assert torch.equal(results[0], expected)


def test_m13_a_slot_is_handed_on_along_a_chain_and_no_further() -> None:
    slotted = [Interval(0, 0, 3, 256), Interval(1, 3, 5, 256), Interval(2, 5, 9, 256), Interval(3, 5, 6, 512)]
    places = {10: 0, 11: 1, 12: 2, 13: 3}
    heirs = [Reuse(3, 11, (99, 10)), Reuse(5, 13, (11,)), Reuse(5, 12, (11,)), Reuse(4, 12, (10,))]
    homes = inplace_reuse(slotted, places, heirs)
    assert homes == {1: 0, 2: 0}
    assert joined(slotted, homes) == [Interval(0, 0, 9, 256), Interval(3, 5, 6, 512)]


@needs_extension
def test_m13_what_outlives_the_recording_is_not_written_over() -> None:
    x, held = torch.ones(64, 64), []

    def body() -> None:
        held.append(x * 2)
        held.append(torch.exp(held[0]))

    recording = tape_recorder().record(body)
    finish(recording, [*held, x])
    x.fill_(0.5)
    recording.replay()
    assert torch.equal(held[0], x * 2)
    assert torch.equal(held[1], torch.exp(x * 2))


@needs_extension
def test_m13_slots_that_are_handed_on_are_poisoned_after_their_last_owner_only() -> None:
    assert trial(lambda x: ((x * 2).exp().neg().abs() + x).cumsum(0)) == "right"
