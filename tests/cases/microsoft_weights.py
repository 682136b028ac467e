"""Cases of com.microsoft's operators on weights quantized in blocks."""

from typing import Any

import numpy as np
from opcase import OpCase, const, ms, t


def packed(*shape: int) -> Any:
    return t(*shape, low=0, high=256, dtype="uint8")


def rows_of_floats(data, indices, scales, *, block_size, **_):  # type: ignore[no-untyped-def]
    length = data.shape[1]
    wide = np.broadcast_to(scales.repeat(block_size or length, 1)[:, :length], data.shape)
    return (data.astype(scales.dtype) * wide)[indices]


NBITS = {"K": 40, "N": 5, "bits": 4, "block_size": 16}
INDEX = t(2, 3, low=-5, high=5, dtype="int64")

CASES: tuple[OpCase, ...] = (
    ms("MatMulNBits", [t(2, 40), packed(5, 3, 8), t(5, 3, low=0.1)], NBITS | {"accuracy_level": 1}, id="odd"),
    ms(
        "MatMulNBits",
        [t(2, 40), packed(5, 3, 8), t(5, 3, low=0.1)],
        NBITS | {"accuracy_level": 4},
        # Here onnxruntime rounds the first input to 8 bits.
        tol=3e-2,
        id="coarse",
    ),
    ms(
        "MatMulNBits",
        [t(2, 40), packed(5, 0, 8), t(0), None, None, t(5)],
        NBITS,
        oracle=lambda a, b, s, z, g, bias, **_: np.broadcast_to(bias, (2, 5)),
        id="omitted",
    ),
    ms(
        "GatherBlockQuantized",
        [packed(5, 16), INDEX, t(5, 2, low=0.01), packed(5, 1)],
        {"block_size": 16, "bits": 4},
        dtypes=("float32", "float16"),
    ),
    ms(
        "GatherBlockQuantized",
        [packed(5, 32), const([0, 7, -6, 4], "int32"), t(5, 2, low=0.01)],
        {"block_size": 16, "bits": 8},
        id="outside",
    ),
    ms(
        "GatherBlockQuantized",
        [
            t(5, 33, dtype="uint4"),
            t(4, low=-33, high=33, dtype="int32"),
            t(1, 33, low=0.01),
            t(1, 33, dtype="uint4"),
        ],
        {"block_size": 16, "gather_axis": 1, "quantize_axis": -2},
        id="columns",
    ),
    ms(
        "GatherBlockQuantized",
        [t(5, 33, dtype="float8e4m3fn"), INDEX, t(5, 3, low=0.01)],
        {"block_size": 16},
        oracle=rows_of_floats,
        id="floats",
    ),
    ms(
        "GatherBlockQuantized",
        [t(5, 33, dtype="float4e2m1"), INDEX, t(1, 1, low=0.01)],
        {"block_size": 0},
        dtypes=("float32", "bfloat16"),
        oracle=rows_of_floats,
        id="one_scale",
    ),
    ms(
        "MatMulBnb4",
        [t(2, 3, 33), packed(83), t(11, low=0.1)],
        {"K": 33, "N": 5, "block_size": 16, "quant_type": 0},
        id="fp4",
        grad=True,
    ),
    ms(
        "MatMulBnb4",
        [t(2, 3, 33), packed(83), t(11, low=0.1)],
        {"K": 33, "N": 5, "block_size": 16, "quant_type": 1},
        dtypes=("float32", "float16"),
        id="nf4",
    ),
)
