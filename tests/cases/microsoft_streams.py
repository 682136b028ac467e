"""Cases of com.microsoft's residual streams: norms by branch, mixes and gates."""

import numpy as np
from opcase import OpCase, ms, t


def sigmoid(x):  # type: ignore[no-untyped-def]
    return 1 / (1 + np.exp(-x))


def low_rank_mix(  # type: ignore[no-untyped-def]
    streams,
    norm_scale,
    down,
    up,
    inject,
    block=None,
    gate=None,
    *,
    num_branches,
    gate_div=1.0,
    gate_mul=1.0,
    silu_alpha=1.0,
    epsilon=1e-5,
):
    """In float64 by the documented formulas."""
    shape = (*streams.shape[:-1], num_branches, -1)
    s = streams.astype(np.float64).reshape(shape)
    if block is not None:
        s = s + gate[..., None] * block[..., None, :]
    normed = s / np.sqrt(np.square(s).mean(-1, keepdims=True) + epsilon)
    normed = (normed * norm_scale.reshape(num_branches, -1)).reshape(streams.shape)
    z = silu_alpha * (normed @ down)
    gates = sigmoid((z * sigmoid(z)) @ up)
    read = (normed * gates).reshape(shape).sum(-2)
    post = sigmoid(normed @ inject / gate_div) * gate_mul
    return tuple(y.astype(streams.dtype) for y in (read, post, s.reshape(streams.shape)))


X, FLAT = t(2, 3, 4, 5), t(2, 3, 20)
BOTH = ("float32", "float16")

CASES: tuple[OpCase, ...] = (
    ms("GatedRMSNorm", [t(2, 12), t(4), t(2, 12)], dtypes=BOTH),
    ms("GatedRMSNorm", [t(2, 12), t(12), t(2, 12)], {"activation": "sigmoid"}, grad=True, id="sigmoid"),
    ms("BranchwiseRMSNorm", [X, t(4, 5)], dtypes=BOTH),
    ms("BranchwiseRMSNorm", [FLAT, t(20)], {"num_branches": 4}, id="flat"),
    ms("BranchwiseRMSNorm", [X], {"epsilon": 0.1}, grad=True, id="no_scale"),
    ms("HyperConnectionPreMix", [X, t(2, 3, 4)], dtypes=BOTH),
    ms(
        "HyperConnectionPreMix",
        [FLAT, t(2, 3, 20)],
        {"num_branches": 4, "reduction_scale": 0.5},
        grad=True,
        id="flat",
    ),
    ms("HyperConnectionPostMix", [X, t(2, 3, 5), t(2, 3, 4), t(2, 3, 4, 4)], dtypes=BOTH),
    ms("HyperConnectionPostMix", [FLAT, t(2, 3, 5), t(2, 3, 4, 1)], {"num_branches": 4}, id="flat"),
    ms(
        "HyperConnectionLowRankMix",
        [FLAT, t(20), t(20, 3), t(3, 20), t(20, 4), t(2, 3, 5), t(2, 3, 4)],
        {"num_branches": 4, "gate_div": 2.0},
        outputs=3,
        oracle=low_rank_mix,
    ),
    ms(
        "HyperConnectionLowRankMix",
        [FLAT, t(20), t(20, 3), t(3, 20), t(20, 4)],
        {"num_branches": 4, "silu_alpha": 1.7},
        outputs=3,
        oracle=low_rank_mix,
        id="first",
    ),
    ms("EngramGate", [X, X, t(2, 3, 5), t(4, 5), t(4, 5)], dtypes=BOTH),
    ms("EngramGate", [X, X, t(2, 3, 5), t(4, 5), t(4, 5), t(4, 5)], outputs=2, id="normed"),
)
