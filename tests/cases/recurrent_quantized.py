"""Cases of the 8-bit recurrent layers."""

from __future__ import annotations

from opcase import OpCase, const, t

# Larger ones overflow in the pairs of products that onnxruntime adds in 16 bits on a CPU without VNNI.
_W = dict(dtype="int8", low=-64, high=64)

CASES = (
    OpCase(
        "DynamicQuantizeLSTM",
        [
            t(5, 2, 8),
            t(1, 8, 16, **_W),
            t(1, 4, 16, **_W),
            t(1, 32),
            None,
            None,
            None,
            None,
            const([0.01]),
            const([3], "int8"),
            const([0.012]),
            const([-2], "int8"),
        ],
        {"hidden_size": 4},
        domain="com.microsoft",
        outputs=3,
        oracle="onnxruntime",
        tol=2e-2,
    ),
    OpCase(
        "DynamicQuantizeLSTM",
        [
            t(6, 1, 8),
            t(2, 8, 16, **_W),
            t(2, 4, 16, **_W),
            None,
            None,
            t(2, 1, 4),
            t(2, 1, 4),
            None,
            t(2, 16, low=0.005, high=0.02),
            const([[0] * 16] * 2, "int8"),
            t(2, 16, low=0.005, high=0.02),
            const([[0] * 16] * 2, "int8"),
        ],
        {"hidden_size": 4, "direction": "bidirectional"},
        domain="com.microsoft",
        outputs=3,
        oracle="onnxruntime",
        tol=2e-2,
        id="per channel",
    ),
)
