"""The policy by itself: what it decides, forgets, latches and never takes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.plan.partition.report import Decline, DeclineReport, Reason
from torch_ort_session.runtime.dispatch.policy import Decision, Dispatcher, GraphEntry, Rules
from torch_ort_session.trace import counters

WHY = DeclineReport.of(Reason.DIVERGED, "for the test")


class FakeCapture(SimpleNamespace):
    closed = False
    planned = SimpleNamespace(ready=None)

    def close(self) -> None:
        self.closed = True


def fed(length: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {"x": torch.zeros(length, dtype=dtype)}


def policy(**limits: int) -> Dispatcher:
    return Dispatcher(Rules(**limits))


def run(policy: Dispatcher, feed: dict[str, Any], keys: frozenset[str] = frozenset()) -> Decision:
    """What a runner does that succeeds at everything."""
    _, entry = policy.entry(("y",), feed, keys)
    decision = policy.decide(entry)
    entry.runs += 1
    if decision is Decision.OBSERVE:
        entry.planned = SimpleNamespace()  # type: ignore[assignment]
    if decision is Decision.CAPTURE:
        policy.captured(entry, FakeCapture())  # type: ignore[arg-type]
    return decision


def plans(policy: Dispatcher) -> int:
    return sum(entry.captured is not None for entry in policy.entries.values())


def entry_of(policy: Dispatcher, feed: dict[str, Any]) -> GraphEntry:
    return policy.entry(("y",), feed, frozenset())[1]


def test_m2_first_eager_then_observed_then_captured_then_replayed() -> None:
    decided = policy()
    assert [run(decided, fed(2)) for _ in range(5)] == [
        Decision.EAGER,
        Decision.OBSERVE,
        Decision.CAPTURE,
        Decision.REPLAY,
        Decision.REPLAY,
    ]


def test_m6_shape_dtype_outputs_and_presence_each_make_a_signature() -> None:
    decided = policy()
    for outputs, feed in [
        (("y",), fed(2)),
        (("y",), fed(3)),
        (("y",), fed(2, torch.float64)),
        (("z",), fed(2)),
        (("y", "z"), fed(2)),
        (("y",), {}),
        (("y",), {"x": torch.zeros(1, 2)}),
        (("y",), {"x": (torch.zeros(2),)}),
        (("y",), {"x": (torch.zeros(2), torch.zeros(2))}),
        (("y",), {"x": None}),
    ]:
        decided.entry(outputs, feed, frozenset())
    assert len(decided.entries) == 10


def test_m6_strides_and_data_do_not_make_a_signature() -> None:
    decided = policy()
    decided.entry(("y",), {"x": torch.zeros(4, 3)}, frozenset())
    decided.entry(("y",), {"x": torch.ones(3, 4).t()}, frozenset())
    assert len(decided.entries) == 1


def test_m6_the_least_recently_used_capture_goes_first() -> None:
    decided = policy(plans=2)
    for length in (1, 2):
        for _ in range(3):
            run(decided, fed(length))
    first, second = (entry_of(decided, fed(length)) for length in (1, 2))
    old = second.captured
    run(decided, fed(1))
    for _ in range(3):
        run(decided, fed(3))
    assert first.state == "captured" and second.state == "cold"
    assert isinstance(old, FakeCapture) and old.closed
    assert plans(decided) == 2 and decided.counters[counters.EVICTIONS] == 1


def test_m6_signatures_that_never_come_again_cost_no_capture() -> None:
    decided = policy(plans=2)
    for _ in range(3):
        run(decided, fed(0))
    for length in range(1, 101):
        run(decided, fed(length))
    assert len(decided.entries) == 1 + 2 * decided.rules.waiting
    assert run(decided, fed(0)) is Decision.REPLAY
    assert decided.counters[counters.FORGOTTEN] == 100 - 2 * decided.rules.waiting


def test_more_signatures_in_turn_than_plans_settle() -> None:
    decided = policy(plans=2)
    for _ in range(60):
        for length in range(3):
            run(decided, fed(length))
    before = decided.counters[counters.CAPTURES]
    for _ in range(60):
        for length in range(3):
            run(decided, fed(length))
    assert decided.counters[counters.CAPTURES] == before
    assert sorted(entry.state for entry in decided.entries.values()) == ["captured", "captured", "latched"]


def test_a_retired_signature_warms_up_again_until_its_budget_is_spent() -> None:
    decided = policy()
    entry = entry_of(decided, fed(1))
    for _ in range(4):
        while run(decided, fed(1)) is not Decision.CAPTURE:
            pass
        decided.retire(entry, WHY)
    assert entry.state == "latched"
    assert run(decided, fed(1)) is Decision.EAGER
    assert_expected_inline(
        str(entry.report),
        """\
