"""Small models in an empty working folder, and the command line run in this process."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from torch_ort_session.cli import main

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


@dataclass(frozen=True)
class Outcome:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def run(*argv: str) -> Outcome:
        capsys.readouterr()
        code = main(argv)
        found = capsys.readouterr()
        return Outcome(code, re.sub(r"\d+\.\d ms", "N ms", found.out), found.err)

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, so that paths in pinned text are short."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(
    name: str, nodes: list[onnx.NodeProto], inputs: dict, outputs: dict, weights: dict | None = None
) -> str:
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info(k, *v) for k, v in inputs.items()],
        [helper.make_tensor_value_info(k, *v) for k, v in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()],
    )
    domains = {node.domain for node in nodes if node.domain}
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="hand"), name)
    return name


@pytest.fixture
def dense(folder: Path) -> str:
    """y = Add(m, m) with m = MatMul(x, w)."""
    return save(
        "dense.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], name="mm"),
            helper.make_node("Add", ["m", "m"], ["y"], name="twice"),
        ],
        {"x": (FLOAT, ["batch", 3])},
        {"y": (FLOAT, ["batch", 2])},
        {"w": np.arange(6, dtype=np.float32).reshape(3, 2)},
    )


@pytest.fixture
def odd(folder: Path) -> str:
    """A model with an operator that nobody has a kernel for."""
    return save(
        "odd.onnx",
        [
            helper.make_node("Frobnicate", ["x"], ["h"], name="first", domain="acme"),
            helper.make_node("Frobnicate", ["h"], ["y"], name="second", domain="acme"),
        ],
        {"x": (FLOAT, [2])},
        {"y": (FLOAT, [2])},
    )


@pytest.fixture
def division(folder: Path) -> str:
    """q = a / b, then s = q + a: a zero over zero gives the first NaN at q."""
    return save(
        "division.onnx",
        [
            helper.make_node("Div", ["a", "b"], ["q"], name="ratio"),
            helper.make_node("Add", ["q", "a"], ["s"], name="sum"),
        ],
        {"a": (FLOAT, [2]), "b": (FLOAT, [2])},
        {"s": (FLOAT, [2])},
    )


@pytest.fixture
def words(folder: Path) -> str:
    """same = Identity(w) on strings."""
    return save(
        "words.onnx",
        [helper.make_node("Identity", ["w"], ["same"], name="copy")],
        {"w": (STRING, [2])},
        {"same": (STRING, [2])},
    )
