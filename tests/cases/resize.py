"""Cases of Resize and Upsample."""

from __future__ import annotations

from typing import Any

import numpy as np
from opcase import OpCase, const, t

_TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
)
_EVERY = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
)


def _by_scales(x: Any, *scales: float, **options: Any) -> OpCase:
    dtypes = options.pop("dtypes", ("float32",))
    keys = ("grad", "id", "opset", "opsets", "oracle", "tol")
    record = {key: options.pop(key) for key in keys if key in options}
    return OpCase("Resize", [x, None, const(list(scales), "float32")], attrs=options, dtypes=dtypes, **record)


def _by_sizes(x: Any, *sizes: int, **options: Any) -> OpCase:
    roi = options.pop("roi", None)
    dtypes = options.pop("dtypes", ("float32",))
    keys = ("grad", "id", "opset", "opsets", "oracle", "tol")
    record = {key: options.pop(key) for key in keys if key in options}
    region = None if roi is None else const(roi, "float32")
    return OpCase(
        "Resize", [x, region, None, const(list(sizes), "int64")], attrs=options, dtypes=dtypes, **record
    )


def _plain(x: np.ndarray[Any, Any], *ignored: Any, **attrs: Any) -> np.ndarray[Any, Any]:
    return x


def _no_images(x: np.ndarray[Any, Any], *ignored: Any, **attrs: Any) -> np.ndarray[Any, Any]:
    return np.zeros((0, 1, 8, 8), x.dtype)


def _doubled(x: np.ndarray[Any, Any], *ignored: Any, **attrs: Any) -> np.ndarray[Any, Any]:
    return np.repeat(x, 2, axis=-1)


def _legacy_linear(x: np.ndarray[Any, Any], *ignored: Any, **attrs: Any) -> np.ndarray[Any, Any]:
    """Doubling the last axis: output index by two, so every other value is a mean of neighbours."""
    following = np.concatenate([x[..., 1:], x[..., -1:]], axis=-1)
    return np.stack([x, (x + following) / 2], axis=-1).reshape(*x.shape[:-1], -1).astype(x.dtype)


def _legacy_nearest(x: np.ndarray[Any, Any], *ignored: Any, **attrs: Any) -> np.ndarray[Any, Any]:
    """One and a half times the last axis, rounded down."""
    length = int(x.shape[-1] * 1.5)
    return x[..., (np.arange(length) / 1.5).astype(np.int64)]


