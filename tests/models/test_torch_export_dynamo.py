"""Small modules, exported at the opsets of today by way of torch.export: torch.onnx prefers this exporter."""

from __future__ import annotations

import warnings
from pathlib import Path

import exported
import exported_make
import pytest
from exported_recipes import RECIPES

SEAMS = {"cond": {"If"}, "scan": {"Scan"}}


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        ("cached", 23),
        pytest.param("cached", 24, marks=pytest.mark.slow),
        ("cnn", 22),
        ("graph-network", 20),
        ("spectrum", 18),
        ("cond", 23),
        ("scan", 18),
    ],
)
def test_modules(tmp_path: Path, name: str, opset: int) -> None:
    """All are one segment, but for control flow, whose bodies are recorded apart."""
    with warnings.catch_warnings():
        # The exporter warns of much: of what is not installed, of its own ways.
        warnings.simplefilter("ignore")
        exported_make.make(RECIPES[name], name, tmp_path, [opset])
    row = exported.measure(name, opset, tmp_path / f"{name}-opset{opset}", seconds=0.0)
    assert row.reason == ""
    assert row.module is not None and row.module.holds, row.note
    assert {seam.rpartition("::")[2].rstrip(")") for seam in row.seams} == SEAMS.get(name, set())
