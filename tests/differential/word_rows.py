"""Generators of com.microsoft's ops on words: tokens, embeddings, hashes."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases.microsoft_words import embedded, ms, tokens
from opcase import OpCase, const, t

from differential.images_and_arranging import dims, one_of
from differential.single import Generator, Row


def tokenizer(rng: Generator) -> OpCase:
    shape = [int(rng.integers(1, 4)) for _ in range(int(rng.integers(1, 3)))]
    letters = list("ab ,;1é")
    words = ["".join(rng.choice(letters, int(rng.integers(0, 12)))) for _ in range(int(np.prod(shape)))]
    how = one_of(
        rng,
        {"separators": [" "]},
        {"separators": [",", ";| "]},
        {"separators": ["[ ,;]+", "1"]},
        {"separators": [""]},
        {"tokenexp": "[ab]+"},
        {"tokenexp": "a|ab|abb"},
        {"tokenexp": "a?(ab)?"},
        {"tokenexp": "."},
    )
    single = how in ({"separators": [""]}, {"tokenexp": "."})
    attrs = {"mark": int(rng.integers(2)), "mincharnum": 1 if single else int(rng.integers(1, 3))}
    return tokens(np.array(words, dtype=object).reshape(shape).tolist(), attrs | how)


def embedding(rng: Generator) -> OpCase:
    rows, width = int(rng.integers(1, 6)), int(rng.integers(0, 5))
    places = const(rng.integers(0, rows, dims(rng, 0, 3)), "int64")
    return ms("TorchEmbedding", [t(rows, width), places], oracle=embedded)


def word_conv(rng: Generator) -> OpCase:
    count, width, size, window, more = (int(n) for n in rng.integers(1, [4, 5, 6, 4, 5]))
    length = window + int(rng.integers(0, 5))
    words = rng.integers(0, 7, (count, length))
    words[:, 0] = np.maximum(words[:, 0], 1)
    inputs = [const(words, "int32"), t(size, 1, window, width), t(size), t(7, width)]
    return ms("WordConvEmbedding", inputs, {"embedding_size": size} if more > 2 else {})


def hashing(rng: Generator) -> tuple[int, int, dict[str, Any], Any, Any]:
    order, heads = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    attrs = {"max_ngram_size": order, "n_head_per_ngram": heads, "pad_id": int(rng.integers(0, 9))}
    large = int(rng.choice([50, 2**30]))
    numbers = const(rng.integers(1, large, order) * 2 + 1)
    return order - 1, heads, attrs, numbers, const(rng.integers(1, 200, (order - 1) * heads))


def ngram_hash(rng: Generator) -> OpCase:
    past, heads, attrs, numbers, sizes = hashing(rng)
    batch, length = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    ended = rng.random() < 0.5
    inputs = [t(batch, length, low=0, high=5), numbers, sizes]
    inputs.append(t(batch, past, low=0, high=5) if rng.random() < 0.6 else None)
    inputs.append(const(rng.integers(0, 500, past * heads)) if rng.random() < 0.4 else None)
    inputs.append(const(int(rng.integers(0, 5))) if ended else None)
    inputs += [t(batch, length, low=0, high=2, dtype="int32")] if rng.random() < 0.4 else []
    attrs["reset_on_eos"] = int(rng.integers(2)) if ended else 0
    return ms("NGramHashMapping", inputs, attrs, outputs=2)


def varlen_hash(rng: Generator) -> OpCase:
    past, heads, attrs, numbers, sizes = hashing(rng)
    counts = rng.integers(1, 5, int(rng.integers(1, 4)))
    batch, total = len(counts), int(counts.sum())
    ended, capacity = rng.random() < 0.5, int(rng.integers(0, 4))
    segmented = rng.random() < 0.5
    inputs = [t(total, low=0, high=5), numbers, sizes, const([0, *counts.cumsum()], "int32")]
    inputs.append(t(batch, past, low=0, high=5) if rng.random() < 0.6 else None)
    inputs.append(const(rng.integers(0, 500, past * heads)) if rng.random() < 0.4 else None)
    inputs.append(const(int(rng.integers(0, 5))) if ended else None)
    inputs.append(t(total, low=0, high=2, dtype="int32") if segmented else None)
    threaded = segmented and inputs[4] is not None and rng.random() < 0.6
    inputs.append(t(batch, past, low=0, high=2, dtype="int32") if threaded else None)
    inputs.append(const(rng.integers(0, 5, batch), "int32") if capacity else None)
    attrs |= {"reset_on_eos": int(rng.integers(2)) if ended else 0, "state_update_capacity": capacity}
    outputs = (True, True, segmented, capacity > 0)
    return ms("VarlenNGramHashMapping", inputs, attrs, outputs=outputs)


ROWS: dict[str, Row] = {
    "Tokenizer": Row(tokenizer, ("string",), trials=25, seam=True),
    "TorchEmbedding": Row(embedding, ("float32", "int32")),
    "WordConvEmbedding": Row(word_conv, trials=20),
    "NGramHashMapping": Row(ngram_hash, ("int32", "int64"), trials=15),
    "VarlenNGramHashMapping": Row(varlen_hash, ("int32", "int64"), trials=15),
}
