"""Spectra of frames that models take apart for the phase."""

import torch

from torch_ort_session.ops.onnx.signal import stft


def test_a_constant_signal_has_a_phase_in_every_bin() -> None:
    # A windowed constant has energy in the first two bins only; imaginary over real must not become 0 / 0.
    signal = torch.full((1, 400), -0.0337722, dtype=torch.float32)
    window = torch.hann_window(20)
    spectrum = stft(signal, 5, window, 20)
    phase = torch.atan(spectrum[..., 1] / spectrum[..., 0])
    assert phase.isfinite().all()
    exact = torch.fft.rfft(signal.double().unfold(1, 20, 5) * window.double())
    assert (torch.view_as_complex(spectrum) - exact).abs().max() < 1e-6
