"""M3: what keeps a binding's capture from being made, as the rows that its caller reads."""

from __future__ import annotations

import pytest
import torch
from binding.test_binding_captures import STEP, bound
from expecttest import assert_expected_inline
from runtime.capturelab import session_on
from textmodel import wrapped

import torch_ort_session as tos
from torch_ort_session.plan.partition.report import DeclineReport


def test_m3_a_capture_with_nothing_bound_to_outputs_declines() -> None:
    session = session_on(STEP)
    binding = session.bind()
    binding.input("x", torch.ones(3))
    h = torch.zeros(3)
    report = binding.capture({"h": h})
    assert isinstance(report, DeclineReport)
    assert_expected_inline(
        wrapped(str(report)),
        """\
node    op             reason             message
------  -------------  -----------------
---------------------------------------------------------------------
Sub_5   ai.onnx::Sub   outputs not bound  nothing is bound to 'y', nor to any other output;
run() hands it over
Tanh_4  ai.onnx::Tanh  outputs not bound  nothing is bound to 'g', nor to any other output;
run() hands it over""",
    )
    assert binding.capture({"h": h}) == report and session.stats()["captures"] == 0
    binding.output("g", torch.zeros(3))
    assert binding.capture({"h": h}) is None
    assert binding.replay({"h": h}) is True


def test_m3_m21_a_capture_with_a_sequence_among_the_outputs_declines() -> None:
    session = session_on(
        "g (float[n] x) => (float[n] y, seq(float[n]) s) { y = Exp(x) s = SequenceConstruct(y, x) }"
    )
    binding, y = session.bind(), torch.full((3,), -7.0)
    binding.input("x", torch.zeros(3))
    binding.output("y", y)
    report = binding.capture()
    assert isinstance(report, DeclineReport)
    assert_expected_inline(
        wrapped(str(report)),
        """\
node                 op                          reason           message
-------------------  --------------------------  ---------------
-------------------------------------------------------------------------
SequenceConstruct_1  ai.onnx::SequenceConstruct  sequence output  's' is a sequence(float32[n]),
which no tensor holds; run() hands it over""",
    )
    assert report.to_dict()[0]["reason"] == "sequence output" and bool((y == -7).all())
    binding.run()
    assert torch.equal(y, torch.ones(3)) and len(binding.read("s")) == 2


def test_m3_a_replay_without_a_capture_carries_its_report() -> None:
    binding, *_ = bound(session_on(STEP))
    with pytest.raises(tos.CaptureError) as caught:
        binding.replay()
    assert isinstance(caught.value.report, DeclineReport)
    assert_expected_inline(
        str(caught.value.report),
        """\
node   op  reason                  message
-----  --  ----------------------  --------------------------------------------------------------------
(run)      replay without capture  there is nothing to replay: no capture was made; capture() makes one""",
    )
