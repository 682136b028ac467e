"""Cases of com.microsoft's Tokenizer, embeddings and hashes of words."""

from typing import Any

import numpy as np
from opcase import OpCase, const, t


def ms(op: str, inputs: list[Any], attrs: dict[str, Any] | None = None, **more: Any) -> OpCase:
    return OpCase(op, inputs, attrs or {}, domain="com.microsoft", **{"oracle": "onnxruntime", **more})


def texts(data: Any) -> Any:
    return const(np.array(data, dtype=object), "string")


def tokens(data: Any, attrs: dict[str, Any], **more: Any) -> OpCase:
    return ms("Tokenizer", [texts(data)], {"mark": 0, "mincharnum": 1, "pad_value": "#", **attrs}, **more)


def embedded(weight, indices, *_):  # type: ignore[no-untyped-def]
    return weight[indices]


WORDS = const([[1, 2, 3, 0, 0], [4, 5, 0, 0, 0], [1, 0, 3, 0, 0], [1, 2, 3, 4, 5]], "int32")
WEIGHTS = [t(6, 1, 2, 3), t(6), t(7, 3)]
ODD = const([3, 1000003, 19349663], None)
PRIMES = const([101, 103, 107, 109], None)
HASHED = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 7}
IDS = t(2, 6, low=0, high=5)

CASES: tuple[OpCase, ...] = (
    tokens(["Hello World", "I love computer science !"], {"separators": [" "]}),
    tokens([["a b", "c"], ["d", "e f g"]], {"separators": [" "], "mark": 1}, id="marks"),
    tokens(["abc", "é😀"], {"separators": [""]}, id="characters"),
    tokens(["ab12cd", "x"], {"tokenexp": "[a-z]+", "mincharnum": 2, "mark": 1}, id="pattern"),
    tokens(["aaa bbb"], {"tokenexp": "a|aa"}, id="longest"),
    tokens(["aXYXbc", "XYYX"], {"separators": ["XY", "X"]}, id="one_after_the_other"),
    tokens([",", ""], {"separators": [","], "mark": 1}, id="nothing"),
    ms("TorchEmbedding", [t(5, 3), const([[0, 4], [1, 1]], "int64")], oracle=embedded, grad=True),
    ms(
        "TorchEmbedding",
        [t(5, 3), const([2, 0], "int64"), const(1, "int64"), const(False, "bool")],
        dtypes=("float16", "int64", "uint8"),
        oracle=embedded,
        id="padding",
    ),
    ms("WordConvEmbedding", [WORDS, *WEIGHTS]),
    ms(
        "WordConvEmbedding",
        [t(3, 4, low=1, high=7, dtype="int32"), *WEIGHTS],
        {"embedding_size": 6, "conv_window_size": 2, "char_embedding_size": 3},
        id="full",
    ),
    ms(
        "WordConvEmbedding",
        [const([[0, 0, 0], [1, 2, 3]], "int32"), *WEIGHTS],
        oracle=lambda s, w, b, c: np.stack(
            [
                np.zeros(6, np.float32),
                np.tanh([np.einsum("kc,fkc->f", c[s[1, i : i + 2]], w[:, 0]) + b for i in (0, 1)]).max(0),
            ]
        ).astype(np.float32),
        id="no_characters",
    ),
    ms("NGramHashMapping", [IDS, ODD, PRIMES], HASHED, dtypes=("int32", "int64"), outputs=2),
    ms(
        "NGramHashMapping",
        [IDS, ODD, PRIMES, t(2, 2, low=0, high=5), const([0, 101, 204, 311]), const(4)],
        {**HASHED, "reset_on_eos": 1},
        dtypes=("int64",),
        outputs=2,
        id="eos",
    ),
    ms(
        "NGramHashMapping",
        [IDS, ODD, PRIMES, t(2, 2, low=0, high=5), None, None, t(2, 6, low=0, high=2, dtype="int32")],
        HASHED,
        dtypes=("int64",),
        outputs=2,
        id="segments",
    ),
    ms(
        "VarlenNGramHashMapping",
        [t(6, low=0, high=5), ODD, PRIMES, const([0, 1, 6], "int32"), t(2, 2, low=0, high=5)],
        HASHED,
        dtypes=("int32", "int64"),
        outputs=2,
    ),
    ms(
        "VarlenNGramHashMapping",
        [
            t(6, low=0, high=5),
            ODD,
            PRIMES,
            const([0, 4, 6], "int32"),
            t(2, 2, low=0, high=5),
            None,
            const(4),
            t(6, low=0, high=2, dtype="int32"),
            t(2, 2, low=0, high=2, dtype="int32"),
            const([1, 2], "int32"),
        ],
        {**HASHED, "reset_on_eos": 1, "state_update_capacity": 3},
        dtypes=("int64",),
        outputs=4,
        id="segments",
    ),
)
