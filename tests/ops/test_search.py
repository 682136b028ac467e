"""GreedySearch and BeamSearch: what onnxruntime's CPU provider gives, over seeded models, rules and masks.

Where they differ is in `differential/known.py`, with who is right and why.
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from searchlab import VOCAB, encoder, gpt, model, short_encoder, t5, theirs, weights

import torch_ort_session
from torch_ort_session import KernelError, Options
from torch_ort_session.errors import DeviceIndexError, InputError

BUFFERS = ("past_sequence_length", "beam_width", "cache_indirection")


def ints(*values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.int32)


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.float32)


def ours(made: Any, feeds: dict[str, Any], options: Options | None = None) -> list[np.ndarray[Any, Any]]:
    session = torch_ort_session.load(made, options=options)
    return [result.numpy() for result in session.run(None, feeds)]


def drawn(seed: int, op: str, after: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Feeds and attributes of a search."""
    rng = np.random.default_rng([seed, after, len(op)])
    batch, length = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    eos, start = int(rng.integers(1, VOCAB)), 1 if after else length
    pad = int(rng.choice([0, eos, 3]))
    feeds: dict[str, Any] = {
        "input_ids": rng.integers(0, VOCAB, (batch, length)).astype(np.int32),
        "max_length": ints(rng.integers(start + 1 + after, 12)),
    }
    attributes: dict[str, Any] = {"eos_token_id": eos, "pad_token_id": pad}
    if op == "BeamSearch":
        beams = int(rng.integers(1, 5))
        feeds |= {
            "min_length": ints(0),
            "num_beams": ints(beams),
            "num_return_sequences": ints(rng.integers(1, beams + 1)),
            "length_penalty": floats(rng.choice([1.0, 1.0, 0.0, 0.5, 2.0, -1.0])),
        }
        attributes["early_stopping"] = int(rng.integers(2))
    if rng.random() < 0.4:
        feeds["min_length"] = ints(rng.integers(0, feeds["max_length"][0]))
    if rng.random() < 0.4:
        feeds["repetition_penalty"] = floats(rng.choice([0.7, 1.3, 2.0]))
    if rng.random() < 0.4:
        feeds["vocab_mask"] = (rng.random(VOCAB) < 0.7).astype(np.int32)
    if rng.random() < 0.4:
        feeds["prefix_vocab_mask"] = (rng.random((batch, VOCAB)) < 0.7).astype(np.int32)
    if rng.random() < 0.4:
        feeds["attention_mask"] = (rng.random((batch, length)) < 0.7).astype(np.int32)
    if rng.random() < 0.4:
        attributes["no_repeat_ngram_size"] = int(rng.integers(1, 4))
    given = weights(int(rng.integers(1000)), layers=2, eos=eos, lift=float(rng.choice([0, 1, 2, 4])))
    if pad != eos:
        given["lift"][pad] = -1e4
    if not after:
        attributes["decoder"] = gpt(given, 2)
        if rng.random() < 0.4:
            attributes["init_decoder"] = gpt(weights(int(rng.integers(1000)), layers=2), 2)
        return feeds, attributes
    short, whole, hidden = (bool(rng.integers(2)) for _ in range(3))
    attributes |= {
        "model_type": 1,
        "decoder_start_token_id": int(rng.integers(VOCAB)),
        "encoder": (short_encoder if short else encoder)(given, 2),
        "decoder": t5(given, 2, hidden=hidden and not short, whole=whole),
    }
    return feeds, attributes


def alone(feeds: dict[str, Any], sample: int) -> dict[str, Any]:
    """The feeds of one sample."""
    return {name: value[sample : sample + 1] if value.ndim == 2 else value for name, value in feeds.items()}


@pytest.mark.parametrize("seed", range(24))
def test_greedy(seed: int) -> None:
    feeds, attributes = drawn(seed, "GreedySearch", after=False)
    made = model("GreedySearch", feeds, **attributes)
    (got,), (want,) = ours(made, feeds), theirs(made, feeds)
    start, pad = feeds["input_ids"].shape[1], attributes["pad_token_id"]
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    # No token but the one that ends a text is padding: see drawn().
    over = (got[:, start:] == pad).all(0)
    end = start + int(over.argmax()) + 1 if over.any() else got.shape[1]
    np.testing.assert_array_equal(got[:, :end], want[:, :end])
    assert (got[:, end:] == pad).all()


