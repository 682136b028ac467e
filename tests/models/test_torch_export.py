"""Small modules, exported on the spot: runs and replays agree with onnxruntime and with the module itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import exported
import exported_make
import pytest
from exported_recipes import RECIPES

Exported = Callable[[str, int], exported.Row]


@pytest.fixture
def run(tmp_path: Path) -> Exported:
    """Exports a recipe at an opset and runs it in all ways."""

    def measured(name: str, opset: int) -> exported.Row:
        with warnings.catch_warnings():
            # The exporters warn of much: of themselves, of shapes that they make constants of.
            warnings.simplefilter("ignore")
            exported_make.make(RECIPES[name], name, tmp_path, [opset])
        return exported.measure(name, opset, tmp_path / f"{name}-opset{opset}", seconds=0.0)

    return measured


TORCHSCRIPT = [
    (name, opset)
    for name, recipe in RECIPES.items()
    if recipe.exporter == "torchscript" and not recipe.needs
    for opset in recipe.opsets
]


@pytest.mark.parametrize(("name", "opset"), TORCHSCRIPT)
def test_traced_modules(run: Exported, name: str, opset: int) -> None:
    """All of them are one segment, whatever the sizes."""
    row = run(name, opset)
    assert row.reason == row.note == ""
    assert row.onnxruntime is not None and row.onnxruntime.holds
    assert row.module is not None and row.module.holds, row.module
    assert (row.regions, row.seams) == ((1, 0), {})
    assert row.replays >= 3 * len(exported_sizes(name))


def exported_sizes(name: str) -> set[tuple[object, ...]]:
    """The different sizes that a recipe's feeds have."""
    return {tuple(tuple(value.shape) for value in feed.values()) for feed in RECIPES[name].make().feeds}


@pytest.mark.parametrize("opset", RECIPES["greedy-scripted"].opsets)
def test_a_scripted_loop(run: Exported, opset: int) -> None:
    """The loop is a seam, and so is what gathers its list; its body is recorded."""
    row = run("greedy-scripted", opset)
    assert row.reason == row.note == ""
    assert row.module is not None and row.module.holds
    assert {why.split(":")[0] for why in row.seams.values()} == {"host control flow or sequence"}
    assert row.regions is not None and row.regions[1] == 2


def test_a_model_that_cannot_be_exported_says_why(run: Exported) -> None:
    row = run("cached-torchscript", 13)
    assert row.note.startswith("not exported: UnsupportedOperatorError: Exporting the operator")
    assert row.onnxruntime is row.module is None
