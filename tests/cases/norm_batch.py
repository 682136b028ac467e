"""Cases of BatchNormalization."""

import numpy as np
from opcase import OpCase, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
STATS = [t(3), t(3), t(3), t(3, low=0.5, high=2)]


def by_activation(x, scale, b, mean, var, **_):  # type: ignore[no-untyped-def]
    return (x - mean) / np.sqrt(var + 1e-5) * scale + b


def fixed(x, *stats, epsilon):  # type: ignore[no-untyped-def]
    scale, b, mean, var = (item.reshape(-1, 1, 1) for item in stats)
    return ((x - mean) / np.sqrt(var + epsilon) * scale + b).astype(x.dtype)


def trained(x, scale, b, mean, var, **_):  # type: ignore[no-untyped-def]
    m, v = x.mean((0, 2)), x.var((0, 2))
    shape = (1, -1, 1)
    y = (x - m.reshape(shape)) / np.sqrt(v.reshape(shape) + 1e-5) * scale.reshape(shape) + b.reshape(shape)
    outs = (y, mean * 0.9 + m * 0.1, var * 0.9 + v * 0.1, m, v)
    return tuple(item.astype(x.dtype) for item in outs)


CASES: tuple[OpCase, ...] = (
    OpCase("BatchNormalization", [t(2, 3, 4, 5), *STATS], {}, FLOATS, grad=True),
    OpCase(
        "BatchNormalization",
        [t(2, 3, 4, 5), *STATS],
        {"epsilon": 0.1},
        opsets=(7, 9, 14),
        oracle=fixed,
        id="old",
    ),
    OpCase("BatchNormalization", [t(2, 3), *STATS], id="flat"),
    OpCase("BatchNormalization", [t(0, 3, 2), *STATS], id="no_batch"),
    OpCase("BatchNormalization", [t(2, 3, 4, 5, 2), *STATS], id="3d"),
    OpCase(
        "BatchNormalization",
        [t(2, 3, 4, dtype="float16"), *(t(3, low=0.5, high=1) for _ in range(4))],
        tol=4e-3,
        id="mixed",
    ),
    OpCase(
        "BatchNormalization",
        [t(2, 3, 4), *STATS],
        {"training_mode": 1, "momentum": 0.8},
        FLOATS[:2],
        outputs=3,
        grad=True,
        id="training",
    ),
    OpCase(
        "BatchNormalization",
        [t(2, 3, 4), *STATS],
        {"training_mode": 1},
        ("float16", "bfloat16"),
        outputs=3,
        tol=2e-2,
        id="training_half",
    ),
    OpCase("BatchNormalization", [t(2, 3, 4), *STATS], opsets=(7, 9), outputs=5, oracle=trained, id="five"),
    OpCase(
        "BatchNormalization",
        [t(2, 3, 4), *(t(3, 4, low=0.5, high=1) for _ in range(4))],
        {"spatial": 0},
        opset=7,
        oracle=by_activation,
        id="by_activation",
    ),
    OpCase("BatchNormalization", [t(2, 3, 4), *STATS], {"is_test": 1}, opset=6, id="is_test"),
    OpCase(
        "BatchNormalization",
        [t(2, 3, 4), *STATS],
        opset=6,
        oracle=lambda *xs, **kw: trained(*xs, **kw)[0],
        id="not_is_test",
    ),
    OpCase(
        "BatchNormalization",
        [t(2, 3, 4), *(t(3, 4, low=0.5, high=1) for _ in range(4))],
        {"spatial": 0, "is_test": 1, "consumed_inputs": [0, 0]},
        opset=1,
        oracle=by_activation,
        id="first",
    ),
)
