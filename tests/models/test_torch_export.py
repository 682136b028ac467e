"""Small modules, exported on the spot: runs and replays agree with onnxruntime and with the module itself."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import agreement
import exported
import exported_make
import nodewise
import pytest
from exported_recipes import RECIPES, Made

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
    if opset not in recipe.refused
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
    assert row.reason == ""
    assert row.note.startswith("not exported: UnsupportedOperatorError: Exporting the operator")
    assert row.onnxruntime is row.module is None


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        ({}, "not exported: UnsupportedOperatorError: "),
        ({13: "some other error"}, "not exported: UnsupportedOperatorError: "),
        ({13: "attention", 17: "attention"}, "exported, though the recipe says that it cannot be: attention"),
    ],
)
def test_what_the_recipe_does_not_foresee_is_a_miss(
    run: Exported, monkeypatch: pytest.MonkeyPatch, refused: dict[int, str], reason: str
) -> None:
    """An exporter that fails for a new reason, or no longer fails, has to be looked at."""
    name = "cached-torchscript"
    monkeypatch.setitem(RECIPES, name, dataclasses.replace(RECIPES[name], refused=refused))
    row = run(name, max(refused, default=13))
    assert row.reason.startswith(reason)
    assert row.note == ""


def test_a_model_of_another_opset_is_no_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters fall back to an opset of their own where they cannot convert, and only warn."""
    real = exported_make.by_torchscript

    def older(made: Made, opset: int, path: Path, scripted: bool) -> None:
        real(made, opset - 1, path, scripted=scripted)

    monkeypatch.setattr(exported_make, "by_torchscript", older)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported_make.make(RECIPES["cnn-torchscript"], "cnn", tmp_path, [18])
    told = json.loads((tmp_path / "cnn-opset18" / "failed.json").read_text())
    assert told["error"] == "ValueError: the exporter wrote opset 17"
    assert not (tmp_path / "cnn-opset18" / "model.onnx").exists()


def test_each_node_alone_is_judged_where_a_recipe_says_so(
    run: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cnn-torchscript"
    monkeypatch.setitem(RECIPES, name, dataclasses.replace(RECIPES[name], nodes=True))
    row = run(name, 18)
    assert row.reason == ""
    assert row.note.startswith("nodes alone: ")
    wrong = nodewise.NodeError("first", "Conv", agreement.Agreement(0.5, 0, "y: error 0.5 is above 1e-05"))
    feeds = iter([[], [], [wrong]])
    monkeypatch.setattr(nodewise, "compare", lambda *_: next(feeds))
    assert run(name, 18).reason == "nodes alone: Conv 'first': y: error 0.5 is above 1e-05"
