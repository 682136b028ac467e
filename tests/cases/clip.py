"""Cases of Clip."""

import numpy as np
from opcase import OpCase, const, t

NUMBERS = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def clipped(x, *bounds, min=None, max=None, consumed_inputs=None):
    low, high = (*bounds, None, None)[:2] if bounds else (min, max)
    low = None if low is None else np.asarray(low, x.dtype)
    high = None if high is None else np.asarray(high, x.dtype)
    result = x if low is None else np.maximum(x, low)
    return result if high is None else np.minimum(result, high)


CASES: tuple[OpCase, ...] = (
    OpCase("Clip", [t(3, 4, low=-9, high=9), const(-3), const(4)], dtypes=NUMBERS),
    OpCase("Clip", [t(3, 4, low=0, high=9), const(2), const(6)], dtypes=UNSIGNED, id="unsigned"),
    OpCase(
        "Clip",
        [const([0, 2**63, 2**64 - 1]), const(5), const(2**63 + 9)],
        dtypes=("uint64",),
        id="above_int64",
    ),
    OpCase("Clip", [t(3, 4, low=-9, high=9), const(-3)], opsets=(11, 12, 13), oracle=clipped, id="low_alone"),
    OpCase("Clip", [t(3, 4, low=-9, high=9), const(-3.5), const(4.5)], grad=True, id="gradients_of_bounds"),
    OpCase("Clip", [t(3, 4, low=-9, high=9), None, const(3)], dtypes=("float32", "int64"), oracle=clipped),
    OpCase("Clip", [t(3, 4)], dtypes=("float32", "uint16"), id="no_bounds"),
    OpCase("Clip", [t(3, 4, low=-9, high=9), const(4), const(-3)], dtypes=("float32", "int32"), id="crossed"),
    OpCase("Clip", [const([1.0, np.nan]), const(-3), const(3)], id="nan_data"),
    OpCase("Clip", [t(3), const(np.nan), const(3)], oracle=clipped, id="nan_low"),
    OpCase("Clip", [t(3), const(-1), const(np.nan)], oracle=clipped, id="nan_high"),
    OpCase("Clip", [t(), const(-0.1), const(0.1)], id="scalar"),
    OpCase("Clip", [t(0, 3), const(0), const(1)], dtypes=("float32", "uint32"), id="empty"),
    OpCase(
        "Clip",
        [t(3, 4, low=-9, high=9)],
        {"min": -2.0, "max": 3.0},
        opsets=(1, 6),
        oracle=clipped,
        grad=True,
        id="attributes",
    ),
    OpCase(
        "Clip", [t(3, 4, low=-9, high=9)], {"min": -2.0}, opsets=(1, 6), oracle=clipped, id="attribute_low"
    ),
    OpCase("Clip", [t(3, 4)], {"consumed_inputs": [0]}, opset=1, oracle=clipped, id="v1_no_bounds"),
    OpCase(
        "Clip",
        [const([1.0, np.inf, -np.inf, np.nan])],
        dtypes=("float16",),
        opset=6,
        oracle=clipped,
        id="v6_half",
    ),
    OpCase(
        "Clip",
        [const([1.0, np.inf, -np.inf])],
        opset=6,
        oracle=lambda x: np.clip(x, np.finfo(np.float32).min, np.finfo(np.float32).max),
        id="v6_default_bounds_are_finite",
    ),
)
