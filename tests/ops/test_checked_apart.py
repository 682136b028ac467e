"""Bad data where no run is validated: a module on the CPU, transforms, exports; and with validation off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from badfeeds import ROWS, Bad, feeds_of
from textmodel import load, model

import torch_ort_session as tos

REVERSE = "g (float[t, b] x, int64[b] n) => (float[t, b] y) { y = ReverseSequence(x, n) }"
DIVIDE = "g (int64[n] x, int64[n] d) => (int64[n] y) { [ratio] y = Div(x, d) }"
X = torch.arange(6.0).reshape(3, 2)


def test_a_module_refuses_a_length_in_words() -> None:
    module = load(REVERSE).module()
    assert module(X, torch.tensor([3, 1])).tolist() == [[4, 1], [2, 3], [0, 5]]
    with pytest.raises(tos.KernelError, match=r"a length is outside of \[0, 3\]"):
        module(X, torch.tensor([4, 1]))
    with pytest.raises(tos.KernelError, match="ZeroDivisionError"):
        load(DIVIDE).module()(torch.ones(2, dtype=torch.int64), torch.tensor([1, 0]))


def test_a_module_is_exported_with_its_refusal() -> None:
    module = load(REVERSE).module()
    exported = torch.export.export(module, (X, torch.tensor([3, 1]))).module()
    assert exported(X, torch.tensor([1, 3])).tolist() == [[0, 5], [2, 3], [4, 1]]
    with pytest.raises(RuntimeError, match="a length is outside of"):
        exported(X, torch.tensor([-1, 3]))
    assert torch.is_grad_enabled()


def test_transforms_take_the_nearest_length() -> None:
    module = load(REVERSE).module()
    many = torch.stack((X, X + 10))
    got = torch.func.vmap(lambda x, n: module(x, n))(many, torch.tensor([[3, 1], [1, 3]]))
    assert got[0].tolist() == [[4, 1], [2, 3], [0, 5]] and got[1].tolist() == [[10, 15], [12, 13], [14, 11]]


@pytest.mark.parametrize("bad", [row for row in ROWS if row.op not in ("Div", "Mod")], ids=str)
def test_with_validation_off_nothing_outside_is_read(bad: Bad) -> None:
    proto, good, wrong = feeds_of(bad)
    session = tos.load(proto, options=tos.Options(validate="off"))
    for feed in (good, wrong, good, wrong):
        results: list[Any] = session.run(None, feed)
        assert results


def test_a_divisor_that_is_constant_is_not_looked_at() -> None:
    def word_of(text: str, **weights: Any) -> object:
        session = tos.load(model(text, weights=weights))
        session.run(None, {"x": torch.arange(4)})
        return {key[0] for key in session._engine.validation.numbers}  # type: ignore[union-attr]

    text = "g (int64[n] x) => (int64[n] y) { [ratio] y = Div(x, d) }"
    assert word_of(text, d=torch.tensor([2, 3, -1, 5])) == set()
    session = tos.load(model(text, weights={"d": torch.tensor([2, 0, -1, 5])}))
    for _ in range(3):
        with pytest.raises(tos.DeviceValidationError, match="divided by 0"):
            session.run(None, {"x": torch.arange(4)})


def test_floats_divide_without_a_word() -> None:
    session = load("g (float[n] x, float[n] d) => (float[n] y) { [ratio] y = Div(x, d) }")
    session.run(None, {"x": torch.ones(2), "d": torch.zeros(2)})
    assert session._engine.validation.generation == 0  # type: ignore[union-attr]
