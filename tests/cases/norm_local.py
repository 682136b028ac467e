"""Cases of LRN, LpNormalization and MeanVarianceNormalization."""

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")


def local(x, size, alpha=1e-4, beta=0.75, bias=1.0):  # type: ignore[no-untyped-def]
    wide = x.astype(np.float64)
    total = np.zeros_like(wide)
    for c in range(x.shape[1]):
        near = wide[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1]
        total[:, c] = (near**2).sum(1)
    return (wide / (bias + alpha / size * total) ** beta).astype(x.dtype)


def unit(x, axis=-1, p=2):  # type: ignore[no-untyped-def]
    wide = x.astype(np.float64)
    norm = (np.abs(wide) ** p).sum(axis, keepdims=True) ** (1 / p)
    return np.where(norm == 0, 0, wide / np.where(norm == 0, 1, norm)).astype(x.dtype)


def standard(x):  # type: ignore[no-untyped-def]
    wide = x.astype(np.float64)
    wide = wide - wide.mean((0, 2, 3), keepdims=True)
    return (wide / wide.std((0, 2, 3), keepdims=True)).astype(x.dtype)


CASES: tuple[OpCase, ...] = (
    OpCase("LRN", [t(2, 7, 3, 4)], {"size": 3}, FLOATS, grad=True, oracle=local),
    OpCase(
        "LRN",
        [t(2, 7, 3, 4)],
        {"size": 4, "alpha": 0.5, "beta": 0.5, "bias": 2.0},
        opsets=(1, 13),
        oracle=local,
        id="even",
    ),
    OpCase("LRN", [t(2, 3, 4)], {"size": 9, "alpha": 0.5}, oracle=local, id="wide"),
    OpCase("LpNormalization", [t(2, 3, 4)], {}, FLOATS, grad=True, oracle=unit),
    OpCase("LpNormalization", [t(2, 3, 4)], {"p": 1, "axis": 1}, opsets=(1, 22), oracle=unit, id="ones"),
    OpCase("LpNormalization", [const([[0.0, 0.0], [3.0, 4.0]])], {"axis": -1}, oracle=unit, id="zero"),
    OpCase("MeanVarianceNormalization", [t(2, 3, 4, 5)], {}, FLOATS, grad=True, oracle=standard),
    OpCase("MeanVarianceNormalization", [t(2, 3, 4, 5)], opsets=(9, 13), id="old"),
    OpCase("MeanVarianceNormalization", [t(2, 3, 4)], {"axes": [-1]}, id="axis"),
)