node   op  reason    message
-----  --  --------  --------------------------------------------
(run)      diverged  for the test
(run)      latched   captured 4 times in 100 runs; it stays eager""",
    )


def test_m7_a_node_whose_shape_does_not_settle_is_let_go_once_and_the_signature_stays() -> None:
    decided = policy()
    why = DeclineReport((Decline("cut", "NonZero", "", Reason.DIVERGED, "for the test"),))
    entry = entry_of(decided, fed(1))
    for number in range(8):
        while run(decided, fed(1)) is not Decision.CAPTURE:
            pass
        decided.retire(entry, why)
        assert decided.unstable == (frozenset({"cut"}) if number >= 3 else frozenset())
    assert entry.state == "latched"
    assert decided.counters[counters.LOOSENED] == 1


def test_captures_long_ago_do_not_count() -> None:
    decided = policy(window=10)
    entry = entry_of(decided, fed(1))
    for _ in range(12):
        while run(decided, fed(1)) is not Decision.CAPTURE:
            pass
        for _ in range(5):
            run(decided, fed(1))
        decided.retire(entry, WHY)
    assert entry.state == "cold"


def test_bad_feeds_spend_no_budget() -> None:
    decided = policy()
    entry = entry_of(decided, fed(1))
    for _ in range(12):
        while run(decided, fed(1)) is not Decision.CAPTURE:
            pass
        decided.retire(entry, WHY)
        decided.excuse(entry)
    assert entry.state == "cold" and decided.counters[counters.LATCHES] == 0


def test_m2_a_lasting_decline_latches_and_a_passing_one_does_not() -> None:
    decided = policy()
    first, second = entry_of(decided, fed(1)), entry_of(decided, fed(2))
    decided.declined(first, WHY, lasting=True)
    decided.declined(second, WHY, lasting=False)
    assert (first.state, second.state) == ("latched", "cold")
    for _ in range(3):
        decided.declined(second, WHY, lasting=False)
    assert second.state == "latched"
    assert_expected_inline(
        str(second.report),
        """\
node   op  reason    message
-----  --  --------  ------------------------------------
(run)      diverged  for the test
(run)      latched   4 captures broke off; it stays eager""",
    )


def test_m8_quarantine_only_grows() -> None:
    decided = policy()
    assert decided.quarantine("", "Exp") and not decided.quarantine("", "Exp")
    assert decided.quarantine("com.microsoft", "Exp")
    decided.release()
    assert decided.quarantined == {("", "Exp"), ("com.microsoft", "Exp")}
    assert decided.counters[counters.QUARANTINED] == 2


def test_key_feeds_are_told_apart_by_value_until_there_are_too_many() -> None:
    decided = policy()
    keys = frozenset({"sr"})

    def with_rate(rate: int) -> dict[str, Any]:
        return {"x": torch.zeros(2), "sr": torch.tensor(rate)}

    captures = []
    for rate in (1, 2, 3, 4):
        for _ in range(3):
            run(decided, with_rate(rate), keys)
        captures.append(decided.recent.captured)  # type: ignore[union-attr]
    assert plans(decided) == 4
    run(decided, with_rate(5), keys)
    assert decided.demoted == {"sr"} and plans(decided) == 0
    assert all(capture.closed for capture in captures)  # type: ignore[union-attr]
    assert [run(decided, with_rate(rate), keys) for rate in (6, 7, 1)] == [
        Decision.OBSERVE,
        Decision.CAPTURE,
        Decision.REPLAY,
    ]


@pytest.mark.parametrize(
    "value", [torch.zeros(2, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), None]
)
def test_only_one_number_on_the_host_is_a_key(value: Any) -> None:
    decided = policy()
    signature, _ = decided.entry(("y",), {"k": value}, frozenset({"k"}))
    assert signature.keys == ()


def test_a_key_that_is_true_is_not_the_integer() -> None:
    decided = policy()
    decided.entry(("y",), {"k": torch.tensor(True)}, frozenset({"k"}))
    decided.entry(("y",), {"k": torch.tensor(1)}, frozenset({"k"}))
    assert len(decided.entries) == 2


def test_a_signature_in_words() -> None:
    feed = {
        "x": torch.zeros(2, 3),
        "sr": torch.tensor(16000),
        "s": (torch.zeros(1),),
        "o": None,
    }
    signature, _ = policy().entry(("y", "z"), feed, frozenset({"sr"}))
    assert_expected_inline(
        str(signature),
        """(x: float32[2, 3], sr: int64[] = 16000, s: sequence of 1, o: absent) -> (y, z)""",
    )


def test_release_closes_every_capture() -> None:
    decided = policy()
    for _ in range(3):
        run(decided, fed(1))
    captured = entry_of(decided, fed(1)).captured
    decided.release()
    assert isinstance(captured, FakeCapture) and captured.closed
    assert not decided.entries and run(decided, fed(1)) is Decision.EAGER
