"""Fourier transforms, windows and mel filters.

Source: https://onnx.ai/onnx/operators/onnx__DFT.html and the pages of the other operators.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_ort_session.ir.types import ElementType
from torch_ort_session.ops.kernel import KernelContext, kernel

_SHORT = 64
"""Frames up to this length are transformed by a matrix product."""


@kernel("DFT", since=(20,), host=("dft_length", "axis"))
def dft(
    x: Tensor,
    dft_length: int | None = None,
    axis: int | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """Discrete Fourier transform along one axis.

    Source: https://onnx.ai/onnx/operators/onnx__DFT.html

    Args:
        x: ``[..., 1]`` real or ``[..., 2]`` complex.
        dft_length: Length that the axis is cut or padded to; None takes it as it is.
        axis: The axis, not the last; None is -2.
        inverse: Whether to invert.
        onesided: Whether the spectrum is the first half of that of a real signal.

    Returns:
        ``[..., 2]`` complex; ``[..., 1]`` real for the inverse of a one-sided spectrum.

    Raises:
        ValueError: The axis or the last dimension is not what the operator needs.
    """
    rank = x.dim()
    along = -2 if axis is None else axis
    if rank < 2 or x.shape[-1] not in (1, 2) or not -rank <= along < rank or along % rank == rank - 1:
        raise ValueError(f"a tensor of shape {list(x.shape)} has no transform along axis {along}.")
    return _transform(x, dft_length, along % rank, bool(inverse), bool(onesided))


@kernel("DFT", since=(17,), host=("dft_length",))
def dft_17(
    x: Tensor, dft_length: int | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """The first revision, with the axis as an attribute; see :func:`dft`."""
    return dft(x, dft_length, axis, inverse=inverse, onesided=onesided)


def _transform(x: Tensor, length: int | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
    dtype = x.dtype
    if dtype in (torch.float16, torch.bfloat16):
        x = x.to(torch.float32)
    signal = x[..., 0] if x.shape[-1] == 1 else torch.complex(x[..., 0], x[..., 1])
    if inverse and onesided:
        count = 2 * (signal.shape[axis] - 1) if length is None else length
        values: Tensor = torch.fft.irfft(signal, count, axis)
        return values.unsqueeze(-1).to(dtype)
    if inverse:
        spectrum = torch.fft.ifft(signal, length, axis)
    elif onesided and not signal.is_complex():
        spectrum = torch.fft.rfft(signal, length, axis)
    else:
        spectrum = torch.fft.fft(signal, length, axis)
        if onesided:
            spectrum = spectrum.narrow(axis, 0, spectrum.shape[axis] // 2 + 1)
    return torch.view_as_real(spectrum).to(dtype)


@kernel("STFT", since=(17,), host=("frame_step", "frame_length"))
def stft(
    signal: Tensor,
    frame_step: int,
    window: Tensor | None = None,
    frame_length: int | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """Fourier transforms of windowed frames.

    Source: https://onnx.ai/onnx/operators/onnx__STFT.html

    Args:
        signal: ``[batch, length, 1]`` or ``[batch, length]`` real, or ``[batch, length, 2]`` complex.
        frame_step: Distance of frames.
        window: ``[frame_length]`` or None for ones.
        frame_length: Length of a frame; None takes that of the window, or of the signal.
        onesided: Whether to return the first half of the spectrum.

    Returns:
        ``[batch, frames, bins, 2]``.

    Raises:
        ValueError: The window is not as long as a frame, or the signal is shorter than one.
    """
    if signal.dim() == 2:
        signal = signal.unsqueeze(-1)
    if frame_length is None:
        frame_length = signal.shape[1] if window is None else window.shape[0]
    if window is not None and window.shape[0] != frame_length:
        raise ValueError(f"the window has {window.shape[0]} values where a frame has {frame_length}.")
    if frame_length > signal.shape[1] or frame_step < 1:
        raise ValueError(
            f"a signal of length {signal.shape[1]} has no frames of length {frame_length} at distance "
            f"{frame_step}."
        )
    frames = signal.unfold(1, frame_length, frame_step)  # [batch, frames, parts, frame_length]
    if window is not None:
        frames = frames * window
    if signal.shape[-1] == 1 and frame_length <= _SHORT:
        return _product_with_waves(frames[:, :, 0], bool(onesided))
    return _transform(frames.mT, None, 2, False, bool(onesided))


def _product_with_waves(frames: Tensor, onesided: bool) -> Tensor:
    """Transforms of short real frames ``[batch, frames, length]`` as one matrix product.

    As fast as a fast transform. Where that gives exact zeros, as for frames of a constant, this gives
    rounding noise, which models rely on that divide the two parts of a spectrum for its phase.
    """
    wide = torch.float64 if frames.dtype is torch.float64 else torch.float32
    length = frames.shape[-1]
    places = torch.arange(length, dtype=torch.float64, device=frames.device)
    bins = places[: length // 2 + 1] if onesided else places
    angles = torch.outer(places, bins).remainder(length) * (-2 * math.pi / length)
    waves = torch.cat((angles.cos(), angles.sin()), dim=1).to(wide)
    parts = (frames.to(wide) @ waves).chunk(2, dim=-1)
    return torch.stack(parts, dim=-1).to(frames.dtype)


@kernel("HannWindow", since=(17,), host=("size",))
def hann_window(size: int, *, output_datatype: int = 1, periodic: int = 1, ctx: KernelContext) -> Tensor:
    """Hann's window: half of one less the cosine, ``[size]``.

    Source: https://onnx.ai/onnx/operators/onnx__HannWindow.html
    """
    return _typed(0.5 - 0.5 * _angles(size, periodic, ctx).cos(), output_datatype)


@kernel("HammingWindow", since=(17,), host=("size",))
def hamming_window(size: int, *, output_datatype: int = 1, periodic: int = 1, ctx: KernelContext) -> Tensor:
    """Hamming's window, which ends at 2/23 rather than 0, ``[size]``.

    Source: https://onnx.ai/onnx/operators/onnx__HammingWindow.html
    """
    level = 25.0 / 46.0
    return _typed(level - (1 - level) * _angles(size, periodic, ctx).cos(), output_datatype)


@kernel("BlackmanWindow", since=(17,), host=("size",))
def blackman_window(size: int, *, output_datatype: int = 1, periodic: int = 1, ctx: KernelContext) -> Tensor:
    """Blackman's window of two cosines, ``[size]``.

    Source: https://onnx.ai/onnx/operators/onnx__BlackmanWindow.html
    """
    angles = _angles(size, periodic, ctx)
    return _typed(0.08 * (2 * angles).cos() - 0.5 * angles.cos() + 0.42, output_datatype)


def _angles(size: int, periodic: int, ctx: KernelContext) -> Tensor:
    """Angles of one turn over the window, in float64."""
    count = torch.arange(size, dtype=torch.float64, device=ctx.device)
    return count * (2 * math.pi) / (size if periodic else size - 1)


@kernel(
    "MelWeightMatrix",
    since=(17,),
    host=("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"),
)
def mel_weight_matrix(
    num_mel_bins: int,
    dft_length: int,
    sample_rate: int,
    lower_edge_hertz: float,
    upper_edge_hertz: float,
    *,
    output_datatype: int = 1,
    ctx: KernelContext,
) -> Tensor:
    """Triangular filters, evenly spaced on the mel scale, with peaks of one.

    Source: https://onnx.ai/onnx/operators/onnx__MelWeightMatrix.html

    Args:
        num_mel_bins: Number of filters.
        dft_length: Length of the transform whose one-sided spectrum is weighted.
        sample_rate: Samples a second.
        lower_edge_hertz: Where the lowest filter starts.
        upper_edge_hertz: Where the highest filter ends.
        output_datatype: ONNX code of the result's type.
        ctx: Gives the device.

    Returns:
        ``[dft_length // 2 + 1, num_mel_bins]``.
    """
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (lower_edge_hertz, upper_edge_hertz))
    mels = torch.arange(num_mel_bins + 2, dtype=torch.float64, device=ctx.device)
    mels = mels * ((high - low) / (num_mel_bins + 2)) + low
    hertz = 700 * torch.expm1(mels * (math.log(10) / 2595))
    edges = torch.floor((dft_length + 1) * hertz / sample_rate)
    start, peak, end = edges[:-2], edges[1:-1], edges[2:]
    at = torch.arange(dft_length // 2 + 1, dtype=torch.float64, device=ctx.device)[:, None]
    rising = torch.where((at >= start) & (at < peak), (at - start) / (peak - start), 0.0)
    falling = torch.where((at > peak) & (at < end), (end - at) / (end - peak), 0.0)
    return _typed(rising + falling + (at == peak), output_datatype)


def _typed(values: Tensor, code: int) -> Tensor:
    dtype = ElementType(code).torch_dtype
    if dtype is None:
        raise ValueError(f"output_datatype {code} is no numeric type.")
    return values.to(dtype)
