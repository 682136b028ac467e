"""The modes of a run, and that the caller's are back after it, however it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_ort_session.runtime.values.context import RunModes, watched

CPU = torch.device("cpu")
CALLERS: dict[str, Callable[[], Any]] = {
    "plain": contextlib.nullcontext,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda: torch.device("meta"),
}


def state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_device(),
        torch.get_num_threads(),
    )


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_modes(caller: str, grad: bool, fails: bool) -> None:
    threads = torch.get_num_threads()
    other = 1 if threads > 1 else 2
    with CALLERS[caller]():
        before = state()
        with contextlib.suppress(KeyboardInterrupt), RunModes(CPU, grad, other):
            assert state() == (grad, False, False, CPU, other)
            assert not torch.ones(1).is_inference()
            if fails:
                raise KeyboardInterrupt
        assert state() == before


def test_they_nest() -> None:
    with RunModes(CPU, False, None), RunModes(CPU, True, None):
        assert torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_who_watches() -> None:
    assert not watched()
    seen = []

    def call(x: torch.Tensor) -> torch.Tensor:
        seen.append(watched())
        return x

    torch.func.vmap(call)(torch.ones(2))
    assert seen == [True]
    assert not watched()
