"""benchmarks/replay.py: calls are timed one by one, ratios are judged, and wrong results are told."""

import calls
import harness
import modelruns
import overhead
import pytest
import replay
import torch
from onnx import TensorProto, helper

import torch_ort_session as tos

pytest.importorskip("onnxruntime", reason="the oracle of this benchmark")


def with_a_seam():
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("NonZero", ["a"], ["b"]),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph(nodes, "g", infos, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_every_recorded_call_is_a_piece_of_its_own():
    model = overhead.make_model(overhead.make_weights()[:3])
    feed = {"x": torch.rand(overhead.ROWS, overhead.COLUMNS)}
    pieces, note = calls.pieces_of(model, feed)
    session = tos.load(model)
    modelruns.warm(session, feed)
    assert len(pieces) == replay.recording_of(session).stats.calls
    assert note == ""
    run = calls.one_by_one(pieces)
    assert isinstance(run(), float)
    assert isinstance(run(), float), "a piece can be made any number of times"


def test_what_calls_take_is_their_sum_less_what_no_call_takes():
    now = [0.0]

    def clock():
        now[0] += 0.25
        return now[0]

    def slow():
        now[0] += 2.0

    assert calls.one_by_one([slow, slow, slow], clock)() == pytest.approx(6.0)


def test_seams_are_pieces_too():
    pieces, note = calls.pieces_of(with_a_seam(), {"x": torch.tensor([0.0, 1.0, 2.0])})
    assert len(pieces) == 3 and note == "1 seam"
    for piece in pieces:
        piece()


def row(**changed):
    times = {
        name: harness.summarise(samples)
        for name, samples in {
            "eager": [2.0, 2.0, 2.0],
            "replay": [1.0, 1.0, 1.0],
            "calls": [1.0, 0.95, 0.98],
            "onnxruntime": [1.0, 1.0, 1.0],
        }.items()
    }
    return modelruns.row_of("model", 1, times, "", 5) | changed


def test_models_are_judged_by_eager_runs_together_and_by_their_calls_each():
    assert list(modelruns.judge([row()], 1)) == []
    assert list(modelruns.judge([row(), row(), row(replay_over_eager=9.0)], 1)) == []
    found = list(modelruns.judge([row(replay_over_eager=1.04, replay_over_calls=1.2), row(replays=0)], 1))
    assert found == [
        "model, 1 thread(s): 1.20 x its calls alone > 1.1",
        "model, 1 thread(s): nothing was replayed",
    ]
    assert list(modelruns.judge([row(replay_over_calls=1.2, calls_ms=0.5)], 1)) == [], "mostly fixed cost"
    waiting = row(replay_over_calls=1.2, threads=2)
    assert list(modelruns.judge([row(calls_ms=0.5), waiting], 2)) == [], "short on one thread"
    assert len(list(modelruns.judge([row(), waiting], 2))) == 1
    slow = row(replay_over_eager=1.04, threads=2)
    assert list(modelruns.judge([slow], 2)) == ["models, 2 thread(s): median replay over eager 1.04 > 1.03"]


def test_the_table_says_what_has_no_calls_to_compare_with():
    seamed = {**row(replay_over_calls=None, note="not captured", replays=0)}
    del seamed["calls_ms"]
    text = modelruns.text_of([row(), seamed])
    assert "not captured" in text
    assert "replay over eager: median 0.50x, most 0.50x" in text
    assert "replay over its calls alone: median 1.02x, most 1.02x" in text


def test_a_replay_slower_than_its_bound_is_a_miss(monkeypatch):
    monkeypatch.setattr(replay, "NODE_BOUND", 0.0)
    monkeypatch.setattr(overhead, "BLOCKS", 2)
    rows, misses = replay.tiny(1, 0.0)
    assert [r["name"] for r in rows] == ["torch eager", "our eager", "our replay", "onnxruntime"]
    assert len(misses) == 1 and "x onnxruntime, above 0.0" in misses[0]


@pytest.mark.zoo
def test_the_whole_command_on_one_model(monkeypatch, capsys):
    monkeypatch.setattr(replay.growing, "SIZES", {})
    assert replay.main(["--only", "silero-vad", "--seconds", "0.05", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    for head in ("1,000 tiny nodes", "replay over its calls alone", "three small feeds", "fixed cost"):
        assert head in printed
    assert "around silero-vad's recording" in printed
