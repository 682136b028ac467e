"""`torch-ort-session plan`, as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from cli.conftest import FLOAT, INT64, save
from expecttest import assert_expected_inline
from onnx import helper
from tapelab import needs_extension


def branches(folder: Path) -> str:
    """y = -x or |x| by n > 0, then the places where y is not zero."""
    negated = helper.make_graph(
        [helper.make_node("Neg", ["h"], ["p"], name="negate")],
        "then",
        [],
        [helper.make_tensor_value_info("p", FLOAT, None)],
    )
    kept = helper.make_graph(
        [helper.make_node("Abs", ["h"], ["q"], name="keep")],
        "else",
        [],
        [helper.make_tensor_value_info("q", FLOAT, None)],
    )
    return save(
        "branches.onnx",
        [
            helper.make_node("Atan", ["x"], ["h"], name="first"),
            helper.make_node("Greater", ["n", "zero"], ["c"], name="positive"),
            helper.make_node("If", ["c"], ["b"], name="choice", then_branch=negated, else_branch=kept),
            helper.make_node("Add", ["b", "b"], ["s"], name="twice"),
            helper.make_node("NonZero", ["s"], ["y"], name="places"),
        ],
        {"x": (FLOAT, ["batch", 3]), "n": (INT64, [])},
        {"y": (INT64, None)},
        {"zero": np.int64(0)},
    )


@needs_extension
def test_a_plan(command, folder: Path) -> None:
    outcome = command("plan", branches(folder), "--random", "--dim", "batch=4")
    assert (outcome.code, outcome.err) == (0, "")
    assert_expected_inline(
        outcome.out,
        """\
branches.onnx
5 steps on cpu: 4 in 1 segment, 1 in 1 seam, 0 folded into constants
key feeds: n = 0

regions
  segment  4 steps, 3 launches
  seam     places (ai.onnx::NonZero)
           kernel declares a seam: the size of the output depends on the data

memory
  arena       512 B  4 storages in it, at least 512 B needed
  beside      0 B    the most at once that a replay allocates
  written     192 B  4 storages of 3 recorded calls
  at once     512 B  the most that has to be there at one call
  eager peak  240 B  the most that an eager run holds at once
  saved       0 B    by slots that are used again
largest slots
  x                     48 B  calls 0 to 0
  h                     48 B  calls 0 to 1
  choice/else_branch/q  48 B  calls 1 to 2
  s                     48 B  calls 2 to 3
""",
    )


@needs_extension
def test_a_plan_without_a_seam(command, dense: str) -> None:
    assert_expected_inline(
        command("plan", dense, "--random").out,
        """\
dense.onnx
2 steps on cpu: 2 in 1 segment, 0 in 0 seams, 0 folded into constants
key feeds: none

regions
  segment  2 steps, 2 launches

memory
  arena       512 B  2 storages in it, at least 512 B needed
  beside      256 B  the most at once that a replay allocates, 8 B of results leave with it
  written     28 B   3 storages of 2 recorded calls
  at once     512 B  the most that has to be there at one call
  eager peak  16 B   the most that an eager run holds at once
  saved       0 B    by slots that are used again
largest slots
  x  12 B  calls 0 to 0
  m  8 B   calls 0 to 1
""",
    )


def test_the_page(command, dense: str, folder: Path) -> None:
    outcome = command("plan", dense, "--random", "--html", "out.html")
    assert (outcome.code, outcome.err) == (0, "")
    assert_expected_inline(outcome.out.splitlines()[-1].split(":")[0], """out.html""")
    text = (folder / "out.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "Plan of dense.onnx" in text


@needs_extension
def test_a_plan_as_json(command, dense: str) -> None:
    found = json.loads(command("plan", dense, "--random", "--json").out)
    assert found["model"] == "dense.onnx"
    assert found["steps"] == {"total": 2, "recorded": 2, "eager": 0, "folded": 0, "assumed": 0}
    assert [region["kind"] for region in found["regions"]] == ["segment"]
    assert found["memory"]["arena"] == 512


def test_something_must_be_fed(command, dense: str) -> None:
    outcome = command("plan", dense)
    assert outcome.code == 1
    assert_expected_inline(
        outcome.err,
        """\
torch-ort-session: error: nothing is fed to x; give --input NAME=FILE.npy for each, or --random
""",
    )
