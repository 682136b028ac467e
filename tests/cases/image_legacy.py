"""Cases of Crop and ImageScaler, which onnxruntime alone still knows."""

from typing import Any

from opcase import OpCase, t

X = t(2, 3, 6, 5)


def old(op: str, attrs: dict[str, Any], **more: Any) -> OpCase:
    return OpCase(op, [X], attrs, opset=9, oracle="onnxruntime", **more)


CASES: tuple[OpCase, ...] = (
    old("Crop", {"border": [1, 0, 1, 2]}, grad=True),
    old("Crop", {"border": [1, 2, 0, 0], "scale": [3, 4]}, id="scale"),
    old("ImageScaler", {"bias": [0.5, -1.0, 2.0], "scale": 0.25}, grad=True),
    old("ImageScaler", {"bias": [0.5, -1.0, 2.0]}, id="bias"),
)
