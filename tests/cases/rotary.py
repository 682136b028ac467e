"""Cases of RotaryEmbedding."""

from opcase import OpCase, const, t

IDS = const([[0, 2, 1], [4, 3, 3]], "int64")

CASES: tuple[OpCase, ...] = (
    OpCase(
        "RotaryEmbedding",
        [t(2, 4, 3, 8), t(5, 4), t(5, 4), IDS],
        {},
        ("float32", "float16", "bfloat16"),
        grad=True,
    ),
    OpCase(
        "RotaryEmbedding",
        [t(2, 4, 3, 8), t(5, 4), t(5, 4), IDS],
        {"interleaved": 1},
        grad=True,
        id="interleaved",
    ),
    OpCase("RotaryEmbedding", [t(2, 3, 32), t(5, 4), t(5, 4), IDS], {"num_heads": 4}, grad=True, id="flat"),
    OpCase("RotaryEmbedding", [t(2, 4, 3, 8), t(2, 3, 4), t(2, 3, 4)], id="no_ids"),
    OpCase(
        "RotaryEmbedding",
        [t(2, 4, 3, 8), t(5, 2), t(5, 2), IDS],
        {"rotary_embedding_dim": 4},
        grad=True,
        id="partial",
    ),
    OpCase(
        "RotaryEmbedding",
        [t(2, 3, 32), t(2, 3, 2), t(2, 3, 2)],
        {"rotary_embedding_dim": 4, "interleaved": 1, "num_heads": 4},
        id="partial_interleaved",
    ),
)
