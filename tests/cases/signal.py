"""Cases of the signal operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from opcase import OpCase, const, t

_FLOATS = ("float32", "float64", "float16", "bfloat16")


def _dft(x: Any, length: int | None = None, axis: int | None = None, **options: Any) -> OpCase:
    given: list[Any] = [x, *(None if v is None else const(v, "int64") for v in (length, axis))]
    while given[-1] is None:
        given.pop()
    attrs = {key: options.pop(key) for key in ("inverse", "onesided") if key in options}
    return OpCase("DFT", given, attrs, **{"grad": True, **options})


def _stft_of_complex(
    signal: np.ndarray[Any, Any], step: Any, window: Any, **attrs: Any
) -> np.ndarray[Any, Any]:
    values = signal[..., 0] + 1j * signal[..., 1]
    length = window.shape[0]
    starts = range(0, values.shape[1] - length + 1, int(step))
    frames = np.stack([np.fft.fft(values[:, s : s + length] * window) for s in starts], 1)
    return np.stack([frames.real, frames.imag], -1).astype(signal.dtype)


CASES: tuple[OpCase, ...] = (
    _dft(t(2, 6, 1), dtypes=_FLOATS),
    _dft(t(2, 6, 2), dtypes=_FLOATS),
    _dft(t(2, 6, 2), inverse=1, dtypes=_FLOATS),
    _dft(t(2, 6, 1), onesided=1, dtypes=_FLOATS),
    _dft(t(2, 7, 1), onesided=1),
    _dft(t(2, 4, 2), onesided=1, inverse=1, dtypes=_FLOATS, grad=False),
    _dft(t(2, 4, 2), 7, onesided=1, inverse=1, grad=False),
    _dft(t(2, 6, 1), 9),
    _dft(t(2, 6, 2), 4, axis=1),
    _dft(t(2, 3, 4, 1), axis=0),
    _dft(t(2, 3, 4, 2), axis=-3, inverse=1),
    _dft(t(5, 1), axis=0, onesided=1),
    OpCase("DFT", [t(2, 6, 1)], opset=17),
    OpCase("DFT", [t(2, 6, 3, 2), const(4, "int32")], {"axis": 2, "inverse": 1}, opset=17),
    OpCase("DFT", [t(2, 6, 1)], {"axis": -2, "onesided": 1}, opset=17),
    OpCase(
        "STFT",
        [t(2, 20, 1), const(3, "int64"), t(6, low=0.1), const(6, "int64")],
        dtypes=("float32", "float64"),
        grad=True,
    ),
    OpCase("STFT", [t(2, 20, 1), const(4, "int32"), t(5, low=0.1)], {"onesided": 0}),
    OpCase("STFT", [t(1, 20, 1), const(2, "int64"), None, const(8, "int64")], dtypes=_FLOATS[:3]),
    OpCase("STFT", [t(1, 10, 1), const(2, "int64")]),
    OpCase("STFT", [t(2, 20), const(3, "int64"), t(6, low=0.1)], oracle="onnxruntime", id="rank 2"),
    OpCase(
        "STFT", [t(2, 200), const(50, "int64"), t(80, low=0.1)], oracle="onnxruntime", grad=True, id="long"
    ),
    OpCase(
        "STFT",
        [t(2, 20, 2), const(3, "int64"), t(6, low=0.1)],
        {"onesided": 0},
        oracle=_stft_of_complex,
        id="complex signal",
    ),
    *(
        OpCase(op, [const(size, "int64")], {"periodic": periodic}, tol=1e-6)
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow")
        for size in (9, 10)
        for periodic in (0, 1)
    ),
    *(
        OpCase(op, [const(10, "int32")], {"output_datatype": code}, tol=tol)
        for op in ("HannWindow", "HammingWindow", "BlackmanWindow")
        for code, tol in ((11, 1e-12), (10, 2e-3), (7, None))
    ),
    *(
        OpCase(
            "MelWeightMatrix",
            [const(bins, "int64"), const(length, "int64"), const(rate, "int64")]
            + [const(edge, "float64") for edge in edges],
            {"output_datatype": code},
        )
        for bins, length, rate, edges in (
            (8, 16, 8192, (0, 4096)),
            (40, 512, 16000, (20, 7600)),
            (6, 7, 100, (1, 40)),
        )
        for code in (1, 11)
    ),
)
