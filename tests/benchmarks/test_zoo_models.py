"""Every model of zoo.toml gives what onnxruntime gives, on each of its sizes."""

import fetch
import pytest
import zoo

pytest.importorskip("onnxruntime", reason="the oracle of the real models")


@pytest.mark.zoo
@pytest.mark.parametrize("model", fetch.read_zoo(), ids=lambda model: model["name"])
def test_a_real_model_matches_onnxruntime(model):
    rows = list(zoo.compare_model(model, fetch.fetch(model), threads=1, seconds=0.0, seed=0))
    assert len(rows) == len(model["sizes"])
    assert [row.agreement.reason for row in rows] == [""] * len(rows)
