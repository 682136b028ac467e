"""Cases of com.microsoft's MoE and QMoE."""

from typing import Any

import numpy as np
from differential import mixtures
from opcase import OpCase, ms, t


def weights(rows: int, third: bool = False) -> list[Any]:
    last = [t(6, 10, 8), t(6, 10)] if third else []
    return [t(6, rows, 8), t(6, rows), t(6, 8, 10), t(6, 8), *last]


def packed(rows: int, columns: int, bits: int, block: int = 0) -> list[Any]:
    scales = t(4, rows, columns // block, low=0.001, high=0.02) if block else t(4, rows, low=0.001, high=0.02)
    return [t(4, rows, columns * bits // 8, low=0, high=256, dtype="uint8"), scales]


def zeros(rows: int, count: int, bits: int) -> Any:
    return t(4, rows, -(-count * bits // 8), low=0, high=256, dtype="uint8")


def float8(rows: int, columns: int) -> Any:
    return t(4, rows, columns, dtype="float8e4m3fn")


def squares(x, p, w1, s1, b1, w2, s2, *_, block_size=0, **attrs):  # type: ignore[no-untyped-def]
    """QMoE on float8 weights; ``_`` ends with the global scales where there are no blocks."""

    def wide(weight, scale):  # type: ignore[no-untyped-def]
        weight = weight.astype(np.float64)
        if not block_size:
            return weight * scale[:, None, None]
        spread = scale.astype(np.float64).repeat(block_size, 1).repeat(block_size, 2)
        return weight * spread[:, : weight.shape[1], : weight.shape[2]]

    s1, s2 = (s1, s2) if block_size else _[-2:]
    return mixtures.mixture(x, p, (wide(w1, s1), b1), (wide(w2, s2), None), **attrs)


FEW, MANY = [t(2, 8), t(2, 6, low=-3, high=3)], [t(2, 5, 8), t(10, 6, low=-3, high=3)]
SWIGLU = {"activation_type": "swiglu", "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.4}
TWO = {"k": 2, "normalize_routing_weights": 1}
Q, QMANY = [t(1, 32), t(1, 4, low=-3, high=3)], [t(5, 32), t(5, 4, low=-3, high=3)]

CASES: tuple[OpCase, ...] = (
    ms("MoE", [*FEW, *weights(10)], {"k": 2, "activation_type": "silu"}, grad=True, id="few"),
    ms("MoE", [*MANY, *weights(10)], {"k": 2, "activation_type": "gelu"}, grad=True, id="many"),
    ms("MoE", [*MANY, *weights(20)], SWIGLU | TWO | {"swiglu_fusion": 1}, id="by_turns"),
    ms("MoE", [*MANY, *weights(20)], SWIGLU | TWO | {"swiglu_fusion": 2}, oracle=mixtures.plain, id="halves"),
    ms("MoE", [*MANY, *weights(10, True)], SWIGLU | {"k": 3}, oracle=mixtures.plain, id="apart"),
    ms(
        "MoE",
        [*FEW, *weights(20)],
        SWIGLU | {"swiglu_fusion": 1, "swiglu_limit_after_activation": 1},
        oracle=mixtures.plain,
        id="late",
    ),
    ms(
        "MoE",
        [*FEW, *weights(10, True)],
        {"activation_type": "silu", "k": 2},
        oracle=mixtures.plain,
        id="third",
    ),
    ms(
        "MoE",
        [*MANY, *weights(20)],
        {"activation_type": "geglu", "swiglu_fusion": 2, "k": 2},
        oracle=mixtures.plain,
        id="geglu",
    ),
    ms("MoE", [*MANY, *weights(10)], {"activation_type": "relu2"}, oracle=mixtures.plain, id="relu2"),
    # onnxruntime's CPU provider passes use_sparse_mixer over; its CUDA provider does not.
    ms("MoE", [*MANY, *weights(10)], {"k": 2, "use_sparse_mixer": 1}, oracle=mixtures.plain, id="sparse"),
    ms(
        "MoE",
        [t(4, 8), t(4, 6, low=0.98, high=1.0), *weights(10)],
        {"k": 2, "use_sparse_mixer": 1},
        oracle=mixtures.plain,
        id="sparse_and_close",
    ),
    ms("MoE", [*MANY, *weights(10)], {"k": 2}, dtypes=("float16",), tol=1e-2, id="half"),
    ms(
        "QMoE",
        [*Q, *packed(64, 32, 4, 16), None, *packed(32, 32, 4, 16), t(4, 32)],
        SWIGLU | TWO | {"swiglu_fusion": 1, "block_size": 16},
        id="few",
    ),
    ms(
        "QMoE",
        [*QMANY, *packed(64, 32, 4), t(4, 64), *packed(32, 32, 4)],
        SWIGLU | TWO | {"swiglu_fusion": 1},
        id="many",
    ),
    ms(
        "QMoE",
        [*QMANY, *packed(32, 32, 8), None, *packed(32, 32, 8)],
        {"k": 2, "activation_type": "gelu", "expert_weight_bits": 8},
        # By the schema; onnxruntime's CPU provider divides by the sum whatever the attribute says.
        oracle=mixtures.quantized,
        id="not_normalized",
    ),
    ms(
        "QMoE",
        [
            *QMANY,
            *packed(64, 32, 3, 32),
            None,
            *packed(32, 32, 8, 32),
            None,
            None,
            None,
            None,
            None,
            zeros(32, 1, 8),
        ],
        SWIGLU
        | TWO
        | {"swiglu_fusion": 1, "block_size": 32, "expert_weight_bits": 3, "fc2_expert_weight_bits": 8},
        oracle=mixtures.quantized,
        id="three_bits",
    ),
    ms(
        "QMoE",
        [
            *Q,
            *packed(32, 32, 4, 16),
            None,
            *packed(32, 32, 4, 16),
            None,
            *packed(32, 32, 2, 16),
            t(4, 32),
            zeros(32, 2, 4),
            zeros(32, 2, 4),
            zeros(32, 2, 2),
            t(1, 4, low=0.1),
        ],
        SWIGLU | TWO | {"block_size": 16, "fc3_expert_weight_bits": 2},
        oracle=mixtures.quantized,
        id="third",
    ),
    ms(
        "QMoE",
        [*QMANY, float8(40, 32), t(4, 3, 2, low=0.1), t(4, 40), float8(32, 40), t(4, 2, 3, low=0.1)],
        TWO | {"quant_type": "fp8", "block_size": 16, "activation_type": "silu"},
        oracle=squares,
        id="squares",
    ),
    ms(
        "QMoE",
        [*Q, float8(40, 32), None, None, float8(32, 40), *[None] * 9, t(4, low=0.1), t(4, low=0.1)],
        TWO | {"quant_type": "fp8", "activation_type": "relu"},
        oracle=squares,
        id="one_scale",
    ),
)
