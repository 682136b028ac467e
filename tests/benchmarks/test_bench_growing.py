"""benchmarks/growing.py: its decoder is the hard kind, its results are compared, and what is off is told."""

import json
from collections import Counter

import decoder
import growing
import pytest
import torch

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")
TINY = decoder.Size(layers=1, heads=2, groups=1, width=4, words=10)


def test_the_decoder_reads_its_shapes_back_as_exported_ones_do():
    model = decoder.make_decoder(decoder.Size(layers=3))
    ops = Counter(node.op_type for node in model.graph.node)
    assert ops["Shape"] > 40 and ops["Gather"] > 40 and ops["Range"] == 2
    assert ops["Expand"] == 2 * 3 + 1 and ops["Concat"] > 2 * 3


def test_a_decoder_of_one_token_at_a_time_says_what_one_of_all_tokens_says():
    model = decoder.make_decoder(TINY)
    session = growing.theirs(model)
    names = [output.name for output in session.get_outputs()]
    feed = decoder.first_feed(TINY, past=0)
    ids, logits = [], []
    for _ in range(6):
        ids.append(feed["input_ids"])
        results = session.run(None, {name: value.numpy() for name, value in feed.items()})
        results = dict(zip(names, map(torch.from_numpy, results), strict=True))
        logits.append(results["logits"])
        feed = decoder.next_feed(feed, results)
    whole = decoder.first_feed(TINY, past=0) | {
        "input_ids": torch.cat(ids, 1),
        "attention_mask": torch.ones(1, 6, dtype=torch.int64),
        "position_ids": torch.arange(6)[None],
    }
    (together,) = session.run(["logits"], {name: value.numpy() for name, value in whole.items()})
    torch.testing.assert_close(torch.cat(logits, 1), torch.from_numpy(together), rtol=1e-4, atol=1e-5)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(growing, "SIZES", {"small": TINY})
    monkeypatch.setattr(growing, "CONTEXTS", (12, 20))


def test_the_table_tells_of_each_context_and_of_a_hundred_tokens_more(small, monkeypatch, capsys):
    monkeypatch.setattr(growing, "BOUNDS", {"small": 1e9})
    assert growing.main(["--rounds", "1", "--tokens", "6", "--json", "--check"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["context"] for row in found["rows"]] == ["12", "20", "+100"]
    assert not found["misses"]


def test_a_slow_or_wrong_result_is_a_miss(small, monkeypatch, capsys):
    monkeypatch.setattr(growing, "BOUNDS", {"small": 0.0})
    monkeypatch.setattr(growing, "TOLERANCE", -1.0)
    assert growing.main(["--rounds", "1", "--tokens", "6", "--check"]) == 1
    printed = capsys.readouterr().out
    assert "x eager, above 0.00" in printed and "onnxruntime says otherwise" in printed
