"""Cases of MaxPool, GlobalMaxPool and MaxUnpool."""

from opcase import OpCase, const, t

FLOATS = ("float32", "float64", "float16", "bfloat16")
BYTES = ("int8", "uint8")
ORT = "onnxruntime"


def wide(*shape: int) -> object:
    return t(*shape, low=-100, high=100)


CASES: tuple[OpCase, ...] = (
    OpCase("MaxPool", [t(2, 3, 7, 6)], {"kernel_shape": [3, 2], "strides": [2, 1]}, FLOATS, grad=True),
    OpCase("MaxPool", [t(2, 3, 7, 6)], {"kernel_shape": [3, 2]}, opsets=(1, 8, 10, 11, 12), id="old"),
    OpCase("MaxPool", [t(2, 3, 9)], {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}, id="1d"),
    OpCase("MaxPool", [t(1, 2, 5, 6, 4)], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}, id="3d"),
    OpCase(
        "MaxPool",
        [wide(2, 3, 7, 6)],
        {"kernel_shape": [3, 2], "pads": [1, 1, 1, 1]},
        BYTES,
        oracle=ORT,
        id="bytes",
    ),
    OpCase(
        "MaxPool", [wide(2, 3, 7)], {"kernel_shape": [3], "pads": [2, 0]}, BYTES, oracle=ORT, id="bytes_1d"
    ),
    OpCase(
        "MaxPool",
        [t(1, 2, 7, 6)],
        {"kernel_shape": [3, 2], "pads": [2, 0, 1, 1], "strides": [2, 2]},
        ("float32", "float16"),
        outputs=2,
        grad=True,
        id="asymmetric",
        oracle=ORT,
    ),
    OpCase("MaxPool", [t(2, 2, 7, 6)], {"kernel_shape": [3, 3]}, outputs=2, oracle=ORT, id="indices"),
    OpCase("MaxPool", [t(2, 2, 7)], {"kernel_shape": [3]}, outputs=2, oracle=ORT, id="indices_1d"),
    OpCase(
        "MaxPool", [t(2, 2, 4, 5, 3)], {"kernel_shape": [3, 2, 2]}, outputs=2, oracle=ORT, id="indices_3d"
    ),
    OpCase(
        "MaxPool",
        [t(2, 2, 4, 5, 3)],
        {"kernel_shape": [3, 2, 2], "storage_order": 1, "pads": [1, 0, 0, 0, 1, 0]},
        outputs=2,
        oracle=ORT,
        id="columns_3d",
    ),
    OpCase(
        "MaxPool",
        [t(2, 2, 7, 6)],
        {"kernel_shape": [3, 3], "storage_order": 1},
        outputs=2,
        oracle=ORT,
        id="columns",
    ),
    OpCase(
        "MaxPool", [const([[[[1, 1], [1, 1]]]])], {"kernel_shape": [2, 2]}, outputs=2, oracle=ORT, id="tie"
    ),
    OpCase(
        "MaxPool",
        [wide(1, 2, 6, 5)],
        {"kernel_shape": [3, 3], "dilations": [1, 2], "pads": [1, 1, 1, 1]},
        BYTES,
        outputs=2,
        oracle=ORT,
        id="bytes_indices",
    ),
    OpCase(
        "MaxPool",
        [t(1, 2, 9, 8)],
        {"kernel_shape": [3, 2], "dilations": [2, 3], "strides": [2, 1]},
        id="dilated",
    ),
    OpCase(
        "MaxPool",
        [t(1, 2, 8, 8)],
        {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1, "pads": [0, 1, 1, 0]},
        outputs=2,
        oracle=ORT,
        id="ceil",
    ),
    OpCase(
        "MaxPool",
        [t(1, 1, 4, 4)],
        {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1},
        id="ceil_drop",
    ),
    OpCase(
        "MaxPool",
        [t(1, 2, 7, 8)],
        {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
        id="upper",
    ),
    OpCase(
        "MaxPool",
        [t(1, 2, 7, 8)],
        {"kernel_shape": [3, 4], "strides": [2, 3], "auto_pad": "SAME_LOWER"},
        oracle=ORT,
        id="lower",
    ),
    OpCase("MaxPool", [t(1, 2, 7, 8)], {"kernel_shape": [3, 4], "auto_pad": "VALID"}, oracle=ORT, id="valid"),
    OpCase(
        "MaxPool",
        [const([[[float("nan"), 1, 2, 3]]])],
        {"kernel_shape": [2]},
        oracle=lambda x, **_: x[:, :, [0, 2, 3]],
        id="nan",
    ),
    OpCase("MaxPool", [t(2, 8, 17, 19)], {"kernel_shape": [3, 2], "strides": [2, 1]}, FLOATS, id="large"),
    OpCase(
        "MaxPool",
        [wide(2, 8, 17, 19)],
        {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 2, 0, 1], "dilations": [2, 1]},
        BYTES,
        oracle=ORT,
        id="large_bytes",
    ),
    OpCase(
        "MaxPool",
        [t(1, 8, 17, 33)],
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        oracle=ORT,
        id="large_ceil",
    ),
    OpCase("MaxPool", [t(1, 8, 40, 33)], {"kernel_shape": [1, 1], "strides": [2, 3]}, id="large_picked"),
    OpCase("MaxPool", [t(1, 8, 600)], {"kernel_shape": [40], "strides": [7]}, id="wide"),
    OpCase("GlobalMaxPool", [t(2, 3, 4, 5)], {}, FLOATS, grad=True),
    OpCase("GlobalMaxPool", [t(2, 3, 4)], opsets=(1, 21), oracle=ORT, id="1d"),
    OpCase(
        "MaxUnpool",
        [t(1, 1, 2, 2), const([[[[5, 7], [13, 15]]]], "int64")],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        FLOATS,
        grad=True,
        opsets=(9, 11, 22),
    ),
    OpCase(
        "MaxUnpool",
        [t(1, 1, 2, 2), const([[[[5, 7], [13, 15]]]], "int64"), const([1, 1, 5, 6], "int64")],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        id="shaped",
    ),
    OpCase(
        "MaxUnpool",
        [t(1, 2, 3), const([[[0, 2, 4], [6, 8, 9]]], "int64")],
        {"kernel_shape": [3], "strides": [2], "pads": [1, 1]},
        id="1d",
    ),
)
