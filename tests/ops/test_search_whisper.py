"""WhisperBeamSearch: what onnxruntime's CPU provider gives, and the rules of tokens that are times.

How probable silence is onnxruntime leaves out on the CPU: see `differential/known.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from expecttest import assert_expected_inline
from searchlab import VOCAB, WIDTH, encoder, model, t5, theirs, weights

import torch_ort_session
from torch_ort_session import KernelError
from torch_ort_session.ops.microsoft.generation.timestamps import Stamps, stamped

TOKENS = {
    "eos_token_id": 3,
    "pad_token_id": 0,
    "decoder_start_token_id": 4,
    "translate_token_id": 5,
    "transcribe_token_id": 6,
    "start_of_lm_token_id": 7,
    "no_timestamps_token_id": 8,
    "beginning_timestamp_token_id": 9,
    "no_speech_token_id": 1,
}


def ints(*values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.int32)


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.float32)


def drawn(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng([seed, 7])
    batch, beams, start = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    feeds: dict[str, Any] = {
        "input_ids": rng.normal(size=(batch, WIDTH, int(rng.integers(1, 6)))).astype(np.float32),
        "max_length": ints(rng.integers(start + 2, 14)),
        "min_length": ints(0),
        "num_beams": ints(beams),
        "num_return_sequences": ints(rng.integers(1, beams + 1)),
        "length_penalty": floats(rng.choice([1.0, 0.5])),
    }
    if start > 1:
        feeds["decoder_input_ids"] = rng.integers(0, VOCAB, (batch, start)).astype(np.int32)
    if rng.random() < 0.7:
        feeds["logits_processor"] = ints(1)
    if rng.random() < 0.4:
        feeds["temperature"] = floats(rng.choice([0.5, 2.0]))
    if rng.random() < 0.3:
        feeds["vocab_mask"] = (rng.random(VOCAB) < 0.8).astype(np.int32)
    if rng.random() < 0.3:
        feeds["repetition_penalty"] = floats(1.3)
    sharp, lift = float(rng.choice([0.3, 1.0])), float(rng.choice([0.0, 2.0]))
    given = weights(seed, layers=2, eos=3, lift=lift, sharp=sharp)
    hidden = bool(rng.integers(2))
    bodies = {
        "encoder": encoder(given, 2, features=True),
        "decoder": t5(given, 2, hidden=hidden, masked=False),
    }
    return feeds, bodies


@pytest.mark.parametrize("seed", range(24))
def test_whisper(seed: int) -> None:
    feeds, bodies = drawn(seed)
    made = model("WhisperBeamSearch", feeds, 3, early_stopping=1, **TOKENS, **bodies)
    want = theirs(made, feeds)
    texts, scores, steps = (result.numpy() for result in torch_ort_session.load(made).run(None, feeds))
    np.testing.assert_array_equal(texts, want[0])
    np.testing.assert_allclose(scores, want[1], rtol=1e-4, atol=1e-4)
    ran = (steps != 0).any((1, 2, 3))
    assert ran[0]
    np.testing.assert_allclose(steps[ran], want[2][ran], rtol=1e-4, atol=1e-4)


def test_the_probability_of_silence() -> None:
    feeds, bodies = drawn(1)
    feeds |= {"num_beams": ints(1), "num_return_sequences": ints(1)}
    feeds = {name: value for name, value in feeds.items() if name in GOOD}
    made = model("WhisperBeamSearch", feeds, **TOKENS, **bodies)
    results = torch_ort_session.load(made).run(None, feeds)
    first = theirs(model("WhisperBeamSearch", feeds, 3, **TOKENS, **bodies), feeds)[2][0]
    np.testing.assert_allclose(results[3].numpy(), np.exp(first[:, 0, 1]), rtol=1e-4)


def by_rule(stamps: Stamps, scores: np.ndarray[Any, Any], text: list[int]) -> np.ndarray[Any, Any]:
    """The rules, one token after the other."""
    lowest, out = np.finfo(np.float32).min, scores.copy()
    times = [token for token in text if token >= stamps.first]
    begun = bool(times) and next(i for i, token in enumerate(text) if token >= stamps.first) < len(text) - 1
    last = bool(text) and text[-1] >= stamps.first
    paired = not begun or text[-2] >= stamps.first
    for token in range(len(out)):
        time = token >= stamps.first
        bad = token in stamps.never or (begun and token in stamps.once)
        bad |= last and paired and time
        bad |= last and not paired and token < stamps.eos
        if times:
            bad |= time and token < times[-1] + (0 if last and not paired else 1)
        bad |= not begun and token > stamps.first + 50
        if bad:
            out[token] = lowest
    of_times = out[stamps.first :].astype(np.float64)
    real = of_times[of_times > lowest]
    if real.size and np.log(np.exp(real).sum()) > out[: stamps.first].max():
        out[: stamps.first] = lowest
    return out


@pytest.mark.parametrize("seed", range(30))
def test_times(seed: int) -> None:
    stamps = Stamps(eos=6, first=12, never=(9, 10), once=(7, 8, 11))
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(8, 90)).astype(np.float32)
    if seed % 2:
        scores[:, 12:] -= 6
    scores -= np.log(np.exp(scores).sum(1, keepdims=True))
    length = int(rng.integers(1, 7))
    text = np.where(
        rng.random((8, length)) < 0.5, rng.integers(0, 12, (8, length)), rng.integers(12, 90, (8, length))
    )
    got = stamped(stamps, torch.from_numpy(scores), torch.from_numpy(text)).numpy()
    for row in range(8):
        np.testing.assert_array_equal(got[row], by_rule(stamps, scores[row], text[row].tolist()))


GOOD: dict[str, Any] = {
    "input_ids": np.ones((1, WIDTH, 4), np.float32),
    "max_length": ints(9),
    "min_length": ints(2),
    "num_beams": ints(2),
    "num_return_sequences": ints(2),
    "length_penalty": floats(1),
}


def refusal(feeds: dict[str, Any], **attributes: Any) -> str:
    _, bodies = drawn(0)
    made = model("WhisperBeamSearch", GOOD | feeds, **TOKENS | bodies | attributes)
    with pytest.raises(KernelError) as caught:
        torch_ort_session.load(made).run(None, GOOD | feeds)
    return str(caught.value).partition("failed: ")[2].partition("\n")[0]


def test_refusals() -> None:
    told = [
        refusal({}, decoder_output_cross_qk=1),
        refusal({"cross_qk_layer_head": np.zeros((1, 2), np.int32)}),
        refusal({"extra_decoding_ids": np.zeros((1, 2), np.int32)}),
        refusal({}, model_type=1),
        refusal({"logits_processor": ints(1)}, beginning_timestamp_token_id=-1),
        refusal({}, no_speech_token_id=-1),
    ]
    assert_expected_inline(
        "\n".join(told),
        """\
the scores of attention to the source (cross_qk) are not supported.
the scores of attention to the source (cross_qk) are not supported.
extra_decoding_ids is not supported.
model_type 1 is not 2.
logits_processor 1 with beginning_timestamp_token_id -1 is not known.
no_speech_token_id -1 is no token.""",
    )
