"""Random operators: distributions, seeds and types."""

from __future__ import annotations

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.onnx import random

CTX = KernelContext(
    node=Node(name="n", op="RandomNormal", domain="", inputs=(), outputs=("y",), attributes={}, since=22),
    device=torch.device("cpu"),
    wanted=(True,),
)
PROBABILITIES = torch.tensor([0.2, 0.7, 0.1]).repeat(40_000, 1)


def test_normal_has_its_mean_and_deviation() -> None:
    drawn = random.random_normal(shape=[40_000], mean=3.0, scale=0.5, seed=1.0, ctx=CTX)
    assert abs(drawn.mean() - 3.0) < 0.02
    assert abs(drawn.std() - 0.5) < 0.02
    assert random.random_normal_like(PROBABILITIES, ctx=CTX).shape == PROBABILITIES.shape


def test_uniform_fills_its_range() -> None:
    drawn = random.random_uniform(shape=[40_000], low=-2.0, high=4.0, seed=1.0, ctx=CTX)
    assert -2 <= drawn.min() < -1.9 and 3.9 < drawn.max() < 4
    assert abs(drawn.mean() - 1.0) < 0.05
    like = random.random_uniform_like(drawn, low=-2.0, high=4.0, seed=1.0, ctx=CTX)
    assert torch.equal(like, drawn)


def test_bernoulli_follows_the_probabilities() -> None:
    drawn = random.bernoulli(PROBABILITIES, seed=2.0, ctx=CTX)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(drawn.mean(0), PROBABILITIES[0], atol=0.02, rtol=0)


def test_multinomial_follows_the_log_probabilities() -> None:
    drawn = random.multinomial(PROBABILITIES[:1].log() + 7, sample_size=40_000, seed=2.0, ctx=CTX)
    shares = torch.bincount(drawn[0], minlength=3) / drawn.shape[1]
    torch.testing.assert_close(shares, PROBABILITIES[0], atol=0.02, rtol=0)


def test_a_seed_repeats_and_no_seed_follows_torch() -> None:
    def draw(seed: float | None) -> torch.Tensor:
        return random.random_normal(shape=[8], seed=seed, ctx=CTX)

    assert torch.equal(draw(1.5), draw(1.5))
    assert not torch.equal(draw(1.5), draw(1.25))
    torch.manual_seed(5)
    first = draw(None)
    assert not torch.equal(first, draw(None))
    torch.manual_seed(5)
    assert torch.equal(first, draw(None))


def test_types_that_cannot_be_are_said() -> None:
    with pytest.raises(ValueError) as code:
        random.random_normal(shape=[2], dtype=7, ctx=CTX)
    assert_expected_inline(str(code.value), """dtype 7 is not one of float, double, float16 and bfloat16.""")
    with pytest.raises(ValueError) as missing:
        random.random_uniform_like(torch.zeros(2, dtype=torch.int64), ctx=CTX)
    assert_expected_inline(str(missing.value), """dtype is needed where the input is of no float type.""")
