"""`torch-ort-session compare`: what it reports when values agree, differ, or are not numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.cli import compare
from torch_ort_session.cli.differences import difference

pytest.importorskip("onnxruntime", reason="compares with onnxruntime")


def spoil(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Let the other runtime give other values than it does."""
    honest = compare._run_oracle
    monkeypatch.setattr(compare, "_run_oracle", lambda *args: {**honest(*args), **changes})


@pytest.mark.parametrize("oracle", ["onnxruntime", "reference"])
def test_agreement_over_every_value(command, dense: str, oracle: str) -> None:
    np.save("x.npy", np.ones((1, 3), np.float32))
    outcome = command("compare", dense, "--input", "x=x.npy", "--against", oracle)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.replace(oracle, "ORACLE") == (
        "dense.onnx against ORACLE: 2 values compared, 0 differ\n"
        "largest error of those that agree: 0 of the largest magnitude\n"
        "first NaN: none\n"
    )


def test_the_first_difference_is_named(command, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("x.npy", np.ones((1, 3), np.float32))
    spoil(monkeypatch, m=np.array([[6, 9.5]], np.float32), y=np.array([[12, 19]], np.float32))
    outcome = command("compare", dense, "--input", "x=x.npy", "--against", "reference")
    assert outcome.code == 1
    assert_expected_inline(
        outcome.out,
        """\
dense.onnx against reference: 2 values compared, 2 differ
first difference: 'm', made by node 'mm' (ai.onnx::MatMul)
  9 against 9.5 at [0, 1]: error 0.5 of magnitude 9.5
  reads x, w
first NaN: none
""",
    )


def test_the_errors_of_what_is_read_are_shown(command, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("x.npy", np.ones((1, 3), np.float32))
    spoil(monkeypatch, m=np.array([[6, 9.0005]], np.float32), y=np.array([[12, 18.5]], np.float32))
    outcome = command("compare", dense, "--input", "x=x.npy", "--against", "reference")
    assert outcome.code == 1
    assert_expected_inline(
        outcome.out,
        """\
dense.onnx against reference: 2 values compared, 1 differ
largest error of those that agree: 5.6e-05 of the largest magnitude
first difference: 'y', made by node 'twice' (ai.onnx::Add)
  18 against 18.5 at [0, 1]: error 0.5 of magnitude 18.5
  reads m (error 5.6e-05)
first NaN: none
""",
    )


def test_the_first_nan_is_named(command, division: str) -> None:
    np.save("a.npy", np.array([0, 1], np.float32))
    np.save("b.npy", np.array([0, 2], np.float32))
    outcome = command(
        "compare", division, "--input", "a=a.npy", "--input", "b=b.npy", "--against", "onnxruntime"
    )
    assert outcome.code == 0
    assert_expected_inline(
        outcome.out,
        """\
division.onnx against onnxruntime: 2 values compared, 0 differ
largest error of those that agree: 0 of the largest magnitude
first NaN: 'q', made by node 'ratio' (ai.onnx::Div); onnxruntime has one there too
""",
    )


def test_a_nan_that_the_other_runtime_has_not(
    command, division: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("a.npy", np.array([0, 1], np.float32))
    np.save("b.npy", np.array([0, 2], np.float32))
    spoil(monkeypatch, q=np.array([0, 0.5], np.float32))
    outcome = command(
        "compare", division, "--input", "a=a.npy", "--input", "b=b.npy", "--against", "reference"
    )
    assert (outcome.code, outcome.err) == (1, "")
    assert_expected_inline(
        outcome.out,
        """\
division.onnx against reference: 2 values compared, 1 differ
largest error of those that agree: 0 of the largest magnitude
first difference: 'q', made by node 'ratio' (ai.onnx::Div)
  nan against 0 at [0]
  reads a, b
first NaN: 'q', made by node 'ratio' (ai.onnx::Div)
""",
    )


def test_the_tolerance_can_be_widened(command, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("x.npy", np.ones((1, 3), np.float32))
    spoil(monkeypatch, m=np.array([[6, 9.5]], np.float32))
    arguments = ["compare", dense, "--input", "x=x.npy", "--against", "reference"]
    assert command(*arguments).code == 1
    assert command(*arguments, "--tolerance", "0.1").code == 0


def test_json(command, dense: str) -> None:
    np.save("x.npy", np.ones((1, 3), np.float32))
    found = json.loads(
        command("compare", dense, "--input", "x=x.npy", "--against", "reference", "--json").out
    )
    assert_expected_inline(
        "\n".join(f"{key}: {json.dumps(value)}" for key, value in found["values"][0].items()),
        """\
value: "m"
node: "mm"
op: "ai.onnx::MatMul"
error: 0.0
magnitude: 9.0
nan: false
expected_nan: false
agrees: true
reason: "\"""",
    )
    assert [row["value"] for row in found["values"]] == ["m", "y"]


def test_a_runtime_that_is_not_installed(command, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "_installed", lambda name: False)
    outcome = command("compare", dense, "--random", "--against", "onnxruntime")
    assert outcome.code == 1
    assert_expected_inline(
        outcome.err,
        """\
torch-ort-session: error: onnxruntime is not installed; install it, or compare --against reference
""",
    )
    assert "against reference" in command("compare", dense, "--random").out


def test_a_runtime_that_fails(command, dense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: str, feed: object) -> None:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(compare, "_reference", fail)
    assert_expected_inline(
        command("compare", dense, "--random", "--against", "reference").err,
        """\
torch-ort-session: error: reference does not run this model: no such thing
""",
    )


T = torch.tensor
AGREE = [
    (T([1.0, 2.0]), np.array([1.0, 2.0001], np.float32)),
    (T([1.0, 2.0], dtype=torch.float16), np.array([1.0, 2.01], np.float16)),
    (T([float("nan"), float("inf")]), np.array([np.nan, np.inf], np.float32)),
    (T([1, 2]), np.array([1, 2])),
    (T([True]), np.array([True])),
    (T(1.0), np.float32(1.0)),
    (torch.empty(0, 3), np.empty((0, 3), np.float32)),
    (T([1 + 2j]), np.array([1 + 2j], np.complex64)),
    ((T([1.0]), T([2])), [np.array([1.0], np.float32), np.array([2])]),
    (np.array(["a"], object), np.array(["a"])),
    (None, None),
]
DIFFER = [
    (T([1.0, 2.0]), np.array([1.0, 2.1], np.float32), "2 against 2.1 at [1]: error 0.1 of magnitude 2.1"),
    (T([1, 2]), np.array([1, 3]), "2 against 3 at [1]: 1 of 2 differ"),
    (T([1.0]), np.array([np.nan], np.float32), "1 against nan at [0]"),
    (T([1.0]), np.array([-np.inf], np.float32), "1 against -inf at [0]"),
    (T([[1.0]]), np.array([1.0], np.float32), "shape [1, 1] against [1]"),
    (T([1.0]), np.array([1]), "float32 against int64"),
    (T([0.0]), np.array([1e-20], np.float32), "0 against 1e-20 at [0]: error 1e-20 of magnitude 1e-20"),
    ((T([1.0]),), [], "a sequence of 1 against one of 0"),
    ((T([1]), T([2])), [np.array([1]), np.array([3])], "2 against 3 at [0]: 1 of 1 differ"),
    ((T([1.0]),), np.array([1.0]), "a sequence against float64"),
    (T([1.0]), [np.array([1.0])], "float32 against a sequence"),
    (None, np.array([1.0]), "nothing against float64"),
    (np.array(["a"], object), np.array(["b"]), "the strings differ"),
]


@pytest.mark.parametrize(("got", "expected"), AGREE)
def test_values_that_agree(got: object, expected: object) -> None:
    assert difference(got, expected).reason == ""


@pytest.mark.parametrize(("got", "expected", "reason"), DIFFER)
def test_values_that_differ(got: object, expected: object, reason: str) -> None:
    assert difference(got, expected).reason == reason


def test_large_integers_are_compared_exactly() -> None:
    assert difference(T([2**60]), np.array([2**60 + 1])).reason