CASES: tuple[OpCase, ...] = (
    _by_scales(t(1, 2, 3, 4), 1.0, 1.0, 2.0, 2.0, dtypes=_EVERY, grad=True, id="nearest doubled"),
    _by_scales(t(1, 2, 3, 4), 1.0, 1.0, 0.6, 1.7, dtypes=_EVERY, id="nearest fractional"),
    *(
        _by_sizes(
            t(1, 1, 7, 5), 1, 1, *sizes, coordinate_transformation_mode=transform, nearest_mode=rounding
        )
        for transform in _TRANSFORMS
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        for sizes in ((14, 15), (3, 8))
    ),
    *(
        _by_scales(
            t(1, 2, 5, 6),
            1.0,
            1.0,
            *scales,
            mode=mode,
            coordinate_transformation_mode=transform,
            grad=scales == (0.6, 1.3),
            dtypes=("float32", "float64") if mode == "linear" else ("float32",),
        )
        for transform in _TRANSFORMS
        for mode in ("linear", "cubic")
        for scales in ((2.0, 3.0), (0.6, 1.3))
    ),
    *(
        _by_scales(
            t(1, 1, 9, 8),
            1.0,
            1.0,
            *scales,
            mode=mode,
            antialias=1,
            exclude_outside=outside,
            grad=True,
        )
        for mode in ("linear", "cubic")
        for outside in (0, 1)
        for scales in ((0.4, 0.3), (0.7, 2.0))
    ),
    *(
        _by_sizes(
            t(1, 1, 4, 4),
            1,
            1,
            *sizes,
            roi=[0, 0, 0.4, 0.6, 1, 1, 1.2, 0.9],
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=10.0,
            dtypes=("float32",) if mode == "cubic" else ("float32", "int32", "uint16"),
        )
        for mode in ("nearest", "linear", "cubic")
        for sizes in ((3, 3), (5, 2), (4, 4))
    ),
    _by_scales(t(1, 1, 6, 5), 1.0, 1.0, 1.6, 0.8, mode="cubic", cubic_coeff_a=-0.5),
    _by_scales(t(1, 1, 6, 5), 1.0, 1.0, 1.6, 0.8, mode="cubic", exclude_outside=1),
    _by_scales(t(1, 1, 6, 5), 1.0, 1.0, 1.6, 0.8, mode="linear", exclude_outside=1),
    _by_scales(
        const([["a", "b"], ["c", "d"]], "string"), 1.0, 2.0, dtypes=("string",), oracle=_doubled, id="strings"
    ),
    _by_scales(t(5), 1.5, mode="linear", grad=True),
    _by_scales(t(3, 4), 2.0, 0.5, mode="linear", grad=True),
    _by_scales(t(2, 3, 4), 1.0, 1.0, 2.0, mode="linear", id="1-D batch"),
    _by_scales(t(1, 2, 3, 4, 2), 1.0, 1.0, 2.0, 0.5, 3.0, mode="linear", id="volume"),
    _by_scales(t(2, 2, 3, 2, 2), 2.0, 1.0, 2.0, 1.0, 3.0, mode="linear", id="batch axis too"),
    _by_scales(t(1, 1, 5, 4), 1.0, 1.0, 1.7, 0.6, mode="linear", dtypes=("float16", "bfloat16")),
    _by_scales(
        t(1, 1, 5, 4, low=0, high=100),
        1.0,
        1.0,
        1.7,
        0.6,
        mode="linear",
        dtypes=("int8", "uint8", "int32", "int64", "uint32", "uint64"),
    ),
    _by_scales(
        t(2, 3),
        1.0,
        2.0,
        dtypes=("bool", "complex64", "complex128"),
        oracle=_doubled,
        id="nearest, no reference",
    ),
    _by_scales(
        t(2, 3),
        1.0,
        2.0,
        mode="linear",
        coordinate_transformation_mode="asymmetric",
        dtypes=("complex64",),
        oracle=_legacy_linear,
        id="linear, no reference",
    ),
    _by_scales(
        t(1, 1, 5, 4, low=0, high=255), 1.0, 1.0, 1.7, 2.6, mode="cubic", dtypes=("uint8",), id="saturates"
    ),
    _by_scales(t(2, 3, 4, 5), 0.5, 2.0, axes=[2, -1], mode="linear", opsets=(18, 19), oracle="onnxruntime"),
    _by_sizes(t(1, 1, 4, 8), 6, 6, axes=[2, 3], keep_aspect_ratio_policy="not_larger", opset=18),
    _by_sizes(t(1, 1, 4, 8), 6, 6, axes=[3, 2], keep_aspect_ratio_policy="not_smaller", mode="linear"),
    _by_scales(t(1, 1, 4, 5), 1.0, 1.0, 1.0, 1.0, mode="linear", id="nothing to do", oracle=_plain),
    _by_sizes(t(0, 1, 4, 5), 0, 1, 8, 8, mode="linear", id="empty batch", oracle=_no_images),
    _by_sizes(t(1, 1, 4, 5), 1, 1, 0, 8, mode="nearest", id="empty result"),
    OpCase(
        "Resize",
        [t(1, 1, 3, 3), const([], "float32"), const([1, 1, 2, 2], "float32")],
        attrs={"mode": "linear"},
        opsets=(11, 13),
        id="empty roi",
    ),
    OpCase(
        "Resize",
        [t(1, 1, 3, 3), const([], "float32"), const([], "float32"), const([1, 1, 2, 5], "int64")],
        attrs={"mode": "linear"},
        opsets=(11, 13),
        id="empty roi and scales",
    ),
    OpCase(
        "Resize",
        [t(1, 3, 4), const([1, 1, 2], "float32")],
        {"mode": "linear"},
        opset=10,
        oracle=_legacy_linear,
    ),
    OpCase("Resize", [t(1, 3, 4), const([1, 1, 1.5], "float32")], opset=10, oracle=_legacy_nearest),
    OpCase(
        "Upsample",
        [t(1, 3, 4), const([1, 1, 2], "float32")],
        {"mode": "linear"},
        opset=9,
        oracle=_legacy_linear,
    ),
    OpCase("Upsample", [t(1, 3, 4), const([1, 1, 1.5], "float32")], opset=9, oracle=_legacy_nearest),
    OpCase(
        "Upsample",
        [t(1, 3, 4)],
        {"mode": "linear", "scales": [1.0, 1.0, 2.0]},
        opset=7,
        oracle=_legacy_linear,
    ),
    OpCase(
        "Upsample",
        [t(1, 1, 3, 4)],
        {"mode": "bilinear", "height_scale": 1.0, "width_scale": 2.0},
        opset=1,
        oracle=_legacy_linear,
    ),
)
