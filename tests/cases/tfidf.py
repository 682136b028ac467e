"""Cases of TfIdfVectorizer."""

from typing import Any

from opcase import OpCase, const, t

POOL = {
    "min_gram_length": 1,
    "max_gram_length": 3,
    "max_skip_count": 1,
    "ngram_counts": [0, 2, 6],
    "ngram_indexes": [0, 3, 1, 2, 4],
    "pool_int64s": [1, 3, 0, 1, 2, 3, 1, 2, 0],
}
WORDS = {**POOL, "pool_strings": ["b", "d", "a", "b", "c", "d", "b", "c", "a"]}
WORDS.pop("pool_int64s")


def case(inputs: list[Any], name: str, **attrs: Any) -> OpCase:
    return OpCase("TfIdfVectorizer", inputs, {**POOL, **attrs}, oracle="onnxruntime", opset=13, id=name)


WEIGHTS = [0.5, 2.0, 3.0, 1.0, 4.0]
ROWS = t(3, 9, low=0, high=4, dtype="int64")

CASES: tuple[OpCase, ...] = (
    case([ROWS], "counts", mode="TF"),
    case([t(9, low=0, high=4, dtype="int32")], "vector", mode="TF"),
    case([ROWS], "idf", mode="IDF", weights=WEIGHTS),
    case([ROWS], "tfidf", mode="TFIDF", weights=WEIGHTS),
    case([ROWS], "pairs", mode="TF", min_gram_length=2, max_gram_length=2, max_skip_count=3),
    case([t(2, 1, low=0, high=4, dtype="int64")], "too_short", mode="TF", min_gram_length=2),
    OpCase(
        "TfIdfVectorizer",
        [const(["a", "b", "c", "a", "b", "x", "d"], "string")],
        {**WORDS, "mode": "TF"},
        oracle="onnxruntime",
        opset=13,
        id="strings",
    ),
)
