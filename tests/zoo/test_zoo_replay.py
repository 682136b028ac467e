"""Every model of zoo.toml replays: with other data, between runs of another size, beside a second session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from replaying import apart, tensors

import torch_ort_session as tos
from benchmarks import fetch, recipes, weights

DATA_SHAPED = {"kokoro-int8"}
"""Models whose shapes follow from data, so that other data ends a capture."""

FUSED = 2e-6
"""How far results may be from those of an eager run where steps are fused: functions of numbers that torch
takes one by one, at the end of a tensor, may differ in the last place."""

MODELS = fetch.read_zoo()


@pytest.mark.zoo
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_replays_agree_with_eager_runs(model: Mapping[str, Any]) -> None:
    path = fetch.fetch(model)
    source = weights.filled(path) if model.get("weights") == "random" else str(path)
    eager = tos.load(source, options=tos.Options(capture="off", num_threads=1))
    session = tos.load(source, options=tos.Options(num_threads=1))
    other = tos.load(source, options=tos.Options(num_threads=1, fuse=False))
    sizes = model.get("sizes") or [{}]
    first, second = sizes[0], sizes[-1]
    worst = {session: 0.0, other: 0.0}
    held: list[tuple[torch.Tensor, torch.Tensor]] = []
    for runs, size, seed in plan(first, second, eager, session, other):
        feed = recipes.feeds(model, size, seed)
        want = list(tensors(eager.run(None, feed)))
        got = list(tensors(runs.run(None, feed)))
        for ours, theirs in zip(got, want, strict=True):
            worst[runs] = max(worst[runs], apart(ours, theirs))
            held.append((ours, ours.clone()))
    for result, then in held:
        assert torch.equal(result.nan_to_num(), then.nan_to_num()), "a later run wrote to a result"
    assert worst[other] == 0.0
    assert worst[session] <= FUSED
    stats = session.stats()
    assert stats["captures"] >= 1, session.explain()
    assert stats["replays"] >= 4 or model["name"] in DATA_SHAPED, session.explain()


def plan(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    eager: tos.Session,
    session: tos.Session,
    other: tos.Session,
) -> Iterator[tuple[tos.Session, Mapping[str, Any], int]]:
    """Runs until all is captured, then in turn, with data that differs from run to run."""
    for seed in (0, 1, 2):
        yield session, first, seed
        if first is not second:
            yield session, second, seed
        yield other, first, seed + 10
    for seed in (3, 0):
        yield session, first, seed
        yield other, first, seed + 5
        yield session, second, seed
        yield session, first, seed + 1
