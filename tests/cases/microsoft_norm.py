"""Cases of com.microsoft's normalizations."""

from typing import Any

import numpy as np
from opcase import OpCase, const, ms, t


def statistics(x, skip, gamma, epsilon):  # type: ignore[no-untyped-def]
    total = x + skip
    mean = total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(total.var(-1, keepdims=True) + epsilon, dtype=np.float32)
    return (total - mean) * inverse * gamma, mean, inverse, total


def embedded(ids, segments, words, positions, kinds, gamma, beta, mask=None, places=None, epsilon=0):  # type: ignore[no-untyped-def]
    total = words[ids] + (positions[: ids.shape[1]] if places is None else positions[places])
    total = total if segments is None else total + kinds[segments]
    y = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + epsilon)
    count = np.zeros(len(ids)) if mask is None else mask.sum(1)
    return (y * gamma + beta).astype(words.dtype), count.astype(np.int32), total


def embed(inputs: list[Any], outputs: Any = 1, **more: Any) -> OpCase:
    wanted = [True] * outputs if isinstance(outputs, int) else outputs

    def oracle(*xs, epsilon):  # type: ignore[no-untyped-def]
        results = embedded(*xs, epsilon=epsilon)
        return tuple(item for item, want in zip(results, wanted, strict=False) if want)

    return OpCase(
        "EmbedLayerNormalization",
        inputs,
        {"epsilon": 1e-5},
        domain="com.microsoft",
        outputs=outputs,
        oracle=oracle,
        **more,
    )


X, D = t(2, 3, 8), t(8)
SUM = (True, False, False, True)
IDS = const([[1, 4, 2], [0, 3, 3]], "int32")
SEGMENTS = const([[0, 0, 1], [1, 1, 0]], "int32")
MASK = const([[1, 1, 0], [1, 1, 1]], "int32")
TABLES = [t(5, 8), t(4, 8), t(2, 8), D, D]

CASES: tuple[OpCase, ...] = (
    ms(
        "SkipLayerNormalization",
        [X, X, D, D, D],
        {"epsilon": 1e-5},
        dtypes=("float32", "float16"),
        outputs=SUM,
    ),
    ms("SkipLayerNormalization", [X, X, D, D], {"epsilon": 1e-5}, grad=True, id="no_bias"),
    ms("SkipLayerNormalization", [X, t(3, 8), D, None, D], id="skip_broadcast"),
    OpCase(
        "SkipLayerNormalization",
        [X, X, D],
        {"epsilon": 1e-5},
        domain="com.microsoft",
        outputs=4,
        oracle=statistics,
        id="statistics",
    ),
    ms(
        "SkipSimplifiedLayerNormalization",
        [X, X, D, D],
        {"epsilon": 1e-5},
        dtypes=("float32", "float16"),
        outputs=SUM,
    ),
    ms("SkipSimplifiedLayerNormalization", [X, X, D], grad=True, id="no_bias"),
    OpCase(
        "SimplifiedLayerNormalization",
        [X, D],
        {"epsilon": 1e-5},
        ("float32", "float16"),
        opset=21,
        grad=True,
        oracle="onnxruntime",
    ),
    OpCase(
        "SimplifiedLayerNormalization",
        [X, D],
        opset=21,
        oracle="onnxruntime",
        outputs=2,
        id="inverse",
    ),
    embed([IDS, SEGMENTS, *TABLES], outputs=(True, False, True), grad=True),
    embed([IDS, None, TABLES[0], TABLES[1], None, D, D], grad=True, id="no_segments"),
    embed([IDS, SEGMENTS, *TABLES, MASK, const([[2, 1, 0]], "int32")], outputs=3, id="mask"),
    embed([IDS, SEGMENTS, *TABLES], outputs=3, id="no_mask"),
)
