"""Cases of AveragePool, LpPool, GlobalAveragePool and GlobalLpPool."""

import numpy as np
from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
ORT = "onnxruntime"


def norm(x, p=2, **_):  # type: ignore[no-untyped-def]
    axes = tuple(range(2, x.ndim))
    return (np.abs(x.astype(np.float64)) ** p).sum(axes, keepdims=True).astype(x.dtype) ** (1 / p)


def norm_pool(x, kernel_shape, p):  # type: ignore[no-untyped-def]
    taps = np.lib.stride_tricks.sliding_window_view(np.abs(x) ** p, kernel_shape, axis=(2, 3))
    return (taps.sum((-2, -1)) ** (1 / p)).astype(x.dtype)


CASES: tuple[OpCase, ...] = (
    OpCase("AveragePool", [t(2, 3, 7, 6)], {"kernel_shape": [3, 2], "strides": [2, 1]}, FLOATS, grad=True),
    OpCase("AveragePool", [t(2, 3, 7, 6)], {"kernel_shape": [3, 2]}, opsets=(1, 7, 10, 11, 19), id="old"),
    OpCase("AveragePool", [t(2, 3, 9)], {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}, id="1d"),
    OpCase("AveragePool", [t(1, 2, 5, 6, 4)], {"kernel_shape": [2, 3, 2]}, FLOATS, id="3d"),
    OpCase(
        "AveragePool",
        [t(1, 2, 7, 6)],
        {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        id="pads_count",
    ),
    OpCase(
        "AveragePool",
        [t(1, 2, 7, 6)],
        {"kernel_shape": [3, 3], "pads": [2, 0, 1, 1], "strides": [2, 2]},
        ("float32", "float64"),
        grad=True,
        id="asymmetric",
    ),
    OpCase(
        "AveragePool",
        [t(1, 2, 7, 6)],
        {"kernel_shape": [3, 3], "pads": [2, 0, 1, 1], "strides": [2, 2], "count_include_pad": 1},
        id="asymmetric_count",
    ),
    OpCase(
        "AveragePool",
        [t(1, 2, 8, 8)],
        {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1, "pads": [0, 1, 0, 1]},
        oracle=ORT,
        id="ceil",
    ),
    OpCase(
        "AveragePool",
        [t(1, 2, 8, 8)],
        {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1, "count_include_pad": 1},
        oracle=ORT,
        id="ceil_count",
    ),
    OpCase(
        "AveragePool",
        [t(1, 2, 9, 8)],
        {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]},
        grad=True,
        oracle=ORT,
        id="dilated",
    ),
    OpCase(
        "AveragePool",
        [t(1, 2, 7, 8)],
        {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
        id="upper",
    ),
    OpCase(
        "AveragePool",
        [t(1, 2, 7, 8)],
        {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"},
        id="lower",
    ),
    OpCase("AveragePool", [t(1, 2, 7, 8)], {"kernel_shape": [3, 4], "auto_pad": "VALID"}, id="valid"),
    OpCase("AveragePool", [t(2, 8, 17, 19)], {"kernel_shape": [3, 2], "strides": [2, 1]}, FLOATS, id="large"),
    OpCase(
        "AveragePool",
        [t(2, 8, 17, 19)],
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        id="large_count",
    ),
    OpCase("AveragePool", [t(2, 8, 17, 19)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, id="large_pads"),
    OpCase(
        "AveragePool",
        [t(2, 8, 17, 19)],
        {
            "kernel_shape": [3, 2],
            "strides": [2, 3],
            "pads": [0, 1, 0, 1],
            "ceil_mode": 1,
            "count_include_pad": 1,
        },
        oracle=ORT,
        id="large_ceil",
    ),
    OpCase("AveragePool", [t(1, 8, 40, 33)], {"kernel_shape": [1, 1], "strides": [2, 3]}, id="large_picked"),
    OpCase("LpPool", [t(2, 3, 7, 6)], {"kernel_shape": [3, 2], "strides": [2, 1]}, FLOATS, grad=True),
    OpCase("LpPool", [t(2, 3, 7, 6)], {"kernel_shape": [3, 2], "p": 3}, opsets=(2, 11, 18, 22), id="cubes"),
    OpCase(
        "LpPool",
        [t(2, 3, 7, 6)],
        {"kernel_shape": [3, 2], "p": 1.5},
        opset=1,
        oracle=norm_pool,
        id="fraction",
    ),
    OpCase(
        "LpPool",
        [t(1, 2, 7, 6)],
        {"kernel_shape": [3, 2], "p": 1, "pads": [1, 0, 1, 1]},
        oracle=ORT,
        id="pads",
    ),
    OpCase(
        "LpPool", [t(1, 2, 8)], {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}, oracle=ORT, id="ceil"
    ),
    OpCase("LpPool", [t(1, 2, 8)], {"kernel_shape": [3], "dilations": [2]}, id="dilated"),
    OpCase(
        "LpPool", [t(1, 2, 8)], {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_UPPER"}, id="upper"
    ),
    OpCase("GlobalAveragePool", [t(2, 3, 4, 5)], {}, FLOATS, grad=True),
    OpCase("GlobalAveragePool", [t(2, 3, 4)], opsets=(1, 22), id="1d"),
    OpCase("GlobalAveragePool", [t(0, 3, 4, 4)], oracle=ORT, id="no_batch"),
    OpCase("GlobalLpPool", [t(2, 3, 4, 5)], {}, FLOATS[:2], grad=True, oracle=norm),
    OpCase("GlobalLpPool", [t(2, 3, 4, 5)], {"p": 3}, opsets=(2, 22), oracle=norm, id="cubes"),
    OpCase("GlobalLpPool", [t(2, 3, 4)], {"p": 2.5}, opset=1, oracle=norm, id="fraction"),
    OpCase("GlobalLpPool", [const([[[0.0, 0.0]]])], oracle=norm, id="zero"),
)
