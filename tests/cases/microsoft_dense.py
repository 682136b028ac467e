"""Cases of com.microsoft's FusedMatMul and FusedConv."""

import numpy as np
from opcase import OpCase, ms, t


def tanh_gelu(x):  # type: ignore[no-untyped-def]
    return (0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))).astype(x.dtype)


CONV = [t(2, 3, 7, 6), t(4, 3, 3, 3), t(4)]

CASES: tuple[OpCase, ...] = (
    ms("FusedMatMul", [t(3, 4), t(4, 5)], grad=True),
    ms(
        "FusedMatMul",
        [t(2, 4, 3), t(2, 5, 4)],
        {"transA": 1, "transB": 1, "alpha": 0.5},
        grad=True,
        id="turned",
    ),
    ms("FusedMatMul", [t(3, 2, 4), t(4, 2, 5)], {"transBatchA": 1, "transBatchB": 1}, id="batches"),
    ms(
        "FusedMatMul",
        [t(4, 2, 3), t(5, 2, 4)],
        {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1},
        id="all",
    ),
    ms("FusedMatMul", [t(4), t(4, 5)], {"transA": 1}, id="vector"),
    ms("FusedConv", CONV, {"activation": "Relu", "pads": [1, 1, 1, 1]}, grad=True),
    ms("FusedConv", CONV, {"activation": "LeakyRelu", "activation_params": [0.2]}, id="leaky"),
    ms(
        "FusedConv",
        CONV,
        {"activation": "Clip", "activation_params": [-0.5, 0.5], "strides": [2, 2]},
        id="clip",
    ),
    ms("FusedConv", CONV, {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}, id="hard_sigmoid"),
    ms("FusedConv", CONV, {"activation": "Tanh"}, id="tanh"),
    ms("FusedConv", CONV, {"activation": "Sigmoid"}, id="sigmoid"),
    ms("FusedConv", [*CONV, t(2, 4, 5, 4)], {"activation": "Relu"}, id="sum"),
    ms("TransposeMatMul", [t(2, 4, 3), t(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    ms("FusedGemm", [t(3, 4), t(5, 4), t(5)], {"transB": 1, "activation": "Relu"}, grad=True),
    ms("FusedGemm", [t(3, 4), t(4, 5)], {"activation": "LeakyRelu", "activation_alpha": 0.2}, id="leaky"),
    OpCase(
        "GemmFastGelu",
        [t(2, 3, 4), t(4, 5), t(5)],
        domain="com.microsoft",
        grad=True,
        oracle=lambda x, w, b: tanh_gelu(x @ w + b),
    ),
)
