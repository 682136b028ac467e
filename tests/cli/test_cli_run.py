"""`torch-ort-session run`, as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.cli.run import as_array, describe


def test_a_random_run(command, dense: str) -> None:
    outcome = command("run", dense, "--random", "--dim", "batch=4")
    assert (outcome.code, outcome.err) == (0, "")
    assert_expected_inline(
        outcome.out,
        """\
dense.onnx on cpu, N ms
  y  float32[4, 2]  min -20.47  max -0.9302  mean -10.15
""",
    )


def test_the_seed_decides_what_is_fed(command, dense: str) -> None:
    first, again, other = (
        json.loads(command("run", dense, "--random", "--seed", seed, "--json").out)["outputs"]
        for seed in "001"
    )
    assert first == again != other


def test_feeds_from_files(command, dense: str) -> None:
    np.save("ones.npy", np.ones((1, 3), np.float32))
    outcome = command("run", dense, "--input", "x=ones.npy", "--output", "results")
    assert_expected_inline(
        outcome.out,
        """\
dense.onnx on cpu, N ms
  y  float32[1, 2]  min 12  max 18  mean 15
""",
    )
    assert np.array_equal(np.load("results/y.npy"), [[12, 18]])


def test_json(command, dense: str) -> None:
    np.save("x.npy", np.array([[1, 0, np.nan]], np.float32))
    found = json.loads(command("run", dense, "--input", "x=x.npy", "--json").out)
    assert found.pop("seconds") > 0
    assert_expected_inline(
        "\n".join(f"{key}: {json.dumps(value)}" for key, value in found.pop("outputs")[0].items()),
        """\
name: "y"
dtype: "float32"
shape: [1, 2]
min: null
max: null
mean: null
nan: 2
inf: 0""",
    )
    assert found == {"model": "dense.onnx", "device": "cpu"}


def test_without_feeds_the_inputs_are_named(command, dense: str) -> None:
    outcome = command("run", dense)
    assert (outcome.code, outcome.out) == (1, "")
    assert_expected_inline(
        outcome.err,
        """\
torch-ort-session: error: nothing is fed to x; give --input NAME=FILE.npy for each, or --random
""",
    )


def test_a_feed_for_no_input(command, dense: str) -> None:
    assert_expected_inline(
        command("run", dense, "--input", "z=ones.npy").err,
        """\
torch-ort-session: error: --input 'z=ones.npy' does not start with NAME= of an input; inputs: x
""",
    )


def test_a_feed_that_is_no_array(command, dense: str) -> None:
    Path("text.npy").write_text("no array")
    outcome = command("run", dense, "--input", "x=text.npy")
    assert outcome.code == 1
    assert outcome.err.startswith("torch-ort-session: error: text.npy: not an array file of numpy (")


def test_a_feed_of_the_wrong_shape_is_one_message(command, dense: str) -> None:
    np.save("x.npy", np.ones((1, 4), np.float32))
    outcome = command("run", dense, "--input", "x=x.npy")
    assert outcome.code == 1
    assert outcome.err.startswith("torch-ort-session: error: ")
    assert "Traceback" not in outcome.err and "'x'" in outcome.err


def test_a_missing_file(command, folder: Path) -> None:
    outcome = command("run", "gone.onnx", "--random")
    assert outcome.code == 1
    assert "gone.onnx" in outcome.err and "Traceback" not in outcome.err


def test_a_bad_dimension(command, dense: str) -> None:
    assert_expected_inline(
        command("run", dense, "--random", "--dim", "batch").err,
        """\
torch-ort-session: error: --dim 'batch' is not of the form SYMBOL=SIZE
""",
    )


def test_a_dimension_that_no_input_has(command, dense: str) -> None:
    assert_expected_inline(
        command("run", dense, "--random", "--dim", "bacth=4").err,
        """\
torch-ort-session: error: --dim 'bacth=4' names no dimension of the inputs; symbolic dimensions: batch
""",
    )


def test_strings_are_not_made_up(command, words: str) -> None:
    assert_expected_inline(
        command("run", words, "--random").err,
        """\
torch-ort-session: error: input 'w' (string[2]) cannot be made at random; give --input for it
""",
    )


def test_strings_come_from_files(command, words: str) -> None:
    np.save("w.npy", np.array(["a", "bc"]))
    outcome = command("run", words, "--input", "w=w.npy", "--output", ".")
    assert (outcome.code, outcome.err) == (0, "")
    assert_expected_inline(
        outcome.out,
        """\
words.onnx on cpu, N ms
  same  string[2]  'a', 'bc'
""",
    )
    assert np.load("same.npy").tolist() == ["a", "bc"]


def test_an_unknown_device(command, dense: str) -> None:
    outcome = command("run", dense, "--random", "--device", "meta")
    assert outcome.code == 1
    assert "meta" in outcome.err and "Traceback" not in outcome.err


def test_descriptions() -> None:
    values: list[object] = [
        torch.tensor([1.0, float("nan"), float("-inf")]),
        torch.tensor([], dtype=torch.int32),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        np.array(["a", "b"], dtype=object),
        (torch.tensor(2), None),
    ]
    found = [describe("v", value) for value in values]
    items = found[-1].pop("items")
    assert_expected_inline(
        "\n".join(map(json.dumps, [*found, *items])),
        """\
{"name": "v", "dtype": "float32", "shape": [3], "min": 1.0, "max": 1.0, "mean": 1.0, "nan": 1, "inf": 1}
{"name": "v", "dtype": "int32", "shape": [0], "min": null, "max": null, "mean": null, "nan": 0, "inf": 0}
{"name": "v", "dtype": "bool", "shape": [2], "min": 0.0, "max": 1.0, "mean": 0.5, "nan": 0, "inf": 0}
{"name": "v", "dtype": "complex64", "shape": [1], "nan": 0, "inf": 0}
{"name": "v", "dtype": "string", "shape": [2], "first": ["a", "b"]}
{"name": "v", "dtype": "sequence"}
{"name": "v[0]", "dtype": "int64", "shape": [], "min": 2.0, "max": 2.0, "mean": 2.0, "nan": 0, "inf": 0}
{"name": "v[1]", "dtype": "absent"}""",
    )


@pytest.mark.parametrize("value", [(torch.ones(1),), None])
def test_what_is_no_array_is_not_saved(value: object) -> None:
    assert as_array(value) is None


def test_types_that_numpy_lacks_are_widened() -> None:
    array = as_array(torch.tensor([1.5], dtype=torch.bfloat16))
    assert array is not None and array.dtype == np.float32 and array.tolist() == [1.5]
    texts = as_array(np.array(["a", "bc"], dtype=object))
    assert texts is not None and texts.dtype.kind == "U"
