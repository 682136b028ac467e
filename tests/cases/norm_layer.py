"""Cases of LayerNormalization, RMSNormalization, GroupNormalization and InstanceNormalization."""

import numpy as np
from opcase import OpCase, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
HALVES = ("float16", "bfloat16")


def rounded(x, scale, b=None, axis=-1, **_):  # type: ignore[no-untyped-def]
    """The statistics in float32, everything else in float64, rounded once."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    mean, var = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    inverse = 1 / np.sqrt(var + 1e-5)
    y = (wide - mean) * inverse * scale.astype(np.float64)
    y = y if b is None else y + b.astype(np.float64)
    return y.astype(x.dtype), mean.astype(np.float32), inverse.astype(np.float32)


def grouped(x, scale, bias, num_groups, **_):  # type: ignore[no-untyped-def]
    wide = x.astype(np.float64).reshape(x.shape[0], num_groups, -1)
    wide = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    shape = (1, -1, *[1] * (x.ndim - 2))
    if len(scale) == num_groups:
        scale, bias = (np.repeat(item, x.shape[1] // num_groups) for item in (scale, bias))
    return (wide.reshape(x.shape) * scale.reshape(shape) + bias.reshape(shape)).astype(x.dtype)


def by_channel(x, scale, b):  # type: ignore[no-untyped-def]
    return grouped(x, scale, b, x.shape[1])


def rms(x, scale, axis=-1, **_):  # type: ignore[no-untyped-def]
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    y = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-5)
    return (y * scale.astype(np.float64)).astype(scale.dtype)


CASES: tuple[OpCase, ...] = (
    OpCase("LayerNormalization", [t(2, 3, 8), t(8), t(8)], {}, FLOATS, grad=True),
    OpCase("LayerNormalization", [t(2, 3, 8), t(8)], {"epsilon": 0.1}, grad=True, id="no_bias"),
    OpCase("LayerNormalization", [t(2, 3, 4, 5), t(3, 4, 5), t(3, 4, 5)], {"axis": 1}, id="axis"),
    OpCase("LayerNormalization", [t(2, 3, 4, 5), t(4, 5), t(5)], {"axis": -2}, grad=True, id="broadcast"),
    OpCase("LayerNormalization", [t(2, 6), t(2, 6)], {"axis": 0}, opset=17, id="all"),
    OpCase("LayerNormalization", [t(0, 6), t(6), t(6)], id="no_rows"),
    OpCase(
        "LayerNormalization",
        [t(2, 3, 8), t(8), t(8)],
        {},
        ("float32",),
        outputs=3,
        grad=True,
        id="statistics",
    ),
    OpCase(
        "LayerNormalization",
        [t(2, 3, 8), t(8), t(8)],
        {},
        (*HALVES, "float64"),
        outputs=3,
        oracle=rounded,
        tol=2e-2,
        id="statistics_wide",
    ),
    OpCase(
        "LayerNormalization",
        [t(2, 8), t(8)],
        {"stash_type": 16},
        oracle=lambda *a, **k: rounded(*a, **k)[0],
        tol=3e-2,
        id="stash",
    ),
    OpCase("RMSNormalization", [t(2, 3, 8), t(8)], {}, FLOATS, grad=True, oracle=rms),
    OpCase("RMSNormalization", [t(2, 3, 4), t(3, 4)], {"axis": 1}, id="axis"),
    OpCase("RMSNormalization", [t(2, 3, 4), t(4)], {"axis": 1}, grad=True, id="broadcast"),
    OpCase("RMSNormalization", [t(2, 8, dtype="float16"), t(8)], oracle=rms, tol=4e-3, id="mixed"),
    OpCase("RMSNormalization", [t(2, 8), t(8)], {"stash_type": 16}, oracle=rms, tol=3e-2, id="stash"),
    OpCase(
        "GroupNormalization",
        [t(2, 6, 3, 4), t(6), t(6)],
        {"num_groups": 3},
        FLOATS,
        grad=True,
        oracle=grouped,
    ),
    OpCase("GroupNormalization", [t(2, 6, 5), t(6), t(6)], {"num_groups": 1}, oracle=grouped, id="one"),
    OpCase(
        "GroupNormalization",
        [t(2, 6, 5, dtype="float16"), t(6), t(6)],
        {"num_groups": 2, "stash_type": 1},
        oracle=lambda x, *rest, **kw: grouped(x, *rest, **kw).astype(np.float32),
        tol=4e-3,
        id="mixed",
    ),
    OpCase(
        "GroupNormalization",
        [t(2, 6, 3, 4), t(3), t(3)],
        {"num_groups": 3},
        FLOATS,
        grad=True,
        opset=18,
        oracle=grouped,
        id="by_group",
    ),
    OpCase("InstanceNormalization", [t(2, 3, 4, 5), t(3), t(3)], {}, FLOATS, grad=True, oracle=by_channel),
    OpCase("InstanceNormalization", [t(2, 3, 40), t(3), t(3)], {"epsilon": 0.1}, opsets=(6, 22), id="1d"),
    OpCase(
        "InstanceNormalization",
        [t(2, 3, 4), t(3), t(3)],
        opset=1,
        oracle=by_channel,
        id="first",
    ),
)
