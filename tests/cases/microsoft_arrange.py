"""Cases of com.microsoft's ops that arrange and make elements, of its matrices, hashes and decoding."""

from typing import Any

import numpy as np
from opcase import OpCase, const, ms, t


def whole(*numbers: Any) -> Any:
    return const(list(numbers), "int64")


def rfft(x, signal_ndim=1, **_):  # type: ignore[no-untyped-def]
    y = np.fft.rfftn(x.astype(np.float64), axes=range(-signal_ndim, 0))
    return np.stack((y.real, y.imag), -1).astype(x.dtype)


def irfft(x, signal_ndim, **_):  # type: ignore[no-untyped-def]
    y = x.astype(np.float64)
    return np.fft.irfftn(y[..., 0] + 1j * y[..., 1], axes=range(-signal_ndim, 0)).astype(x.dtype)


def all_finite(*xs, isinf_only=0, isnan_only=0):  # type: ignore[no-untyped-def]
    infinite, nan = any(np.isinf(x).any() for x in xs), any(np.isnan(x).any() for x in xs)
    return np.array(not ((infinite and not isnan_only) or (nan and not isinf_only)))


def first_seen(x):  # type: ignore[no-untyped-def]
    values, where, group, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(where)
    return values[order], np.argsort(order)[group], counts[order]


BAD = (const([1.0, np.inf]), const([np.nan, 2.0]))
FLOATS = ("float32", "float64", "float16")
SOURCE = whole(1, 5, 3, 2, 5, 3)

CASES: tuple[OpCase, ...] = (
    ms("Trilu", [t(2, 4, 5)], grad=True, dtypes=("float32", "float64", "int64")),
    ms("Trilu", [t(2, 4, 5), const(-1, "int64")], {"upper": 0}, id="lower"),
    ms("Trilu", [t(4, 3), const(1, "int64")], dtypes=("bool", "uint16", "bfloat16"), id="types",
       oracle=lambda x, k, **_: np.triu(x.view(np.int16) if x.dtype.itemsize == 2 else x, 1).view(x.dtype)),
    ms("Unique", [const([2, 1, 1, 3, 4, 3])], outputs=3),
    ms("Unique", [t(20, low=0, high=4, dtype="int64")], outputs=3, id="whole",
       oracle=first_seen),
    ms("Unique", [t(0)], outputs=3, id="empty"),
    ms("ExpandDims", [t(2, 3), const([1], "int32")], grad=True, dtypes=("float32", "int8", "bool")),
    ms("ExpandDims", [t(2, 3), const(-1, "int32")], id="last"),
    ms("GatherND", [t(3, 4, 2), const([[0, -1], [2, 3]], "int32")], grad=True),
    ms("GatherND", [t(3, 4, 2), whole([[1]], [[0]])], dtypes=("float32", "uint8", "bool"), id="rows"),
    ms("Pad", [t(3, 4), whole(0, 1, 1, -1), const([7.0])]),
    ms("Pad", [t(3, 4), whole(0, 1, 1, -1)], grad=True, id="zeros"),
    ms("Pad", [t(3, 4), whole([0, 1, 1, 2])], {"mode": "reflect"}, id="reflect"),
    ms("Pad", [t(3, 4), whole(0, 1, 1, 2)], {"mode": "edge"}, id="edge"),
    ms("Range", [const(1), const(9), const(3)], dtypes=("float32", "float64", "int16", "int32", "int64")),
    ms("Range", [const([2]), const([5])], dtypes=("float32", "int64"), id="no_step"),
    ms("SampleOp", [t(2, 3)], grad=True),
    ms("IsAllFinite", [t(2, 3), t(4)], oracle=all_finite, dtypes=("float32", "float16", "float64")),
    ms("IsAllFinite", [t(2, 3), BAD[0]], oracle=all_finite, id="infinite"),
    ms("IsAllFinite", [t(2, 3), BAD[1]], oracle=all_finite, id="nan"),
    ms("IsAllFinite", [BAD[0]], {"isnan_only": 1}, oracle=all_finite, id="only_nan"),
    ms("IsAllFinite", [BAD[1]], {"isinf_only": 1}, oracle=all_finite, id="only_infinite"),
    ms("Inverse", [t(2, 3, 3)], grad=True, dtypes=("float32", "float64"), tol=1e-3),
    ms("Inverse", [const([[1, 2], [3, 4]])], dtypes=("float16",), id="half"),
    ms("Inverse", [t(0, 3, 3)], id="empty"),
    ms("CDist", [t(4, 6), t(3, 6)], grad=True, dtypes=("float32", "float64")),
    ms("CDist", [t(4, 6), t(3, 6)], {"metric": "euclidean"}, grad=True, id="root"),
    ms("CDist", [t(4, 6), t(3, 6)], {"metric": "cityblock"}, id="sum",
       oracle=lambda a, b, **_: np.abs(a[:, None] - b).sum(-1)),
    ms("CDist", [t(4, 6), t(3, 6)], {"metric": "chebyshev"}, id="largest",
       oracle=lambda a, b, **_: np.abs(a[:, None] - b).max(-1)),
    ms("Rfft", [t(3, 8)], {"signal_ndim": 1}, grad=True, oracle=rfft, dtypes=FLOATS),
    ms("Rfft", [t(2, 4, 6)], {"signal_ndim": 2}, oracle=rfft, id="plane"),
    ms("Irfft", [t(3, 5, 2)], {"signal_ndim": 1}, grad=True, oracle=irfft, dtypes=FLOATS),
    ms("Irfft", [t(2, 4, 4, 2)], {"signal_ndim": 2}, oracle=irfft, id="plane"),
    ms("MurmurHash3", [t(3, 4, low=-1000, high=1000)], dtypes=("int32", "int64", "float32", "float64")),
    ms("MurmurHash3", [t(5, low=0, high=1000)], {"positive": 0, "seed": 42}, dtypes=("uint32", "uint64"),
       id="seed"),
    ms("MurmurHash3", [const([["bar", "foo", ""], ["ü", "abcdefghijk", "abcd"]], "string")], id="texts"),
    ms("BifurcationDetector", [whole(1, 5, 3, 4, 2), whole(2), whole(0), whole(1, 5, 2, 4, 2, 7)], outputs=2),
    ms("BifurcationDetector", [SOURCE, whole(1, 5), whole(0)], outputs=2, id="no_prediction"),
    ms("BifurcationDetector", [SOURCE, t(2, low=1, high=6, dtype="int64"), const(0, "int64")], outputs=2,
       id="scalar"),
)  # fmt: skip
