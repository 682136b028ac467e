"""Sessions and their modules under torch's tracers and transforms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from textmodel import load

import torch_ort_session as tos

TEXT = "g (float[n, 3] x) => (float[n, 2] y, float[n, 3] z) { m = MatMul(x, w) y = Relu(m) z = Identity(x) }"
W = torch.linspace(-1.0, 1.0, 6).reshape(3, 2)


@pytest.fixture
def session() -> tos.Session:
    return load(TEXT, weights={"w": W})


def right(results: Any, x: torch.Tensor) -> bool:
    y, z = results
    return torch.allclose(y, torch.relu(x @ W)) and torch.equal(z, x)


@pytest.mark.filterwarnings("ignore")
def test_a_module_compiles(session: tos.Session) -> None:
    compiled = torch.compile(session.module(), backend="eager")
    for rows in (2, 5, 3):
        x = torch.randn(rows, 3)
        results = compiled(x)
        assert right(results, x)
        results[1].zero_()
        assert x.any()


@pytest.mark.filterwarnings("ignore")
def test_a_module_exports(session: tos.Session) -> None:
    x = torch.randn(2, 3)
    exported = torch.export.export(session.module(), (x,))
    assert right(exported.module()(x), x)


def test_transforms_of_a_session_with_several_outputs(session: tos.Session) -> None:
    x = torch.randn(4, 1, 3)
    results = torch.func.vmap(session)(x)
    assert results.keys() == ("y", "z")
    assert right([value[:, 0] for value in results], x[:, 0])


def test_a_session_loaded_in_inference_mode_is_differentiable() -> None:
    with torch.inference_mode():
        session = load(TEXT, weights={"w": W})
    x = torch.randn(2, 3, requires_grad=True)
    session(x)[0].sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, (x @ W > 0).float() @ W.T)
