"""Run ONNX models inside PyTorch: on torch tensors, from torch's allocators, on torch's current stream."""

from __future__ import annotations

from torch_ort_session._version import __version__
from torch_ort_session.binding import Binding
from torch_ort_session.errors import (
    CaptureError,
    DeviceIndexError,
    DeviceValidationError,
    InputError,
    KernelError,
    ModelError,
    PlanError,
    SessionError,
    UnsupportedOpError,
)
from torch_ort_session.ir.ports import Port
from torch_ort_session.options import Bucket, Limits, Options
from torch_ort_session.session import Session, load

__all__ = [
    "Binding",
    "Bucket",
    "CaptureError",
    "DeviceIndexError",
    "DeviceValidationError",
    "InputError",
    "KernelError",
    "Limits",
    "ModelError",
    "Options",
    "PlanError",
    "Port",
    "Session",
    "SessionError",
    "UnsupportedOpError",
    "__version__",
    "load",
]
