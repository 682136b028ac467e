"""What tests of replays call the same, and what they call other data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from replaying import apart, differ, other_data

NAN = float("nan")


@pytest.mark.parametrize(
    ("ours", "theirs", "distance"),
    [
        ([1.0, NAN], [1.0, NAN], 0.0),
        ([0.0, 2.0], [-0.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([math.inf, 1.0], [math.inf, 2.0], 0.5),
        ([1.0, 2.0], [1.0, NAN], math.inf),
        ([1.0, NAN], [1.0, 2.0], math.inf),
        ([math.inf, 1.0], [-math.inf, 1.0], math.inf),
        ([NAN, 1.0], [math.inf, 1.0], math.inf),
        ([1.0], [1.0, 1.0], math.inf),
    ],
)
def test_distances_of_floats(ours: list[float], theirs: list[float], distance: float) -> None:
    assert apart(torch.tensor(ours), torch.tensor(theirs)) == distance


def test_distances_of_what_is_no_float() -> None:
    ones, words = torch.ones(3, dtype=torch.int64), np.array(["a", "b"], dtype=object)
    assert apart(ones, ones.clone()) == 0.0
    assert apart(ones, torch.tensor([1, 1, 2])) == math.inf
    assert apart(ones, ones.to(torch.int32)) == math.inf
    assert apart((ones, None), (ones, None)) == 0.0
    assert apart((ones,), (ones, ones)) == math.inf
    assert apart(None, ones) == math.inf
    assert apart(words, words.copy()) == 0.0
    assert apart(words, words[::-1]) == math.inf


def test_other_data_has_the_same_form() -> None:
    feed = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "ids": np.array([3, 1, 2]),
        "words": np.array(["a", "b"], dtype=object),
        "parts": [np.ones(2, np.int32), np.arange(2, dtype=np.int32)],
        "nothing": None,
        "number": np.float32(2.0),
    }
    other = other_data(feed, 1)
    assert differ(feed, other)
    assert other["x"].shape == (2, 3) and other["x"].dtype == np.float32 and (other["x"] != feed["x"]).all()
    assert sorted(other["ids"]) == [1, 2, 3] and list(other["ids"]) != [3, 1, 2]
    assert list(other["words"]) == ["b", "a"]
    assert other["nothing"] is None and other["number"] != 2.0
    kept = other_data(feed, 1, integers=False)
    assert list(kept["ids"]) == [3, 1, 2] and differ(feed, kept)
    assert not differ(feed, dict(feed))
