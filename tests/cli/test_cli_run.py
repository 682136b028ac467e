"""`torch-ort-session run`, as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from expecttest import assert_expected_inline
from onnx import TensorProto, helper

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


@pytest.mark.parametrize("size", [10**14, 10**23])
def test_an_absurd_dimension(command, dense: str, size: int) -> None:
    outcome = command("run", dense, "--random", "--dim", f"batch={size}")
    assert outcome.code == 1
    assert outcome.err == (
        f"torch-ort-session: error: input 'x' cannot be made at random with shape [{size}, 3]\n"
    )


def test_files_that_are_no_arrays(command, dense: str, folder: Path) -> None:
    Path("empty.npy").touch()
    np.savez("many.npz", a=np.ones(2))
    assert_expected_inline(
        command("run", dense, "--input", "x=empty.npy").err
        + command("run", dense, "--input", "x=many.npz").err,
        """\
torch-ort-session: error: empty.npy: not an array file of numpy (No data left in file)
torch-ort-session: error: many.npz: an archive of arrays (.npz); save the one that is meant as .npy
""",
    )


def test_an_input_given_twice(command, dense: str, folder: Path) -> None:
    np.save("x.npy", np.ones((1, 3), np.float32))
    outcome = command("run", dense, "--input", "x=x.npy", "--input", "x=x.npy")
    assert_expected_inline(
        outcome.err,
        """\
torch-ort-session: error: --input is given twice for 'x'
""",
    )


def test_outputs_whose_names_make_one_file_name(command, folder: Path) -> None:
    """The second one overwrote the first."""
    nodes = [helper.make_node("Neg", ["x"], ["a/b"]), helper.make_node("Abs", ["x"], ["a_b"])]
    of = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "a/b", "a_b")]
    graph = helper.make_graph(nodes, "two", of[:1], of[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), "two.onnx"
    )
    np.save("x.npy", np.array([-1.0, 2.0], np.float32))
    assert command("run", "two.onnx", "--input", "x=x.npy", "--output", "out").code == 0
    assert {path.name: np.load(path).tolist() for path in Path("out").iterdir()} == {
        "a_b.npy": [1.0, -2.0],
        "a_b_1.npy": [1.0, 2.0],
    }


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
