"""Gathers, scatters and selections: bad indices, duplicates, and ranks with many equal values."""

from __future__ import annotations

import pytest
import torch
from expecttest import assert_expected_inline

from torch_ort_session.errors import KernelError
from torch_ort_session.ir.graph import Node
from torch_ort_session.ops.kernel import KernelContext
from torch_ort_session.ops.onnx.constant import range_
from torch_ort_session.ops.onnx.gather import gather, gather_elements, gather_nd
from torch_ort_session.ops.onnx.pad import pad
from torch_ort_session.ops.onnx.scatter import scatter_elements, scatter_nd, tensor_scatter
from torch_ort_session.ops.onnx.select import unique
from torch_ort_session.ops.onnx.topk import top_k

CTX = KernelContext(
    node=Node(name="n", op="Op", domain="", since=1, inputs=("x",), outputs=("y",)),
    device=torch.device("cpu"),
    wanted=(True,) * 4,
)


@pytest.mark.parametrize("bad", [3, -4, 2**40])
@pytest.mark.parametrize("rank", [1, 2])
def test_an_index_outside_of_the_axis_is_an_error(bad: int, rank: int) -> None:
    data = torch.zeros([3] * rank)
    index = torch.tensor([0, bad])
    for call in (
        lambda: gather(data, index, ctx=CTX),
        lambda: gather_elements(data, index.reshape([-1] + [1] * (rank - 1)), ctx=CTX),
        lambda: gather_nd(data, index.reshape(2, 1), ctx=CTX),
        lambda: scatter_elements(data, index.reshape([-1] + [1] * (rank - 1)), data[:2], ctx=CTX),
        lambda: scatter_nd(data, index.reshape(2, 1), data[:2], ctx=CTX),
        lambda: scatter_nd(data, index.reshape(2, 1), data[:2], reduction="max", ctx=CTX),
    ):
        with pytest.raises((IndexError, RuntimeError), match=r"out of|index"):
            call()


def test_gather_of_integers_takes_the_same_indices_as_of_floats() -> None:
    index = torch.tensor([[0, -1], [-3, 2]])
    whole = gather(torch.tensor([5, 6, 7]), index, ctx=CTX)
    assert torch.equal(whole, gather(torch.tensor([5.0, 6.0, 7.0]), index, ctx=CTX).to(torch.int64))


def test_inputs_stay_as_they_are() -> None:
    data, index = torch.arange(6.0).reshape(2, 3), torch.tensor([[1, 0, 1]])
    before = data.clone()
    scatter_elements(data, index, torch.full((1, 3), 9.0), ctx=CTX)
    scatter_elements(data, index, torch.full((1, 3), 9.0), reduction="add", ctx=CTX)
    scatter_nd(data, torch.tensor([[0]]), torch.ones(1, 3), reduction="max", ctx=CTX)
    top_k(data.repeat(1, 600), 2)
    assert torch.equal(data, before)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.uint8, torch.float64])
def test_many_equal_values_come_by_lowest_index(largest: int, dtype: torch.dtype) -> None:
    x = torch.randint(0, 4, (3, 3000)).to(dtype)
    values, index = top_k(x, 40, largest=largest)
    ordered, order = torch.sort(x, dim=-1, stable=True, descending=bool(largest))
    assert torch.equal(index, order[:, :40])
    assert torch.equal(values, ordered[:, :40])


def test_top_k_passes_its_gradient_on_a_long_axis() -> None:
    x = torch.randn(2, 2000, requires_grad=True)
    values, index = top_k(x, 3)
    values.sum().backward()
    wanted = torch.zeros(2, 2000).scatter(1, index, 1.0)
    assert x.grad is not None
    assert torch.equal(x.grad, wanted)


def test_unique_of_complex_numbers() -> None:
    x = torch.tensor([2 + 1j, 1 + 5j, 2 + 1j, 1 - 5j])
    values, first, inverse, counts = unique(x, ctx=CTX)
    assert values.tolist() == [1 - 5j, 1 + 5j, 2 + 1j]
    assert first is not None and inverse is not None and counts is not None
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([3, 1, 0], [2, 1, 2, 0], [1, 1, 2])


def test_range_of_half_rounds_each_element_once() -> None:
    got = range_(0.0, 1.0, 0.1, ctx=CTX)
    assert torch.equal(got, (torch.arange(10, dtype=torch.float64) * 0.1).to(torch.float32))


def test_a_circular_cache_wraps_every_step() -> None:
    past, update = torch.zeros(1, 4, 1), torch.arange(1.0, 4).reshape(1, 3, 1)
    present = tensor_scatter(past, update, torch.tensor([3]), mode="circular", ctx=CTX)
    assert present.flatten().tolist() == [2, 3, 0, 1]
    with pytest.raises((IndexError, RuntimeError), match="a position is outside of"):
        tensor_scatter(past, update, torch.tensor([3]), ctx=CTX)


def message(call: object) -> str:
    with pytest.raises((ValueError, KernelError)) as info:
        call()  # type: ignore[operator]
    return str(info.value)


def test_what_users_read() -> None:
    x = torch.zeros(2, 3)
    told = [
        message(lambda: top_k(x, 4)),
        message(lambda: range_(0, 5, 0, ctx=CTX)),
        message(lambda: pad(x, [1, 1])),
        message(lambda: pad(x, [1], axes=[0])),
        message(lambda: pad(x, [0, 0, 0, 0], mode="mirror")),
        message(lambda: pad(x[:, :0], [0, 1, 0, 0], mode="edge")),
        message(lambda: pad(x, [-2, 0, -1, 0])),
        message(lambda: scatter_elements(x, x.to(torch.int64), x, reduction="mean", ctx=CTX)),
        message(lambda: tensor_scatter(x, x, axis=0, ctx=CTX)),
    ]
    assert_expected_inline(
        "\n".join(told),
        """\
K 4 is not within axis -1, which has 3 entries
the step of a Range must not be 0
pads [1, 1] needs two numbers for each of the 2 dims of the input
pads [1] needs two numbers for each of the axes [0]
mode 'mirror' is none of 'constant', 'edge', 'reflect' and 'wrap'
mode 'edge' cannot pad axis 1: it has no elements
pads [-2, 0, -1, 0] take more than there is of an input of shape (2, 3)
reduction 'mean' is none of 'none', 'add', 'mul', 'max' and 'min'
axis 0 with mode 'linear': the axis must not be 0, the mode linear or circular""",
    )
