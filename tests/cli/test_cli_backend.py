"""`ops --native` and `inspect --backend`: what is compiled, what records, and what falls back."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from expecttest import assert_expected_inline
from onnx import save
from textmodel import model
from torch import Tensor

from torch_ort_session.cli import backend
from torch_ort_session.explain.backend import Extension, Readiness
from torch_ort_session.ops import native
from torch_ort_session.ops.kernel import kernel, kernels_of
from torch_ort_session.runtime.recorders.devices import Stamp

GOOD = Readiness(
    "cpu",
    "torch 9",
    Extension(
        "native.so",
        "torch 9",
        2,
        ("check_index", "gemv"),
        (10, 20),
        cuda_ops=("check_index",),
        architectures=("8.0", "9.0"),
        instructions=("default", "avx2"),
        choosing=("gemv",),
    ),
    "tape",
)
NONE = dataclasses.replace(
    GOOD, extension=Extension(reason="extension not built"), recorder="none", reason="extension not built"
)


@kernel("Plain", since=(1,), domain="acme")
def plain(x: Tensor) -> Tensor:
    return x


@kernel("Looks", since=(1, 3), domain="acme", native=("check_index",))
def looks(x: Tensor) -> Tensor:
    return x


@kernel("Chooses", since=(2,), domain="acme", native=("check_index", "gemv", "top_k"))
def chooses(x: Tensor) -> Tensor:
    return x


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three kernels."""
    table = {(k.domain, k.op): (k,) for fn in (plain, looks, chooses) for k in kernels_of(fn)}
    monkeypatch.setattr(backend, "registry", SimpleNamespace(kernels=lambda: table))


def given(patch: pytest.MonkeyPatch, ready: Readiness) -> None:
    def readiness(stamp: Stamp) -> Readiness:
        return ready

    patch.setattr(backend, "readiness", readiness)
    patch.setattr("torch_ort_session.explain.backend.readiness", readiness)


def test_m22_what_is_compiled(command, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, GOOD)
    assert_expected_inline(
        command("ops", "--native", "--domain", "acme").out,
        """\
torch         torch 9
extension     native.so, ABI 2
compiled for  the CPU (default, avx2), CUDA 8.0 9.0 (check_index)
recorder      tape
compiled     CPU                       CUDA     operators
check_index  one for all               8.0 9.0  2
gemv         each set of instructions  -        1
op             revisions  uses               falls back from
acme::Chooses  2          check_index, gemv  top_k
acme::Looks    1 3        check_index        -
2 kernels with native ops; all others are torch's ops alone
""",
    )


def test_m22_what_falls_back(command, few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, NONE)
    assert_expected_inline(
        command("ops", "--native", "--domain", "acme").out,
        """\
torch         torch 9
extension     none: extension not built
compiled for  nothing
recorder      none: extension not built
op             revisions  uses  falls back from
acme::Chooses  2          -     check_index, gemv, top_k
acme::Looks    1 3        -     check_index
2 kernels that would use native ops; all others are torch's ops alone
""",
    )


def test_m22_what_is_compiled_for_programs(command, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, GOOD)
    found = json.loads(command("ops", "--native", "--json").out)
    assert found["extension"]["ops"] == ["check_index", "gemv"] and found["falls_back"] is False
    gather = {"op": "ai.onnx::Gather", "since": [1, 11, 13], "native": ["check_index"], "falls_back_from": []}
    assert gather in found["kernels"]


def test_m22_what_a_model_runs_with(command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(model("g (float[n] x, int64[k] i) => (float[k] y) { a = Exp(x) y = Gather(a, i) }"), "m.onnx")
    given(monkeypatch, GOOD)
    assert_expected_inline(
        command("inspect", "m.onnx", "--backend").out,
        """\
device        cpu
torch         torch 9
extension     native.so, ABI 2
compiled for  the CPU (default, avx2), CUDA 8.0 9.0 (check_index)
recorder      tape
capture       auto
native ops    ai.onnx::Gather (1: check_index)
fall back     none
torch alone   1 operator, 1 node
quarantined   none
""",
    )
    report = command("inspect", "m.onnx", "--backend").out
    nodes = command("inspect", "m.onnx", "--nodes").out
    both = command("inspect", "m.onnx", "--backend", "--nodes").out
    assert (
        both.startswith(report)
        and nodes.endswith(both.removeprefix(report))
        and "Gather" in both[len(report) :]
    )
    given(monkeypatch, NONE)
    found = json.loads(command("inspect", "m.onnx", "--backend", "--nodes", "--json").out)
    assert [node["op"] for node in found["node_list"]] == ["Exp", "Gather"]
    assert found["recorder"] == "none" and found["extension"]["reason"] == "extension not built"
    assert [use["op"] for use in found["fallbacks"]] == ["ai.onnx::Gather"]


@pytest.mark.skipif(not native.status().usable, reason=f"native ops: {native.status().reason}")
def test_m22_every_op_of_the_library_is_listed_and_every_op_asked_for_is_there(command) -> None:
    source = Path(__file__).parents[2] / "csrc" / "register.cpp"
    declared = set(re.findall(r'm\.def\(\s*"(\w+)', source.read_text(encoding="utf-8")))
    facts = {"abi_version", "cpu_instructions", "cuda_architectures"}
    found = json.loads(command("ops", "--native", "--json").out)
    assert set(found["extension"]["ops"]) == declared - facts
    assert not {op for each in found["kernels"] for op in each["falls_back_from"]}
    # What captures make of several nodes is listed as well.
    assert {"torch_ort_session::Fused": ["elementwise_chain"]}.items() <= {
        each["op"]: each["native"] for each in found["kernels"]
    }.items()
    assert {"gemv", "matmul_nbits"} <= set(found["extension"]["choosing"])
    lines = command("ops", "--native").out.splitlines()
    assert declared - facts <= {line.split()[0] for line in lines}
