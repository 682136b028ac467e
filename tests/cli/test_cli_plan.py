"""`torch-ort-session plan`, as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from cli.conftest import FLOAT, INT64, save
from expecttest import assert_expected_inline
from onnx import helper


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
            # Has no part in any chain, so that the plan is the same without the extension.
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


def test_a_plan(command, folder: Path) -> None:
    outcome = command("plan", branches(folder), "--random", "--dim", "batch=4")
    assert (outcome.code, outcome.err) == (0, "")
    assert_expected_inline(
        outcome.out,
        """\
branches.onnx
5 steps on cpu: 4 in 1 segment, 1 in 1 seam, 0 folded into constants
key feeds: n = 0
passes: none

regions
  segment  4 steps, 3 launches
  seam     places (ai.onnx::NonZero)
           kernel declares a seam: the size of the output depends on the data

memory
  arena        512 B   2 places for 3 values, at least 512 B needed
  slots        768 B   100% of all that is no result
  activations  1.0 KB  1 view beside them
  results      256 B   handed to the user, so never in the arena
  at once      512 B   the most that has to be there at one step
  eager peak   240 B   the most that an eager run holds at once
  saved        256 B   by slots that are used again
largest slots
  h                     48 B  steps 0 to 1
  choice/else_branch/q  48 B  steps 1 to 3
  s                     48 B  steps 3 to 4
""",
    )


def test_a_plan_without_a_seam(command, dense: str) -> None:
    assert_expected_inline(
        command("plan", dense, "--random").out,
        """\
dense.onnx
2 steps on cpu: 2 in 1 segment, 0 in 0 seams, 0 folded into constants
key feeds: none
passes: none

regions
  segment  2 steps, 2 launches

memory
  arena        256 B  1 place for 1 value, at least 256 B needed
  slots        256 B  100% of all that is no result
  activations  512 B  0 views beside them
  results      256 B  handed to the user, so never in the arena
  at once      512 B  the most that has to be there at one step
  eager peak   16 B   the most that an eager run holds at once
  saved        0 B    by slots that are used again
largest slots
  m  8 B  steps 0 to 1
""",
    )


def test_the_page(command, dense: str, folder: Path) -> None:
    outcome = command("plan", dense, "--random", "--html", "out.html")
    assert (outcome.code, outcome.err) == (0, "")
    assert_expected_inline(outcome.out.splitlines()[-1].split(":")[0], """out.html""")
    text = (folder / "out.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "Plan of dense.onnx" in text


def test_a_plan_as_json(command, dense: str) -> None:
    found = json.loads(command("plan", dense, "--random", "--json").out)
    assert found["model"] == "dense.onnx"
    assert found["steps"] == {"total": 2, "recorded": 2, "eager": 0, "folded": 0, "assumed": 0}
    assert [region["kind"] for region in found["regions"]] == ["segment"]
    assert found["memory"]["complete"] is True


def test_something_must_be_fed(command, dense: str) -> None:
    outcome = command("plan", dense)
    assert outcome.code == 1
    assert_expected_inline(
        outcome.err,
        """\
torch-ort-session: error: nothing is fed to x; give --input NAME=FILE.npy for each, or --random
""",
    )
