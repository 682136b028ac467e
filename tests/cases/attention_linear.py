"""Cases of LinearAttention and CausalConvWithState."""

from opcase import OpCase, t

QKV = [t(2, 5, 12), t(2, 5, 6), t(2, 5, 8)]
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
STATE = t(2, 2, 3, 4)
HALVES = ("float16", "bfloat16")

CASES: tuple[OpCase, ...] = (
    OpCase(
        "LinearAttention",
        [*QKV, None, t(2, 5, 2, low=-1, high=0), t(2, 5, 2, low=0)],
        HEADS,
        ("float32", *HALVES),
        outputs=2,
    ),
    OpCase("LinearAttention", [*QKV, STATE], {**HEADS, "update_rule": "linear"}, outputs=2, id="linear"),
    OpCase(
        "LinearAttention",
        [*QKV, STATE, t(2, 5, 6, low=-1, high=0)],
        {**HEADS, "update_rule": "gated", "scale": 0.3},
        outputs=2,
        id="gated",
    ),
    OpCase(
        "LinearAttention",
        [*QKV, t(2, 2, 3, 4, dtype="float32"), None, t(2, 5, 1, low=0)],
        {**HEADS, "update_rule": "delta", "chunk_size": 2},
        ("float16",),
        outputs=2,
        id="delta",
    ),
    OpCase(
        "LinearAttention",
        [t(2, 0, 12), t(2, 0, 6), t(2, 0, 8), STATE],
        {**HEADS, "update_rule": "linear"},
        outputs=2,
        id="no_steps",
    ),
    OpCase("CausalConvWithState", [t(2, 3, 6), t(3, 1, 4)], {}, ("float32", *HALVES), outputs=2, grad=True),
    OpCase(
        "CausalConvWithState",
        [t(2, 3, 6), t(3, 1, 4), t(3), t(2, 3, 3)],
        {"activation": "silu"},
        ("float32", *HALVES),
        outputs=2,
        grad=True,
        id="silu",
    ),
    OpCase("CausalConvWithState", [t(2, 3, 1), t(3, 1, 4), None, t(2, 3, 3)], outputs=2, id="decode"),
    OpCase("CausalConvWithState", [t(2, 3, 6), t(3, 1, 1)], outputs=2, id="one"),
)
