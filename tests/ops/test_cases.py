"""Every check that a kernel owes, for every case of tests/cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from opcase import OpCase, assert_matches
from opgroups import all_cases, params

import torch_ort_session
from torch_ort_session.ops import registry
from torch_ort_session.runtime.values.feeds import from_numpy


def run(session: torch_ort_session.Session, feeds: dict[str, Any]) -> list[Any]:
    return session.run(None, feeds)


def without_layout(value: Any) -> Any:
    """The same data in a transposed (non-contiguous) array."""
    if isinstance(value, np.ndarray) and value.ndim >= 2 and value.dtype != object:
        return np.ascontiguousarray(value.T).T
    return value


@pytest.mark.parametrize(("case", "dtype", "opset"), params())
def test_case(case: OpCase, dtype: str, opset: int) -> None:
    session = torch_ort_session.load(case.model(dtype, opset))
    for draw in (0, 1):
        feeds = case.feeds(dtype, draw)
        expected = case.expected(dtype, opset, feeds)
        got = run(session, feeds)
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            assert_matches(ours, theirs, case.tol)
    strided = run(session, {name: without_layout(value) for name, value in feeds.items()})
    for ours, theirs in zip(strided, expected, strict=True):
        assert_matches(ours, theirs, case.tol)
    check_out(session, feeds, got)


def check_out(session: torch_ort_session.Session, feeds: dict[str, Any], got: list[Any]) -> None:
    """A kernel with ``out`` writes the same result into memory that held something else."""
    if not session.graph.nodes:
        return
    node = session.graph.nodes[-1]
    kernel = registry.find(node.op, node.domain, node.since)
    assert kernel is not None
    if not kernel.signature.takes_out or kernel.signature.several_outputs or node.name != "case":
        return
    if kernel.signature.takes_ctx or any(p.host for p in kernel.signature.inputs):
        return
    if not isinstance(got[0], torch.Tensor):
        return
    poisoned = torch.empty_like(got[0]).contiguous()
    poisoned.view(torch.uint8).fill_(0xFF) if poisoned.numel() and poisoned.ndim else poisoned.fill_(1)
    address = poisoned.data_ptr()
    inputs = [from_numpy(name, feeds[name]) if name else None for name in node.inputs]
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in node.attributes.items()}
    result = kernel.fn(*inputs, **attributes, out=poisoned)
    assert result.data_ptr() == address
    torch.testing.assert_close(result, got[0], rtol=0, atol=0, equal_nan=True)


GRAD = [(family, case) for family, case in all_cases() if case.grad]


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{f}-{c.op}-{i}") for i, (f, c) in enumerate(GRAD)])
def test_gradients(case: OpCase) -> None:
    """Gradients through the session equal finite differences, in float64; by one projection where many."""
    opset = case.variants()[0][1]
    session = torch_ort_session.load(case.model("float64", opset))
    feeds = {name: from_numpy(name, value) for name, value in case.feeds("float64", 0).items()}
    names = [name for name, value in feeds.items() if value.dtype == torch.float64]
    assert names, "a case with grad=True needs a float input"

    def call(*floats: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = session.run(None, {**feeds, **dict(zip(names, floats, strict=True))})
        return tuple(item for item in results if item.requires_grad)

    floats = [feeds[name].clone().requires_grad_() for name in names]
    many = sum(value.numel() for value in floats) > 200
    assert torch.autograd.gradcheck(call, floats, atol=1e-5, fast_mode=many)


def test_every_kernel_has_a_case() -> None:
    covered = {(case.domain, case.op) for _, case in all_cases()}
    missing = sorted(
        f"{domain or 'ai.onnx'}::{op}" for domain, op in registry.kernels() if (domain, op) not in covered
    )
    # Maps are no tensors, so no case can feed or check them: tests/ops/test_ml.py runs these.
    assert missing == ["ai.onnx.ml::CastMap", "ai.onnx.ml::DictVectorizer", "ai.onnx.ml::ZipMap"]
