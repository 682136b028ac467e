"""Feeds and results of a recording that is the whole of a run lie in slots too, for as long as it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from finishing import finish, finish_run
from runtime.capturelab import agree, pair
from tapelab import needs_extension, tape_recorder

Body = Callable[[torch.Tensor, torch.Tensor], list[torch.Tensor]]
SIZE = 64 * 64 * 4


def plain(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    y = torch.cumsum(x, 0)
    return [torch.cumsum(y * w, 0), y[:2] + 1]


def handed_on(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    return [x.view(-1), x.t(), torch.exp(x) + w]


def one_result_twice(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    y = x * w
    return [y, y.t(), y[1:3]]


def functional(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    return [torch.roll(x * w, 1, 0)]


@pytest.mark.parametrize("body", [plain, handed_on, one_result_twice, functional])
@needs_extension
def test_m16_nothing_in_the_block_counts_from_one_replay_to_the_next(body: Body) -> None:
    x, w, blocks = torch.rand(64, 64), torch.rand(64, 64), []

    def block(nbytes: int) -> torch.Tensor:
        blocks.append(torch.empty(nbytes, dtype=torch.uint8))
        return blocks[0]

    expected = body(x.clone(), w)
    results: list[torch.Tensor] = []
    recording = tape_recorder(poison=False).record(lambda: results.extend(body(x, w)))
    stats = finish_run(recording, [x], results, [w], block)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
    for turn in range(3):
        blocks[0].fill_(0xFF)
        feed = torch.rand(64, 64) + turn
        x.copy_(feed)
        expected = body(feed, w)
        recording.replay()
        assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
    assert stats.inputs == SIZE


@needs_extension
def test_m16_a_feed_lies_in_the_block_until_its_last_reader_and_a_result_from_its_writer_on() -> None:
    x, results = torch.rand(64, 64), []
    recording = tape_recorder(poison=False).record(
        lambda: results.append(torch.cumsum(torch.cumsum(torch.cumsum(x, 0), 0), 0))
    )
    stats = finish_run(recording, [x], results)
    assert (stats.arena, stats.kept, stats.slotted) == (2 * SIZE, 0, 4 * SIZE)
    places = sorted(t.data_ptr() for t in (x, results[0]))
    assert places[1] - places[0] == SIZE


@needs_extension
def test_m16_where_others_follow_feeds_and_results_stay_out_of_the_block() -> None:
    x, results = torch.rand(64, 64), []
    recording = tape_recorder(poison=False).record(lambda: results.append(x * 2))
    stats = finish(recording, [x, *results])
    assert (stats.arena, stats.kept) == (0, SIZE)


FEEDS, CONSTANTS = "(float[n] x, float[n] w)", "<int64 zero = {0}, int64[1] flat = {-1}>"


@pytest.mark.parametrize(
    ("outputs", "nodes"),
    [
        ("float[n] y", "a = Exp(x) b = CumSum(a, zero) y = Mul(b, w)"),
        ("float[n] y, float[n] x2", "a = Exp(x) y = Mul(a, w) x2 = Identity(x)"),
        ("float[n] y, float[m] v", "y = Mul(x, w) v = Reshape(x, flat)"),
    ],
    ids=["results", "a feed as it came", "a view of a feed"],
)
def test_m16_signatures_that_take_turns_share_the_arena_and_keep_their_results(
    outputs: str, nodes: str
) -> None:
    text = f"g {FEEDS} => ({outputs}) {CONSTANTS} {{ {nodes} }}"
    session, eager = pair(text)
    held = []
    for turn in range(12):
        for length in (5, 300, 40):
            feed = {"x": torch.rand(length) - turn, "w": torch.rand(length)}
            agree(session, eager, feed)
            held.append((session.run(None, feed), eager.run(None, feed)))
    assert session.stats()["replays"] > 50
    for ours, theirs in held:
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
