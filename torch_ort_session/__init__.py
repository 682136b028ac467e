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
from torch_ort_session.explain.backend import BackendReport
from torch_ort_session.ir.ports import Port
from torch_ort_session.options import Bucket, Limits, Options
from torch_ort_session.plan.partition import DeclineReport
from torch_ort_session.plan.plan import Plan
from torch_ort_session.runtime.bindings import Snapshot
from torch_ort_session.runtime.values import Outputs
from torch_ort_session.session import Session, load

__all__ = [
    "BackendReport",
    "Binding",
    "Bucket",
    "CaptureError",
    "DeclineReport",
    "DeviceIndexError",
    "DeviceValidationError",
    "InputError",
    "KernelError",
    "Limits",
    "ModelError",
    "Options",
    "Outputs",
    "Plan",
    "PlanError",
    "Port",
    "Session",
    "SessionError",
    "Snapshot",
    "UnsupportedOpError",
    "__version__",
    "load",
]
