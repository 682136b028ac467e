"""benchmarks/zoo.py: what `compare` says of models that match, that differ, and that cannot be loaded."""

import json
import re

import fetch
import numpy as np
import onnx
import pytest
import zoo
from expecttest import assert_expected_inline
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime", reason="the oracle that the comparison runs")


def write(path, op, **attributes):
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], **attributes)], "tiny", ports[:1], ports[1:]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A zoo of two models that are at hand already; `Relu` and `Neg`."""
    models = []
    for name, op in (("first", "Relu"), ("second", "Neg")):
        write(tmp_path / f"{name}.onnx", op)
        recipe = {"name": "x", "dtype": "float32", "shape": ["n", 4], "kind": "normal"}
        models.append(
            {"name": name, "tolerance": "float32", "sizes": [{"n": 1}, {"n": 3}], "input": [recipe]}
        )
    monkeypatch.setattr(fetch, "read_zoo", lambda: models)
    monkeypatch.setattr(fetch, "fetch", lambda model, *rest: tmp_path / f"{model['name']}.onnx")
    return tmp_path


def compare(capsys, *options):
    status = zoo.main(["compare", "--seconds", "0.01", *options])
    return status, capsys.readouterr().out


def without_times(text):
    text = re.sub(r"[\d.e+-]+ ms( ±\d+%)?", "TIME", text)
    text = re.sub(r"\d+\.\d\dx", "RATIO", text)
    return re.sub(r" {2,}", "  ", text)


def test_models_that_match(tiny, capsys):
    status, text = compare(capsys, "--check")
    assert status == 0
    assert_expected_inline(
        without_times(text),
        """\
model  error  load  (ort)  run  (ort)  ratio
first n=1  0.0e+00  TIME  TIME  TIME  TIME  RATIO
first n=3  0.0e+00  TIME  TIME  TIME  TIME  RATIO
second n=1  0.0e+00  TIME  TIME  TIME  TIME  RATIO
second n=3  0.0e+00  TIME  TIME  TIME  TIME  RATIO

4 of 4 rows match onnxruntime
zoo: all 4 rows hold
""",
    )


def test_a_model_that_differs_fails_the_check_only(tiny, capsys, monkeypatch):
    import torch_ort_session

    class Wrong:
        def run(self, names, feed):
            return [feed["x"] * 2.0]

    monkeypatch.setattr(torch_ort_session, "load", lambda path, **options: Wrong())
    assert compare(capsys, "--only", "second")[0] == 0
    status, text = compare(capsys, "--only", "second", "--check")
    assert status == 1
    assert text.count("NO MATCH") == 2
    assert re.search(r"^misses: second n=3: y: error 3 is above 0\.0001$", text, re.MULTILINE)


def test_outputs_that_are_the_same_for_any_input_are_no_match(tiny, capsys):
    write(tiny / "first.onnx", "HardSigmoid", alpha=0.0, beta=0.25)
    status, text = compare(capsys, "--only", "first", "--check")
    assert status == 1
    assert text.count("NO MATCH") == 2
    assert "first n=3: other inputs give the same outputs: nothing is compared" in text


def test_a_model_that_cannot_be_loaded_gets_a_row_that_says_why(tiny, capsys, monkeypatch):
    import torch_ort_session

    def load(path, **options):
        raise ValueError("line one\n  line two")

    monkeypatch.setattr(torch_ort_session, "load", load)
    status, text = compare(capsys, "--only", "first", "--check")
    assert status == 1
    assert_expected_inline(
        without_times(text),
        """\
model  error  load  (ort)  run  (ort)  ratio
first  -  -  -  -  -  -  NO MATCH

0 of 1 rows match onnxruntime
misses: first: load: ValueError: line one | line two
""",
    )


def test_a_run_that_fails_does_not_end_the_comparison(tiny, capsys, monkeypatch):
    import torch_ort_session

    class Broken:
        def run(self, names, feed):
            if feed["x"].shape[0] == 3:
                raise RuntimeError("three is too many")
            return [-feed["x"]]

    monkeypatch.setattr(torch_ort_session, "load", lambda path, **options: Broken())
    status, text = compare(capsys, "--only", "second", "--json", "--check")
    assert status == 1
    found = json.loads(text)
    assert [row["matches"] for row in found["rows"]] == [True, False]
    assert found["misses"] == ["second n=3: run: RuntimeError: three is too many"]
    assert found["rows"][0]["error"] == 0.0 and found["rows"][1]["error"] is None
    assert found["rows"][0]["run"]["ratio"] > 0.0


def test_json_rows_have_what_a_machine_needs(tiny, capsys):
    status, text = compare(capsys, "--json", "--only", "first")
    assert status == 0
    (row, other) = json.loads(text)["rows"]
    assert (row["model"], row["sizes"], other["sizes"]) == ("first", {"n": 1}, {"n": 3})
    assert set(row["load_s"]) == {"ours", "onnxruntime"}
    assert row["run"]["ours"]["rounds"] >= 3
    assert np.isfinite(row["run"]["ours"]["spread"])


def test_a_name_that_is_not_in_the_zoo(tiny, capsys):
    assert zoo.main(["compare", "--only", "nope"]) == 2
    assert_expected_inline(
        capsys.readouterr().err,
        """\
no model nope in zoo.toml; `zoo.py list` prints the names
""",
    )
