"""M2, M3: only what the user named is captured; everything else runs eagerly and says so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import agree, counted, pair, reasons, session_on, states, warmed
from textmodel import message, model, wrapped

import torch_ort_session as tos
from torch_ort_session.plan.partition.report import DeclineReport, Reason

TEXT = "g (float[b, s] x, float[s, 3] w) => (float[b, 3] y) { a = Exp(x) y = MatMul(a, w) }"


def feed(b: int, s: int) -> dict[str, Any]:
    return {"x": torch.randn(b, s), "w": torch.randn(s, 3)}


@pytest.mark.parametrize(
    ("only", "captured"),
    [
        (({"s": 4},), {(1, 4), (2, 4)}),
        (({"b": 2, "s": 4},), {(2, 4)}),
        (({"b": 1, "s": 4}, {"b": 2, "s": 5}), {(1, 4), (2, 5)}),
        (({"x": (1, 5)},), {(1, 5)}),
        (({"x": [2, 4], "s": 4}, {"w": (5, 3)}), {(2, 4), (1, 5), (2, 5)}),
        (({"s": 9},), set()),
        (None, {(1, 4), (2, 4), (1, 5), (2, 5)}),
    ],
)
def test_m2_only_what_is_named_is_captured(only: Any, captured: set[tuple[int, int]]) -> None:
    session, eager = pair(TEXT, capture_only=only)
    for dims in ((1, 4), (2, 4), (1, 5), (2, 5)):
        for _ in range(4):
            agree(session, eager, feed(*dims))
    found = {
        tuple(dims)
        for signature, entry in session._engine.state.dispatcher.entries.items()
        if entry.captured is not None
        for name, _, dims, _ in signature.feeds
        if name == "x"
    }
    assert found == captured
    assert counted(session, "unlisted signatures", "captures") == (4 - len(captured), len(captured))


def test_m3_a_signature_that_is_not_on_the_whitelist_says_so() -> None:
    session = session_on(TEXT, capture_only=({"b": 1, "s": 4}, {"x": (2, 8)}))
    warmed(session, feed(3, 4), 2)
    assert reasons(session) == [Reason.UNLISTED]
    assert_expected_inline(
        wrapped(session.explain()),
        """\
(x: float32[3, 4], w: float32[4, 3]) -> (y): latched after 2 runs
why not captured
node   op  reason                message
-----  --  --------------------
-----------------------------------------------------------------------
(run)      not on the whitelist  b=3, s=4, x=[3, 4] is none of those in capture_only: b=1, s=4;
x=[2, 8]""",
    )


def test_m2_what_is_not_on_the_whitelist_need_not_be_captured_where_captures_are_required() -> None:
    session, eager = pair(TEXT, capture_only=({"s": 4},), capture="required")
    for s in (4, 5):
        for _ in range(4):
            agree(session, eager, feed(1, s))
    assert states(session) == ["captured", "latched"]


def test_m2_a_hundred_lengths_beside_the_named_ones_cost_no_capture() -> None:
    session, eager = pair(TEXT, capture_only=({"s": 4}, {"s": 8}), max_plans=8)
    for s in range(1, 101):
        for _ in range(3):
            agree(session, eager, feed(1, s))
    agree(session, eager, feed(1, 4))
    assert counted(session, "captures", "plans", "replays", "unlisted signatures") == (2, 2, 1, 98)


def test_m2_a_binding_is_asked_for_what_is_named_too() -> None:
    session = session_on(TEXT, capture_only=({"b": 1, "s": 4},))
    for b, reason in ((2, [Reason.UNLISTED]), (1, [])):
        binding = session.bind()
        y = torch.full((b, 3), -7.0)
        for name, value in feed(b, 4).items():
            binding.input(name, value)
        binding.output("y", y)
        report = binding.capture()
        assert (
            [row.reason for row in report.rows] == reason if isinstance(report, DeclineReport) else not reason
        )
        assert bool((y == -7).all()) is bool(reason)


def test_an_input_that_is_left_out_has_no_size() -> None:
    text = "g (float[n] x, optional(float[k]) o) => (float[n] y) { h = OptionalHasElement(o) y = Exp(x) }"
    session = session_on(text, capture_only=({"k": 2},))
    warmed(session, {"x": torch.randn(3)}, 4)
    assert "k=absent is none of those" in session.explain()


def refused(**options: Any) -> str:
    return message(tos.errors.InputError, lambda: tos.load(model(TEXT), options=tos.Options(**options)))


def test_names_that_the_model_does_not_have_are_refused_at_load() -> None:
    assert_expected_inline(
        refused(capture_only=({"sequence": 4},)),
        """capture_only: no input has the symbolic dim 'sequence' (there are: 'b', 's')""",
    )
    assert_expected_inline(
        refused(capture_only=({"s": 4}, {"v": (1, 2)})),
        """capture_only: the model has no input 'v' (there are: 'w', 'x')""",
    )
    assert_expected_inline(
        refused(capture_only=({"w": (4, 4)},)),
        """\
capture_only: input 'w' never has the dims [4, 4]; the model says w: float32[s, 3]""",
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"s": 4}, "capture_only is a tuple of mappings, got dict"),
        ((), "capture_only allows nothing to be captured; write capture='off' for that"),
        (({},), "an entry of capture_only maps names to sizes, got {}"),
        ((4,), "an entry of capture_only maps names to sizes, got 4"),
        (({4: 4},), "a name in capture_only is a text, got 4"),
        (({"s": True},), "the size of 's' in capture_only must be an int, got True"),
        (({"s": -1},), "the size of 's' in capture_only must not be negative, got -1"),
        (({"s": "4"},), "the size of 's' in capture_only must be a tuple of ints, got '4'"),
        (({"x": (1, 2.0)},), "the size of 'x' in capture_only must be an int, got 2.0"),
    ],
)
def test_bad_values_are_refused(value: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        tos.Options(capture_only=value)
    assert str(caught.value) == told


def test_a_caller_cannot_change_the_whitelist_afterwards() -> None:
    entry = {"s": 4}
    options = tos.Options(capture_only=(entry,))
    entry["s"] = 5
    assert options.capture_only == ({"s": 4},)
    assert hash(options) == hash(tos.Options(capture_only=({"s": 4},)))
