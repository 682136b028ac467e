"""benchmarks/gemv.py: weights are what their models say, paces are judged, wrong results are told."""

import json

import gemv
import harness
import pytest
import torch
from agreement import relative_error

import torch_ort_session as tos

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")
CASES = {case.name: case for case in gemv.CASES}
FLOATS, BITS = CASES["float32, MatMul"], CASES["4 bits, level 4"]


def row(case=FLOATS, errors=(1e-7, 1e-7), **seconds):
    times = {
        "ours": [1.0, 1.0, 1.1],
        "onnxruntime": [1.0, 1.1, 1.0],
        "torch": [2.0, 2.0, 2.0],
        "read, dot": [0.9, 0.9, 0.9],
        "read, sum": [1.9, 1.9, 1.9],
    } | seconds
    found = {name: harness.summarise(samples) for name, samples in times.items()}
    return gemv.row_of(case, 1, 10**9, found, dict(zip(("ours", "onnxruntime"), errors, strict=True)))


@pytest.mark.parametrize("case", gemv.CASES, ids=lambda case: case.name)
def test_models_multiply_by_their_weights(case):
    weights = gemv.make_weights(case, 64, 3 * 64 * 64)
    assert sum(weight.nbytes for weight in weights) >= 3 * 64 * 64
    x = torch.rand(1, 64).to(getattr(torch, case.dtype))
    session = tos.load(gemv.make_model(case, weights, 64))
    for weight, result in zip(weights, session.run(None, {"x": x}), strict=True):
        wanted = gemv.expected(case, weight, x.float().numpy())
        assert relative_error(result.float().numpy(), wanted) < case.error


def test_what_is_read_slowly_is_a_miss_of_floats_alone():
    assert gemv.judge([row(), row(BITS)]) == []
    slow = {"ours": [1.2, 1.2, 1.2], "onnxruntime": [1.2, 1.2, 1.2]}
    assert gemv.judge([row(**slow), row(BITS, **slow)]) == [
        "float32, MatMul, 1 thread(s): 75% of the read bandwidth, below 80%"
    ]


def test_onnxruntime_is_a_bound_for_few_bits_alone():
    fast = {"onnxruntime": [0.9, 0.9, 0.9]}
    assert gemv.judge([row(**fast), row(BITS, **fast)]) == [
        "4 bits, level 4, 1 thread(s): 1.11 x onnxruntime, above 1.05"
    ]


def test_the_pace_is_that_of_the_fastest_reader():
    assert row()["of_read"] == pytest.approx(0.9)
    assert row()["gb_per_s"]["read"] == pytest.approx(1 / 0.9)


@pytest.mark.parametrize("error", [0.5, float("nan"), float("inf")])
def test_wrong_results_are_misses(error):
    (miss,) = gemv.judge([row(errors=(error, 0.0))])
    assert miss.startswith("float32, MatMul, 1 thread(s): error")


def test_a_row_rounded_to_bytes_may_be_further_off():
    assert gemv.judge([row(BITS, errors=(1e-2, 1e-2))]) == []
    assert len(gemv.judge([row(errors=(1e-2, 1e-2))])) == 1


def test_the_table_leaves_out_who_cannot():
    alone = row() | {"over_onnxruntime": None, "errors": {"ours": 1e-7}}
    alone["gb_per_s"] = {"ours": 1.0, "read": 1.0}
    text = gemv.text_of([row(), alone])
    assert "90%" in text and "1.00x" in text
    assert len(text.splitlines()) == 4


def test_the_whole_command(capsys):
    status = gemv.main(
        [
            "--only",
            "4 bits, level 0",
            "--side",
            "64",
            "--mbytes",
            "1",
            "--seconds",
            "0",
            "--threads",
            "1",
            "--json",
        ]
    )
    found = json.loads(capsys.readouterr().out)
    assert status == 0 and found["benchmark"] == "gemv"
    (measured,) = found["rows"]
    assert measured["weight"] == "4 bits, level 0" and measured["errors"]["ours"] < 1e-5
