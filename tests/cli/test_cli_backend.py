"""`ops --native` and `inspect --backend`: what is compiled, what records, and what falls back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from expecttest import assert_expected_inline
from onnx import save
from textmodel import model

from torch_ort_session.cli import backend
from torch_ort_session.runtime.readiness import Extension, Readiness

GOOD = Readiness("cpu", "torch 9", Extension("native.so", "torch 9", 2, ("check_index",), (10, 20)), "tape")
NONE = dataclasses.replace(
    GOOD, extension=Extension(reason="extension not built"), recorder="none", reason="extension not built"
)


def given(patch: pytest.MonkeyPatch, ready: Readiness) -> None:
    def found(device: torch.device) -> Readiness:
        return ready

    patch.setattr(backend, "ready_on", found)
    patch.setattr("torch_ort_session.session.ready_on", found)


def test_m22_what_is_compiled(command, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, GOOD)
    assert_expected_inline(
        command("ops", "--native", "--domain", "ai.onnx.ml").out,
        """\
torch         torch 9
extension     native.so, ABI 2
compiled      check_index
compiled for  the CPU
recorder      tape
op                                 revisions  uses
ai.onnx.ml::ArrayFeatureExtractor  1          check_index
1 kernel with native ops; all others are torch's ops alone
""",
    )


def test_m22_what_falls_back(command, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, NONE)
    assert_expected_inline(
        command("ops", "--native", "--domain", "ai.onnx.ml").out,
        """\
torch         torch 9
extension     none: extension not built
compiled      nothing
compiled for  nothing
recorder      none: extension not built
op                                 revisions  falls back from
ai.onnx.ml::ArrayFeatureExtractor  1          check_index
1 kernel that would use native ops; all others are torch's ops alone
""",
    )


def test_m22_what_is_compiled_for_programs(command, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, GOOD)
    found = json.loads(command("ops", "--native", "--json").out)
    assert found["extension"]["ops"] == ["check_index"] and found["falls_back"] is False
    assert {"op": "ai.onnx::Gather", "since": [1, 11, 13], "native": ["check_index"]} in found["kernels"]


def test_m22_what_a_model_runs_with(command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(model("g (float[n] x, int64[k] i) => (float[k] y) { a = Exp(x) y = Gather(a, i) }"), "m.onnx")
    given(monkeypatch, GOOD)
    assert_expected_inline(
        command("inspect", "m.onnx", "--backend").out,
        """\
device        cpu
torch         torch 9
extension     native.so, ABI 2
compiled for  the CPU
recorder      tape
capture       auto
native ops    ai.onnx::Gather (1: check_index)
fall back     none
torch alone   1 operator, 1 node
quarantined   none
""",
    )
    given(monkeypatch, NONE)
    found = json.loads(command("inspect", "m.onnx", "--backend", "--json").out)
    assert found["recorder"] == "none" and found["extension"]["reason"] == "extension not built"
    assert [use["op"] for use in found["fallbacks"]] == ["ai.onnx::Gather"]


def test_m22_the_real_one(command) -> None:
    assert "check_index" in command("ops", "--native").out
