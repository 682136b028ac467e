"""Cases of FlexAttention without bodies; those with bodies are in tests/ops/test_attention_flex.py."""

from opcase import OpCase, t

CASES: tuple[OpCase, ...] = (
    OpCase(
        "FlexAttention",
        [t(2, 4, 3, 16), t(2, 4, 5, 16), t(2, 4, 5, 6)],
        {},
        ("float32", "float64", "float16"),
        domain="ai.onnx.preview",
        grad=True,
    ),
    OpCase(
        "FlexAttention",
        [t(2, 4, 3, 8), t(2, 2, 5, 8), t(2, 2, 5, 6)],
        {"scale": 0.3, "softmax_precision": 11},
        domain="ai.onnx.preview",
        tol=2e-5,
        id="groups",
    ),
)
