"""Cases of com.microsoft's BiasAdd, BiasSplitGelu, BiasDropout and FusedMatMulActivation."""

import numpy as np
import torch
import torch.nn.functional as F
from opcase import OpCase, const, exact, ms, t


def bias_split_gelu(x, bias):  # type: ignore[no-untyped-def]
    left, right = torch.tensor_split(exact(x) + exact(bias), 2, -1)
    return (left * right * 0.5 * (1 + torch.erf(right / 2**0.5))).numpy().astype(x.dtype)


def bias_dropout(data, bias, residual=None, ratio=None, training=None):  # type: ignore[no-untyped-def]
    y = data + bias
    return (y if residual is None else y + residual), np.ones(data.shape, bool)


ACTIVATIONS = {
    "Affine": (lambda y: 2 * y + 0.25, {"activation_alpha": 2.0, "activation_beta": 0.25}),
    "Elu": (lambda y: F.elu(y, 0.5), {"activation_alpha": 0.5}),
    "HardSigmoid": (lambda y: (0.2 * y + 0.5).clamp(0, 1), {}),
    "LeakyRelu": (lambda y: torch.where(y > 0, y, 0.3 * y), {"activation_alpha": 0.3}),
    "LogSoftmax": (lambda y: y.log_softmax(-1), {}),
    "Relu": (lambda y: y.clamp(min=0), {}),
    "ScaledTanh": (lambda y: 0.5 * torch.tanh(2 * y), {"activation_alpha": 0.5, "activation_beta": 2.0}),
    "Selu": (F.selu, {}),
    "Sigmoid": (torch.sigmoid, {}),
    "Softmax": (lambda y: y.softmax(0), {"activation_axis": 0}),
    "Softplus": (lambda y: torch.log1p(torch.exp(y)), {}),
    "Softsign": (lambda y: y / (1 + y.abs()), {}),
    "Tanh": (torch.tanh, {}),
    "ThresholdedRelu": (lambda y: torch.where(y > 0.2, y, 0), {"activation_alpha": 0.2}),
}


def activated(name, trans_a=0, trans_b=0, factor=1.0):  # type: ignore[no-untyped-def]
    def oracle(a, b, **_):  # type: ignore[no-untyped-def]
        left, right = exact(a), exact(b)
        y = factor * ((left.mT if trans_a else left) @ (right.mT if trans_b else right))
        return ACTIVATIONS[name][0](y).numpy().astype(a.dtype)

    return oracle


X = t(2, 5, 8, low=-3, high=3)
ON = const(True, "bool")

CASES: tuple[OpCase, ...] = (
    ms(
        "BiasAdd",
        [X, t(8), t(2, 5, 8)],
        grad=True,
        dtypes=("float32", "float16"),
        oracle=lambda x, b, s: x + b + s,
    ),
    ms("BiasAdd", [t(0, 5, 8), t(8), t(0, 5, 8)], id="empty", oracle=lambda x, b, s: x + b + s),
    ms("BiasSplitGelu", [X, t(8)], grad=True, oracle=bias_split_gelu),
    ms("BiasSplitGelu", [X, t(8)], dtypes=("float16",), oracle=bias_split_gelu, id="half"),
    ms("BiasSplitGelu", [t(2, 0, 6), t(6)], id="empty", oracle=bias_split_gelu),
    ms("BiasDropout", [X, t(8)], grad=True, outputs=2, oracle=bias_dropout),
    ms("BiasDropout", [X, t(2, 5, 8), t(2, 5, 8)], outputs=2, oracle=bias_dropout, id="residual"),
    ms(
        "BiasDropout",
        [X, t(8), t(2, 5, 8), const(0.0), ON],
        outputs=2,
        oracle=bias_dropout,
        id="keeps_all",
    ),
    *(
        ms(
            "FusedMatMulActivation",
            [t(3, 4), t(4, 5)],
            {"activation": name, **attrs},
            grad=True,
            oracle=activated(name),
            id=name,
        )
        for name, (_, attrs) in ACTIVATIONS.items()
    ),
    ms(
        "FusedMatMulActivation",
        [t(2, 4, 3), t(2, 5, 4)],
        {"activation": "Relu", "transA": 1, "transB": 1, "alpha": 0.5},
        oracle=activated("Relu", 1, 1, 0.5),
        id="turned",
    ),
)
