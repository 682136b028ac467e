"""No mode of the caller reaches a kernel, and no kernel writes to what was fed: every operator is tried."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from opgroups import CASES
from replaying import seeded

import torch_ort_session as tos
from torch_ort_session.runtime.values.feeds import from_numpy


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


MODES: dict[str, Callable[[], Any]] = {
    "default dtype": lambda: default_dtype(torch.float64),
    "default device": lambda: torch.device("meta"),
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "grad": torch.enable_grad,
}


@pytest.mark.parametrize("name", CASES)
def test_results_do_not_depend_on_the_callers_modes(name: str) -> None:
    (case, *_) = CASES[name]
    dtype, opset = case.variants()[0]
    session = tos.load(case.model(dtype, opset))
    feeds = case.feeds(dtype, 0)
    expected = seeded(session, feeds, 0)
    for label, mode in MODES.items():
        with mode():
            results = seeded(session, feeds, 0)
        for got, want in zip(results, expected, strict=True):
            same(got, want, label)


@pytest.mark.parametrize("name", CASES)
def test_feeds_are_not_written_to(name: str) -> None:
    (case, *_) = CASES[name]
    dtype, opset = case.variants()[0]
    fed = {
        key: from_numpy(key, value).clone()
        for key, value in case.feeds(dtype, 0).items()
        if isinstance(value, np.ndarray) and value.dtype != object
    }
    before = {key: (value.clone(), value._version) for key, value in fed.items()}
    seeded(tos.load(case.model(dtype, opset)), {**case.feeds(dtype, 0), **fed}, 0)
    for key, value in fed.items():
        content, version = before[key]
        torch.testing.assert_close(value, content, rtol=0, atol=0, equal_nan=True)
        assert value._version == version


def same(got: Any, want: Any, label: str) -> None:
    assert type(got) is type(want), label
    if isinstance(got, torch.Tensor):
        assert (got.dtype, got.device, got.is_inference()) == (want.dtype, want.device, False), label
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, msg=label)
    elif isinstance(got, tuple):
        for ours, theirs in zip(got, want, strict=True):
            same(ours, theirs, label)
    elif got is not None:
        assert got.tolist() == want.tolist(), label
