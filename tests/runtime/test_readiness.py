"""M22: what a session runs with is found out at load, reported, and never another one behind a capture."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from expecttest import assert_expected_inline
from runtime.capturelab import CHAIN, agree, counted, reasons, session_on, states, warmed
from textmodel import load, message, model

import torch_ort_session as tos
from torch_ort_session.explain.backend import BackendReport, Extension, NativeUse, Readiness, readiness
from torch_ort_session.ops import native
from torch_ort_session.ops.native import files as native_files
from torch_ort_session.plan.partition.report import Reason
from torch_ort_session.runtime.recorders.devices import stamp_of

CPU = torch.device("cpu")
GOOD = Readiness(
    "cpu",
    "torch 2.13.0+cpu, CUDA none, Python 3.11",
    Extension("/lib/_native.so", "torch 2.13.0+cpu, CUDA none, Python 3.11", 2, ("check_index",), (10, 20)),
    "tape",
)
USES = (NativeUse("ai.onnx::Add", 3), NativeUse("ai.onnx::Gather", 2, ("check_index",)))


def feed() -> dict[str, Any]:
    return {"x": torch.randn(3), "w": torch.randn(3)}


def rebuild(dispatcher: Any) -> None:
    other = dispatcher.rules.stamp._replace(library="/other/_native.so", build=(1, 2))
    dispatcher.rules = dataclasses.replace(dispatcher.rules, stamp=other)


def test_m22_the_report_of_a_session_that_has_the_extension() -> None:
    assert_expected_inline(
        str(BackendReport(GOOD, "auto", USES, ("ai.onnx::Exp",))),
        """\
device        cpu
torch         torch 2.13.0+cpu, CUDA none, Python 3.11
extension     /lib/_native.so, ABI 2
compiled for  the CPU
recorder      tape
capture       auto
native ops    ai.onnx::Gather (2: check_index)
fall back     none
torch alone   1 operator, 3 nodes
quarantined   ai.onnx::Exp""",
    )


def test_m22_the_report_of_a_session_that_has_none() -> None:
    ready = dataclasses.replace(
        GOOD, extension=Extension(reason="extension not built"), recorder="none", reason="extension not built"
    )
    assert_expected_inline(
        str(BackendReport(ready, "auto", USES, ())),
        """\
device        cpu
torch         torch 2.13.0+cpu, CUDA none, Python 3.11
extension     none: extension not built
compiled for  nothing
recorder      none: extension not built
capture       auto
native ops    none
fall back     ai.onnx::Gather (2: check_index)
torch alone   1 operator, 3 nodes
quarantined   none""",
    )


def test_m22_the_report_is_records_for_programs() -> None:
    assert_expected_inline(
        json.dumps(BackendReport(GOOD, "off", USES, ("ai.onnx::Exp",)).to_dict(), indent=1),
        """\
{
 "device": "cpu",
 "torch": "torch 2.13.0+cpu, CUDA none, Python 3.11",
 "extension": {
  "library": "/lib/_native.so",
  "built_for": "torch 2.13.0+cpu, CUDA none, Python 3.11",
  "abi": 2,
  "ops": [
   "check_index"
  ],
  "stamp": [
   10,
   20
  ],
  "reason": "",
  "cuda_ops": [],
  "architectures": [],
  "instructions": [],
  "choosing": []
 },
 "recorder": "tape",
 "reason": "",
 "capture": "off",
 "native": [
  {
   "op": "ai.onnx::Gather",
   "nodes": 2,
   "native": [
    "check_index"
   ]
  }
 ],
 "fallbacks": [],
 "torch_alone": [
  {
   "op": "ai.onnx::Add",
   "nodes": 3,
   "native": []
  }
 ],
 "quarantined": [
  "ai.onnx::Exp"
 ]
}""",
    )


def test_m22_a_session_reports_its_own_operators() -> None:
    session = load(
        "g (float[n] x, int64[k] i, bool c) => (float[k] y) { a = Exp(x) b = If (c)"
        " <then_branch = t () => (float[n] s) { s = Exp(a) },"
        " else_branch = e () => (float[n] s) { s = Neg(a) }>"
        " y = Gather(b, i) }"
    )
    report = session.backend_report()
    assert {use.op: use.nodes for use in report.ops} == {
        "ai.onnx::Exp": 2,
        "ai.onnx::Gather": 1,
        "ai.onnx::If": 1,
        "ai.onnx::Neg": 1,
    }
    shown = report.native if native.status().usable else report.fallbacks
    assert [(use.op, use.native) for use in shown] == [("ai.onnx::Gather", ("check_index",))]
    assert report.capture == "auto" and report.ready.device == "cpu" and report.quarantined == ()
    assert report.ready.torch.startswith(f"torch {torch.__version__}")
    json.dumps(report.to_dict())


@pytest.mark.skipif(not native.status().usable, reason="needs the extension")
def test_m22_with_the_extension_there_is_a_tape() -> None:
    ready = readiness(stamp_of(CPU))
    assert (ready.recorder, ready.reason, ready.extension.reason) == ("tape", "", "")
    assert ready.extension.library == str(native.library()) and ready.extension.abi == native.ABI_VERSION
    assert ready.extension.built_for == str(native_files.running())


def test_m22_the_eager_path_is_chosen_at_load_and_not_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = native.Status(None, False, "extension not built")
    with monkeypatch.context() as patch:
        patch.setattr(native, "status", lambda: nothing)
        session = tos.load(model(CHAIN))
    # The extension is there by now; what was found at load stays.
    warmed(session, feed(), 4)
    assert reasons(session) == [Reason.OFF] and states(session) == ["latched"]
    report = session.backend_report()
    assert report.ready.recorder == "none" and report.ready.extension.reason == "extension not built"


def test_m22_a_capture_made_with_another_build_is_not_replayed() -> None:
    session, eager = session_on(CHAIN), tos.load(model(CHAIN), options=tos.Options(capture="off"))
    for _ in range(6):
        agree(session, eager, feed())
    assert counted(session, "captures", "retirements") == (1, 0)
    rebuild(session._engine.state.dispatcher)
    agree(session, eager, feed())
    assert reasons(session) == [Reason.NOT_WARMED] and states(session) == ["cold"]
    for _ in range(4):
        agree(session, eager, feed())
    assert counted(session, "captures", "retirements") == (2, 1) and states(session) == ["captured"]


def test_m22_a_replay_by_hand_with_another_build_is_made_eagerly_and_says_so() -> None:
    session = session_on(CHAIN)
    binding = session.bind()
    y = torch.zeros(3)
    for name, value in feed().items():
        binding.input(name, value)
    binding.output("y", y)
    assert binding.capture() is None and binding.replay()
    want = y.clone()
    rebuild(binding._state.dispatcher)
    y.fill_(-7)
    assert not binding.replay() and torch.equal(y, want)
    assert "there is nothing to replay" in message(tos.CaptureError, binding.replay)
    assert binding.capture() is None and binding.replay()


def test_m22_quarantined_operators_are_reported() -> None:
    session = session_on(CHAIN)
    session._engine.state.dispatcher.quarantine("", "Exp")
    assert session.backend_report().quarantined == ("ai.onnx::Exp",)