@pytest.mark.parametrize("after", [False, True], ids=["alone", "after_an_encoder"])
@pytest.mark.parametrize("seed", range(24))
def test_beams(seed: int, after: bool) -> None:
    feeds, attributes = drawn(seed, "BeamSearch", after)
    made = model("BeamSearch", feeds, **attributes)
    texts, scores, steps = ours(made, feeds)
    batch = texts.shape[0]
    if batch == 1 or attributes["early_stopping"]:
        want = theirs(made, feeds)
    else:
        apart = [theirs(made, alone(feeds, sample)) for sample in range(batch)]
        want = [np.concatenate([one[n] for one in apart], n // 2) for n in range(3)]
    assert [each.shape for each in (texts, scores, steps)] == [each.shape for each in want]
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(scores, want[1], **close)
    differ = (texts != want[0]).any(-1)
    # Texts of equal scores may change places.
    tied = np.isclose(scores[:, :, None], scores[:, None, :], **close).sum(-1) > 1
    last = np.isclose(scores, scores[:, -1:], **close)
    assert not (differ & ~tied & ~last).any()
    made_steps = (steps != 0).any((1, 2, 3))
    if batch == 1:
        np.testing.assert_allclose(steps[made_steps], want[2][made_steps], **close)
    assert made_steps[0]


@pytest.mark.parametrize("seed", range(6))
def test_a_sample_is_searched_as_if_it_were_alone(seed: int) -> None:
    feeds, attributes = drawn(100 + seed, "BeamSearch", after=False)
    rng = np.random.default_rng(seed)
    feeds = {n: v for n, v in feeds.items() if n not in ("attention_mask", "prefix_vocab_mask")}
    feeds["input_ids"] = rng.integers(0, VOCAB, (3, 2)).astype(np.int32)
    feeds["max_length"] = ints(12)
    made = model("BeamSearch", feeds, 2, **attributes)
    together = ours(made, feeds)
    for sample in range(3):
        for whole, one in zip(together, ours(made, alone(feeds, sample)), strict=True):
            np.testing.assert_allclose(whole[sample : sample + 1], one, rtol=1e-5)


def test_onnxruntime_asks_another_sample_whether_one_is_done() -> None:
    """Where this fails onnxruntime compares like with like, and batches need not be taken apart above."""
    feeds, attributes = drawn(464, "BeamSearch", after=False)
    made = model("BeamSearch", feeds, 1, **attributes)
    (together,), (apart,) = theirs(made, feeds), theirs(made, alone(feeds, 2))
    assert not np.array_equal(together[2:], apart)
    np.testing.assert_array_equal(ours(made, feeds)[0][2:], apart)


@pytest.mark.parametrize("extras", [BUFFERS[:1], BUFFERS], ids=["length", "all"])
@pytest.mark.parametrize("after", [False, True], ids=["alone", "after_an_encoder"])
def test_caches_in_buffers(after: bool, extras: tuple[str, ...]) -> None:
    given = weights(1, layers=2, eos=2, lift=1)
    feeds = {
        "input_ids": ints([3, 4, 5], [0, 4, 7]),
        "max_length": ints(12),
        "min_length": ints(2),
        "num_beams": ints(3),
        "num_return_sequences": ints(2),
        "length_penalty": floats(1),
    }
    attributes: dict[str, Any] = {"eos_token_id": 2, "pad_token_id": 0, "early_stopping": 1}
    plain, buffered = gpt(given, 2), gpt(given, 2, extras=extras)
    if after:
        attributes |= {"model_type": 1, "decoder_start_token_id": 5, "encoder": encoder(given, 2)}
        plain, buffered = t5(given, 2), t5(given, 2, extras=extras)
    want = theirs(model("BeamSearch", feeds, 2, decoder=plain, **attributes), feeds)
    got = ours(model("BeamSearch", feeds, 2, decoder=buffered, **attributes), feeds)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4)


def test_greedy_after_an_encoder_is_one_beam() -> None:
    given = weights(4, layers=1, eos=2, lift=-9)
    after = {"model_type": 1, "decoder_start_token_id": 5, "eos_token_id": 2, "pad_token_id": 0}
    bodies = {"encoder": encoder(given), "decoder": t5(given)}
    feeds = {"input_ids": ints([3, 4, 5], [0, 4, 7]), "max_length": ints(9)}
    beam = feeds | {"min_length": ints(0), "num_beams": ints(1), "num_return_sequences": ints(1)}
    beam["length_penalty"] = floats(1)
    (got,) = ours(model("GreedySearch", feeds, **after, **bodies), feeds)
    want = theirs(model("BeamSearch", beam, 1, **after, **bodies), beam)[0]
    np.testing.assert_array_equal(got, want[:, 0])


def test_texts_may_start_with_given_tokens() -> None:
    """Those that a search found, given to another one, lead to the same."""
    given = weights(5, layers=1, eos=2, lift=-9)
    attributes: dict[str, Any] = {
        "model_type": 1,
        "decoder_start_token_id": 5,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "encoder": short_encoder(given),
    }
    feeds = {
        "input_ids": ints([3, 4, 5], [6, 4, 7]),
        "max_length": ints(9),
        "min_length": ints(0),
        "num_beams": ints(1),
        "num_return_sequences": ints(1),
        "length_penalty": floats(1),
    }
    for whole in (False, True):
        attributes["decoder"] = t5(given, hidden=False, whole=whole)
        (want,) = ours(model("BeamSearch", feeds, 1, **attributes), feeds)
        if whole:
            continue
        forced = feeds | {"decoder_input_ids": np.ascontiguousarray(want[:, 0, :4])}
        (got,) = ours(model("BeamSearch", forced, 1, **attributes), forced)
        np.testing.assert_array_equal(got, want)


def test_bodies_see_values_of_the_graph_and_are_replayed() -> None:
    given = weights(1, layers=2, eos=2, lift=1)
    outer = {name: given[name] for name in ("head", "words")}
    bodies = {"decoder": gpt(given, 2, outside=True)}
    feeds = {
        "input_ids": ints([3, 4, 5], [1, 4, 7]),
        "max_length": ints(9),
        "min_length": ints(8),
        "num_beams": ints(3),
        "num_return_sequences": ints(2),
        "length_penalty": floats(1),
    }
    made = model("BeamSearch", feeds, constants=outer, eos_token_id=2, pad_token_id=0, **bodies)
    session = torch_ort_session.load(made)
    for run in range(5):
        feeds["input_ids"] = np.random.default_rng(run).integers(1, VOCAB, (2, 3)).astype(np.int32)
        want = theirs(made, feeds)
        got = session.run(None, feeds)
        np.testing.assert_array_equal(got[0].numpy(), want[0])
        for mine, other in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(mine.numpy(), other, rtol=1e-4, atol=1e-5)
    stats = session.stats()
    assert stats["body captures"] > 0
    assert stats["body replays"] > 0
    assert "how many tokens come depends on the data" in str(session.explain())


def test_half_precision_scores_come_as_they_are() -> None:
    import onnx
    from onnx import helper

    given = weights(2, eos=2, lift=1)
    body = gpt(given)
    body.node[-1].output[0] = "wide"
    body.node.append(helper.make_node("Cast", ["wide"], ["logits"], to=onnx.TensorProto.FLOAT16))
    body.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    feeds = {
        "input_ids": ints([3, 4, 5]),
        "max_length": ints(9),
        "min_length": ints(0),
        "num_beams": ints(2),
        "num_return_sequences": ints(2),
        "length_penalty": np.asarray([0.5], np.float16),
    }
    made = model("BeamSearch", feeds, eos_token_id=2, pad_token_id=0, decoder=body)
    for name in made.graph.output[1:]:
        name.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    texts, scores, steps = ours(made, feeds)
    full = feeds | {"length_penalty": floats(0.5)}
    want = theirs(model("BeamSearch", full, eos_token_id=2, pad_token_id=0, decoder=gpt(given)), full)
    assert scores.dtype == steps.dtype == np.float16
    np.testing.assert_array_equal(texts, want[0])
    np.testing.assert_allclose(scores, want[1], rtol=5e-3, atol=5e-3)


def test_scores_can_be_learnt_from() -> None:
    given = weights(2, eos=2, lift=1)
    outer = {name: given[name] for name in ("head", "words")}
    feeds: dict[str, Any] = {
        "input_ids": ints([3, 4, 5]),
        "max_length": ints(7),
        "min_length": ints(0),
        "num_beams": ints(2),
        "num_return_sequences": ints(1),
        "length_penalty": floats(1),
    }
    body = gpt(given, outside=True)
    made = model("BeamSearch", feeds, 2, constants=outer, eos_token_id=2, pad_token_id=0, decoder=body)
    module = torch_ort_session.load(made).module(trainable=True)
    scores = module(**{name: torch.from_numpy(value) for name, value in feeds.items()})[1]
    scores.sum().backward()
    grads = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    assert any(bool(grad.abs().sum() > 0) for grad in grads)


@pytest.mark.parametrize("op", ["GreedySearch", "Sampling", "BeamSearch"])
def test_a_batch_of_nothing(op: str) -> None:
    feeds = dict(GOOD) if op == "BeamSearch" else {"max_length": GOOD["max_length"]}
    feeds["input_ids"] = np.zeros((0, 3), np.int32)
    attributes = {"eos_token_id": 2, "pad_token_id": 0, "decoder": gpt(weights(1))}
    results = ours(model(op, feeds, **attributes), feeds)
    shapes = {
        "GreedySearch": [(0, 9)],
        "Sampling": [(0, 9), (0, VOCAB)],
        "BeamSearch": [(0, 2, 9), (0, 2), (6, 0, 3, VOCAB)],
    }
    assert [result.shape for result in results] == shapes[op]


@pytest.mark.parametrize("op", ["GreedySearch", "Sampling", "BeamSearch"])
def test_a_prompt_of_nothing(op: str) -> None:
    feeds = dict(GOOD) if op == "BeamSearch" else {"max_length": GOOD["max_length"]}
    feeds["input_ids"] = np.zeros((2, 0), np.int32)
    attributes = {"eos_token_id": 2, "pad_token_id": 0, "decoder": gpt(weights(1))}
    with pytest.raises(InputError) as caught:
        ours(model(op, feeds, **attributes), feeds)
    text = f"node 'search' (com.microsoft::{op}): input_ids has shape [2, 0], but every text needs a token to"
    assert str(caught.value) == f"{text} start with"
    assert (caught.value.name, caught.value.got) == ("input_ids", "shape [2, 0]")


GOOD: dict[str, Any] = {
    "input_ids": ints([3, 4, 5], [1, 4, 7]),
    "max_length": ints(9),
    "min_length": ints(2),
    "num_beams": ints(3),
    "num_return_sequences": ints(2),
}


def refusal(feeds: dict[str, Any], **attributes: Any) -> str:
    given = weights(1)
    whole = {"eos_token_id": 2, "pad_token_id": 0, "decoder": gpt(given)} | attributes
    with pytest.raises(KernelError) as caught:
        ours(model("BeamSearch", GOOD | feeds, 1, **whole), GOOD | feeds)
    return str(caught.value).partition("failed: ")[2].partition("\n")[0]


def test_refusals() -> None:
    given = weights(1)
    told = [
        refusal({"max_length": ints(3)}),
        refusal({"num_return_sequences": ints(4)}),
        refusal({"repetition_penalty": floats(0)}),
        refusal({"vocab_mask": ints(1, 1)}),
        refusal({"prefix_vocab_mask": np.ones((1, VOCAB), np.int32)}),
        refusal({"attention_mask": np.ones((2, 2), np.int32)}),
        refusal({"logits_processor": ints(1)}),
        refusal({}, eos_token_id=VOCAB),
        refusal({}, model_type=3),
        refusal({}, model_type=1),
        refusal({}, model_type=1, decoder_start_token_id=1),
        refusal({}, decoder=t5(given)),
        refusal({}, model_type=1, decoder_start_token_id=1, encoder=short_encoder(given), decoder=t5(given)),
        refusal({}, decoder=gpt(given, extras=("past_sequence_length", "what_is_this"))),
    ]
    assert_expected_inline(
        "\n".join(textwrap.fill(line, 96) for line in told),
        """\
max_length 3 leaves no room after 3 tokens.
num_return_sequences 4 is not within 1 and 3 beams.
repetition_penalty 0.0 is not positive.
vocab_mask has shape [2], not [12].
prefix_vocab_mask has shape [1, 12], not [2, 12].
attention_mask has shape [2, 2], and input_ids [2, 3].
logits_processor 1 of model_type 0 is not known.
eos_token_id 12 is none of 12 tokens.
model_type 3 is none of 0, 1 and 2.
an encoder and a decoder need decoder_start_token_id.
the attribute encoder is missing.
the decoder's inputs are not input_ids, position_ids, attention_mask and caches, but input_ids,
encoder_attention_mask, encoder_hidden_states, past_key_self_0, past_value_self_0,
past_key_cross_0, past_value_cross_0.
the decoder's inputs input_ids, encoder_attention_mask, encoder_hidden_states, past_key_self_0,
past_value_self_0, past_key_cross_0, past_value_cross_0 are not what the encoder makes:
present_key_cross_0, present_value_cross_0.
the decoder has the input what_is_this, which nothing is known of.""",
    )


def test_a_token_outside_of_the_vocabulary() -> None:
    feeds = {"input_ids": ints([3, 4, 5]), "max_length": ints(9), "repetition_penalty": floats(2)}
    body = gpt(weights(1))
    made = model("GreedySearch", feeds, eos_token_id=2, pad_token_id=0, decoder=body, vocab_size=5)
    session = torch_ort_session.load(made)
    with pytest.raises(DeviceIndexError) as caught:
        session.run(None, feeds)
    assert_expected_inline(
        textwrap.fill(str(caught.value), 96),
        """\
node 'search' (com.microsoft::GreedySearch): index 5 is outside of [0, 5), the valid range of
the indexed axis (4 indices are); check the indices that were fed""",
    )
    feeds["input_ids"] = ints([3, 4, 4])
    assert session.run(None, feeds)[0].shape == (1, 9)
