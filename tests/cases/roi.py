"""Cases of RoiAlign and MaxRoiPool."""

from __future__ import annotations

from typing import Any

from opcase import OpCase, const, t

_BOXES = [[0.5, 1.0, 6.2, 5.5], [2, 2, 3, 3], [-3, -2, 4, 12], [7, 7, 7, 7], [4, 5, 2, 1]]
_BATCH = [0, 1, 1, 0, 1]


def _align(mode: str, ratio: int, boxes: Any = _BOXES, **options: Any) -> OpCase:
    attrs = {
        "mode": mode,
        "sampling_ratio": ratio,
        "output_height": 3,
        "output_width": 2,
        "spatial_scale": 0.8,
    }
    if options.get("opset", 22) >= 16:
        attrs["coordinate_transformation_mode"] = options.pop("pixels", "half_pixel")
    return OpCase(
        "RoiAlign",
        [t(2, 3, 6, 7), const(boxes), const(_BATCH[: len(boxes)], "int64")],
        attrs,
        **{"oracle": "onnxruntime", **options},
    )


CASES: tuple[OpCase, ...] = (
    *(
        _align("avg", ratio, pixels=pixels, opset=16)
        for ratio in (0, 1, 2)
        for pixels in ("half_pixel", "output_half_pixel")
    ),
    *(
        _align("avg", ratio, oracle="reference", boxes=[[0.53, 1.07, 6.21, 5.47]], grad=True)
        for ratio in (0, 2)
    ),
    *(
        _align("max", ratio, pixels=pixels, oracle="reference")
        for ratio in (1, 3)
        for pixels in ("half_pixel", "output_half_pixel")
    ),
    _align("avg", 0, opset=10),
    _align("avg", 2, opset=10, dtypes=("float32", "float64")),
    _align("avg", 2, dtypes=("float16", "bfloat16", "float64"), oracle="reference"),
    OpCase(
        "RoiAlign",
        [t(1, 2, 4, 4), t(0, 4), const([], "int64")],
        {"output_height": 2, "output_width": 2},
        oracle="onnxruntime",
        opset=16,
        id="no boxes",
    ),
    *(
        OpCase(
            "MaxRoiPool",
            [t(2, 3, 8, 9), const([[0, 0, 0, 5, 6], [1, 2, 3, 8, 7], [1, 4, 4, 4, 4], [0, 6, 6, 20, 20]])],
            {"pooled_shape": [3, 2], "spatial_scale": scale},
            opset=1,
            oracle="onnxruntime",
        )
        for scale in (1.0, 0.5)
    ),
    OpCase(
        "MaxRoiPool",
        [t(1, 1, 4, 5), const([[0, 1, 0, 4, 3]])],
        {"pooled_shape": [1, 1]},
        dtypes=("float32", "float16", "bfloat16", "float64"),
        opsets=(22,),
        oracle=lambda x, rois, **attrs: x[:, :, :, 1:].max((2, 3), keepdims=True),
    ),
    OpCase(
        "MaxRoiPool",
        [t(1, 2, 4, 4), t(0, 5)],
        {"pooled_shape": [2, 2]},
        opset=1,
        oracle="onnxruntime",
        id="no boxes",
    ),
)
