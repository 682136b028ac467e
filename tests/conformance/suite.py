"""ONNX's own backend test suite, collected once, and how one of its tests runs on a backend of ours.

Source: https://onnx.ai/onnx/repo-docs/OnnxBackendTest.html
"""

from __future__ import annotations

import unittest
import warnings

import onnx.backend.test

from torch_ort_session.compat.backend import Backend

with warnings.catch_warnings():
    # Collecting the suite computes expected values with numpy, which warns of overflows it means to test.
    warnings.simplefilter("ignore")
    _SUITE = onnx.backend.test.BackendTest(Backend, __name__)
    CASES = {
        name: (case, name)
        for _, case in sorted(_SUITE.test_cases.items())
        for name in sorted(vars(case))
        if name.startswith("test_") and name.endswith("_cpu")
    }


def run(name: str, backend: type[Backend] = Backend) -> tuple[list[str], list[str]]:
    """Run one test.

    Args:
        name: Its name, a key of ``CASES``.
        backend: What it runs on.

    Returns:
        What failed, and why it was skipped; both are empty when it passed.
    """
    case, method = CASES[name]
    result = unittest.TestResult()
    # The suite has one backend, which its tests look up when they run.
    _SUITE.backend = backend
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case(method).run(result)
    finally:
        _SUITE.backend = Backend
    return [text for _, text in (*result.failures, *result.errors)], [why for _, why in result.skipped]
