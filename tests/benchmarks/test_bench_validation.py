"""benchmarks/validation.py: both variants are right, bad indices are told, slow rows are judged."""

import json

import pytest
import torch
import validation

import torch_ort_session as tos


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_table_has_a_row_for_each_number_of_indices(threads, monkeypatch, capsys):
    monkeypatch.setattr(validation, "BOUND", 1e9)
    asked = ["--seconds", "0", "--threads", "1", "--indices", "1", "64", "--json", "--check"]
    assert validation.main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r["how"], r["indices"], r["threads"]) for r in found["rows"]] == [
        ("replayed", 1, 1),
        ("eager", 1, 1),
        ("replayed", 64, 1),
        ("eager", 64, 1),
    ]
    assert all(r["on_us"] > 0 and r["off_us"] > 0 for r in found["rows"]) and not found["misses"]


def row(**changed):
    return {"how": "replayed", "indices": 64, "threads": 1, "on_over_off": 1.01, **changed}


def test_rows_are_judged_from_64_indices_up():
    rows = [row(), row(indices=8, on_over_off=1.5), row(on_over_off=1.03), row(how="eager", on_over_off=1.03)]
    assert validation.judge(rows) == [
        "replayed, 64 indices, 1 thread(s): 1.030 x the time without validation > 1.02",
        "eager, 64 indices, 1 thread(s): 1.030 x the time without validation > 1.02",
    ]


def test_a_bad_index_that_nobody_is_told_of_is_told(threads):
    feed = {"x0": torch.rand(4, validation.WIDTH), "index": torch.arange(4)}
    silent = tos.load(validation.make_model(4), options=tos.Options(validate="off"))
    assert validation.told(silent, feed) == "a bad index was not told"
    assert validation.told(tos.load(validation.make_model(4)), feed) == ""


def test_another_result_than_torchs_is_a_miss(threads, monkeypatch):
    monkeypatch.setattr(validation, "expected", lambda feed: torch.zeros(1))
    _, misses = validation.measure(1, 1, 0.0, 2)
    assert "replayed, 1 indices, validate='off': another result than torch's" in misses
    assert "replayed, 1 indices: the run after a bad index is wrong" in misses
