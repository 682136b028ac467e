"""Plans: a run in a plan's slots gives what a plain run gives, and the numbers are those of the slots."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from plan.planning import Seen, see
from plan.walks import X, drawn, follow
from textmodel import model

import torch_ort_session as tos
from torch_ort_session.plan.memory.liveness import eager_peak
from torch_ort_session.plan.memory.slots import ALIGNMENT
from torch_ort_session.plan.plan import Plan, make_plan
from torch_ort_session.plan.verify import verify

CHAIN = (
    "g (float[64, 4] x) => (float[64, 4] y) { a = Neg(x) b = Exp(a) c = Neg(b) d = Exp(c) e = Add(d, d)"
    " y = Neg(e) }"
)


def feed_of(seen: Seen, flag: bool = True) -> dict[str, torch.Tensor]:
    return {"x": X, "c": torch.tensor(flag)}


@pytest.mark.parametrize("seed", range(150))
def test_m13_a_run_in_the_slots_gives_what_a_plain_run_gives(seed: int) -> None:
    seen = drawn(seed)
    plan = seen.plan(minimum=1 + seed % 3)
    verify(plan)
    # The other branch of an If may hand on other memory than the one that was seen.
    for flag in (True, False):
        feed = {"x": X * 3 - 1, "c": torch.tensor(flag)}
        got = follow(seen, plan, feed)
        for a, b in zip(got, plain(seen, feed), strict=True):
            assert torch.equal(a, b)


def plain(seen: Seen, feed: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The same steps with nothing in slots."""
    nowhere = replace(seen.plan(), intervals=())
    return follow(seen, nowhere, feed)


def test_the_oracle_sees_a_slot_that_is_given_up_too_early() -> None:
    seen = next(seen for seed in range(50) if len((seen := drawn(seed)).plan().intervals) > 5)
    plan = seen.plan()
    feed = feed_of(seen)
    wrong = 0
    for place, item in enumerate(plan.intervals):
        cut = [*plan.intervals]
        cut[place] = replace(item, stop=item.start)
        try:
            got = follow(seen, replace(plan, intervals=tuple(cut)), feed)
        except tos.KernelError:
            # A shape that was destroyed.
            wrong += 1
        else:
            wrong += not all(torch.equal(a, b) for a, b in zip(got, plain(seen, feed), strict=True))
    assert wrong > 3


def chain_plan(**kwargs: object) -> Plan:
    return see(CHAIN, {"x": torch.ones(64, 4)}).plan(**kwargs)


def test_m13_the_numbers_of_a_chain() -> None:
    plan, size = chain_plan(), 64 * 4 * 4
    stats = plan.stats
    assert stats is not None
    assert stats.complete
    # Two values of a chain are alive at once; every result but the last can be written into a slot.
    assert (stats.peak, stats.bound, stats.slotted) == (2 * size, 2 * size, 5 * size)
    assert (stats.naive, stats.results, stats.live, stats.baseline) == (6 * size, size, 2 * size, 2 * size)
    assert (stats.slots, stats.assignments, stats.views, stats.unknown) == (2, 5, 0, 0)
    assert stats.savings == 3 * size
    assert stats.share == 1.0


def test_m13_no_savings_are_claimed_while_a_size_is_not_known() -> None:
    text = (
        "g (float[64, 4] x) => (float[64, 4] y) <int64 z = {0}> { a = Neg(x) b = Exp(a) c = Neg(b)"
        " s = SequenceConstruct(c) d = SequenceAt(s, z) e = Exp(d) y = Neg(e) }"
    )
    stats = see(text, {"x": torch.ones(64, 4)}).plan().stats
    assert stats is not None
    assert (stats.complete, stats.unknown, stats.savings) == (False, 1, 0)
    assert stats.slotted > stats.peak


def test_m13_a_planner_that_fails_leaves_memory_to_torch_and_says_why() -> None:
    seen = see(CHAIN, {"x": torch.ones(64, 4)})
    specs = [spec and spec._replace(nbytes=1 << 61) for spec in seen.observation.specs]
    huge = replace(seen.observation, specs=tuple(specs))
    plan = make_plan(seen.steps, seen.static_values, huge, torch.device("cpu"))
    assert plan.stats is None
    assert plan.failure == f"a slot of {1 << 61} bytes cannot be planned"
    assert (plan.intervals, plan.packing.total, plan.packing.offsets) == ((), 0, {})
    assert len(plan.segments) == 1
    verify(plan)


def test_a_plan_without_activations() -> None:
    plan = see("g (float[2] x) => (float[2] x) { y = Neg(x) }", {"x": torch.ones(2)}).plan()
    assert plan.stats is not None
    assert (plan.regions, plan.stats.peak, plan.stats.share, plan.stats.savings) == ((), 0, 1.0, 0)
    verify(plan)


def test_what_was_asked_for_is_kept() -> None:
    plan = chain_plan(quarantined={("", "Exp")}, minimum=2)
    assert (plan.quarantined, plan.minimum) == (frozenset({("", "Exp")}), 2)
    assert [region.is_segment for region in plan.regions] == [False] * 4 + [True]
    assert (len(plan.segments), len(plan.seams)) == (1, 4)


def test_slots_come_back_to_their_place() -> None:
    plan = chain_plan()
    assert plan.packing.offsets == chain_plan().packing.offsets
    assert set(plan.packing.offsets.values()) <= set(range(0, plan.packing.total, ALIGNMENT))


def test_the_peak_of_an_eager_run_is_that_of_its_steps() -> None:
    plan = chain_plan()
    assert plan.stats is not None
    assert plan.stats.baseline == eager_peak(plan.steps, plan.observation)
    assert torch.equal(
        tos.load(model(CHAIN))(torch.ones(64, 4)), torch.full((64, 4), -2 * torch.e ** -(torch.e**-1))
    )
