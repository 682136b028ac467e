"""Cases of Conv and ConvTranspose."""

from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")

CASES: tuple[OpCase, ...] = (
    OpCase("Conv", [t(2, 3, 7, 6), t(4, 3, 3, 2), t(4)], dtypes=FLOATS, grad=True),
    OpCase("Conv", [t(2, 3, 7, 6), t(4, 3, 3, 2)], opsets=(1, 11, 21), id="old"),
    OpCase("Conv", [t(2, 3, 9), t(4, 3, 3), t(4)], {"pads": [1, 1], "strides": [2]}, grad=True, id="1d"),
    OpCase("Conv", [t(1, 2, 5, 4, 6), t(3, 2, 2, 3, 2), t(3)], {"pads": [1, 1, 0, 1, 1, 0]}, id="3d"),
    OpCase("Conv", [t(2, 4, 6, 6), t(8, 2, 3, 3), t(8)], {"group": 2, "pads": [1, 1, 1, 1]}, id="groups"),
    OpCase("Conv", [t(1, 4, 6, 6), t(4, 1, 3, 3)], {"group": 4}, grad=True, id="depthwise"),
    OpCase("Conv", [t(1, 2, 8, 7), t(3, 2, 3, 3), t(3)], {"pads": [2, 0, 1, 3]}, grad=True, id="asymmetric"),
    OpCase(
        "Conv",
        [t(1, 2, 9, 8), t(3, 2, 3, 2)],
        {"dilations": [2, 3], "strides": [2, 1], "pads": [1, 2, 1, 2], "kernel_shape": [3, 2]},
        id="dilated",
    ),
    OpCase("Conv", [t(1, 2, 7, 8), t(3, 2, 3, 4)], {"auto_pad": "SAME_UPPER", "strides": [2, 3]}, id="upper"),
    OpCase("Conv", [t(1, 2, 7, 8), t(3, 2, 3, 4)], {"auto_pad": "SAME_LOWER", "strides": [2, 3]}, id="lower"),
    OpCase("Conv", [t(1, 2, 7, 8), t(3, 2, 3, 4)], {"auto_pad": "VALID", "strides": [2, 3]}, id="valid"),
    OpCase("Conv", [t(1, 2, 5, 5), t(3, 2, 1, 1), t(3)], {"strides": [2, 2]}, id="pointwise"),
    OpCase("Conv", [t(0, 2, 5, 5), t(3, 2, 3, 3), t(3)], oracle="onnxruntime", id="no_batch"),
    OpCase(
        "Conv", [t(2, 3, 4, 2), t(5, 3, 4, 2), t(5)], {"strides": [2, 1]}, FLOATS, grad=True, id="one_window"
    ),
    OpCase("Conv", [t(1, 2, 3), t(4, 2, 3)], id="one_window_1d"),
    OpCase("ConvTranspose", [t(2, 3, 4, 5), t(3, 2, 3, 2), t(2)], dtypes=FLOATS, grad=True),
    OpCase("ConvTranspose", [t(2, 3, 4, 5), t(3, 2, 3, 2)], opsets=(1, 11, 21), id="old"),
    OpCase("ConvTranspose", [t(1, 3, 5), t(3, 2, 3), t(2)], {"strides": [2], "pads": [1, 1]}, id="1d"),
    OpCase("ConvTranspose", [t(1, 2, 3, 4, 2), t(2, 1, 2, 3, 2)], {"strides": [2, 1, 2]}, id="3d"),
    OpCase(
        "ConvTranspose",
        [t(2, 3, 4, 5), t(3, 4, 2, 3), t(4)],
        {"strides": [2, 3]},
        FLOATS,
        grad=True,
        id="tiled",
    ),
    OpCase("ConvTranspose", [t(2, 3, 5), t(3, 4, 3)], {"strides": [3]}, id="tiled_1d"),
    OpCase(
        "ConvTranspose", [t(1, 2, 3, 2, 2), t(2, 3, 2, 1, 3), t(3)], {"strides": [2, 1, 3]}, id="tiled_3d"
    ),
    OpCase(
        "ConvTranspose",
        [t(1, 4, 4, 4), t(4, 3, 3, 3), t(6)],
        {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]},
        oracle="onnxruntime",
        id="groups",
    ),
    OpCase(
        "ConvTranspose",
        [t(1, 2, 4, 5), t(2, 3, 3, 3), t(3)],
        {"strides": [3, 2], "pads": [1, 0, 2, 1], "output_padding": [2, 1]},
        grad=True,
        id="asymmetric",
    ),
    OpCase(
        "ConvTranspose",
        [t(1, 2, 4, 5), t(2, 3, 3, 3)],
        {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]},
        id="output_padding",
    ),
    OpCase(
        "ConvTranspose",
        [t(1, 2, 4, 5), t(2, 3, 3, 3), t(3)],
        {"strides": [3, 2], "output_shape": [10, 8]},
        oracle="onnxruntime",
        id="output_shape",
    ),
    OpCase(
        "ConvTranspose",
        [t(1, 2, 4, 5), t(2, 3, 3, 3), t(3)],
        {"strides": [3, 2], "output_shape": [11, 8], "auto_pad": "SAME_UPPER"},
        oracle="onnxruntime",
        id="output_shape_upper",
    ),
    OpCase(
        "ConvTranspose",
        [t(1, 2, 4, 5), t(2, 3, 3, 3)],
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        id="upper",
    ),
    OpCase(
        "ConvTranspose",
        [t(1, 2, 4, 5), t(2, 3, 4, 4), t(3)],
        {"strides": [3, 3], "auto_pad": "SAME_LOWER"},
        oracle="onnxruntime",
        id="lower",
    ),
    OpCase(
        "ConvTranspose",
        [const([[[1.0, 2.0, 3.0]]]), const([[[1.0]]]), const([0.5])],
        {"strides": [2], "auto_pad": "SAME_UPPER"},
        id="grows",
    ),
    OpCase(
        "ConvTranspose",
        [t(1, 2, 4, 4), t(2, 3, 3, 3)],
        {"dilations": [2, 2], "strides": [2, 1]},
        id="dilated",
    ),
)
