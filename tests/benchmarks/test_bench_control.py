"""benchmarks/control.py: its decoders agree with onnxruntime, bodies are captured, what is off is told."""

import json

import control
import loops
import pytest
import torch

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")
TINY = {
    "recurrent": control.Case(
        lambda: loops.recurrent(hidden=4, words=7),
        lambda: {"start": torch.tensor([3]), "h": torch.randn(1, 4)},
        bound=1e9,
    ),
    "attending": control.Case(
        lambda: loops.attending(layers=1, heads=2, width=4, words=9, length=8),
        lambda: {"start": torch.tensor([3])},
        bound=1e9,
    ),
}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(control, "CASES", TINY)


def test_the_table_tells_of_each_decoder(small, monkeypatch, capsys):
    monkeypatch.setattr(control, "STEPS_BOUND", 1e9)
    assert control.main(["--seconds", "0", "--tokens", "8", "--json", "--check"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["model"], row["tokens"], row["body_captures"]) for row in found["rows"]] == [
        ("recurrent", 8, 1),
        ("attending", 8, 1),
    ]
    assert not found["misses"]


def test_a_slow_or_wrong_result_is_a_miss(small, monkeypatch, capsys):
    monkeypatch.setattr(control, "STEPS_BOUND", 0.0)
    monkeypatch.setattr(control, "TOLERANCE", -1.0)
    # Two tokens are too few for a capture.
    assert control.main(["--seconds", "0", "--tokens", "2", "--check"]) == 1
    printed = capsys.readouterr().out
    assert "x its steps, above 0.00" in printed and "onnxruntime says otherwise" in printed


def test_tokens_follow_from_all_tokens_before():
    """The caches are read: a first token that differs changes what comes much later."""
    session = control.theirs(loops.attending(layers=1, heads=2, width=4, words=50, length=16))
    runs = [
        session.run(["tokens"], {"start": torch.tensor([s]).numpy(), "n": torch.tensor(16).numpy()})
        for s in (1, 2)
    ]
    assert (runs[0][0][1:] != runs[1][0][1:]).any()
