"""Cases of Attention."""

import numpy as np
from opcase import OpCase, const, t

INF = float("inf")
FLOATS = ("float32", "float64", "float16", "bfloat16")
Q, K, V = t(2, 4, 3, 8), t(2, 4, 5, 8), t(2, 4, 5, 8)
GK, GV = t(2, 2, 5, 8), t(2, 2, 5, 6)
PAST = [t(2, 2, 3, 8), t(2, 2, 3, 6)]
BOOLS = const([[True, False, True, True, False], [False] * 5, [True] * 5], "bool")
BIAS = const([[0.5, -INF, 0, 1, -1], [-INF] * 5, [0.1, 0.2, 0.3, 0.4, -INF]])
FLAT = [t(2, 3, 32), t(2, 5, 16), t(2, 5, 12)]
HEADS = {"q_num_heads": 4, "kv_num_heads": 2}


def raw(q, k, v, softcap, qk_matmul_output_mode):  # type: ignore[no-untyped-def]
    """The products before the soft cap."""
    products = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1], dtype=np.float32)
    logits = np.exp(np.tanh(products / softcap) * softcap)
    return (logits / logits.sum(-1, keepdims=True)) @ v, k, v, products


def smooth(q, k, v):  # type: ignore[no-untyped-def]
    logits = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1], dtype=np.float32))
    return ((logits / logits.sum(-1, keepdims=True)) @ v.astype(np.float32)).astype(v.dtype)


CASES: tuple[OpCase, ...] = (
    OpCase("Attention", [Q, K, V], {}, FLOATS, grad=True, opsets=(23, 24, 25)),
    OpCase("Attention", [Q, GK, GV], {"scale": 0.25}, FLOATS, grad=True, id="groups"),
    OpCase("Attention", [Q, K, V], {"is_causal": 1}, opsets=(23, 25), grad=True, id="causal"),
    OpCase("Attention", [t(2, 4, 7, 8), K, V], {"is_causal": 1}, id="causal_tall"),
    OpCase("Attention", [t(1, 2, 1, 8), t(1, 2, 5, 8), t(1, 2, 5, 8)], {"is_causal": 1}, id="causal_one"),
    OpCase("Attention", [Q, K, V, BOOLS], {}, ("float32", "float16"), grad=True, id="bools"),
    OpCase("Attention", [Q, K, V, BIAS], {}, ("float32", "float16"), grad=True, id="bias"),
    OpCase("Attention", [Q, K, V, BOOLS], {"is_causal": 1}, grad=True, id="bools_causal"),
    OpCase("Attention", [Q, K, V, BIAS], {"is_causal": 1}, id="bias_causal"),
    OpCase("Attention", [Q, K, V, const([1, 0, 2, 0, 3], "int32")], id="integers"),
    OpCase("Attention", [Q, K, V, const([True, False, True, False, True], "bool")], id="rank_1"),
    OpCase("Attention", [Q, K, V, t(4, 3, 5)], grad=True, id="rank_3"),
    OpCase("Attention", [Q, K, V, t(2, 1, 3, 5)], id="rank_4"),
    OpCase("Attention", [Q, K, V, t(3, 4)], id="short_bias"),
    OpCase("Attention", [Q, K, V, const([[True] * 2] * 3, "bool")], id="short_bools"),
    OpCase("Attention", [Q, GK, GV, None, *PAST], {"is_causal": 1}, outputs=3, grad=True, id="past"),
    OpCase(
        "Attention",
        [t(2, 4, 1, 8), t(2, 2, 1, 8), t(2, 2, 1, 6), None, *PAST],
        {"is_causal": 1},
        outputs=3,
        id="decode",
    ),
    OpCase("Attention", [Q, GK, GV, t(3, 8), *PAST], outputs=3, id="past_bias"),
    OpCase("Attention", [Q, K, V], outputs=3, id="present"),
    OpCase("Attention", [Q, K, V, None, None, None, const([5, 2], "int64")], opsets=(24, 25), id="lengths"),
    OpCase(
        "Attention",
        [Q, K, V, None, None, None, const([4, 0], "int64")],
        {"is_causal": 1},
        id="lengths_causal",
    ),
    OpCase("Attention", [Q, K, V], {"left_window_size": 1, "right_window_size": 1}, id="window"),
    OpCase("Attention", [Q, GK, GV, BOOLS], {"left_window_size": 1, "is_causal": 1}, id="window_causal"),
    OpCase("Attention", [Q, GK, GV, None, *PAST], {"left_window_size": 2}, id="window_past"),
    OpCase(
        "Attention",
        [Q, K, V, None, None, None, const([4, 5], "int64")],
        {"right_window_size": 0},
        id="window_lengths",
    ),
    OpCase("Attention", [Q, K, V], {"softcap": 0.5}, ("float32", "float64"), grad=True, id="softcap"),
    OpCase("Attention", [Q, GK, GV, BOOLS], {"softcap": 0.5}, grad=True, id="softcap_bools"),
    *(
        OpCase(
            "Attention",
            [Q, GK, GV, BIAS],
            {"qk_matmul_output_mode": mode},
            outputs=(True, False, False, True),
            id=f"products_{mode}",
        )
        for mode in range(4)
    ),
    OpCase("Attention", [Q, GK, GV, BOOLS], {"qk_matmul_output_mode": 3}, outputs=4, id="products_bools"),
    OpCase(
        "Attention", [Q, K, V], {"softcap": 0.5, "qk_matmul_output_mode": 1}, outputs=4, id="products_capped"
    ),
    OpCase(
        "Attention",
        [Q, K, V],
        {"softcap": 0.5, "qk_matmul_output_mode": 0},
        outputs=4,
        oracle=raw,
        id="products_raw",
    ),
    OpCase("Attention", [Q, K, V], {"softmax_precision": 11}, tol=2e-5, id="precise"),
    OpCase("Attention", [Q, K, V], {"softmax_precision": 1}, ("float16", "float64"), tol=4e-3, id="float32"),
    OpCase("Attention", [Q, K, V], {"softmax_precision": 10}, tol=4e-3, id="coarse"),
    OpCase("Attention", FLAT, HEADS, FLOATS, grad=True, id="flat"),
    OpCase("Attention", [*FLAT, BOOLS, *PAST], {**HEADS, "is_causal": 1}, outputs=3, id="flat_past"),
    OpCase("Attention", FLAT, HEADS, outputs=3, id="flat_present"),
    OpCase(
        "Attention",
        [Q, K, t(2, 4, 5, 8, dtype="float16")],
        oracle=smooth,
        id="other_values",
    ),
    OpCase("Attention", [t(0, 4, 3, 8), t(0, 4, 5, 8), t(0, 4, 5, 8)], id="no_batch"),
)
