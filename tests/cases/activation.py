"""Cases of the activation functions."""

import math

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
SPECIAL = const([np.nan, np.inf, -np.inf, 0.0, 1.0, -2.5])

# Operator, oldest revision, attributes beside the defaults.
ONE_INPUT = (
    ("Relu", 1, ()),
    ("Sigmoid", 1, ()),
    ("Tanh", 1, ()),
    ("LeakyRelu", 1, ({"alpha": 0.3},)),
    ("Elu", 1, ({"alpha": 2.0},)),
    ("Selu", 6, ({"alpha": 2.0, "gamma": 3.0},)),
    ("HardSigmoid", 1, ({"alpha": 0.5, "beta": 0.6}, {"alpha": 1 / 6, "beta": 0.5})),
    ("HardSwish", 14, ()),
    ("Mish", 18, ()),
    ("Softplus", 1, ()),
    ("Softsign", 1, ()),
    ("ThresholdedRelu", 10, ({"alpha": 0.4},)),
    ("Gelu", 20, ({"approximate": "tanh"},)),
    ("Swish", 24, ({"alpha": 1.7},)),
)
# Before these opsets the schema has no bfloat16.
OLD = {"Softplus": 1, "Softsign": 1, "HardSwish": 14, "Mish": 18, "ThresholdedRelu": 10, "Selu": 6, "Elu": 6}


def prelu(x, slope, consumed_inputs=None):
    if slope.ndim == 1 and x.ndim > 1 and slope.size == x.shape[1]:
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return np.where(x < 0, x * slope, x).astype(x.dtype)


def selu_v1(x, alpha=1.6732, gamma=1.0507, consumed_inputs=None):
    return (np.where(x <= 0, alpha * (np.exp(x) - 1), x) * gamma).astype(x.dtype)


def swiglu(a, b, alpha=1.0):
    gate = a.astype(np.float64)
    return (gate / (1 + np.exp(-alpha * gate)) * b.astype(np.float64)).astype(a.dtype)


def celu(x, alpha=1.0):
    wide = x.astype(np.float64)
    return (np.maximum(0, wide) + np.minimum(0, alpha * (np.exp(wide / alpha) - 1))).astype(x.dtype)


def hard_swish(x):
    wide = x.astype(np.float64)
    return (wide * np.clip(wide / 6 + 0.5, 0, 1)).astype(x.dtype)


def gelu(x):
    wide = x.astype(np.float64)
    erf = np.array([math.erf(v) for v in wide.reshape(-1) / math.sqrt(2)]).reshape(x.shape)
    return (wide * 0.5 * (1 + erf)).astype(x.dtype)


# The reference holds some constants in float32, and cannot take a scalar in Softsign.
BETTER = {"HardSwish": hard_swish, "Gelu": gelu, "Softsign": lambda x: (x / (1 + np.abs(x))).astype(x.dtype)}


def cases():
    for op, oldest, attributes in ONE_INPUT:
        oracle = BETTER.get(op, "reference")
        yield OpCase(op, [t(3, 4, low=-5, high=5)], dtypes=FLOATS, oracle=oracle, grad=True)
        yield OpCase(op, [t(low=-2, high=2)], oracle=oracle, id="scalar")
        yield OpCase(op, [t(2, 0)], id="empty")
        if oldest in (1, 6) and op not in ("Softplus", "Softsign"):
            yield OpCase(op, [t(3, low=-5, high=5)], opset=6, id="v6")
        if op in OLD:
            yield OpCase(op, [t(3, low=-5, high=5)], opset=OLD[op], id="older")
        for attrs in attributes:
            yield OpCase(op, [t(3, 4, low=-5, high=5)], attrs, dtypes=("float32", "float16"), grad=True)


CASES: tuple[OpCase, ...] = (
    *cases(),
    *(
        OpCase(
            op,
            [t(3, 4, low=-5, high=5)],
            {"consumed_inputs": [0]},
            opset=1,
            oracle=lambda x, consumed_inputs, f=function: f(x.astype(np.float64)).astype(x.dtype),
            id="v1",
        )
        for op, function in (
            ("Relu", lambda x: np.maximum(x, 0)),
            ("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
            ("Tanh", np.tanh),
            ("LeakyRelu", lambda x: np.where(x < 0, 0.01 * x, x)),
            ("Elu", lambda x: np.where(x < 0, np.exp(x) - 1, x)),
            ("HardSigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
        )
    ),
    OpCase("Relu", [t(3, 4)], dtypes=("int8", "int16", "int32", "int64"), id="integers"),
    OpCase("Relu", [SPECIAL], id="special"),
    OpCase("Selu", [t(3, low=-5, high=5)], {"consumed_inputs": [0]}, opset=1, oracle=selu_v1, id="v1"),
    OpCase(
        "Softplus", [const([-60.0, -25.0, 19.0, 21.0, 45.0])], dtypes=("float32", "float64"), id="far_out"
    ),
    OpCase("Celu", [t(3, 4, low=-5, high=5)], {"alpha": 2.0}, dtypes=FLOATS, oracle=celu, grad=True),
    OpCase("Celu", [t(3, 4, low=-5, high=5)], opset=12, oracle=celu, id="older"),
    OpCase("Celu", [t(0)], oracle=celu, id="empty"),
    OpCase("PRelu", [t(2, 3, 4), t(3, 1)], dtypes=FLOATS, opsets=(9, 16), grad=True, id="per_channel"),
    OpCase("PRelu", [t(2, 3, 4, 5), t(3, 1, 1)], opsets=(7, 9, 16), grad=True, id="per_channel_4d"),
    OpCase("PRelu", [t(2, 3, 4), t(4)], grad=True, id="last_dim"),
    OpCase("PRelu", [t(2, 3), t(2, 3)], id="elementwise"),
    OpCase("PRelu", [t(2, 3), t(1)], id="shared"),
    OpCase("PRelu", [t(2, 2), t(2)], id="square"),
    OpCase("PRelu", [t(), t()], id="scalar"),
    OpCase("PRelu", [t(4), t()], id="scalar_slope"),
    OpCase("PRelu", [t(0, 3, 4), t(3, 1)], id="empty"),
    OpCase("PRelu", [t(2, 3), t(3)], dtypes=("int32", "int64", "uint32", "uint64"), id="integers"),
    OpCase(
        "PRelu", [t(2, 3, 4), t(3)], {"consumed_inputs": [0, 0]}, opset=1, oracle=prelu, id="legacy_channel"
    ),
    OpCase("PRelu", [t(2, 3, 4), t(1)], opset=6, oracle=prelu, id="legacy_shared"),
    OpCase(
        "Shrink",
        [t(4, 5, low=-9, high=9)],
        {"lambd": 2.5, "bias": 1.0},
        dtypes=("float32", "float64", "float16", "int8", "int16", "int32", "int64"),
        grad=True,
    ),
    OpCase(
        "Shrink", [t(4, 5, low=0, high=9)], {"lambd": 2.5, "bias": 1.0}, dtypes=("uint8", "uint16", "uint64")
    ),
    OpCase("Shrink", [t()], id="scalar"),
    OpCase("SwiGLU", [t(3, 4, low=-5, high=5), t(3, 4)], dtypes=FLOATS, oracle=swiglu, grad=True),
    OpCase("SwiGLU", [t(3, 4), t(3, 4)], {"alpha": 0.5}, dtypes=("float32", "float16"), oracle=swiglu),
    OpCase("SwiGLU", [t(0, 4), t(0, 4)], oracle=swiglu, id="empty"),
)
