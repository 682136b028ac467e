"""Sequences behind one another of which the last are empty, or all: nothing is read behind the last token."""

import pytest
import torch
from opcase import const, ms, t

import torch_ort_session as tos
from torch_ort_session.runtime.values.feeds import from_numpy

HASHED = {"max_ngram_size": 3, "n_head_per_ngram": 1, "pad_id": 0}


def run(case, feeds):
    session = tos.load(case.model("float32", 1), options=tos.Options(capture="off"))
    return session.run(None, {name: from_numpy(name, value) for name, value in feeds.items()})


@pytest.mark.parametrize("tokens", [0, 4])
def test_the_states_of_an_empty_sequence_stay(tokens: int) -> None:
    ends = const([0, tokens, tokens], "int32")
    case = ms("VarlenCausalConvWithState", [t(tokens, 3), t(3, 1, 3), ends, None, t(2, 3, 2)], outputs=2)
    feeds = case.feeds("float32", 0)
    y, states = run(case, feeds)
    assert y.shape == (tokens, 3)
    torch.testing.assert_close(states[1], from_numpy("x4", feeds["x4"])[1])


@pytest.mark.parametrize("tokens", [0, 4])
def test_the_words_before_an_empty_sequence_stay(tokens: int) -> None:
    words, old = t(tokens, low=0, high=5, dtype="int32"), t(2, 2, low=0, high=5, dtype="int32")
    ends, segments = const([0, tokens, tokens], "int32"), t(tokens, low=0, high=2, dtype="int32")
    inputs = [words, const([3, 5, 7], "int32"), const([11, 13], "int32"), ends, old, None, None, segments]
    case = ms("VarlenNGramHashMapping", inputs, HASHED, outputs=3)
    feeds = case.feeds("float32", 0)
    hashed, kept, told = run(case, feeds)
    assert hashed.shape == (tokens, 2)
    assert kept[1].tolist() == feeds["x4"][1].tolist()
    assert told.shape == (2, 2)
