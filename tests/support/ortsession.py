"""onnxruntime as an oracle: on one thread, since threads of its own wait for work by spinning."""

from __future__ import annotations

from typing import Any


def ort_session(model: bytes) -> Any:
    """An `onnxruntime.InferenceSession` of a serialized model on the CPU that says nothing but errors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
