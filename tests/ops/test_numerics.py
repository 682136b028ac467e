"""What the reductions, Clip, Softmax and the losses owe beyond their cases: precision, `out`, texts."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.common import strings
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.onnx import activation, cumulative, loss, reduce, softmax
from torch_ort_session.ops.onnx.compare import equal_with_strings
from torch_ort_session.ops.onnx.unary import exp, log
from torch_ort_session.ops.onnx.variadic import mean, sum_

HALVES = [torch.float16, torch.bfloat16]
CONTEXT = KernelContext(
    node=Node("n", "Op", "", 1, ("x",), ("y",), MappingProxyType({})),
    device=torch.device("cpu"),
    wanted=(True,),
)


def worst(got: torch.Tensor, exact: torch.Tensor) -> float:
    """The greatest distance to the float64 result, in units of the last place of the result's dtype."""
    unit = torch.finfo(got.dtype).eps
    return float(((got.double() - exact).abs() / (exact.abs() * unit)).max())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("kernel", "exact"),
    [
        (reduce.reduce_sum, lambda x: x.sum(1)),
        (reduce.reduce_mean, lambda x: x.mean(1)),
        (reduce.reduce_l1, lambda x: x.abs().sum(1)),
        (reduce.reduce_l2, lambda x: x.square().sum(1).sqrt()),
        (reduce.reduce_sum_square, lambda x: x.square().sum(1)),
        (reduce.reduce_log_sum, lambda x: x.sum(1).log()),
        (reduce.reduce_log_sum_exp, lambda x: x.logsumexp(1)),
    ],
)
def test_half_reductions_round_once(
    kernel: Callable[..., torch.Tensor], exact: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    x = (torch.rand(8, 1000, generator=torch.Generator().manual_seed(1)) + 0.5).to(dtype)
    assert worst(kernel(x, [1], keepdims=0), exact(x.double())) < 0.6


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "kernel",
    [
        exp,
        activation.tanh,
        activation.selu,
        activation.hard_sigmoid,
        activation.softsign,
        lambda x: activation.swish(x, alpha=1.5),
        lambda x: activation.swiglu(x, x),
        lambda x: softmax.log_softmax(x, axis=0),
        lambda x: cumulative.cumsum(x, 0),
        lambda x: reduce.reduce_prod(x[:9], [0]),
    ],
)
def test_half_formulas_round_once(kernel: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    x = (torch.rand(60, 50, generator=torch.Generator().manual_seed(1)) + 0.125).to(dtype)
    assert worst(kernel(x), kernel(x.double())) < 0.6


@pytest.mark.parametrize("dtype", HALVES)
def test_half_sums_of_many_inputs_round_once(dtype: torch.dtype) -> None:
    make = torch.Generator().manual_seed(1)
    xs = [(torch.rand(100, generator=make) + 0.5).to(dtype) for _ in range(9)]
    exact = torch.stack(xs).double()
    assert worst(sum_(*xs), exact.sum(0)) < 0.6
    assert worst(mean(*xs), exact.mean(0)) < 0.6


def test_the_logarithm_of_zero() -> None:
    assert log(torch.tensor([0.0, -0.0])).tolist() == [float("-inf")] * 2


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ValueError) as axis:
        softmax.softmax_of_matrix(torch.zeros(2, 3), axis=3)
    assert_expected_inline(str(axis.value), """axis 3 is outside of an input of 2 dims.""")
    with pytest.raises(ValueError) as shapes:
        activation.swiglu(torch.zeros(2), torch.zeros(1))
    assert_expected_inline(str(shapes.value), """SwiGLU takes inputs of one shape, not (2,) and (1,).""")
    with pytest.raises(ValueError) as kinds:
        equal_with_strings(torch.zeros(2), strings.array(["a"]), ctx=CONTEXT)
    assert_expected_inline(str(kinds.value), """Equal compares strings with strings only.""")
    with pytest.raises(ValueError) as classes:
        loss.negative_log_likelihood_loss(torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64), ctx=CONTEXT)
    assert_expected_inline(
        str(classes.value),
        """Classes of shape (3,) do not belong to probabilities (2, 3): the latter have one more dim, the classes, in second place.""",  # noqa: E501
    )
    with pytest.raises(ValueError) as reduction:
        loss.softmax_cross_entropy_loss(
            torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), reduction="max", ctx=CONTEXT
        )
    assert_expected_inline(str(reduction.value), """reduction is "none", "sum" or "mean", not 'max'.""")


def test_a_class_that_does_not_exist_is_an_error() -> None:
    with pytest.raises((IndexError, RuntimeError)):
        loss.negative_log_likelihood_loss(torch.zeros(1, 3), torch.tensor([3]), ctx=CONTEXT)
