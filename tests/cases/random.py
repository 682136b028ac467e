"""Cases of the random operators whose distribution leaves one outcome; see tests/ops/test_random.py."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from opcase import OpCase, const, t

_TYPES = {1: np.float32, 10: np.float16, 11: np.float64, 16: ml_dtypes.bfloat16}


def _filled(value: float) -> Any:
    def oracle(*inputs: Any, shape: Any = None, dtype: Any = None, **attrs: Any) -> np.ndarray[Any, Any]:
        kind = inputs[0].dtype if dtype is None and inputs else _TYPES[dtype or 1]
        return np.full(inputs[0].shape if shape is None else shape, value, kind)

    return oracle


def _as_int(x: np.ndarray[Any, Any], **attrs: Any) -> np.ndarray[Any, Any]:
    return x.astype(np.int32)


CASES: tuple[OpCase, ...] = (
    *(
        OpCase(
            "RandomNormal",
            [],
            {"shape": [2, 3], "mean": 1.5, "scale": 0.0, "dtype": code},
            opset=22,
            oracle=_filled(1.5),
        )
        for code in _TYPES
    ),
    *(
        OpCase(
            "RandomUniform",
            [],
            {"shape": [2, 0, 3], "low": 0.5, "high": 0.5, "dtype": code, "seed": 3.0},
            opset=22,
            oracle=_filled(0.5),
        )
        for code in _TYPES
    ),
    OpCase("RandomNormal", [], {"shape": [3], "mean": 2.0, "scale": 0.0}, opset=1, oracle=_filled(2.0)),
    OpCase("RandomUniform", [], {"shape": [4], "low": 2.0, "high": 2.0}, opset=1, oracle=_filled(2.0)),
    OpCase(
        "RandomNormalLike",
        [t(2, 3)],
        {"mean": 1.5, "scale": 0.0},
        dtypes=("float32", "float16", "bfloat16", "float64"),
        oracle=_filled(1.5),
    ),
    OpCase(
        "RandomNormalLike",
        [t(2, 3)],
        {"mean": 1.5, "scale": 0.0, "dtype": 11},
        dtypes=("int32", "bool", "float16"),
        oracle=_filled(1.5),
    ),
    OpCase(
        "RandomNormalLike",
        [const([["a", "b"]], "string")],
        {"mean": 1.5, "scale": 0.0, "dtype": 1},
        oracle=_filled(1.5),
    ),
    OpCase(
        "RandomUniformLike",
        [t(2, 3)],
        {"low": 0.5, "high": 0.5},
        dtypes=("float32", "float16", "bfloat16", "float64"),
        oracle=_filled(0.5),
    ),
    OpCase(
        "RandomUniformLike",
        [t(2, 3)],
        {"low": 0.5, "high": 0.5, "dtype": 1},
        dtypes=("uint8",),
        oracle=_filled(0.5),
    ),
    OpCase(
        "Bernoulli",
        [const([[0, 1, 1], [1, 0, 1]])],
        dtypes=("float32", "float16", "bfloat16", "float64"),
        oracle=lambda x, **attrs: x,
    ),
    OpCase(
        "Bernoulli",
        [const([0, 1, 1])],
        {"dtype": 6, "seed": 1.0},
        opsets=(15, 22),
        oracle=_as_int,
    ),
    *(
        OpCase(
            "Multinomial",
            [const([[-1e4, 0, -1e4], [5e3, -1e4, -1e4]])],
            {"sample_size": 4, "dtype": code},
            opset=opset,
            dtypes=("float32", "float16", "float64"),
            oracle=lambda x, dtype=6, **attrs: np.array(
                [[1] * 4, [0] * 4], {6: np.int32, 7: np.int64}[dtype]
            ),
        )
        for code in (6, 7)
        for opset in (7, 22)
    ),
)
