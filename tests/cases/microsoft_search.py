"""Cases of GreedySearch, Sampling and BeamSearch; their rules are tested in tests/ops/test_search.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import searchlab
from opcase import OpCase, const, t

W = searchlab.weights(7, layers=2)
ALONE = {"decoder": searchlab.gpt(W, 2), "eos_token_id": 2, "pad_token_id": 0}
OPENED = {**ALONE, "init_decoder": searchlab.gpt(searchlab.weights(8))} | {"decoder": searchlab.gpt(W)}
AFTER = {
    "encoder": searchlab.encoder(W, 2),
    "decoder": searchlab.t5(W, 2),
    "decoder_start_token_id": 5,
    "model_type": 1,
}
HEARD = {
    "encoder": searchlab.encoder(W, 2, features=True),
    "decoder": searchlab.t5(W, 2, masked=False),
    "eos_token_id": 2,
    "pad_token_id": 0,
    "decoder_start_token_id": 5,
}
IDS = t(2, 3, low=1, high=searchlab.VOCAB, dtype="int32")
LENGTH, SHORTEST = const([9], "int32"), const([8], "int32")
BEAMS = [IDS, LENGTH, SHORTEST, const([3], "int32"), const([2], "int32"), const([0.5])]
# With next to nothing of the probability the most probable token is always drawn.
SURE = {"top_p": 1e-6}


def ms(op: str, inputs: list[Any], attrs: dict[str, Any], **more: Any) -> OpCase:
    return OpCase(op, inputs, attrs, domain="com.microsoft", **{"oracle": "onnxruntime", **more})


def greedy(
    ids: Any, length: Any, shortest: Any, *rest: Any, top_p: float, **attrs: Any
) -> np.ndarray[Any, Any]:
    feeds = {"input_ids": np.ascontiguousarray(ids), "max_length": length, "min_length": shortest}
    found: np.ndarray[Any, Any] = searchlab.theirs(searchlab.model("GreedySearch", feeds, **attrs), feeds)[0]
    return found


CASES: tuple[OpCase, ...] = (
    ms("GreedySearch", [IDS, LENGTH, SHORTEST], ALONE),
    ms("GreedySearch", [IDS, LENGTH, SHORTEST], OPENED, id="opened"),
    ms(
        "GreedySearch", [IDS, LENGTH, SHORTEST, const([1.5])], ALONE | {"no_repeat_ngram_size": 2}, id="rules"
    ),
    ms("Sampling", [IDS, LENGTH, SHORTEST], ALONE | SURE, oracle=greedy),
    ms(
        "Sampling",
        [IDS, LENGTH, SHORTEST, *[None] * 5, const([3], "int32")],
        ALONE | SURE,
        oracle=greedy,
        id="seed",
    ),
    ms("BeamSearch", BEAMS, ALONE, outputs=3),
    ms("BeamSearch", BEAMS, OPENED, outputs=3, id="opened"),
    ms("BeamSearch", BEAMS, {**ALONE, **AFTER}, outputs=3, id="after_an_encoder"),
    ms("WhisperBeamSearch", [t(2, searchlab.WIDTH, 4), *BEAMS[1:]], HEARD, outputs=3),
    ms("BeamSearch", BEAMS, ALONE, outputs=(True, False, True), id="without_their_scores"),
)
