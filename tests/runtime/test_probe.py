"""The probe: with ``verify`` the first replay on other feeds is compared with an eager run on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import (
    agree,
    counted,
    cpu_recorder,
    entries,
    injected,
    pair,
    reasons,
    same,
    states,
    warmed,
)
from textmodel import declare, model, operator
from torch.utils._python_dispatch import _disable_current_modes

import torch_ort_session as tos
from torch_ort_session.errors import PlanError
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.runtime.captures.compare import difference
from torch_ort_session.runtime.dispatch import paths as attempts
from torch_ort_session.runtime.recorders.api import Recorder
from torch_ort_session.runtime.recorders.devices import recorder_for


@declare
def Bakes(x: torch.Tensor) -> torch.Tensor:
    """Reads data where no recorder can see it."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        factor = float(x.abs().sum())
    return x * factor


LYING = "g (float[n] x) => (float[n] y) { a = Exp(x) b = tests.Bakes(a) y = Neg(b) }"


def test_a_kernel_that_bakes_data_is_found_by_the_first_replay_on_other_feeds() -> None:
    with operator(Bakes):
        session, eager = pair(LYING, verify=True)
        for _ in range(8):
            agree(session, eager, {"x": torch.randn(3)})
    assert states(session) == ["latched"] and reasons(session) == [Reason.PROBE]
    assert counted(session, "captures", "probes", "probe mismatches", "retirements") == (1, 1, 1, 1)


def test_without_verify_it_is_not_found() -> None:
    with operator(Bakes):
        session, eager = pair(LYING)
        warmed(session, {"x": torch.ones(3)})
        wrong = session.run(None, {"x": torch.zeros(3)})[0]
        assert not torch.allclose(wrong, eager.run(None, {"x": torch.zeros(3)})[0])


def test_replays_on_the_captured_feeds_prove_nothing() -> None:
    with operator(Bakes):
        session, eager = pair(LYING, verify=True)
        x = torch.randn(3)
        for _ in range(6):
            agree(session, eager, {"x": x.clone()})
        assert counted(session, "replays", "probes") == (3, 0)
        agree(session, eager, {"x": x + 1})
    assert counted(session, "replays", "probes", "probe mismatches") == (4, 1, 1)


def test_one_probe_a_capture_is_enough() -> None:
    session, eager = pair("g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }", verify=True)
    for _ in range(8):
        agree(session, eager, {"x": torch.randn(3)})
    assert counted(session, "probes", "probe mismatches", "replays") == (1, 0, 5)


def test_random_steps_do_not_count_as_a_difference_and_draw_once() -> None:
    text = "g (float[n] x) => (float[n] y) { a = Exp(x) r = RandomNormalLike(x) y = Add(a, r) }"
    session, eager = pair(text, verify=True)
    for step in range(8):
        given = {"x": torch.randn(3)}
        results = []
        for runs in (session, eager):
            torch.manual_seed(step)
            results.append((*runs.run(None, given), torch.get_rng_state()))
        same(*results)
    assert counted(session, "probes", "probe mismatches", "captures") == (1, 0, 1)


def test_a_replay_that_accepts_what_an_eager_run_refuses_is_a_difference() -> None:
    @declare
    def Checks(x: torch.Tensor) -> torch.Tensor:
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            if bool((x > 100).any()):
                raise ValueError("more than a hundred")
        return x + 1

    with operator(Checks):
        session, eager = pair(
            "g (float[n] x) => (float[n] y) { a = Neg(x) y = tests.Checks(a) }", verify=True
        )
        warmed(session, {"x": torch.randn(3)})
        with pytest.raises(tos.errors.KernelError, match="more than a hundred"):
            session.run(None, {"x": torch.full((3,), -200.0)})
        assert reasons(session) == [Reason.PROBE]
        agree(session, eager, {"x": torch.randn(3)})


