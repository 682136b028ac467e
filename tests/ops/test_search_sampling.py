"""Sampling: which tokens stay, how often each is drawn, and that a seed draws the same again.

Where onnxruntime's texts and rules are others is in `differential/known.py`, with who is right and why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from searchlab import VOCAB, gpt, model, theirs, weights

import torch_ort_session

ROWS = 3000
GIVEN = weights(3, eos=2, sharp=0.6)
IDS = {"eos_token_id": 2, "pad_token_id": 0}


def many(**attributes: Any) -> tuple[Any, dict[str, Any]]:
    """A model that draws one token after the same prompt many times."""
    feeds = {"input_ids": np.tile(np.int32([3, 4]), (ROWS, 1)), "max_length": np.int32([3])}
    return {"decoder": gpt(GIVEN), **IDS, **attributes}, feeds


def shares(texts: Any) -> np.ndarray[Any, Any]:
    """How often each token is the last."""
    return np.bincount(np.asarray(texts)[:, -1], minlength=VOCAB) / len(texts)


def last_scores() -> np.ndarray[Any, Any]:
    """The scores after the prompt, [VOCAB]."""
    body = gpt(GIVEN)
    feeds = {
        "input_ids": np.int32([[3, 4]]),
        "max_length": np.int32([3]),
        "min_length": np.int32([0]),
        "num_beams": np.int32([1]),
        "num_return_sequences": np.int32([1]),
        "length_penalty": np.float32([1]),
    }
    found: np.ndarray[Any, Any] = theirs(model("BeamSearch", feeds, decoder=body, **IDS), feeds)[2][0, 0, 0]
    return found


def kept(scores: np.ndarray[Any, Any], top_p: float, custom: int, keep: int) -> set[int]:
    """The tokens that stay, one after the other from the most probable down."""
    share = np.exp(scores) / np.exp(scores).sum()
    order = np.argsort(-share)
    found: set[int] = set()
    before = 0.0
    for rank, token in enumerate(order):
        below = 1 - before
        stays = before <= top_p if custom else below > 1 - top_p
        if stays or rank < (1 if custom else max(keep, 1)):
            found.add(int(token))
        before += share[token]
    return found


@pytest.mark.parametrize("custom", [0, 1])
@pytest.mark.parametrize("top_p", [0.0, 0.3, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("keep", [0, 4])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_most_probable_tokens_stay(custom: int, top_p: float, keep: int, temperature: float) -> None:
    feeds = {"input_ids": np.int32([[3, 4], [3, 4]]), "max_length": np.int32([3]), "seed": np.int32([1])}
    rules = {"custom": custom, "top_p": top_p, "min_tokens_to_keep": keep, "temperature": temperature}
    made = model("Sampling", feeds, decoder=gpt(GIVEN), filter_value=-77.0, **IDS, **rules)
    texts, scores = torch_ort_session.load(made).run(None, feeds)
    stay = kept(last_scores() / temperature, top_p, custom, keep)
    for row in scores.numpy():
        assert {token for token in range(VOCAB) if row[token] != -77.0} == stay
    # Scores are those of the decoder; they sum to anything.
    differences = scores.numpy()[0, sorted(stay)] - (last_scores() / temperature)[sorted(stay)]
    np.testing.assert_allclose(differences, differences[0], atol=1e-4)
    assert texts.shape == (2, 3)


@pytest.mark.parametrize(
    "rules",
    [
        {"top_p": 0.8},
        {"top_p": 0.5, "custom": 1},
        {"top_p": 0.5, "temperature": 2.0},
        {"top_p": 0.3, "min_tokens_to_keep": 6},
        {"top_p": 1.0, "no_repeat_ngram_size": 1},
        {"top_p": 0.9, "vocab_mask": (np.arange(VOCAB) % 3 > 0).astype(np.int32)},
        {"top_p": 0.9, "repetition_penalty": np.float32([3])},
    ],
    ids=lambda rules: "-".join(rules),
)
def test_tokens_are_drawn_as_often_as_by_onnxruntime(rules: dict[str, Any]) -> None:
    given = {name: value for name, value in rules.items() if isinstance(value, np.ndarray)}
    attributes, feeds = many(**{name: value for name, value in rules.items() if name not in given})
    feeds |= {**given, "seed": np.int32([5])}
    made = model("Sampling", feeds, 1, **attributes)
    ours, other = shares(torch_ort_session.load(made).run(None, feeds)[0]), shares(theirs(made, feeds)[0])
    middle = (ours + other) / 2
    spread = np.sqrt(2 * middle * (1 - middle) / ROWS)
    assert (np.abs(ours - other) <= 5 * spread + 2 / ROWS).all()


def test_the_presence_penalty_is_taken_off() -> None:
    attributes, feeds = many(top_p=1.0, presence_penalty=2.0)
    mask = np.zeros((ROWS, VOCAB), np.int32)
    mask[:, ::2] = 1
    feeds |= {"presence_mask": mask, "seed": np.int32([5])}
    drawn = torch_ort_session.load(model("Sampling", feeds, 2, **attributes)).run(None, feeds)
    plain = {name: value for name, value in feeds.items() if name != "presence_mask"}
    without = torch_ort_session.load(model("Sampling", plain, 2, **attributes)).run(None, plain)[1]
    np.testing.assert_allclose((without - drawn[1]).numpy(), 2.0 * mask, atol=1e-5)
    share = np.exp(last_scores() - 2.0 * mask[0])
    share /= share.sum()
    assert (np.abs(shares(drawn[0]) - share) <= 5 * np.sqrt(share * (1 - share) / ROWS) + 2 / ROWS).all()


def test_a_seed_draws_the_same_again() -> None:
    feeds = {
        "input_ids": np.int32([[3, 4], [5, 6], [1, 9]]),
        "max_length": np.int32([20]),
        "min_length": np.int32([19]),
        "seed": np.int32([7]),
    }
    made = model("Sampling", feeds, 1, decoder=gpt(GIVEN), top_p=1.0, temperature=3.0, **IDS)
    session = torch_ort_session.load(made)
    first = session.run(None, feeds)[0]
    torch.manual_seed(1)
    assert torch.equal(session.run(None, feeds)[0], first)
    assert torch.equal(torch_ort_session.load(made).run(None, feeds)[0], first)
    assert not torch.equal(session.run(None, feeds | {"seed": np.int32([8])})[0], first)


def test_without_a_seed_the_generator_of_torch_draws() -> None:
    feeds = {
        "input_ids": np.int32([[3, 4], [5, 6], [1, 9]]),
        "max_length": np.int32([20]),
        "min_length": np.int32([19]),
    }
    made = model("Sampling", feeds, 1, decoder=gpt(GIVEN), top_p=1.0, temperature=3.0, **IDS)
    session = torch_ort_session.load(made)
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(session.run(None, feeds)[0])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_texts_end() -> None:
    """A token that ends a text is padding, and so is all behind it."""
    feeds = {"input_ids": np.int32([[3, 4]] * 40), "max_length": np.int32([12]), "seed": np.int32([7])}
    given = weights(3, eos=2, sharp=0.3, lift=1.0)
    given["lift"][0] = -1e4
    made = model("Sampling", feeds, 1, decoder=gpt(given), top_p=1.0, **IDS)
    texts = torch_ort_session.load(made).run(None, feeds)[0][:, 2:]
    over = (texts == 0).to(torch.int32)
    assert (over.diff(dim=1) >= 0).all()
    assert 0 < over[:, -1].sum() < 40
    assert not (texts == 2).any()
