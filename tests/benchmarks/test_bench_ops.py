"""benchmarks/ops.py: its recipes run in both, agree, and what is slow without a reason is told."""

import dataclasses
import json

import numpy as np
import operators
import ops
import pytest
from expecttest import assert_expected_inline

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")

TINY = operators.Recipe("Relu", "2x3", operators.of(lambda rng: operators.normal(rng, 2, 3)))
SEAM = operators.Recipe("NonMaxSuppression", "9 boxes", operators.boxes(9, 2))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(operators, "RECIPES", (TINY, SEAM))
    monkeypatch.setattr(ops, "BOUND", 1e9)


def test_a_row_tells_of_each_operator(small, capsys):
    assert ops.main(["--seconds", "0", "--json", "--check"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["op"]: row for row in found["rows"]}
    assert {op: (row["sizes"], row["captured"]) for op, row in rows.items()} == {
        "Relu": ("2x3", True),
        "NonMaxSuppression": ("9 boxes", False),
    }
    for row in rows.values():
        assert row["to_onnxruntime"] == pytest.approx(row["ours"] / row["onnxruntime"])
        assert row["eager_to_onnxruntime"] == pytest.approx(row["eager"] / row["onnxruntime"])
    assert not found["misses"]


def test_what_is_slow_without_a_reason_is_a_miss(small, monkeypatch, capsys):
    monkeypatch.setattr(ops, "BOUND", 0.0)
    monkeypatch.setattr(operators, "RECIPES", (TINY, dataclasses.replace(SEAM, reason="it is a seam.")))
    assert ops.main(["--seconds", "0", "--check"]) == 1
    printed = capsys.readouterr().out
    assert "NonMaxSuppression 9 boxes: it is a seam." in printed
    misses = [line for line in printed.splitlines() if line.startswith("misses")]
    assert len(misses) == 1
    assert misses[0].startswith("misses: Relu 2x3: ") and misses[0].endswith("and no reason is given")


def test_other_results_are_a_miss(small, monkeypatch, capsys):
    monkeypatch.setattr(operators, "RECIPES", (dataclasses.replace(TINY, tolerance=-1.0),))
    assert ops.main(["--seconds", "0", "--check"]) == 1
    assert "Relu 2x3: onnxruntime says otherwise" in capsys.readouterr().out


def test_a_name_that_no_operator_has_is_refused(capsys):
    with pytest.raises(SystemExit):
        ops.main(["--only", "Nothing"])
    assert "no operator's name has 'Nothing' in it" in capsys.readouterr().err


def test_reasons_of_what_is_above_the_bound_follow_the_table():
    row = {"sizes": "2x3", "ours": 4e-6, "eager": 6e-6, "onnxruntime": 1e-6, "captured": True}
    row |= {"op": "Relu", "to_onnxruntime": 4.0, "eager_to_onnxruntime": 6.0, "reason": "it is said."}
    fast = row | {"op": "Abs", "captured": False, "to_onnxruntime": 0.5}
    assert_expected_inline(
        ops.describe([row, fast]),
        """\
microseconds    ours  eager  onnxruntime  ours / onnxruntime  eager / onnxruntime
--------------  ----  -----  -----------  ------------------  -------------------
Relu 2x3           4      6            1                4.00                 6.00
Abs 2x3 (seam)     4      6            1                0.50                 6.00
Relu 2x3: it is said.""",
    )


def test_at_least_twenty_operators_and_always_those_that_recur():
    named = {recipe.op for recipe in operators.RECIPES}
    assert len(named) >= 20
    assert {"TreeEnsembleRegressor", "TreeEnsembleClassifier", "LSTM", "GRU", "NonMaxSuppression"} <= named
    assert len({recipe.name for recipe in operators.RECIPES}) == len(operators.RECIPES)


@pytest.mark.parametrize("recipe", operators.RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_is_the_same_whenever_it_is_made(recipe):
    model, feed = recipe.model()
    again, fed = recipe.model()
    assert model.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert list(feed) == list(fed) and all(np.array_equal(feed[name], fed[name]) for name in feed)
    assert set(feed) == {port.name for port in model.graph.input}
