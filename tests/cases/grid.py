"""Cases of GridSample and AffineGrid."""

from __future__ import annotations

from typing import Any

import numpy as np
from opcase import OpCase, const, t

_PADDING = ("zeros", "border", "reflection")


def _sample(x: Any, grid: Any, mode: str, padding: str, align: int, **options: Any) -> OpCase:
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    return OpCase("GridSample", [x, grid], attrs, **options)


def _first(x: np.ndarray[Any, Any], grid: np.ndarray[Any, Any], **attrs: Any) -> np.ndarray[Any, Any]:
    """What a grid of -1 reads with aligned corners: the first sample of each channel."""
    shape = (*x.shape[:2], *grid.shape[1:-1])
    return np.broadcast_to(x[:, :, :1, :1], shape)


CASES: tuple[OpCase, ...] = (
    *(
        _sample(
            t(2, 2, 4, 5),
            t(2, 3, 3, 2, low=-1.8, high=1.8),
            mode,
            padding,
            align,
            dtypes=("float32", "float16", "bfloat16")
            if (mode, padding) == ("linear", "zeros")
            else ("float32",),
            grad=mode != "nearest",
            tol=1e-4 if mode == "cubic" else None,
            oracle="onnxruntime" if (mode, padding) == ("cubic", "border") else "reference",
        )
        for mode in ("linear", "nearest", "cubic")
        for padding in _PADDING
        for align in (0, 1)
    ),
    *(
        _sample(t(1, 2, 3, 4, 3), t(1, 2, 2, 2, 3, low=-1.5, high=1.5), mode, padding, align, tol=1e-4)
        for mode in ("linear", "nearest", "cubic")
        for padding in _PADDING
        for align in (0, 1)
        if (mode, padding) != ("cubic", "border")
    ),
    *(
        _sample(t(1, 2, 5), t(1, 4, 1, low=-1.5, high=1.5), mode, padding, 0, tol=1e-4)
        for mode in ("linear", "nearest", "cubic")
        for padding in _PADDING
        if (mode, padding) != ("cubic", "border")
    ),
    *(
        _sample(
            t(1, 1, 4, 4),
            t(1, 3, 2, 2, low=-1.5, high=1.5),
            mode,
            "border",
            1,
            opset=16,
            oracle="onnxruntime",
        )
        for mode in ("bilinear", "nearest", "bicubic")
    ),
    _sample(
        t(2, 2, 4, 5),
        t(2, 3, 3, 2, low=-1.4, high=1.4, dtype="float32"),
        "nearest",
        "zeros",
        0,
        dtypes=("int8", "uint8", "int32", "int64", "uint16", "float16", "float64"),
    ),
    _sample(
        t(1, 2, 4, 5),
        const(np.full((1, 2, 2, 2), -1.0), "float32"),
        "linear",
        "zeros",
        1,
        dtypes=("complex64", "bool", "int32", "float64"),
        oracle=_first,
    ),
    _sample(
        const([[["a", "b", "c"]]], "string"),
        const([[[-0.7], [9.0], [0.7]]], "float32"),
        "nearest",
        "zeros",
        0,
        dtypes=("string",),
        oracle=lambda x, grid, **attrs: np.array([[["a", "", "c"]]], object),
    ),
    _sample(t(2, 2, 1, 1), t(2, 3, 3, 2, low=-1.8, high=1.8), "linear", "reflection", 0, id="one sample"),
    _sample(
        t(2, 0, 4, 4),
        t(2, 3, 3, 2),
        "linear",
        "zeros",
        0,
        id="no channels",
        oracle=lambda x, grid, **attrs: np.zeros((2, 0, 3, 3), np.float32),
    ),
    *(
        OpCase(
            "AffineGrid",
            [t(2, 2, 3), const([2, 3, 4, 5], "int64")],
            {"align_corners": align},
            grad=True,
            tol=1e-5,
        )
        for align in (0, 1)
    ),
    *(
        OpCase(
            "AffineGrid",
            [t(2, 3, 4), const([2, 3, 4, 5, 3], "int64")],
            {"align_corners": align},
            tol=1e-5,
        )
        for align in (0, 1)
    ),
    OpCase(
        "AffineGrid",
        [const([[[1, 0, 0], [0, 1, 0]]]), const([1, 1, 2, 2], "int64")],
        dtypes=("float16", "float64", "bfloat16"),
        oracle=lambda theta, size, **attrs: np.array(
            [[[[-0.5, -0.5], [0.5, -0.5]], [[-0.5, 0.5], [0.5, 0.5]]]], theta.dtype
        ),
    ),
    OpCase(
        "AffineGrid",
        [const([[[1, 0, 0.25], [0, 1, 0]]]), const([1, 1, 1, 1], "int64")],
        {"align_corners": 1},
        oracle=lambda theta, size, **attrs: np.array([[[[0.25, 0.0]]]], theta.dtype),
        id="one sample with aligned corners lies in the middle",
    ),
)
