"""One rule for all tests: without a CUDA device those that need it are skipped, or fail if that is asked."""

from __future__ import annotations

import os

import pytest
import torch


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `cuda` where there is no device; FAIL_WITHOUT_CUDA=1 makes it fail instead."""
    if item.get_closest_marker("cuda") is None or torch.cuda.is_available():
        return
    if os.environ.get("FAIL_WITHOUT_CUDA") == "1":
        pytest.fail("there is no CUDA device")
    pytest.skip("there is no CUDA device")