def test_verify_poisons_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def noted(device: torch.device, *, poison: bool = False, packing: object = None) -> Recorder | None:
        asked.append(poison)
        return recorder_for(device, poison=poison) or cpu_recorder()

    monkeypatch.setattr("torch_ort_session.runtime.recorders.devices.recorder_for", noted)
    for verify in (False, True):
        proto = model("g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }")
        warmed(tos.load(proto, options=tos.Options(verify=verify)), {"x": torch.randn(3)})
    assert asked == [False, True]


def test_verify_checks_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Any) -> None:
        raise PlanError("two slots overlap")

    session, eager = pair("g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }", verify=True)
    monkeypatch.setattr(attempts, "verify", broken)
    for _ in range(3):
        agree(session, eager, {"x": torch.randn(3)})
    report = entries(session)[0].report
    assert report is not None and report.rows[0].message == "two slots overlap"
    monkeypatch.undo()
    injected(session, cpu_recorder)
    for _ in range(4):
        agree(session, eager, {"x": torch.randn(3)})
    assert states(session) == ["captured"]


SAME: list[tuple[Any, Any]] = [
    (torch.tensor([1.0, float("nan"), float("inf")]), torch.tensor([1.0, float("nan"), float("inf")])),
    (torch.tensor([1.0, 1000.0]), torch.tensor([1.0009, 1000.0])),
    (torch.tensor([1.0, 100.0]).half(), torch.tensor([1.1, 100.0]).half()),
    (torch.zeros(0), torch.zeros(0)),
    (torch.tensor([1 + 2j]), torch.tensor([1 + 2j])),
    (None, None),
    (np.array(["a"], dtype=object), np.array(["a"], dtype=object)),
    ((torch.zeros(2), torch.ones(1)), (torch.zeros(2), torch.ones(1))),
]
OTHER: list[tuple[Any, Any]] = [
    (torch.tensor([1.0, 1000.0]), torch.tensor([1.002, 1000.0])),
    (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")])),
    (torch.tensor([float("inf")]), torch.tensor([float("-inf")])),
    (torch.tensor([1, 2]), torch.tensor([1, 3])),
    (torch.tensor([True]), torch.tensor([False])),
    (torch.zeros(2), torch.zeros(1, 2)),
    (torch.zeros(2), torch.zeros(2).double()),
    (torch.zeros(2), None),
    (np.array(["a"], dtype=object), np.array(["b"], dtype=object)),
    ((torch.zeros(2),), (torch.zeros(2), torch.ones(1))),
    ((torch.zeros(2),), (torch.ones(2),)),
]


@pytest.mark.parametrize("number", range(len(SAME)))
def test_what_agrees(number: int) -> None:
    assert difference(["y"], [SAME[number][0]], [SAME[number][1]]) == ""


@pytest.mark.parametrize("number", range(len(OTHER)))
def test_what_differs(number: int) -> None:
    assert difference(["x", "y"], [None, OTHER[number][0]], [None, OTHER[number][1]]).startswith("'y': ")


def test_a_difference_in_words() -> None:
    told = [difference(["y"], [one], [other]) for one, other in OTHER[:1] + OTHER[6:9]]
    assert_expected_inline(
        "\n".join(told),
        """\
'y': the numbers differ by up to 0.002, where 0.001 is rounding
'y': the replay gave float32[2], the eager run float32[1, 2]
'y': the replay gave float32[2], the eager run float64[2]
'y': the replay gave Tensor, the eager run NoneType""",
    )


def test_an_interrupted_probe_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    session, eager = pair("g (float[n] x) => (float[n] y) { a = Exp(x) y = Neg(a) }", verify=True)
    warmed(session, {"x": torch.ones(3)})

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(attempts, "by_steps", interrupted)
        session.run(None, {"x": torch.zeros(3)})
    assert counted(session, "probe mismatches") == (0,)
    for _ in range(5):
        agree(session, eager, {"x": torch.randn(3)})
    assert states(session) == ["captured"]
    assert counted(session, "probes", "probe mismatches") == (2, 0)
