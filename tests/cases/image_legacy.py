"""Cases of Crop, ImageScaler, Affine and their like, which onnxruntime alone still knows."""

from typing import Any

from opcase import OpCase, const, t

X = t(2, 3, 6, 5)


def old(op: str, attrs: dict[str, Any], **more: Any) -> OpCase:
    return OpCase(op, more.pop("inputs", [X]), attrs, opset=9, oracle="onnxruntime", **more)


CASES: tuple[OpCase, ...] = (
    old("Crop", {"border": [1, 0, 1, 2]}, grad=True),
    old("Crop", {"border": [1, 2, 0, 0], "scale": [3, 4]}, id="scale"),
    old("ImageScaler", {"bias": [0.5, -1.0, 2.0], "scale": 0.25}, grad=True),
    old("ImageScaler", {"bias": [0.5, -1.0, 2.0]}, id="bias"),
    old("Affine", {"alpha": 2.0, "beta": -0.5}, grad=True),
    old("Scale", {"scale": 0.25}, grad=True),
    old("ParametricSoftplus", {"alpha": 0.5, "beta": 3.0}, grad=True),
    old("ParametricSoftplus", {"alpha": 0.5, "beta": 3.0}, inputs=[t(8, low=-60, high=60)], id="wide"),
    old("ScaledTanh", {"alpha": 2.0, "beta": 0.5}, grad=True),
    old("DynamicSlice", {}, inputs=[X, const([0, 1], "int64"), const([-1, 9], "int64")], grad=True),
    old("DynamicSlice", {}, inputs=[X, *(const([n], "int32") for n in (1, -1, 2))], id="axes"),
)
