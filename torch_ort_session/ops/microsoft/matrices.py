"""Inverses, distances and Fourier transforms of com.microsoft.

Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ort_session.ops.kernel import kernel

_HALVES = (torch.float16, torch.bfloat16)


@kernel("Inverse", domain="com.microsoft", since=(1,))
def inverse(x: Tensor) -> Tensor:
    """The inverse of each matrix; infinite or NaN where there is none.

    Args:
        x: Floats [..., N, N]; float16 is computed in float32.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Inverse
    """
    # The form that raises for a singular matrix reads the result on the host.
    wide = x.to(torch.float32) if x.dtype in _HALVES else x
    inverted: Tensor = torch.linalg.inv_ex(wide)[0]
    return inverted.to(x.dtype)


@kernel("CDist", domain="com.microsoft", since=(1,))
def cdist(a: Tensor, b: Tensor, *, metric: str = "sqeuclidean") -> Tensor:
    """The distance of each row of ``a`` from each row of ``b``.

    Args:
        a: float32 or float64 [M, N].
        b: [K, N].
        metric: ``sqeuclidean``, ``euclidean``, ``cityblock`` or ``chebyshev``.

    Returns:
        [M, K].

    Raises:
        ValueError: Another metric.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.CDist
    """
    powers = {"sqeuclidean": 2.0, "euclidean": 2.0, "cityblock": 1.0, "chebyshev": torch.inf}
    if metric not in powers:
        raise ValueError(f"metric must be one of {', '.join(powers)}, not {metric!r}.")
    # By a product rows that lie close together lose their digits.
    distance = torch.cdist(a, b, powers[metric], compute_mode="donot_use_mm_for_euclid_dist")
    return distance.square() if metric == "sqeuclidean" else distance


@kernel("Rfft", domain="com.microsoft", since=(1,))
def rfft(x: Tensor, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1) -> Tensor:
    """The one-sided Fourier transform over the last ``signal_ndim`` dims.

    Args:
        x: Floats [..., n].
        normalized: 0.
        onesided: 1.
        signal_ndim: Number of dims of the signal.

    Returns:
        [..., n // 2 + 1, 2]: real and imaginary parts.

    Raises:
        ValueError: An attribute has another value.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Rfft
    """
    dims = _signal(normalized, onesided, signal_ndim, x.dim())
    wide = x.to(torch.float32) if x.dtype in _HALVES else x
    return torch.view_as_real(torch.fft.rfftn(wide, dim=dims)).to(x.dtype)


@kernel("Irfft", domain="com.microsoft", since=(1,))
def irfft(x: Tensor, *, normalized: int = 0, onesided: int = 1, signal_ndim: int) -> Tensor:
    """The inverse of Rfft, divided by the number of elements of the signal.

    Args:
        x: Floats [..., n // 2 + 1, 2]: real and imaginary parts.
        normalized: 0.
        onesided: 1.
        signal_ndim: Number of dims of the signal.

    Returns:
        [..., n] with an even n.

    Raises:
        ValueError: An attribute has another value.

    Source: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Irfft
    """
    dims = _signal(normalized, onesided, signal_ndim, x.dim() - 1)
    wide = x.to(torch.float32) if x.dtype in _HALVES else x
    y: Tensor = torch.fft.irfftn(torch.view_as_complex(wide.contiguous()), dim=dims)
    return y.to(x.dtype)


def _signal(normalized: int, onesided: int, count: int, rank: int) -> tuple[int, ...]:
    if normalized != 0 or onesided != 1:
        raise ValueError(
            f"normalized is 0 and onesided 1 in this transform, not {normalized} and {onesided}."
        )
    if not 1 <= count <= rank:
        raise ValueError(f"signal_ndim is {count}, but there are {rank} dims.")
    return tuple(range(-count, 0))
