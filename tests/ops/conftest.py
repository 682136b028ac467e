"""What tests of operators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from torch_ort_session.ops import native


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the ops that were handed out."""
    found: list[str] = []
    door = native.device_op

    def watch(name: str, *tensors: Tensor | None) -> Callable[..., Any] | None:
        op = door(name, *tensors)
        found.extend([name] if op is not None else [])
        return op

    monkeypatch.setattr(native, "device_op", watch)
    return found
