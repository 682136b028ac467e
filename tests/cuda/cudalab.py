"""The recorder's tests run twice: against the fake driver everywhere, for real where there is a device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fake_driver import FakeLab


class RealLab:
    """The tests' bodies on `torch.cuda`."""

    def __init__(self) -> None:
        self.driver: Any = torch.cuda
        self.second = torch.device("cuda", 1) if torch.cuda.device_count() > 1 else None

    def tensor(self, value: float) -> torch.Tensor:
        made = torch.full((64,), value, device="cuda")
        torch.cuda.synchronize()
        return made

    def add_(self, target: torch.Tensor, other: torch.Tensor | float) -> None:
        target.add_(other)

    def plus(self, source: torch.Tensor, number: float) -> torch.Tensor:
        return source + number

    def fill_(self, target: torch.Tensor, value: float) -> None:
        target.fill_(value)

    def read(self, source: torch.Tensor) -> float:
        return float(source[0].item())

    def foreign_memory(self) -> object:
        """Allocate so much, on another stream, that the driver has to be asked."""
        with torch.cuda.stream(torch.cuda.Stream()):
            return torch.empty(1 << 28, device="cuda")


def make_lab(kind: str) -> Any:
    return FakeLab() if kind == "fake" else RealLab()


KINDS = [pytest.param("fake", id="fake"), pytest.param("real", id="real", marks=pytest.mark.cuda)]
