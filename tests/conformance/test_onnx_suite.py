"""ONNX's own backend test suite, on the CPU, with a typed list of what does not pass.

Source: https://onnx.ai/onnx/repo-docs/OnnxBackendTest.html
"""

from __future__ import annotations

import unittest
import warnings

import onnx.backend.test
import pytest
from gaps import GAPS

from torch_ort_session.compat.backend import Backend

with warnings.catch_warnings():
    # Collecting the suite computes expected values with numpy, which warns of overflows it means to test.
    warnings.simplefilter("ignore")
    _SUITE = onnx.backend.test.BackendTest(Backend, __name__)
    _CASES = {
        name: (case, name)
        for _, case in sorted(_SUITE.test_cases.items())
        for name in sorted(vars(case))
        if name.startswith("test_") and name.endswith("_cpu")
    }


@pytest.mark.parametrize("name", list(_CASES))
def test_conformance(name: str) -> None:
    case, method = _CASES[name]
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case(method).run(result)
    failures = [text for _, text in (*result.failures, *result.errors)]
    if name in GAPS:
        assert failures or result.skipped, f"{name} passes now: take it off the list in gaps.py"
        return
    assert not result.skipped, f"{name} was skipped: {result.skipped[0][1]}"
    assert not failures, failures[0]


def test_gap_list_names_real_tests() -> None:
    assert sorted(set(GAPS) - set(_CASES)) == []


def test_the_suite_is_complete() -> None:
    """A suite that silently lost tests would look like progress."""
    assert len(_CASES) >= 2000
